"""Lifecycles that change: compare what is declared with what is stored, and let records follow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from esclusa.cli import FAILED, OK
from esclusa.cli.completion import stage_names
from esclusa.cli.output import Screen, text_of
from esclusa.cli.root import Group
from esclusa.cli.session import Session

if TYPE_CHECKING:
    from esclusa.engine.lifecycles import LifecycleDiff
    from esclusa.model.settlement import StateCount
    from esclusa.runtime import Runtime

# Seconds between two lines of progress.
_PROGRESS = 2.0

from_now_option = click.option(
    "--from-now",
    "from_now",
    multiple=True,
    metavar="STAGE",
    shell_complete=stage_names,
    help="Let a new stage take only records that become due from now on. Repeat for several.",
)


@click.group(cls=Group, name="lifecycle")
def lifecycle() -> None:
    """Lifecycles: what is declared beside what is stored."""


@lifecycle.command("diff")
@click.pass_obj
def diff(session: Session) -> int:
    """What a deployment of this version would change: states, stages, and the records in them.

    Run it before 'esclusa migrate'; it changes nothing. Exit code 1: records would be stranded, in
    a state that is neither declared nor renamed, or that no stage takes any more.
    """

    async def ask() -> list[LifecycleDiff]:
        async with session.open_store(session.settings) as runtime:
            return await runtime.engine.lifecycles.diff()

    found = [each for each in asyncio.run(ask()) if each.changed]
    stranded = sum(each.stranded for each in found)

    def draw(screen: Screen) -> None:
        for each in found:
            screen.line(each.table)
            for line in _lines(each):
                screen.line(f"  {text_of(line)}")
        if not found:
            screen.line("Nothing differs.")

    session.show({"items": [each.answer() for each in found], "stranded": stranded}, draw)
    if stranded:
        session.note(f"{stranded:,} records would be stranded.")
    return FAILED if stranded else OK


def _lines(diff: LifecycleDiff) -> list[str]:
    lines = [f"new state: {state}" for state in diff.added]
    lines += [f"removed state: {state}" for state in diff.removed]
    lines += [f"renamed: {old} -> {new}, {_records(n)}" for old, new, n in diff.renamed]
    lines += [
        f"STRANDED: {_counted(c)} in {c.state}; declare it, rename it with"
        f" renamed={{{c.state!r}: …}}, or run: esclusa repair {diff.table} --from {c.state!r}"
        " --to STATE --reason TEXT"
        for c in diff.undeclared
    ]
    lines += [
        f"STRANDED: {_counted(c)} in {c.state}, which no stage takes any more"
        for c in diff.unserved
    ]
    return lines + [stage.text for stage in diff.stages]


def _counted(found: StateCount) -> str:
    return f"{'' if found.exact else 'more than '}{_records(found.count)}"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


async def follow(session: Session, runtime: Runtime, from_now: Sequence[str]) -> list[str]:
    """Store the declared lifecycles and move the records of renamed states; say what was done."""
    lifecycles, done = runtime.engine.lifecycles, []
    for diff in await lifecycles.save(session.who, from_now=from_now):
        for stage in diff.stages:
            if stage.change == "removed" or not (stage.count or stage.since):
                continue
            done.append(str(stage.text))
            if stage.since is None:
                session.note(
                    f"To let it begin with later records: esclusa migrate --from-now {stage.stage}"
                )
    last = time.monotonic()

    def progress(table: str, moved: int) -> None:
        nonlocal last
        if time.monotonic() - last > _PROGRESS:
            last = time.monotonic()
            session.note(f"{table}: {_records(moved)} renamed so far")

    for table, result in (await lifecycles.rename(session.who, progress)).items():
        renamed = runtime.engine.kind(table).lifecycle.renamed
        names = ", ".join(f"{old} -> {new}" for old, new in renamed.items())
        done.append(f"rename states of {table} ({names}): {_records(result.moved)}")
        if result.left:
            more = ", …" if result.left > len(result.names) else ""
            session.note(
                f"{table}: {_records(result.left)} locked by other programs or still being"
                f" written: {', '.join(result.names)}{more}; workers of this version move them"
            )
    return done

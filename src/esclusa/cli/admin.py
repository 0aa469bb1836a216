"""Administration: migrate, lifecycle, doctor, completion, version."""

from __future__ import annotations

import asyncio
import platform
import sys
from typing import TYPE_CHECKING, Any

import click

from esclusa import __version__
from esclusa.cli import CONFIGURATION, FAILED, OK, UNHEALTHY, migration
from esclusa.cli.lifecycle import follow, from_now_option, lifecycle
from esclusa.cli.options import yes_option
from esclusa.cli.output import STYLES, Screen, text_of
from esclusa.cli.root import Command, root
from esclusa.cli.session import Session
from esclusa.model.errors import SettingsError

if TYPE_CHECKING:
    from esclusa.health import Check
    from esclusa.model.migration import MigrationStep


__all__ = ["completion", "doctor", "lifecycle", "migrate", "version"]


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Show what would happen to each table.")
@click.option("--sql", is_flag=True, help="Print the statements instead of running them.")
@click.option(
    "--check", is_flag=True, help="Report whether the schema is up to date; exit code 1 if not."
)
@click.option(
    "--partition-history",
    is_flag=True,
    help="On PostgreSQL, also divide the history by month: old months are then dropped.",
)
@from_now_option
@yes_option
@click.pass_obj
def migrate(
    session: Session,
    dry_run: bool,
    sql: bool,
    check: bool,
    partition_history: bool,
    from_now: tuple[str, ...],
    yes: bool,
) -> int:
    """Bring the store's schema up to date, and records of renamed states. It only adds.

    Tables of other programs get columns and indexes; you are asked before. Exit code 3: they need
    --yes, because there is no terminal.
    """
    if sql or check or dry_run:
        return asyncio.run(_pending(session, dry_run, sql, check))
    return asyncio.run(_migrate(session, from_now, yes, partition_history))


async def _pending(session: Session, dry_run: bool, sql: bool, check: bool) -> int:
    async with session.open_store(session.settings) as runtime:
        steps = await runtime.pending()
        _show_pending(session, steps, await runtime.notes() if dry_run else [], sql, dry_run)
    return FAILED if check and any(not step.optional for step in steps) else OK


async def _migrate(
    session: Session, from_now: tuple[str, ...], yes: bool, partition_history: bool
) -> int:
    async with session.open_store(session.settings) as runtime:
        steps = await runtime.pending()
        foreign = migration.foreign_tables(steps)
        if foreign and not yes:
            session.note(migration.overview(steps, await runtime.notes()))
            if session.json or not sys.stdin.isatty():
                session.note(
                    f"These tables of other programs would be changed: {', '.join(foreign)}."
                    " There is no terminal to confirm at: use --yes. Nothing was changed."
                )
                return CONFIGURATION
            session.confirm(f"Change {', '.join(foreign)}?", yes=yes)
        shown: list[str] = []

        def progress(line: str) -> None:
            """Show a step when it begins: with --json beside the answer, else as its first part."""
            shown.extend(line.split("; "))
            session.note(line) if session.json else session.screen.line(line)

        done = await runtime.migrate(foreign=True, progress=progress)
        done += await follow(session, runtime, from_now)
        if partition_history:
            done += await runtime.partition_history()
    rest = [line for line in done if line not in shown]
    end = "\n".join(rest) if done else "Already up to date."
    session.show({"done": done}, lambda s: s.line(end) if end else None)
    return OK


def _show_pending(
    session: Session, steps: list[MigrationStep], notes: list[str], sql: bool, dry_run: bool
) -> None:
    statements = [step.sql for step in steps]
    if sql:
        session.show(
            {"statements": statements},
            lambda s: s.line(migration.script(steps)) if steps else None,
        )
    elif dry_run:
        session.show(
            migration.answer(steps, notes),
            lambda s: s.line(migration.overview(steps, notes) or "Up to date."),
        )
    else:
        behind = sum(not step.optional for step in steps)
        text = f"{behind} statements behind. Run: esclusa migrate" if behind else "Up to date."
        session.show({"up_to_date": not behind, "pending": statements}, lambda s: s.line(text))


@click.command(cls=Command)
@click.pass_obj
def doctor(session: Session) -> int:
    """Check settings, store, clock, workers, artifacts and pipelines; say what to do.

    Exit code 4: a check failed.
    """
    from esclusa.health import Check, examine

    try:
        settings = session.settings
    except SettingsError as error:
        _show(session, [Check("settings", "fail", fault) for fault in error.faults])
        return CONFIGURATION
    checks = asyncio.run(examine(settings, session.open_store))
    _show(session, checks)
    return UNHEALTHY if any(c.verdict == "fail" for c in checks) else OK


def _show(session: Session, checks: list[Check]) -> None:
    def draw(screen: Screen) -> None:
        for check in checks:
            screen.line(
                f"{check.verdict:<4}  {check.name}: {text_of(check.text)}", STYLES[check.verdict]
            )
            if check.do:
                screen.line(f"      → {check.do}")

    healthy = not any(c.verdict == "fail" for c in checks)
    session.show({"healthy": healthy, "checks": [c.answer() for c in checks]}, draw)


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_obj
def completion(session: Session, shell: str) -> None:
    """Print the completion script of a shell: eval "$(esclusa completion bash)"."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    script = made(root, {}, "esclusa", "_ESCLUSA_COMPLETE").source()
    session.show({"shell": shell, "script": script}, lambda screen: screen.line(script))


@click.command(cls=Command)
@click.pass_obj
def version(session: Session) -> None:
    """Print the version."""
    answer: dict[str, Any] = {
        "esclusa": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    session.show(
        answer, lambda screen: screen.line(f"esclusa {__version__} (Python {answer['python']})")
    )

"""Administration: migrate, lifecycle, doctor, completion, version."""

from __future__ import annotations

import asyncio
import platform
from typing import TYPE_CHECKING, Any

import click

from esclusa import __version__
from esclusa.cli import CONFIGURATION, FAILED, OK, UNHEALTHY
from esclusa.cli.lifecycle import follow, from_now_option, lifecycle
from esclusa.cli.output import STYLES, Screen, text_of
from esclusa.cli.root import Command, root
from esclusa.cli.session import Session
from esclusa.model.errors import SettingsError

if TYPE_CHECKING:
    from esclusa.health import Check

__all__ = ["completion", "doctor", "lifecycle", "migrate", "version"]


@click.command(cls=Command)
@click.option("--sql", is_flag=True, help="Print the statements instead of running them.")
@click.option(
    "--check", is_flag=True, help="Report whether the schema is up to date; exit code 1 if not."
)
@from_now_option
@click.pass_obj
def migrate(session: Session, sql: bool, check: bool, from_now: tuple[str, ...]) -> int:
    """Bring the store's schema up to date, and records of renamed states. It only adds."""

    async def do() -> list[str]:
        async with session.open_store(session.settings) as runtime:
            if sql or check:
                return await runtime.pending()
            return [*await runtime.migrate(), *await follow(session, runtime, from_now)]

    lines = asyncio.run(do())
    if sql:
        session.show(
            {"statements": lines},
            lambda s: (
                s.line("\n\n".join(f"{line.rstrip().rstrip(';')};" for line in lines))
                if lines
                else None
            ),
        )
        return FAILED if check and lines else OK
    if check:
        text = f"{len(lines)} statements behind. Run: esclusa migrate" if lines else "Up to date."
        session.show({"up_to_date": not lines, "pending": lines}, lambda s: s.line(text))
        return FAILED if lines else OK
    session.show(
        {"done": lines}, lambda s: s.line("\n".join(lines) if lines else "Already up to date.")
    )
    return OK


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

"""What every command shares: the settings as flags change them, the house, and how answers are shown."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from esclusa.cli.output import Screen, as_json

if TYPE_CHECKING:
    from esclusa.model.record import Kind
    from esclusa.runtime import Runtime, RuntimeOpener, StoreOpener
    from esclusa.settings import Settings

T = TypeVar("T")


class Session:
    """One call of the command. Pipelines' own commands get it as ``ctx.obj``."""

    def __init__(self, open_runtime: RuntimeOpener, open_store: StoreOpener) -> None:
        self.open_runtime = open_runtime
        self.open_store = open_store
        self.json = False
        self.config: str | None = None
        self.overrides: dict[str, Any] = {}

    @cached_property
    def settings(self) -> Settings:
        """Loaded when a command first needs them. Raises SettingsError."""
        from esclusa.settings import load

        return load(path=self.config, overrides=self.overrides)

    @property
    def who(self) -> str:
        """The name under which a person's acts are kept in the history and the audit."""
        try:
            return f"cli:{getpass.getuser()}"
        except (OSError, KeyError):  # a user without a name, as in some containers
            return "cli"

    def kind(self, table: str) -> Kind:
        """The kind of this table, without opening anything. Raises NotFound."""
        from esclusa.model.errors import NotFound
        from esclusa.model.texts import text

        kinds = self.kinds()
        if table not in kinds:
            known = ", ".join(sorted(kinds))
            raise NotFound(text("kind_not_found", table=table, known=known))
        return kinds[table]

    def kinds(self) -> dict[str, Kind]:
        from esclusa.model.system_records import SYSTEM_RECORDS

        return {k.table: k for plan in self.settings.plans for k in plan.kinds} | {
            b.kind.table: b.kind for b in SYSTEM_RECORDS
        }

    # the house

    def look(self, ask: Callable[[Runtime], Awaitable[T]]) -> T:
        """Open the house to look at it or to act as an operator; nothing is handled here and the schema is left as it is."""

        async def asked() -> T:
            async with self.open_runtime(self.settings, work=False) as runtime:
                return await ask(runtime)

        return asyncio.run(asked())

    def look_now(self, ask: Callable[[Runtime], Awaitable[T]]) -> tuple[T, datetime]:
        """The same, with the store's time at which it was asked: what is said of times is reckoned from that."""

        async def both(runtime: Runtime) -> tuple[T, datetime]:
            return await ask(runtime), runtime.engine.clock.now()

        return self.look(both)

    def work(self, do: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
        """Open the house to handle records in it."""

        async def done() -> T:
            async with self.open_runtime(self.settings) as runtime:
                return await do(runtime)

        return run_fast(done())

    # answers

    @cached_property
    def screen(self) -> Screen:
        return Screen()

    def show(self, answer: Any, draw: Callable[[Screen], None]) -> None:
        """The answer on stdout: as JSON if that is wanted, else drawn for people."""
        if self.json:
            click.echo(as_json(answer, indent=2 if sys.stdout.isatty() else None))
        else:
            draw(self.screen)

    def note(self, text: str) -> None:
        """A remark for a person: on stderr, so that stdout holds only the answer."""
        click.echo(text, err=True)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask a person on a terminal; without one, or with ``--json``, ``--yes`` is needed. Raises Exit or UsageError."""
        if yes:
            return
        if self.json or not sys.stdin.isatty():
            raise click.UsageError(
                f"{question} There is no terminal to answer at: say --yes, or --dry-run to look only."
            )
        if not click.confirm(question, err=True):
            self.note("nothing was done")
            raise click.exceptions.Exit(1)


def run_fast(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed, with the memory of a process that handles records."""
    from esclusa.engine.gc_tuning import tune_gc

    tune_gc()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)

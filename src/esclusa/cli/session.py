"""What every command shares: the settings, the runtime, and how answers are printed."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from esclusa.cli import zones
from esclusa.cli.output import Screen, as_json

if TYPE_CHECKING:
    from esclusa.engine.registry import Registry
    from esclusa.model.kind import Kind
    from esclusa.model.query import Page
    from esclusa.model.record import Record
    from esclusa.runtime import Runtime, RuntimeOpener, StoreOpener
    from esclusa.settings import Settings

T = TypeVar("T")


class Session:
    """One call of the command. Commands of pipelines get it as ``ctx.obj``."""

    def __init__(self, open_runtime: RuntimeOpener, open_store: StoreOpener) -> None:
        self.open_runtime = open_runtime
        self.open_store = open_store
        self.json = False
        self.wide = False
        self.config: str | None = None
        zones.utc.set(False)
        self.overrides: dict[str, Any] = {}
        # The pipelines to load if the settings name none: the one whose own command this is.
        self.implied: tuple[str, ...] = ()

    @cached_property
    def settings(self) -> Settings:
        """The settings, loaded on first use. Raises SettingsError."""
        return self.load_settings(self.implied)

    def load_settings(self, implied: Sequence[str]) -> Settings:
        """The settings, with these pipelines if they name none. Raises SettingsError."""
        from esclusa.settings import load

        return load(path=self.config, overrides=self.overrides, implied=implied)

    def named_pipelines(self) -> tuple[str, ...] | None:
        """The pipelines that the settings name, without loading them; None: load the settings.

        For help, which must be fast. Faults are left to the loader.
        """
        import tomllib

        given: Any = self.overrides.get("pipelines") or os.environ.get("ESCLUSA_PIPELINES")
        if not given and "ESCLUSA_PIPELINES_FILE" in os.environ:
            return None
        path = self.config or os.environ.get("ESCLUSA_CONFIG") or "esclusa.toml"
        if not given and os.path.exists(path):  # noqa: PTH110 - pathlib is slow to import
            try:
                with open(path, "rb") as file:  # noqa: PTH123
                    given = tomllib.load(file).get("pipelines")
            except (OSError, ValueError):
                return None
        if isinstance(given, str):
            given = given.split(",")
        return tuple(str(name).strip() for name in given or () if str(name).strip())

    @property
    def who(self) -> str:
        """The name that the history and the audit store for what this user does."""
        try:
            return f"cli:{getpass.getuser()}"
        except (OSError, KeyError):  # containers may run as a user without a name
            return "cli"

    def kind(self, table: str) -> Kind:
        """The kind of this table, without opening anything. Raises NotFound."""
        return self._registry.kind(table)

    def kinds(self) -> dict[str, Kind]:
        """Every declared kind and every system kind, by table."""
        return self._registry.kinds

    @property
    def _registry(self) -> Registry:
        from esclusa.engine.registry import Registry

        return Registry(self.settings.plans)

    # opening the runtime

    def look(self, ask: Callable[[Runtime], Awaitable[T]]) -> T:
        """Open the runtime to read or to operate. Handles no record; leaves the schema."""
        import asyncio

        return asyncio.run(self._opened(ask, work=False))

    def look_now(self, ask: Callable[[Runtime], Awaitable[T]]) -> tuple[T, datetime]:
        """As ``look``, with the store's time, from which relative times are computed."""

        async def both(runtime: Runtime) -> tuple[T, datetime]:
            return await ask(runtime), runtime.engine.clock.now()

        return self.look(both)

    def work(
        self, do: Callable[[Runtime], Coroutine[Any, Any, T]], *, wait: float | None = None
    ) -> T:
        """Open the runtime to handle records.

        ``wait``: seconds to wait for a store that is not ready; None: as the settings say.
        """
        seconds = self.settings.store_wait_seconds if wait is None else wait
        return run_fast(self._opened(do, work=True, wait=seconds))

    async def _opened(
        self, do: Callable[[Runtime], Awaitable[T]], *, work: bool, wait: float = 0.0
    ) -> T:
        async with self.open_runtime(self.settings, work=work, wait=wait) as runtime:
            return await do(runtime)

    # answers

    @cached_property
    def screen(self) -> Screen:
        """Where answers for people are printed."""
        return Screen(wide=self.wide)

    def show(self, answer: Any, draw: Callable[[Screen], None]) -> None:
        """Print the answer to stdout: as JSON with ``--json``, else with ``draw``."""
        if self.json:
            click.echo(as_json(answer, indent=2 if sys.stdout.isatty() else None))
        else:
            draw(self.screen)

    def show_table(
        self, answer: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str
    ) -> None:
        """Print a list's answer; a person gets its rows, and how to get the next page."""

        def draw(screen: Screen) -> None:
            screen.table(columns, rows, empty=empty)
            if answer["next"]:
                self.note(f"More: --after {answer['next']}")

        self.show(answer, draw)

    def show_list(
        self, items: list[Any], columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str
    ) -> None:
        """Print a complete list."""
        self.show_table({"items": items, "next": None}, columns, rows, empty)

    def show_page(
        self,
        page: Page[Record],
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        empty: str,
    ) -> None:
        """Print one page of records."""
        items = [record.kind.as_json(record) for record in page.items]
        self.show_table({"items": items, "next": page.next}, columns, rows, empty)

    def note(self, text: str) -> None:
        """Print a remark to stderr, so that stdout holds only the answer."""
        click.echo(text, err=True)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask at the terminal. Without one, or with ``--json``, ``--yes`` is required.

        Raises Exit or UsageError.
        """
        if yes:
            return
        if self.json or not sys.stdin.isatty():
            raise click.UsageError(
                f"{question} There is no terminal to confirm at: use --yes or --dry-run."
            )
        if not click.confirm(question, err=True):
            self.note("Nothing was changed.")
            raise click.exceptions.Exit(1)


def run_fast(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed, with the garbage collector tuned for many records."""
    import asyncio

    from esclusa.engine.process_tuning import tune_process

    tune_process()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)

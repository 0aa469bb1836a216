"""An opened house: what the command line, the API and the pipelines' own doors are handed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from esclusa.engine.engine import Engine
from esclusa.engine.operations import Operations
from esclusa.engine.read_model import ReadModel
from esclusa.model.value import value
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.store import Store
from esclusa.settings import Settings

if TYPE_CHECKING:
    from esclusa.engine.archiver import Archiver


@value
class Runtime:
    """The engine on its store and artifacts. Doors ask ``insight`` and act through ``operator``."""

    settings: Settings
    store: Store
    artifacts: Artifacts
    engine: Engine
    read_model: ReadModel

    def operations(self, who: str) -> Operations:
        """The operator's verbs, in somebody's name."""
        return Operations(self.engine, who)

    @property
    def archiver(self) -> Archiver:
        """Archive, export and drop old records."""
        from esclusa.engine.archiver import Archiver  # noqa: PLC0415 - few commands need it

        return Archiver(self.engine)

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; one line for each thing done."""
        return await self.store.migrate(self.engine.all_kinds, self.engine.all_stages)

    async def pending(self) -> list[str]:
        """The statements that ``migrate`` would run."""
        return await self.store.pending(self.engine.all_kinds, self.engine.all_stages)


class RuntimeOpener(Protocol):
    """How a door opens the house; the composition root gives it one."""

    def __call__(
        self, settings: Settings, *, migrate: bool | None = None, work: bool = True
    ) -> AbstractAsyncContextManager[Runtime]:
        """``work``: records will be handled here, so telemetry and artifacts are opened, and the schema is brought up to date
        as ``ESCLUSA_AUTO_MIGRATE`` says. Without it the house is only looked at, which starts faster and changes nothing.
        ``migrate`` overrules; None without ``work`` means no. Raises SchemaError if the schema is behind."""


StoreOpener = Callable[[Settings], AbstractAsyncContextManager[Runtime]]
"""Opens the store alone, whatever its schema: for migrate and doctor."""

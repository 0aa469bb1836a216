"""An opened system: what the command line, the API and the pipelines' own routes work with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from esclusa.engine.archiver import Archiver
from esclusa.engine.engine import Engine
from esclusa.engine.lifecycles import StageDiff
from esclusa.engine.operations import Operations
from esclusa.engine.read_model import ReadModel
from esclusa.engine.records import Records
from esclusa.model.migration import MigrationStep, Progress
from esclusa.model.record import Record
from esclusa.model.state_roles import roles
from esclusa.model.texts import Text
from esclusa.model.value import value
from esclusa.observability import redact
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.store import Store
from esclusa.settings import Settings

R = TypeVar("R", bound=Record)

# Seconds between two looks at a record that is waited for: the first, and the longest.
_LOOK, _LOOK_LONGEST = 0.01, 0.5


@value
class Runtime:
    """The engine on its store and artifacts.

    Readers use ``read_model``; whatever changes something goes through ``operations``.
    """

    settings: Settings
    store: Store
    artifacts: Artifacts
    engine: Engine
    read_model: ReadModel
    # Why the replica, if there is one, is not read now; None if it is.
    replica_fault: Callable[[], Text | None] | None = None

    def operations(self, who: str) -> Operations:
        return self.engine.operations(who, redact.fields)

    def settings_of(self, pipeline: str) -> Any:
        """The settings of a loaded pipeline."""
        return self.engine.plan_of(pipeline).settings

    async def handle(self, stage: str, id: str) -> None:
        """Handle one record of a stage (``media.map``) now, in this process.

        For a route that stores a record and wants its outcome. If the process ends meanwhile, a
        worker handles the record.
        """
        await self.engine.runner.handle(stage, id)

    async def wait(
        self, kind: type[R], id: str, *, until: Iterable[str] = (), timeout: float = 60.0
    ) -> R:
        """Wait until a record is in one of these states; return it as it is then.

        By default until it is finished or failed: in a terminal state, one that the lifecycle
        declares as such, or one where a stage gave it up. Raises NotFound, and TimeoutError after
        so many seconds, which says in which state the record is.
        """
        states = frozenset(until)
        if unknown := sorted(states - set(kind.kind.lifecycle.states)):
            raise ValueError(f"{kind.kind.table} has no state {', '.join(unknown)}")
        if not states:
            of = roles(kind.kind, self.engine.all_stages)
            states = frozenset(s for s, role in of.items() if role in ("finished", "failed"))
        clock = asyncio.get_running_loop().time
        end, pause = clock() + timeout, _LOOK
        while True:
            found = await self.records.get(kind, id)
            if found is None:
                raise kind.kind.absent(id)
            if found.status in states:
                return found
            if (left := end - clock()) <= 0:
                raise TimeoutError(
                    f"{found.ref} is still {found.status} after {timeout:g} s; the reason:"
                    f" esclusa why {found.ref}"
                )
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, _LOOK_LONGEST)

    @property
    def records(self) -> Records:
        return self.engine.records

    @property
    def archiver(self) -> Archiver:
        return self.engine.archiver()

    async def migrate(
        self, *, foreign: bool = False, progress: Progress | None = None
    ) -> list[str]:
        """Bring the schema up to date; return one line for each change.

        Raises ForeignTables if a table of another program must be changed, unless ``foreign``.
        """
        return await self.store.migrate(
            self.engine.all_kinds, self.engine.all_stages, foreign=foreign, progress=progress
        )

    async def partition_history(self) -> list[str]:
        """Divide the history by month; return one line for each change."""
        return await self.store.partition_history()

    async def save_lifecycles(self) -> list[StageDiff]:
        """Store the declared lifecycles; return the new stages that find records waiting."""
        changed = await self.engine.lifecycles.save(self.engine.worker)
        return [stage for diff in changed for stage in diff.stages if stage.count]

    async def pending(self) -> list[MigrationStep]:
        """The steps that ``migrate`` would run."""
        return await self.store.pending(self.engine.all_kinds, self.engine.all_stages)

    async def notes(self) -> list[str]:
        """What an operator should know of the tables."""
        return await self.store.notes(self.engine.all_kinds, self.engine.all_stages)


class RuntimeOpener(Protocol):
    """Opens the system; the composition root provides it."""

    def __call__(
        self,
        settings: Settings,
        *,
        migrate: bool | None = None,
        work: bool = True,
        wait: float = 0.0,
    ) -> AbstractAsyncContextManager[Runtime]:
        """Open the store and what the caller needs. Raises SchemaBehind if the schema is behind.

        ``work``: records will be handled, so telemetry and artifacts are opened, and the schema is
        brought up to date if ``ESCLUSA_AUTO_MIGRATE`` is set. Without it the system is only read,
        which starts faster and changes nothing. ``migrate`` overrides; None without ``work`` is no.
        ``wait``: seconds to wait for a store that is not ready; StartStopped if a signal ends it.
        """


# Opens the store alone, whatever its schema: for migrate and doctor.
StoreOpener = Callable[[Settings], AbstractAsyncContextManager[Runtime]]

"""Wake-ups when records become due: at once in this process, by a document per table in others.

A process writes the document of a table at most once a second, so it never becomes a hot document.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from esclusa.model.errors import EsclusaError
from esclusa.stores.callbacks import Callback, WakeCallbacks
from esclusa.stores.firestore import names
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.codec import Document, Value
from esclusa.stores.firestore.writes import put_document

# Announces that records of these tables may be due: `WakeNotifier.notify`.
Notify = Callable[[Iterable[str]], None]
_INTERVAL = 1.0


class WakeNotifier(WakeCallbacks):
    """Sends and receives wake-ups by table. ``process_id`` marks those of this process."""

    def __init__(self, client: FirestoreClient, process_id: str) -> None:
        super().__init__()
        self._client, self._process_id = client, process_id
        self._written: dict[str, float] = {}
        # Writes that wait for the end of their interval, by table.
        self._scheduled: dict[str, asyncio.Task[None]] = {}

    def notify(self, tables: Iterable[str]) -> None:
        """Announce that records of these tables may be due. Never blocks and never fails."""
        now = asyncio.get_running_loop().time()
        for table in tables:
            self._call(table)
            if table not in self._scheduled:
                pause = self._written.get(table, -_INTERVAL) + _INTERVAL - now
                task = asyncio.create_task(
                    self._write_later(table, max(0.0, pause)), name=f"wake {table}"
                )
                self._scheduled[table] = task
                self._track(task)

    async def _write_later(self, table: str, pause: float) -> None:
        await asyncio.sleep(pause)
        self._written[table] = asyncio.get_running_loop().time()
        self._scheduled.pop(table, None)  # a later wake-up needs a write of its own
        await self._write(table)

    async def _write(self, table: str) -> None:
        document = Document(fields={"by": Value(string_value=self._process_id)})
        write = put_document(f"{self._client.root}/{names.WAKES}/{names.segment(table)}", document)
        write.update_transforms.add(field_path="at", set_to_server_value=1)  # the request's time
        try:
            await self._client.commit([write], "wake")
        except EsclusaError:
            return  # best effort: listeners poll as well

    async def add(self, callback: Callback) -> Callable[[], Awaitable[None]]:
        """Add a callback; return a function that removes it."""
        remove = self._add(callback)
        if self._follower is None:
            ready = asyncio.Event()
            self._follower = asyncio.create_task(self._follow(ready), name="wakes")
            with contextlib.suppress(TimeoutError):  # it keeps trying; polling covers the gap
                await asyncio.wait_for(ready.wait(), 5)
        return remove

    async def close(self) -> None:
        """Write the wake-ups that are still scheduled, then end."""
        self._callbacks.clear()
        scheduled, self._scheduled = self._scheduled, {}
        for task in scheduled.values():
            task.cancel()
        await asyncio.gather(*scheduled.values(), return_exceptions=True)
        await asyncio.gather(*map(self._write, scheduled))
        await super().close()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _follow(self, ready: asyncio.Event) -> None:
        pause = 0.1
        while True:
            current = False
            try:
                async for answer in self._client.listen(names.WAKES):
                    kind = answer.WhichOneof("response_type")
                    if kind == "target_change" and answer.target_change.target_change_type == 3:
                        current, pause = True, 0.1  # type 3: all existing documents were sent
                        ready.set()
                    elif kind == "document_change" and current:
                        self._receive(answer.document_change.document)
            except asyncio.CancelledError:
                raise
            except Exception:  # noqa: BLE001 - any error ends the stream; it is opened again
                pause = min(10.0, pause * 2)
            await asyncio.sleep(pause)

    def _receive(self, document: Any) -> None:
        if document.fields["by"].string_value != self._process_id:
            self._call(names.unsegment(document.name.rpartition("/")[2]))

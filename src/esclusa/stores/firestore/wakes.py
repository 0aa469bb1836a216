"""Waking: at once in this process; in others by a document per table that they listen to.

The document is written at most once a second and table by a process, so it is never a hot one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from esclusa.model.errors import EsclusaError
from esclusa.stores.firestore import names, wire
from esclusa.stores.firestore.codec import Document
from esclusa.stores.firestore.wire import Wire

Heard = Callable[[str], Awaitable[None] | None]
_EVERY = 1.0


class Wakes:
    def __init__(self, link: Wire, me: str) -> None:
        self._link, self._me = link, me
        self._ears: dict[int, Heard] = {}
        self._number = 0
        self._written: dict[str, float] = {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        """Writes that wait for their second, by table."""
        self._listener: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()

    def tell(self, tables: Iterable[str]) -> None:
        """Something of these tables may be due. Never blocks and never fails."""
        now = asyncio.get_running_loop().time()
        for table in tables:
            self._hear(table)
            if table not in self._waiting:
                pause = self._written.get(table, -_EVERY) + _EVERY - now
                task = asyncio.create_task(
                    self._write_later(table, max(0.0, pause)), name=f"wake {table}"
                )
                self._waiting[table] = task
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)

    async def _write_later(self, table: str, pause: float) -> None:
        await asyncio.sleep(pause)
        self._written[table] = asyncio.get_running_loop().time()
        self._waiting.pop(table, None)  # what comes from here on needs a write of its own
        await self._write(table)

    async def _write(self, table: str) -> None:
        document = Document()
        document.fields["by"].string_value = self._me
        write = wire.put(f"{self._link.root}/{names.WAKES}/{names.segment(table)}", document)
        moment = write.update_transforms.add(field_path="at")
        moment.set_to_server_value = 1  # the time of the request
        try:
            await self._link.commit([write], "wake")
        except EsclusaError:
            return  # best effort: whoever listens polls too

    async def listen(self, heard: Heard) -> Callable[[], Awaitable[None]]:
        self._number += 1
        mine = self._number
        self._ears[mine] = heard
        if self._listener is None:
            ready = asyncio.Event()
            self._listener = asyncio.create_task(self._follow(ready), name="wakes")
            with contextlib.suppress(TimeoutError):  # it goes on trying; polling is the floor
                await asyncio.wait_for(ready.wait(), 5)

        async def end() -> None:
            self._ears.pop(mine, None)
            if not self._ears and self._listener is not None:
                listener, self._listener = self._listener, None
                await _ended(listener)

        return end

    async def close(self) -> None:
        """Write what is still to be told, and end."""
        self._ears.clear()
        untold, self._waiting = self._waiting, {}
        for task in untold.values():
            await _ended(task)
        await asyncio.gather(*map(self._write, untold))
        if self._listener is not None:
            listener, self._listener = self._listener, None
            await _ended(listener)
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _follow(self, ready: asyncio.Event) -> None:
        pause = 0.1
        while True:
            current = False
            try:
                async for answer in self._link.listen(names.WAKES):
                    kind = answer.WhichOneof("response_type")
                    if (
                        kind == "target_change" and answer.target_change.target_change_type == 3
                    ):  # current
                        current, pause = True, 0.1
                        ready.set()
                    elif kind == "document_change" and current:
                        self._said(answer.document_change.document)
            except asyncio.CancelledError:
                raise
            except Exception:  # noqa: BLE001 - whatever ends the stream, it is opened again
                pause = min(10.0, pause * 2)
            await asyncio.sleep(pause)

    def _said(self, document: Any) -> None:
        if document.fields["by"].string_value != self._me:
            self._hear(names.unsegment(document.name.rpartition("/")[2]))

    def _hear(self, table: str) -> None:
        for heard in list(self._ears.values()):
            answer = heard(table)
            if inspect.isawaitable(answer):
                task = asyncio.ensure_future(_awaited(answer))
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)


async def _awaited(answer: Awaitable[None]) -> None:
    await answer


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

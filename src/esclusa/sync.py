"""Esclusa for code without an event loop: each call waits for one in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from esclusa.engine.operations import Operations
from esclusa.model.query import Page, Where
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted
from esclusa.runtime import Runtime

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class LoopCaller(Protocol):
    """Runs a coroutine in the thread of the event loop; returns its answer or raises its error."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


@contextmanager
def background_loop() -> Iterator[LoopCaller]:
    """An event loop in a thread of its own, which ends with the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="esclusa", daemon=True)
    thread.start()

    def call(work: Coroutine[Any, Any, T], /) -> T:
        if threading.current_thread() is thread:
            work.close()
            raise RuntimeError("this is Esclusa's own event loop: use the async methods here")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    try:
        yield call
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class SyncRuntime:
    """A ``Runtime`` for plain functions. Every thread may call it."""

    def __init__(self, runtime: Runtime, call: LoopCaller) -> None:
        self.runtime = runtime
        self._call = call

    def call(self, function: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
        """Anything else: ``call(lambda runtime: runtime.read_model.status())``."""
        return self._call(function(self.runtime))

    def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        """Add records in one transaction of Esclusa's own; a known key is left as it is."""
        return self._call(self.runtime.records.insert(records))

    def get(self, kind: type[R], *key: Any) -> R | None:
        """The record with this id, or with this key when several parts are given."""
        return self._call(self.runtime.records.get(kind, *key))

    def find(
        self,
        kind: type[R],
        where: Where | None = None,
        *,
        order: str | tuple[str, ...] = (),
        limit: int = 100,
        after: str | None = None,
    ) -> Page[R]:
        """One page of records; ``next`` continues it."""
        found = self.runtime.records.find(kind, where, order=order, limit=limit, after=after)
        return self._call(found)

    def count(self, kind: type[Record], where: Where | None = None) -> int:
        """How many records match, counted up to 100,000."""
        return self._call(self.runtime.records.count(kind, where))[0]

    def wait(
        self, kind: type[R], id: str, *, until: Iterable[str] = (), timeout: float = 60.0
    ) -> R:
        """Wait until a record is finished or failed, or in one of these states."""
        return self._call(self.runtime.wait(kind, id, until=until, timeout=timeout))

    def operate(self, who: str, do: Callable[[Operations], Coroutine[Any, Any, T]]) -> T:
        """What an operator can do: ``operate("ana", lambda o: o.retry("posts", ids=[…]))``."""
        return self._call(do(self.runtime.operations(who)))

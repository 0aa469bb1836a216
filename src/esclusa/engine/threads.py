"""Threads for plain functions (handlers, libraries that block), and waits for tasks and events."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

# Seconds after which a call in a thread, whose caller was cancelled, is no longer waited for.
HANGING = 5.0

_Call: TypeAlias = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Threads:
    """Runs each call in a thread; free threads are reused.

    A thread cannot be stopped. A call that is abandoned (a timeout, a stop) leaves its thread
    running, the next call gets another one, and the process does not wait for it at exit.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._free: deque[SimpleQueue[_Call | None]] = deque()
        self._closed = False

    async def call(self, function: Callable[[], Any]) -> Any:
        """What the function returns, or whatever it raises."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        inbox = self._free.pop() if self._free else self._hire()
        inbox.put((function, loop, answer))
        return await answer

    def close(self) -> None:
        """Threads end, those that are busy as soon as they can."""
        self._closed = True
        while self._free:
            self._free.pop().put(None)

    def _hire(self) -> SimpleQueue[_Call | None]:
        inbox: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=self._work, args=(inbox,), name=self._name, daemon=True).start()
        return inbox

    def _work(self, inbox: SimpleQueue[_Call | None]) -> None:
        while not self._closed and (call := inbox.get()) is not None:
            function, loop, answer = call
            result: Any = None
            error: BaseException | None = None
            try:
                result = function()
            except StopIteration as stop:  # no future can hold one
                error = RuntimeError(f"it raised {stop!r}")
            except BaseException as raised:  # noqa: BLE001 - the caller gets it
                error = raised
            self._free.append(inbox)
            try:
                loop.call_soon_threadsafe(_deliver, answer, result, error)
            except RuntimeError:  # the loop is closed: nobody waits for the answer
                return


class DaemonThreads(Executor):
    """At most ``size`` threads, which are started when they are needed.

    Unlike those of a ThreadPoolExecutor they are daemons: a call that hangs, for example on a disk
    that does not answer, does not keep the process from ending.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._begin()

    def _begin(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        self._calls.put((future, partial(function, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._count < self._size:
            name, own = f"{self._name}-{self._count}", (self._calls, self._idle)
            threading.Thread(target=self._work, args=own, name=name, daemon=True).start()
            self._count += 1
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end, those that are busy as soon as they can. Waits for none.

        A later call gets new threads.
        """
        for _ in range(self._count):
            self._calls.put(None)
        self._begin()

    @staticmethod
    def _work(calls: SimpleQueue[Any], idle: threading.Semaphore) -> None:
        while (call := calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - the caller gets it
                    future.set_exception(error)
            del call, future, function
            idle.release()


def _deliver(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():  # the call was given up
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


async def call_in_thread(threads: Executor | None, work: Callable[[], T]) -> T:
    """Run it in a thread (None: one of the loop's own). A cancelled caller waits until it ends.

    It cannot be stopped, and what follows (closing a file, another request) must not run beside it.
    A caller does not wait for ever: see ``wait_until_done``.
    """
    return await wait_until_done(asyncio.get_running_loop().run_in_executor(threads, work))


async def wait_until_done(work: asyncio.Future[T]) -> T:
    """Wait for it without cancelling it. A cancelled caller waits until it ends.

    It does so for some seconds at most: a disk that hangs must not keep a process from stopping.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await _ended(work)
        raise


async def _ended(work: asyncio.Future[T]) -> None:
    """Wait until it ends, however often the caller is cancelled, but not for ever."""
    loop = asyncio.get_running_loop()
    end = loop.time() + HANGING
    while not work.done() and (left := end - loop.time()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work], timeout=left)
    if work.done() and not work.cancelled():
        work.exception()  # seen: the cancellation is what the caller hears of


async def wait_at_most(seconds: float, event: asyncio.Event) -> None:
    """Wait for the event, at most this long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def wait_for_any(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    if not any(event.is_set() for event in events):
        waits = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


async def end_tasks(*tasks: asyncio.Task[None]) -> None:
    """Cancel the tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

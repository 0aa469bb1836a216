"""Processes for the handlers of a stage with ``processes=``: work that keeps a core busy.

Leases, budgets and settlements stay in the worker. A process has one record, or one batch, at a
time. It is killed when its attempt is cancelled: by a timeout, a lost lease or the end of the grace
period.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from esclusa.engine.attempt import Attempt
from esclusa.engine.handler_child import (
    ARTIFACT_METHODS,
    ATTEMPT_METHODS,
    Answered,
    Asked,
    AttemptData,
    Failed,
    HandlerName,
    run_child,
)
from esclusa.engine.threads import Threads
from esclusa.model.errors import EsclusaError, Failure
from esclusa.model.record import Record

# Seconds for a process to end by itself when the stage is closed.
END = 2.0


class HandlerFailed(Exception):
    """The handler raised in its process. ``error`` is the original if that could be sent."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.error: BaseException = failed.error or Failure(failed.message, type=failed.type)
        self.traceback = failed.traceback
        self.fault = failed.fault


def name_of(handler: Callable[..., Any]) -> HandlerName:
    """Where a new process finds this handler."""
    plain = inspect.unwrap(handler)
    file = getattr(sys.modules.get(plain.__module__), "__file__", None)
    return HandlerName(plain.__module__, file, plain.__qualname__)


class HandlerProcesses:
    """Up to ``size`` processes, each started with its first call and used again."""

    def __init__(self, name: str, handler: Callable[..., Any], size: int) -> None:
        self._threads = Threads(name)
        self._free = asyncio.LifoQueue[_Process]()
        for _ in range(size):
            self._free.put_nowait(_Process(name_of(handler)))
        self._all = list(self._free._queue)  # type: ignore[attr-defined]  # noqa: SLF001

    async def call(self, argument: Any, attempt: Attempt) -> Any:
        """What the handler answers.

        Raises HandlerFailed if it raised, Failure if its process ended.
        """
        process = await self._free.get()
        loop = asyncio.get_running_loop()
        try:
            return await self._threads.call(partial(process.call, argument, attempt, loop))
        except asyncio.CancelledError:
            process.kill()
            raise
        finally:
            self._free.put_nowait(process)

    def close(self) -> None:
        """End the processes; one that is busy is killed."""
        for process in self._all:
            process.close()
        self._threads.close()


class _Process:
    """One process and the conversation with it. ``call`` runs in a thread."""

    def __init__(self, name: HandlerName) -> None:
        self._name = name
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None

    def call(self, argument: Any, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> Any:
        if self._process is None or not self._process.is_alive():
            self._start()
        connection, process = self._connection, self._process
        assert connection is not None
        assert process is not None
        data = AttemptData(attempt.number, attempt.tries, attempt.now, attempt.settings)
        try:
            connection.send((argument, data))
            while isinstance(message := connection.recv(), Asked):
                connection.send(_done(message, attempt, loop))
        except (EOFError, ConnectionError):
            process.join(END)
            raise Failure(
                f"the process of the handler ended with {_cause(process.exitcode)}",
                type="process_ended",
            ) from None
        if isinstance(message, Failed):
            raise HandlerFailed(message)
        assert isinstance(message, Answered)
        records: list[Record] = argument if isinstance(argument, list) else [argument]
        for record, fields in zip(records, message.assigned, strict=True):
            for name, given in fields.items():
                setattr(record, name, given)
        return message.answer

    def kill(self) -> None:
        """End the process at once. A call that waits for it raises Failure."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.join(END)
            if self._process.is_alive():
                self._process.kill()
                self._process.join(END)
            self._process.close()
        self._process = self._connection = None

    def _start(self) -> None:
        if self._connection is not None:
            self._connection.close()
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(
            target=run_child, args=(theirs, self._name, list(sys.path)), daemon=True
        )
        self._process.start()
        theirs.close()
        self._connection = ours


def _done(
    asked: Asked, attempt: Attempt, loop: asyncio.AbstractEventLoop
) -> tuple[Any, BaseException | None]:
    """Do what the handler asks for; return the answer, or what it raised."""
    where, _, method = asked.method.rpartition(".")
    allowed = ARTIFACT_METHODS if where == "artifacts" else ATTEMPT_METHODS
    assert method in allowed, asked.method
    owner = attempt.artifacts if where == "artifacts" else attempt

    async def call() -> Any:
        answer = getattr(owner, method)(*asked.args, **asked.options)
        return await answer if inspect.isawaitable(answer) else answer

    try:
        return asyncio.run_coroutine_threadsafe(call(), loop).result(), None
    except EsclusaError as error:
        error.__traceback__ = None
        return None, error
    except Exception as error:  # noqa: BLE001 - the handler gets it
        return None, RuntimeError(f"{type(error).__name__}: {error}")


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"

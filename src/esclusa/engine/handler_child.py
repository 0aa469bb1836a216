"""The process in which the handler of a stage with ``processes=`` runs: one call at a time.

What the handler asks of its attempt, the worker does: it holds the store, the lease and the files.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from esclusa.engine.tracebacks import traceback_of
from esclusa.model.errors import FAULTS, EsclusaError
from esclusa.model.record import Record
from esclusa.model.retry import error_message, error_type, unwrap_group
from esclusa.model.strict_fields import assigned
from esclusa.model.value import value

# What the worker does for the handler: methods of `Attempt`, and of its `artifacts`.
ATTEMPT_METHODS = frozenset(
    {"save", "keep", "entered_at", "caught_up", "spend", "refund", "log", "count", "observe"}
)
ARTIFACT_METHODS = frozenset({"put", "get", "info", "delete", "public_url"})
# Members of `Attempt` that cannot leave the worker's process.
ABSENT = ("records", "context", "run", "stage", "kept", "lost")


@value
class HandlerName:
    """Where a process finds the handler: its module, the file of it, and its name there."""

    module: str
    file: str | None
    name: str

    def load(self) -> Callable[..., Any]:
        """The handler, with its module imported under the name that its records have."""
        if self.module not in sys.modules:
            try:
                importlib.import_module(self.module)
            except ModuleNotFoundError as error:
                if self.file is None or error.name != self.module:
                    raise
                _load_file(self.module, self.file)
        found: Any = sys.modules[self.module]
        for part in self.name.split("."):
            found = getattr(found, part)
        handler: Callable[..., Any] = found
        return handler


@value
class AttemptData:
    """What the handler may know of its attempt without asking."""

    number: int
    tries: int | None
    now: Any
    settings: Any


@value
class Asked:
    """The handler asks the worker for something."""

    method: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]


@value
class Answered:
    """The handler returned. ``assigned``: the fields of each record that it assigned to."""

    answer: Any
    assigned: Sequence[Mapping[str, Any]]


@value
class Failed:
    """The handler raised. ``error`` is None if it cannot leave the process."""

    error: BaseException | None
    type: str
    message: str
    traceback: str | None
    fault: bool


class _Request:
    """What an asynchronous method of the attempt returns here: ``at.wait`` sends it."""

    def __init__(self, send: Callable[[Asked], Any], asked: Asked) -> None:
        self.send = send
        self.asked = asked


class ProcessAttempt:
    """The attempt in a handler that runs in a process of its own.

    It has ``number``, ``tries``, ``now`` (of the begin), ``settings``, ``artifacts`` and the
    methods ``log``, ``count``, ``observe``, ``save``, ``keep``, ``spend``, ``refund``,
    ``entered_at`` and ``caught_up``; those that are asynchronous are called with ``at.wait``. The
    store's records and the pipeline's lifespan stay in the worker.
    """

    def __init__(self, data: AttemptData, send: Callable[[Asked], Any]) -> None:
        self.number = data.number
        self.tries = data.tries
        self.now = data.now
        self.settings = data.settings
        self.artifacts = _Methods("artifacts.", ARTIFACT_METHODS, send)
        self._send = send
        self._methods = _Methods("", ATTEMPT_METHODS, send)

    def wait(self, request: _Request) -> Any:
        """What the worker answers: ``at.wait(at.save(seen=3))``."""
        return request.send(request.asked)

    def log(self, message: str, /, *, level: str = "info", **fields: Any) -> None:
        """Write a structured log line that names the record and the attempt."""
        self._send(Asked("log", (message,), {"level": level, **fields}))

    def count(self, name: str, amount: float = 1, **labels: object) -> None:
        """Add to a counter of the pipeline."""
        self._send(Asked("count", (name, amount), labels))

    def observe(self, name: str, seconds: float, **labels: object) -> None:
        """Add a time to a histogram of the pipeline."""
        self._send(Asked("observe", (name, seconds), labels))

    def __getattr__(self, name: str) -> Any:
        if name in ABSENT or name not in ATTEMPT_METHODS:
            _absent(f"at.{name}")
        return getattr(self._methods, name)


class _Methods:
    def __init__(self, prefix: str, names: frozenset[str], send: Callable[[Asked], Any]) -> None:
        self._prefix = prefix
        self._names = names
        self._send = send

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            _absent(f"at.{self._prefix}{name}")

        def request(*args: Any, **options: Any) -> _Request | Any:
            asked = Asked(f"{self._prefix}{name}", args, options)
            return self._send(asked) if name == "public_url" else _Request(self._send, asked)

        return request


def _absent(what: str) -> NoReturn:
    raise AttributeError(
        f"{what} is not available to a handler that runs in a process (processes=…): read what it"
        " needs before, as fields of the record, or leave processes out"
    )


def run_child(connection: Connection, name: HandlerName, path: Sequence[str]) -> None:
    """Answer calls until the worker closes the connection. The process's main function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker stops it
    sys.path[:] = [*path, *(each for each in sys.path if each not in path)]
    handler = name.load()
    while True:
        try:
            argument, data = connection.recv()
        except EOFError:
            return
        _send(connection, _call(handler, argument, data, connection))


def _call(
    handler: Callable[..., Any], argument: Any, data: AttemptData, connection: Connection
) -> Answered | Failed:
    def ask(asked: Asked) -> Any:
        connection.send(asked)
        answer, error = connection.recv()
        if error is not None:
            raise error
        return answer

    try:
        answer = handler(argument, ProcessAttempt(data, ask))
    except (KeyboardInterrupt, SystemExit) as error:
        return _failed(RuntimeError(f"the handler raised {error!r}"))
    except BaseException as error:  # noqa: BLE001 - it becomes the record's error
        if error.__traceback__ is not None:
            error.__traceback__ = error.__traceback__.tb_next
        return _failed(error)
    records: list[Record] = argument if isinstance(argument, list) else [argument]
    changed = [{each: getattr(record, each) for each in assigned(record)} for record in records]
    return Answered(answer, changed)


def _failed(error: BaseException) -> Failed:
    fault = isinstance(unwrap_group(error), FAULTS)
    found = traceback_of(error, fault=fault)
    error.__traceback__ = None
    return Failed(error, error_type(error), error_message(error), found, fault)


def _send(connection: Connection, answer: Answered | Failed) -> None:
    """Send the answer; one that cannot be sent becomes a failure that says so."""
    try:
        packed = pickle.dumps(answer)
        pickle.loads(packed)  # noqa: S301 - our own: an exception may refuse to be built again
    except Exception as error:  # noqa: BLE001 - whatever the object does
        if isinstance(answer, Failed):
            failed = Failed(None, answer.type, answer.message, answer.traceback, answer.fault)
        else:
            what = f"the answer of the handler cannot leave its process: {error}"
            failed = Failed(None, "TypeError", what, None, True)
        packed = pickle.dumps(failed)
    connection.send_bytes(packed)


def _load_file(module: str, file: str) -> None:
    """Import a pipeline that was loaded from a file, under the same name."""
    spec = importlib.util.spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise EsclusaError(f"there is no file {file}")
    made = importlib.util.module_from_spec(spec)
    sys.modules[module] = made
    spec.loader.exec_module(made)

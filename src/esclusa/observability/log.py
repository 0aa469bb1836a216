"""The structured log: JSON lines with Cloud Logging's field names, or readable lines on a terminal.

A call below the level costs one comparison; structlog is imported with the first line.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TextIO, TypeAlias

from esclusa.model.value import value
from esclusa.observability import host_log, redact
from esclusa.observability.host_log import LEVELS

Format: TypeAlias = Literal["auto", "json", "text"]
Event: TypeAlias = MutableMapping[str, Any]

_SEVERITY = {"warn": "WARNING", "exception": "ERROR", "critical": "CRITICAL"}
_RESERVED = frozenset(
    {
        "event",
        "exception",
        "level",
        "logger",
        "message",
        "severity",
        "stack_trace",
        "time",
        "timestamp",
    }
)
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, default=str).encode
_GOOGLE = "logging.googleapis.com/"


@value
class Trace:
    """The trace of a request, from its caller's headers: 32 and 16 hexadecimal digits."""

    trace: str
    span: str | None = None
    sampled: bool = False


_request_trace: ContextVar[Trace | None] = ContextVar("esclusa_trace", default=None)


@contextmanager
def tracing(trace: Trace | None) -> Iterator[None]:
    """Put the trace on every line of this task and of the tasks that it starts."""
    token = _request_trace.set(trace)
    try:
        yield
    finally:
        _request_trace.reset(token)


def request_span() -> str | None:
    """The span of the present request's caller as a ``traceparent``; None if it is not sampled."""
    trace = _request_trace.get()
    if trace is None or trace.span is None or not trace.sampled:
        return None
    return f"00-{trace.trace}-{trace.span}-01"


class _State:
    """The configuration of this process's log."""

    def __init__(self) -> None:
        self.level = LEVELS["info"]
        self.format: Format = "auto"
        self.stream: TextIO | None = None
        self.project: str | None = None
        # Whether another application's `logging` gets the lines.
        self.hosted = False
        self.lock = threading.RLock()
        self.sink: Any = None

    def logger(self) -> Any:
        if self.sink is None:
            with self.lock:
                if self.sink is None:
                    self.sink = _build(self)
        return self.sink


_state = _State()


class Log:
    """A named logger. It never raises. ``exc_info`` adds a stack trace."""

    __slots__ = ("_bound", "name")

    def __init__(self, name: str, bound: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self._bound = dict(bound or {})

    def bind(self, **fields: Any) -> Log:
        """The same logger with these fields on every line."""
        return Log(self.name, self._bound | fields)

    def error(self, message: str, /, **fields: Any) -> None:
        self.write("error", message, fields)

    def write(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        """Write a line with a level given by name (unknown: info) and fields of any name."""
        level = level if level in LEVELS else "info"
        if not enabled(level):
            return
        renamed = {
            f"{name}_" if name in _RESERVED or name.startswith(_GOOGLE) else name: value
            for name, value in fields.items()
        }
        try:
            if _state.hosted:
                host_log.write(self.name, level, message, {**self._bound, **renamed})
                return
            getattr(_state.logger(), level)(
                message, **{**self._bound, **renamed, "logger": self.name}
            )
        except Exception:  # noqa: BLE001  # a log line must not break the work
            _report_failure()


def get(name: str) -> Log:
    """The logger with this name."""
    return Log(name)


def enabled(level: str) -> bool:
    """Whether lines of this level are written."""
    if _state.hosted:
        return host_log.enabled(level)
    return _state.level <= LEVELS[level]


def use_host_logging() -> None:
    """Write with ``logging`` of the application that Esclusa runs in, and configure nothing."""
    _state.hosted = True


def configure(
    format: Format = "auto",
    level: str = "info",
    *,
    stream: TextIO | None = None,
    project: str | None = None,
) -> None:
    """Set up the log of this process, including what libraries write with ``logging``.

    ``auto`` is text if the stream (stderr) is a terminal, otherwise JSON lines. ``project`` is part
    of the trace's name in Cloud Logging. Raises ValueError for an unknown format or level.
    """
    if format not in {"auto", "json", "text"}:
        raise ValueError(f"unknown log format {format!r}: auto, json or text")
    if level.lower() not in LEVELS:
        raise ValueError(f"unknown log level {level!r}: {', '.join(LEVELS)}")
    with _state.lock:
        _state.hosted = False
        _state.format, _state.level, _state.stream = format, LEVELS[level.lower()], stream
        _state.project = project or os.environ.get("GOOGLE_CLOUD_PROJECT") or None
        _state.sink = None
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(handler)
    root.addHandler(_Handler())
    root.setLevel(max(_state.level, logging.INFO))
    if "structlog" in sys.modules:
        _state.logger()


class _Handler(logging.Handler):
    """Writes what libraries log with ``logging`` as lines of this log, secrets masked."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level = max(
                (name for name, number in LEVELS.items() if number <= record.levelno),
                key=LEVELS.__getitem__,
                default="debug",
            )
            Log(record.name).write(
                level,
                record.getMessage(),
                {"exc_info": record.exc_info} if record.exc_info else {},
            )
        except Exception:  # noqa: BLE001  # such as a wrong format string in a library
            _report_failure()


class _Lines:
    """Writes and flushes whole lines: a killed process loses none, threads do not mix them."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def msg(self, line: str) -> None:
        stream = self._stream or sys.stderr
        if stream is None:
            return
        try:
            with self._lock:
                stream.write(line + "\n")
                stream.flush()
        except (OSError, ValueError):  # the stream is closed
            return

    debug = info = warning = warn = error = exception = critical = fatal = log = msg


def _build(state: _State) -> Any:
    import structlog  # noqa: PLC0415  # takes a third of a second

    stream = state.stream or sys.stderr
    terminal = stream is not None and stream.isatty()
    renderers: list[Callable[..., Any]]
    if state.format == "text" or (state.format == "auto" and terminal):
        renderers = [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.processors.add_log_level,
            _traced,
            _masked,
            structlog.dev.ConsoleRenderer(
                colors=terminal and not os.environ.get("NO_COLOR"),
                exception_formatter=structlog.dev.plain_traceback,
                pad_event_to=0,
            ),
        ]
    else:
        renderers = [
            _severity,
            _traced,
            _masked,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            _json,
        ]
    lines = _Lines(state.stream)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            _stored_traceback,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(state.level),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    return structlog.get_logger().bind()  # bound once; the lazy proxy is resolved for every line


def _stored_traceback(_: Any, __: str, event: Event) -> Event:
    """Show a traceback that is text already like that of an exception."""
    if isinstance(event.get("traceback"), str):
        event["exception"] = event.pop("traceback")
    return event


def _severity(_: Any, method: str, event: Event) -> Event:
    first = {"severity": _SEVERITY.get(method, method.upper()), "message": event.pop("event", "")}
    if "exception" in event:
        first["stack_trace"] = event.pop("exception")  # the field that Error Reporting reads
    return {**first, **event}


def _traced(_: Any, __: str, event: Event) -> Event:
    """Add the current span, or else the trace of the request."""
    found = _span() or _request_trace.get()
    if found is not None:
        event[f"{_GOOGLE}trace"] = (
            f"projects/{_state.project}/traces/{found.trace}" if _state.project else found.trace
        )
        if found.span is not None:
            event[f"{_GOOGLE}spanId"] = found.span
        event[f"{_GOOGLE}trace_sampled"] = found.sampled
    return event


def _span() -> Trace | None:
    api = sys.modules.get("opentelemetry.trace")
    context = None if api is None else api.get_current_span().get_span_context()
    if context is None or not context.is_valid:
        return None
    return Trace(
        f"{context.trace_id:032x}", f"{context.span_id:016x}", bool(context.trace_flags.sampled)
    )


def _masked(_: Any, __: str, event: Event) -> Event:
    return redact.fields(event)


def _json(_: Any, __: str, event: Event) -> str:
    # A lone surrogate cannot be encoded as UTF-8, but its escape is valid JSON.
    line = _encode(event)
    return line if line.isascii() else line.encode("utf-8", "backslashreplace").decode("utf-8")


def _report_failure() -> None:
    try:
        print(  # noqa: T201 - the log itself failed
            '{"severity":"ERROR","message":"a log line could not be written"}',
            file=sys.stderr,
            flush=True,
        )
    except (OSError, ValueError):
        return

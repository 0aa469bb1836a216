"""Where an unexpected error of a handler came from, as text: bounded, without local variables."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Final

from esclusa.model.errors import EsclusaError
from esclusa.model.retry import NETWORK_ERRORS, error_message, error_type, unwrap_group
from esclusa.model.storable import storable_text
from esclusa.model.texts import Text

# The last frames of each error, the errors of a chain or a group, and the characters in all.
FRAMES: Final = 12
ERRORS: Final = 4
LENGTH: Final = 4000

_MESSAGE = 300
_ENGINE = str(Path(__file__).parent)
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"


def traceback_of(error: BaseException, *, fault: bool = False) -> str | None:
    """The traceback of an error that nobody declared, or of a ``fault``. None for an expected one.

    Expected are Esclusa's own errors, a pipeline's errors with an ``error_type``, errors of the
    network, and what the engine raises itself, such as a timeout of the stage.
    """
    try:
        error = unwrap_group(error)
        declared = isinstance(error, EsclusaError) or hasattr(error, "error_type")
        own = bool(error.args) and isinstance(error.args[0], Text)
        expected = declared or own or error_type(error) in NETWORK_ERRORS
        if expected and not fault:
            return None
        whole = "\n\n".join(_parts(error, set()))
    except Exception as broken:  # noqa: BLE001 - an error that cannot be described
        return f"{type(error).__name__}: no traceback ({type(broken).__name__})"
    if len(whole) > LENGTH:
        whole = f"…{whole[-LENGTH + 1 :]}"  # the end says what happened
    return storable_text(whole)


def location_of(handler: Callable[..., Any]) -> str:
    """Where a handler is defined: the traceback of an answer that cannot be used."""
    code = getattr(inspect.unwrap(handler), "__code__", None)
    if not isinstance(code, CodeType):
        return f"The handler: {handler!r:.200}"
    return storable_text(f"The handler:\n{_frame(code, code.co_firstlineno)}")


def _parts(error: BaseException, seen: set[int]) -> Iterator[str]:
    """The error and what led to it, the oldest first."""
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and id(before) not in seen and len(seen) < ERRORS:
        yield from _parts(before, seen)
        yield _CONTEXT if error.__cause__ is None else _CAUSE
    yield "\n".join(
        [
            "Traceback (most recent call last):",
            *_frames(error.__traceback__),
            f"{type(error).__name__}: {error_message(error)[:_MESSAGE]}",
        ]
    )
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            if id(each) not in seen and len(seen) < ERRORS:
                yield from _parts(each, seen)


def _frames(traceback: TracebackType | None) -> list[str]:
    """The last frames, without the engine's own at the beginning."""
    found: list[tuple[CodeType, int]] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if found or not _of_engine(code.co_filename):
            found.append((code, traceback.tb_lineno))
        traceback = traceback.tb_next
    left_out = [f"  … {len(found) - FRAMES} more"] if len(found) > FRAMES else []
    return [*left_out, *(_frame(code, line) for code, line in found[-FRAMES:])]


@lru_cache(maxsize=1024)
def _of_engine(filename: str) -> bool:
    return filename.startswith(_ENGINE)


@lru_cache(maxsize=1024)
def _frame(code: CodeType, number: int) -> str:
    """One frame. Cached: a stage whose records all fail would read the same lines each time."""
    source = linecache.getline(code.co_filename, number).strip()[:200]
    where = f'  File "{code.co_filename}", line {number}, in {code.co_name}'
    return f"{where}\n    {source}" if source else where

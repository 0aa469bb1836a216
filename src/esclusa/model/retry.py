"""Retry policy: how many attempts, the delays between them, and which errors are permanent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from random import Random

from pydantic import ValidationError

from esclusa.model import duration
from esclusa.model.errors import DeclarationError, Failure
from esclusa.model.storable import storable_text
from esclusa.model.text import Text
from esclusa.model.value import value


@value
class Backoff:
    """Capped exponential backoff.

    After attempt n the record waits ``min(cap, base * factor**(n-1))``, minus a random share of up
    to ``jitter``. After ``tries`` attempts (None: no limit) it is exhausted. ``permanent`` names
    error types that are not retried; ``by_type`` gives an error type its own backoff.
    """

    tries: int | None = 5
    base: float | str = 60.0
    factor: float = 2.0
    cap: float | str = 3600.0
    jitter: float = 0.1
    permanent: frozenset[str] | tuple[str, ...] | str = frozenset()
    by_type: Mapping[str, Backoff] = field(default_factory=dict)

    def __post_init__(self) -> None:
        faults = []
        for name in ("base", "cap"):
            try:
                object.__setattr__(self, name, duration.seconds(getattr(self, name)))
            except ValueError as error:
                faults.append(f"{name}: {error}")
        if self.tries is not None and self.tries < 1:
            faults.append(f"tries must be 1 or more, or None for no limit, not {self.tries}")
        if self.factor < 1:
            faults.append(f"factor must be 1 or more, not {self.factor}")
        if not 0 <= self.jitter <= 1:
            faults.append(f"jitter must be between 0 and 1, not {self.jitter}")
        if faults:
            raise DeclarationError("Backoff", faults)
        object.__setattr__(
            self,
            "permanent",
            frozenset([self.permanent] if isinstance(self.permanent, str) else self.permanent),
        )

    def delay(self, attempt: int, rng: Random) -> float:
        """Seconds to wait after attempt ``attempt`` (1 is the first)."""
        full = min(float(self.cap), float(self.base) * self.factor ** min(attempt - 1, 64))
        return full - full * self.jitter * rng.random()

    def of(self, error_type: str) -> Backoff:
        return self.by_type.get(error_type, self)

    def spent(self, attempt: int) -> bool:
        """Whether attempt ``attempt`` was the last one allowed."""
        return self.tries is not None and attempt >= self.tries


# The types of errors that every network has: they need no traceback.
NETWORK_ERRORS = frozenset({"timeout", "http_error", "connection_error"})


def error_type(error: BaseException) -> str:
    """The type of an error in records, history and metrics, such as ``timeout``."""
    own = (error.type if isinstance(error, Failure) else None) or getattr(error, "error_type", None)
    if isinstance(own, str):
        return storable_text(own)
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ValidationError):
        return "invalid_data"
    for base in type(error).__mro__:  # by name, to avoid importing aiohttp
        if base.__module__.startswith("aiohttp") and base.__name__ == "ClientError":
            return "http_error"
    if isinstance(error, ConnectionError):
        return "connection_error"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(error).__name__).lower()


def error_message(error: BaseException) -> str:
    """The message of an error for records, history and logs; for a group also its members'."""
    if len(error.args) == 1 and isinstance(error.args[0], Text):
        return error.args[0]
    message = str(error) or type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        message += ": " + "; ".join(
            f"{error_type(each)}: {error_message(each)}" for each in error.exceptions[:10]
        )
    return storable_text(message[:2000])


def unwrap_group(error: BaseException) -> BaseException:
    """The only error of a group of one, as a TaskGroup raises it; otherwise the error itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error

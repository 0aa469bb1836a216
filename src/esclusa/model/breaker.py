"""When a stage pauses because what it depends on is out."""

from __future__ import annotations

from esclusa.model import duration
from esclusa.model.errors import DeclarationError
from esclusa.model.value import value


@value
class Breaker:
    """Pause a stage after ``errors`` errors in a row of these types, without counting attempts.

    The stage then tries one record at a time, after pauses that grow from ``pause`` by ``factor``
    up to ``cap``, until one succeeds. Errors of other types neither count nor end the row. Errors
    before the pause count, but none is a record's last attempt unless another record was handled
    just before.
    """

    types: frozenset[str] | tuple[str, ...] | str
    errors: int = 5
    pause: float | str = 30.0
    factor: float = 2.0
    cap: float | str = 900.0

    def __post_init__(self) -> None:
        types = frozenset([self.types] if isinstance(self.types, str) else self.types)
        object.__setattr__(self, "types", types)
        faults = [] if types and all(isinstance(t, str) for t in types) else ["it names no type"]
        for name in ("pause", "cap"):
            try:
                object.__setattr__(self, name, duration.seconds(getattr(self, name)))
            except ValueError as error:
                faults.append(f"{name}: {error}")
        if self.errors < 1:
            faults.append(f"errors must be 1 or more, not {self.errors}")
        if self.factor < 1:
            faults.append(f"factor must be 1 or more, not {self.factor}")
        if faults:
            raise DeclarationError("Breaker", faults)

    def seconds(self, number: int) -> float:
        """How long pause ``number`` lasts (1 is the first)."""
        return min(float(self.cap), float(self.pause) * self.factor ** min(number - 1, 64))

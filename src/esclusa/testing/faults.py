"""Faults of handlers that a test must not overlook: errors in the code, not of the outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from esclusa.model.errors import FAULTS
from esclusa.model.retry import unwrap_group
from esclusa.model.texts import error_text
from esclusa.model.value import value

# Errors that the code of a handler causes, whatever the outside does.
PROGRAMMING = (
    *FAULTS,
    AssertionError,
    AttributeError,
    ImportError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
)


@value
class Fault:
    """What is wrong with a handler, and where: a stage, or a record."""

    where: str
    what: str
    cause: BaseException | None = None


class HandlerFaults(AssertionError):
    """Handlers have faults in their code. The first one is the cause of this error."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        lines = "".join(f"\n  - {fault.where}: {fault.what}" for fault in faults)
        super().__init__(f"the code of a handler is wrong:{lines}")


class FaultLog:
    """Collects the faults until they are raised."""

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}

    def raised(self, stage: str, error: BaseException) -> None:
        """Note what a handler raised, if its own code caused it."""
        cause = unwrap_group(error)
        if isinstance(cause, PROGRAMMING):
            what = f"{type(cause).__name__}: {cause}"
            self._faults.setdefault(what, Fault(stage, what, cause))

    def settled(self, where: str, error: Mapping[str, Any]) -> None:
        """Note what the engine found wrong with an answer."""
        if "fault" in error:
            what = f"{error['type']}: {error_text(error)}"
            known = any(str(error_text(error)) in known for known in self._faults)
            if not known:
                self._faults.setdefault(what, Fault(where, what))

    def check(self) -> None:
        """Raise HandlerFaults if there are any, and forget them."""
        faults, self._faults = list(self._faults.values()), {}
        if faults:
            raise HandlerFaults(faults) from faults[0].cause

"""The errors that Esclusa raises. Each message says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from esclusa.model.names import no_state
from esclusa.model.texts import Text, text


class EsclusaError(Exception):
    """The base class of all errors that Esclusa raises on purpose."""

    @property
    def message(self) -> str:
        """The message as it was given: a ``Text`` stays one."""
        own = self.args[0] if len(self.args) == 1 else None
        return own if isinstance(own, Text) else str(self)


class FaultsError(EsclusaError):
    """Several faults, reported together."""

    def __init__(self, what: str, faults: Iterable[str]) -> None:
        self.what = what
        self.faults = tuple(faults)
        super().__init__(what + "".join(f"\n  - {fault}" for fault in self.faults))


class DeclarationError(FaultsError):
    """A lifecycle, record, stage or cycle is declared wrongly."""


class SettingsError(FaultsError):
    """Settings are wrong; every fault names its setting."""


class SchemaError(FaultsError):
    """The store's tables do not fit the declared kinds, and ``migrate`` cannot change that."""


class SchemaBehind(SchemaError):
    """The schema lacks what ``migrate`` would add. The store cannot be used before that."""


class SchemaRefused(SchemaError):
    """A person must decide first: whose a table is, or that the role may make what is missing."""


class ForeignTables(SchemaBehind):
    """Tables that Esclusa did not create must be changed: only ``esclusa migrate`` does that."""


class MigrationError(EsclusaError):
    """A migration was edited after it ran, or the schema is newer than this program."""


class Refusal(EsclusaError):
    """A request that cannot be carried out. ``text`` and ``str()`` say why.

    Esclusa itself gives a ``Text`` (a code with values), so that a reader can translate it:
    ``raise NotFound(text("view_not_found", name=name, known=known))``. A pipeline may give a plain
    sentence instead; its code is "plain".
    """

    def __init__(self, message: str) -> None:
        self.text = message if isinstance(message, Text) else text("plain", message=message)
        super().__init__(message)


class UndeclaredMove(Refusal):
    """The lifecycle does not have this move."""

    def __init__(self, where: str, frm: str, to: str, allowed: Iterable[str]) -> None:
        self.frm, self.to = frm, to
        targets = ", ".join(allowed)
        code = "undeclared_move" if targets else "undeclared_move_terminal"
        super().__init__(text(code, where=where, frm=frm, to=to, targets=targets))


class UnknownState(UndeclaredMove):
    """The lifecycle does not have the state to which records should move."""

    def __init__(self, table: str, to: str, states: Sequence[str]) -> None:
        self.frm, self.to = "any state", to
        Refusal.__init__(self, no_state(table, to, states))


class UndeclaredEffect(UndeclaredMove):
    """An effect names a state or a move that the lifecycle does not have."""

    error_type = "undeclared_move"


class UndeclaredState(Refusal):
    """A record is in a state that the lifecycle does not have; only a repair moves it."""

    def __init__(self, where: str, state: str, table: str) -> None:
        self.state = state
        super().__init__(text("undeclared_state", where=where, state=state, table=table))


class BadQuery(Refusal):
    """The kind cannot be queried by this filter, order or cursor."""


class BadRecord(Refusal):
    """The fields of a record do not fit its declaration."""


class UndeclaredField(BadRecord):
    """A record was given a field that its kind does not have, or that cannot change."""


class NotFound(Refusal):
    """There is no such kind, record, cycle, view or budget."""


class AlreadyRunning(Refusal):
    """The cycle is running now, here or elsewhere, and must not overlap itself."""


class Paused(Refusal):
    """The cycle is paused; resume it first."""


class PipelineNotReady(Refusal):
    """The pipeline's lifespan is not open: it failed or is still opening. It is tried again."""


class StoreUnavailable(Refusal):
    """The store does not answer now. Transient: the same call may succeed later."""


class StoreNotReady(StoreUnavailable):
    """The store accepts no connection now, or cut it: it starts, is full or is out of reach.

    Settings may be right, so a process that starts waits for it.
    """


class StartStopped(EsclusaError):
    """The process was asked to stop while it waited for the store at its start."""


class StoreConflict(Refusal):
    """The store rolled back the transaction because of another one. Transient."""


class ArtifactError(EsclusaError):
    """The artifact store refused or failed."""

    error_type = "storage_error"


class ArtifactExists(ArtifactError):
    """A create-only put found an object of that name."""


class ArtifactMissing(ArtifactError):
    """There is no object of that name."""


class ExportError(EsclusaError):
    """Rows could not be written to a file, or a file could not be verified."""


class Failure(EsclusaError):
    """Raised by a handler: the attempt failed with an error type of its own.

    ``type`` names the error in the record, the history and the metrics. ``after`` is the shortest
    delay before the next attempt, such as a provider's ``Retry-After``.
    """

    permanent = False

    def __init__(
        self, message: str, *, type: str | None = None, after: float | None = None
    ) -> None:
        self.type = type
        self.after = after
        super().__init__(message)


class Permanent(Failure):
    """No later attempt can succeed: the record goes to its exhausted state at once."""

    permanent = True


class HandlerFault(EsclusaError):
    """The code of a handler is wrong, so that no later attempt can succeed."""


class WrongAnswer(HandlerFault):
    """A handler answered nothing, or something that is not an outcome."""


class LostAssignment(HandlerFault):
    """A handler assigned to a field of its record, and its answer does not have the field."""


class Throttled(EsclusaError):
    """A provider asks for fewer calls.

    The whole stage waits ``after`` seconds, in all workers; without ``stage`` only the record does.
    The attempt is not counted.
    """

    def __init__(self, message: str, *, after: float, stage: bool = True) -> None:
        self.after = after
        self.stage = stage
        super().__init__(message)


# Errors that show, wherever they are raised, that the code of a handler is wrong.
FAULTS = (HandlerFault, UndeclaredField, UndeclaredEffect)

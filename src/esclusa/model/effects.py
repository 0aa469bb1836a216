"""Effects: other writes in the same settlement, all or nothing with the record's own move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from esclusa.model.errors import UndeclaredEffect
from esclusa.model.kind import Kind, kind_of
from esclusa.model.query import Cond, conditions, with_earlier_states
from esclusa.model.record import Record
from esclusa.model.storable import storable_text
from esclusa.model.strict_fields import undeclared
from esclusa.model.texts import dump
from esclusa.model.value import set_fields, value


@value
class Exists:
    """A condition: some record of the kind passes the filter.

    It is evaluated inside the settlement's transaction.
    """

    kind: Kind
    where: tuple[tuple[str, Cond], ...]

    def __init__(self, kind: Kind | type[Record], **where: Any) -> None:
        found = kind_of(kind)
        set_fields(self, kind=found, where=with_earlier_states(found, conditions(found, where)))


@value
class Create:
    """Insert the record, unless one with its key exists."""

    record: Record


@value
class Move:
    """Move another record, and end any lease on it.

    ``frm``: only from these states; a record in another state stays as it is. With ``frm`` equal to
    ``to`` only fields change, as of a record with a single state. Without ``frm``, a
    record that does not exist or a move that is not declared rejects the whole settlement.
    ``unless``: do nothing while the condition is true.
    ``changes`` goes to the history, see ``Settlement``.
    """

    kind: Kind
    id: str
    to: str
    frm: tuple[str, ...]
    unless: Exists | None
    reason: str | None
    changes: Mapping[str, Any] | None
    fields: Mapping[str, Any]

    def __init__(
        self,
        kind: Kind | type[Record],
        id: str,
        to: str,
        *,
        frm: str | tuple[str, ...] = (),
        unless: Exists | None = None,
        reason: str | None = None,
        changes: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        found = kind_of(kind)
        froms = (frm,) if isinstance(frm, str) else tuple(frm)
        life = found.lifecycle
        for state in froms or life.sources(to) or life.states:
            if not life.allows(state, to) and not (froms and state == to):
                where = f"effect Move on {found.table}"
                raise UndeclaredEffect(where, state, to, life.targets(state))
        set_fields(
            self,
            kind=found,
            id=_text("Move", found, id),
            to=to,
            frm=found.lifecycle.with_earlier(froms),
            unless=unless,
            reason=reason if reason is None else storable_text(dump(reason)),
            changes=changes,
            fields=found.check_fields(fields),
        )


@value
class Wake:
    """Make another record due now, unless it is held or does not exist."""

    kind: Kind
    id: str

    def __init__(self, kind: Kind | type[Record], id: str) -> None:
        found = kind_of(kind)
        set_fields(self, kind=found, id=_text("Wake", found, id))


@value
class Add:
    """Add to whole-number fields of another record; its state stays.

    A record that does not exist rejects the settlement.
    """

    kind: Kind
    id: str
    amounts: Mapping[str, int]

    def __init__(self, kind: Kind | type[Record], id: str, **amounts: int) -> None:
        found = kind_of(kind)
        for name, amount in amounts.items():
            if name not in found.by_name:
                raise undeclared(found.model, [name])
            if found.by_name[name].type != "int":
                raise ValueError(f"effect Add: {found.table}.{name} does not hold whole numbers")
            if not isinstance(amount, int) or isinstance(amount, bool):
                raise ValueError(  # noqa: TRY004 - the same error as for an unknown field
                    f"effect Add: {found.table}.{name} takes a whole number, not {amount!r:.80}"
                )
        set_fields(self, kind=found, id=_text("Add", found, id), amounts=amounts)


Effect: TypeAlias = Create | Move | Wake | Add


def effects(where: str, given: Iterable[Any]) -> tuple[Effect, ...]:
    """The given effects. Raises TypeError, naming ``where``, for anything else."""
    found = tuple(given)
    for each in found:
        if not isinstance(each, Effect):
            raise TypeError(
                f"{where}: an effect is a Create, a Move, a Wake, an Add or a publish(…), "
                f"not {type(each).__name__}"
            )
    return found


def _text(effect: str, kind: Kind, id: Any) -> str:
    if not isinstance(id, str):
        raise TypeError(
            f"effect {effect}: the id of a record in {kind.table} is text, not {id!r:.80}"
        )
    return id

"""Effects: other writes that happen in the same settlement, all or nothing with the record's own move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from esclusa.model.query import Cond, conditions
from esclusa.model.record import Kind, Record, kind_of
from esclusa.model.value import value


@value
class Exists:
    """A guard: true while some record of the kind passes the filter, asked inside the settlement's transaction."""

    kind: Kind
    where: tuple[tuple[str, Cond], ...]

    def __init__(self, kind: Kind | type[Record], **where: Any) -> None:
        found = kind_of(kind)
        object.__setattr__(self, "kind", found)
        object.__setattr__(self, "where", conditions(found, where))


@value
class Create:
    """Insert the record, unless one with its key is there already."""

    record: Record


@value
class Move:
    """Move another record, and end any lease on it.

    ``frm``: only from these states; in another one nothing happens. Without ``frm`` the record must exist and
    the move must be declared, or the whole settlement is rejected. ``unless``: not while the guard is true.
    """

    kind: Kind
    id: str
    to: str
    frm: tuple[str, ...]
    unless: Exists | None
    reason: str | None
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
        **fields: Any,
    ) -> None:
        found = kind_of(kind)
        froms = (frm,) if isinstance(frm, str) else tuple(frm)
        for state in froms:
            found.lifecycle.check(state, to, f"effect Move on {found.table}")
        put = object.__setattr__
        put(self, "kind", found)
        put(self, "id", id)
        put(self, "to", to)
        put(self, "frm", froms)
        put(self, "unless", unless)
        put(self, "reason", reason)
        put(self, "fields", found.check_fields(fields))


@value
class Wake:
    """Make another record due now. A record that is held, or that is not there, is left as it is."""

    kind: Kind
    id: str

    def __init__(self, kind: Kind | type[Record], id: str) -> None:
        object.__setattr__(self, "kind", kind_of(kind))
        object.__setattr__(self, "id", id)


@value
class Add:
    """Add to number fields of another record, without touching its state. A missing record rejects the settlement."""

    kind: Kind
    id: str
    amounts: Mapping[str, int]

    def __init__(self, kind: Kind | type[Record], id: str, **amounts: int) -> None:
        found = kind_of(kind)
        for name in amounts:
            if name not in found.by_name or found.by_name[name].type != "int":
                raise ValueError(f"effect Add: {found.table} has no whole-number field {name}")
        object.__setattr__(self, "kind", found)
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "amounts", amounts)


Effect: TypeAlias = Create | Move | Wake | Add

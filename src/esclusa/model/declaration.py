"""What is wrong with the declaration of a record class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from esclusa.model.columns import NAME, SQL_TYPE, TRACKING, Field, Track
from esclusa.model.errors import DeclarationError, EsclusaError
from esclusa.model.lifecycle import Lifecycle

if TYPE_CHECKING:
    from esclusa.model.kind import Kind
    from esclusa.model.record import Record

# The fields of every record.
_EVERY_RECORD = frozenset({"id", *TRACKING})


def column_faults(table: str, id_column: str, fields: Sequence[Field], tracked: Track) -> list[str]:
    """Return what is wrong with the names of a table and its columns."""
    faults = [
        f"{name!r} is not a {what} name"
        for what, name in (("table", table), ("column", id_column))
        if not NAME.match(name)
    ]
    faults += [
        f"field {f.name}: {f.column!r} is not a column name"
        for f in fields
        if not NAME.match(f.column)
    ]
    faults += [
        f"field {f.name} has the id column, so it is text"
        for f in fields
        if f.column == id_column and f.type != "text"
    ]
    business = list(dict.fromkeys([*(f.column for f in fields), id_column]))
    business += [c for c, n in Counter(f.column for f in fields).items() for _ in range(n - 1)]
    alike = Counter(c.lower() for c in business)  # SQLite ignores case
    faults += [
        f"two fields have the column {c}"
        for c in sorted({c for c in business if alike[c.lower()] > 1})
    ]
    return faults + [
        f"column {c} is both a business column and the tracking value {n}"
        for n, c in tracked.items()
        if c in business and n in TRACKING
    ]


def declaration_faults(
    cls: type[Record],
    key: tuple[str, ...],
    columns: Mapping[str, str],
    index: Sequence[Sequence[str]],
    within: str | None,
) -> list[str]:
    """What is wrong with the names and options of a record class."""
    known = [n for n in cls.model_fields if n not in _EVERY_RECORD]
    faults: list[str] = []
    if not isinstance(getattr(cls, "lifecycle", None), Lifecycle):
        faults.append("it has no lifecycle; write: lifecycle = Lifecycle('pending -> done')")
    indexed = [name.lstrip("-") for fields in index for name in fields]
    faults += [
        f"{what} {name}, which is not one of its fields"
        for what, names, allowed in (
            ("its key names", key, known),
            ("columns maps", columns, known),
            ("an index names", indexed, [*known, "id", *TRACKING]),
            ("within names", () if within is None else (within,), known),
        )
        for name in names
        if name not in allowed
    ]
    faults += [
        f"field {name} belongs to every record; "
        f"rename it, and name its column with columns={{…: {name!r}}}"
        for name in ("kind", "lifecycle", "ref", "but", "checked")
        if name in known
    ]
    return faults + [
        f"field {name} belongs to the tracking; rename the business field"
        for name in cls.__annotations__
        if name in _EVERY_RECORD and name != "created_at"
    ]


def shape_faults(
    cls: type[Record],
    tracked: Track,
    optional: Sequence[str],
    added: Sequence[str],
    unique: Sequence[Sequence[str]],
    types: Mapping[str, str],
) -> list[str]:
    """What is wrong with what a record class says of its table."""
    known = [n for n in cls.model_fields if n not in _EVERY_RECORD]
    faults = [
        f"{what} names {name}, which is not one of its fields"
        for what, names in (
            ("optional", optional),
            ("added", added),
            ("unique", [name for names in unique for name in names]),
        )
        for name in names
        if name not in known
    ]
    faults += [
        f"optional names {name}, which has no default"
        for name in optional
        if name in known and cls.model_fields[name].is_required()
    ]
    faults += [
        f"types: {given!r} (for {name}) is not a type such as 'numeric(14, 0)'"
        for name, given in types.items()
        if not SQL_TYPE.match(given)
    ]
    life = getattr(cls, "lifecycle", None)
    if isinstance(life, Lifecycle) and "status" not in tracked and len(life.states) > 1:
        faults.append("it has several states, so it needs a column for them: untracked(status=…)")
    return faults


# The first state of existing rows: by state, the filter that they pass, or several.
Adopt: TypeAlias = Mapping[str, Mapping[str, Any] | Sequence[Mapping[str, Any]]]


def adoption(kind: Kind, adopt: Adopt) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
    """The states and conditions of ``adopt=``. Raises DeclarationError with every fault."""
    from esclusa.model.query import conditions  # noqa: PLC0415 - query imports record

    faults = [
        f"adopt names {state!r}, which is not one of its states"
        for state in adopt
        if state not in kind.lifecycle.states
    ]
    faults += [] if kind.attached else ["adopt is for a record of an existing table (track=…)"]
    faults += [
        f"adopt[{state!r}] has no condition; the other rows begin in the initial state anyway"
        for state, where in adopt.items()
        if not where
    ]
    if not faults:
        try:
            return tuple(
                (state, conditions(kind, each))
                for state, where in adopt.items()
                for each in ([where] if isinstance(where, Mapping) else where)
            )
        except EsclusaError as error:
            faults = [f"adopt: {error}"]
    raise DeclarationError(f"record {kind.name}", faults)

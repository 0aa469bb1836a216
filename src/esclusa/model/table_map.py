"""The map of a declared record onto an existing table, by settings."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)
from pydantic import Field as Limit

from esclusa.model.columns import EXTRAS, NAME, TRACKING, Track, track, untracked
from esclusa.model.declaration import column_faults
from esclusa.model.errors import DeclarationError
from esclusa.model.kind import Kind


class TableMap(BaseModel):
    """Where the records of one declared table are. What is not given stays as it is declared.

    ``columns``: the column of each field. ``track``: the column of each tracking value, and
    ``prefix``; false leaves out a tracking value that the engine can do without. ``attach``:
    whether another program owns the table; true if a name is mapped. ``insert``: false if the
    pipeline must not insert there. ``fill``: what new rows get in columns that are no fields.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    table: StrictStr | None = None
    id: StrictStr | None = None
    columns: dict[str, StrictStr] = {}
    track: dict[str, StrictStr | StrictBool] = {}
    attach: StrictBool | None = None
    database_id: StrictBool | None = None
    insert: StrictBool | None = None
    fill: dict[str, StrictStr | StrictBool | StrictInt | StrictFloat] = {}
    notify: StrictBool | None = None
    abandoned_after: float | None = Limit(None, ge=0)


def map_tables(kinds: Sequence[Kind], maps: Any) -> list[str]:
    """Map these kinds, by their declared tables, and set the others as declared; return the faults.

    A kind is changed in place, so that the change reaches all that holds it: the record's class,
    stages, views, queries and other kinds. With a fault, every kind is as declared.
    """
    for kind in kinds:
        kind.become(kind.as_declared)
    if not isinstance(maps, Mapping):
        return ["it must be a table of tables"]
    by_table = {kind.table: kind for kind in kinds if not kind.system}
    faults: list[str] = []
    mapped: dict[str, Kind] = {}
    for name, given in maps.items():
        if name not in by_table:
            faults.append(f"{name}: no loaded pipeline declares this table{_near(name, by_table)}")
            continue
        try:
            mapped[name] = _mapped(by_table[name], TableMap.model_validate(given))
        except ValidationError as error:
            faults += [f"{name}{_fault(each)}" for each in error.errors(include_url=False)]
        except DeclarationError as error:
            faults += [f"{name}: {fault}" for fault in error.faults]
    faults += _shared(by_table, mapped)
    if faults:
        return faults
    tables = {name: kind.table for name, kind in mapped.items()}
    for kind in kinds:
        new = mapped.get(kind.table, kind)
        refs = tuple((field, tables.get(table, table)) for field, table in kind.refs)
        if new is not kind or refs != kind.refs:
            kind.become(dataclasses.replace(new, refs=refs, original=kind.as_declared))
    return []


def _mapped(kind: Kind, given: TableMap) -> Kind:
    """Return the kind on its other table; DeclarationError with every fault."""
    tracked, faults = _track(kind, given)
    # a field that reads a tracking column follows it
    moved = {old: tracked[n] for n, old in kind.track.items() if n in EXTRAS and n in tracked}
    fields = tuple(
        dataclasses.replace(f, column=given.columns.get(f.name, moved.get(f.column, f.column)))
        for f in kind.fields
    )
    faults += [
        f"columns.{name}: {kind.name} has no such field{_near(name, kind.by_name)}"
        for name in given.columns
        if name not in kind.by_name
    ]
    new = dataclasses.replace(
        kind,
        table=kind.table if given.table is None else given.table,
        id_column=kind.id_column if given.id is None else given.id,
        fields=fields,
        track=tracked,
        attached=_attached(kind, given),
        database_id=kind.database_id if given.database_id is None else given.database_id,
        inserts=kind.inserts if given.insert is None else given.insert,
        fill=tuple(given.fill.items()) or kind.fill,
    )
    faults += column_faults(new.table, new.id_column, new.fields, new.track)
    if "status" not in tracked and len(kind.lifecycle.states) > 1:
        faults.append("track.status: it has several states, so it needs a column for them")
    faults += [
        f"fill.{column}: it is the column of {name}"
        for name, column in (new.columns | new.extras).items()
        if column in given.fill
    ]
    faults += [
        f"fill.{column}: it is not a column name" for column in given.fill if not NAME.match(column)
    ]
    if faults:
        raise DeclarationError(kind.table, faults)
    return new


def _attached(kind: Kind, given: TableMap) -> bool:
    names_something = bool(given.table or given.id or given.columns or given.track or given.fill)
    return (kind.attached or names_something) if given.attach is None else given.attach


def _track(kind: Kind, given: TableMap) -> tuple[Track, list[str]]:
    """Return the tracking columns; with faults, those that are declared."""
    named: dict[str, Any] = dict(given.track)
    prefix = named.pop("prefix", "")
    known = (*TRACKING, *EXTRAS)
    faults = [
        f"track.{name}: there is no such tracking value{_near(name, [*known, 'prefix'])}"
        for name in named
        if name not in known
    ]
    faults += [
        f"track.{name}: it is the name of a column, or false"
        for name, column in given.track.items()
        if column is True or (name == "prefix" and column is False)
    ]
    if faults:
        return kind.track, faults
    if not kind.track.complete and not prefix:
        columns = dict(kind.track) | named
        try:
            return untracked(**{n: c for n, c in columns.items() if c is not False}), []
        except DeclarationError as error:
            return kind.track, [f"track: {fault}" for fault in error.faults]
    extras = [name for name in kind.track if name in EXTRAS]
    base: dict[str, Any] = {name: prefix + name for name in extras} if prefix else dict(kind.track)
    left_out = dict.fromkeys(TRACKING.keys() - kind.track.keys())
    columns = left_out | base | {n: None if c is False else c for n, c in named.items()}
    age = given.abandoned_after
    try:
        return track(
            prefix,
            notify=kind.track.notify if given.notify is None else given.notify,
            abandoned_after=kind.track.abandoned_after if age is None else age,
            **columns,
        ), []
    except DeclarationError as error:
        return kind.track, [f"track: {fault}" for fault in error.faults]


def _shared(declared: Mapping[str, Kind], mapped: Mapping[str, Kind]) -> list[str]:
    """Return a fault for each record that is mapped to the table of another one."""
    others = {
        kind.table.lower(): kind.name for name, kind in declared.items() if name not in mapped
    }
    return [
        f"{name}.table: {kind.table} is the table of {owner}"
        for name, kind in mapped.items()
        if (owner := others.setdefault(kind.table.lower(), kind.name)) != kind.name
    ]


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _fault(error: Any) -> str:
    """Return the key that is wrong, and why."""
    where = "".join(f".{part}" for part in error["loc"] if part not in ("str", "bool"))
    if error["type"] == "extra_forbidden":
        near = _near(str(error["loc"][0]), TableMap.model_fields)
        return f"{where} is not a setting of a table{near}"
    return f"{where}: {error['msg']} (got {error['input']!r:.80})"

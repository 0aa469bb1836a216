"""The Kind: the description of a record class that stores work with, and references to records."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from esclusa.model import columns as declared
from esclusa.model.columns import EXTRAS, NEEDED, TRACKING, ColumnType, Field, Track
from esclusa.model.errors import BadRecord, NotFound, UndeclaredField
from esclusa.model.keys import id_of_key_text, ids_of_keys, key_id
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.paths import ALIASES
from esclusa.model.strict_fields import undeclared
from esclusa.model.texts import text
from esclusa.model.value import value

if TYPE_CHECKING:
    from esclusa.model.record import Record


@dataclass(frozen=True)
class Kind:
    """The description of a record class that stores work with."""

    name: str
    table: str
    model: type[Record]
    lifecycle: Lifecycle
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    track: Track
    id_column: str
    attached: bool
    history: bool
    archive: bool
    indexes: tuple[tuple[str, ...], ...]
    within: str | None
    database_id: bool
    parent: Kind | None = None
    # Fields with the id of a record of another table: (field, table).
    refs: tuple[tuple[str, str], ...] = ()
    # The first state of rows that existed before the tracking: (state, conditions).
    adopt: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    # Fields whose column a table of another program may lack: neither read nor written there.
    optional: frozenset[str] = frozenset()
    # Fields whose column `esclusa migrate` adds to a table of another program.
    added: frozenset[str] = frozenset()
    # Whether Esclusa inserts such records; None: as the declaration shows.
    inserts: bool | None = None
    # Whether several records of other programs may have the same key.
    shared_key: bool = False
    # What a new row gets in columns that are no fields: (column, value).
    fill: tuple[tuple[str, str | int | float | bool], ...] = ()
    # In tables that Esclusa creates: unique fields, references that are foreign keys, and types.
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[str, ...] = ()
    sql_types: tuple[tuple[str, str], ...] = ()
    # The function of another program that makes the partitions of its table: name(numbers).
    partitions: str = ""
    # By which a table is known that cannot be used: (column that is no field, or field without a
    # column; what to do).
    refused: tuple[tuple[str, str], ...] = ()
    # The optional fields that the table of the opened store lacks.
    lacks: frozenset[str] = frozenset()
    # Whether Firestore documents of other programs become records.
    adopted: bool = True
    # One of Esclusa's own tables.
    system: bool = False
    # The kind as it is declared, if settings map it onto another table.
    original: Kind | None = None

    def __hash__(self) -> int:
        return hash(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and other.table == self.table

    @property
    def as_declared(self) -> Kind:
        """The kind without the map of the settings."""
        return self.original or dataclasses.replace(self, lacks=frozenset())

    def become(self, other: Kind) -> None:
        """Take over another description, for all that holds this one."""
        values = {f.name: getattr(other, f.name) for f in dataclasses.fields(Kind)}
        self.__dict__.clear()  # cached properties, too
        self.__dict__.update(values)

    def found_without(self, fields: frozenset[str]) -> None:
        """Note the optional fields that the table of the opened store lacks."""
        if fields != self.lacks:
            self.become(dataclasses.replace(self, lacks=fields))

    def refusals(self, columns: Iterable[str]) -> list[str]:
        """Why an existing table with these columns cannot be used, and what to do."""
        found = {column.lower() for column in columns}
        wanted = {field.name: field.column.lower() in found for field in self.fields}
        return [
            f"table {self.table} {'has no' if name in wanted else 'has the'} column {name}: {word}"
            for name, word in self.refused
            if wanted.get(name) is False or (name not in wanted and name.lower() in found)
        ]

    @property
    def initial(self) -> str:
        return self.lifecycle.initial

    @cached_property
    def id_field(self) -> str | None:
        """The business field whose column is the id of the table."""
        return next((f.name for f in self.fields if f.column == self.id_column), None)

    @property
    def adoptions(self) -> tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]:
        """``adopt`` without the filters on columns that the table lacks."""
        return tuple(
            (state, where)
            for state, where in self.adopt
            if not any(name in self.lacks for name, _ in where)
        )

    @cached_property
    def unique_key(self) -> bool:
        """Whether a unique index is needed for the key, because the id alone does not keep it so.

        The id is not made of the key, or the columns are those of another program, which may insert
        rows too.
        """
        return self.known_by_key and not (self.attached and self.shared_key)

    @cached_property
    def known_by_key(self) -> bool:
        """Whether a new record is looked up by its key: an existing one may have another id."""
        if self.key == (self.id_field,):
            return False
        mapped = dict(self.track) != declared.track()
        return bool(self.key) and (self.attached or self.database_id or mapped)

    @property
    def inserted(self) -> bool:
        """Whether Esclusa inserts such records, as far as the declaration shows.

        A record of an existing table without a key and without ids from the database is only taken
        from it, unless the declaration or the settings say otherwise.
        """
        if self.inserts is not None:
            return self.inserts
        return not self.attached or bool(self.key) or self.database_id

    @property
    def makes_text_ids(self) -> bool:
        """Whether Esclusa inserts such records with ids of its own, which are text."""
        return self.inserted and not self.database_id and self.id_field is None

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {f.name: f for f in self.fields}

    @cached_property
    def types(self) -> dict[str, ColumnType]:
        """The column type of everything that can be stored or queried, by its name in Python."""
        tracked = {n: t for n, t in TRACKING.items() if n in self.track or n in NEEDED}
        return {"id": "text", **tracked, **{f.name: f.type for f in self.fields}}

    @cached_property
    def columns(self) -> dict[str, str]:
        """The column of every value of a record that the table has, by its name in Python."""
        tracked = {n: c for n, c in self.track.items() if n in TRACKING}
        fields = {f.name: f.column for f in self.fields if f.name not in self.lacks}
        return {"id": self.id_column, **tracked, **fields}

    @cached_property
    def constants(self) -> dict[str, Any]:
        """The values of a record for which the table has no column, by their name in Python."""
        values: dict[str, Any] = {"status": self.initial, "attempts": 0, "fence": 0}
        values |= {name: self.default_of(name) for name in self.lacks}
        return {name: values.get(name) for name in self.types if name not in self.columns}

    def default_of(self, field: str) -> Any:
        """The default of a business field; None if it has none."""
        info = self.model.model_fields[field]
        if info.is_required():
            return None
        return info.get_default(call_default_factory=True, validated_data={})

    @cached_property
    def _by_column(self) -> dict[str, str]:
        return {column: name for name, column in self.columns.items() if column not in self.types}

    def name_of(self, name: str) -> str:
        """The name in Python of a field that may be given by its column. Unknown names stay.

        A path into a JSON field may begin with its column, and has a short name for errors.
        """
        if name in self.types:
            return name
        if name in self._by_column:
            return self._by_column[name]
        path = ALIASES.get(name, name) if "last_error" in self.types else name
        field, dot, inside = path.partition(".")
        return f"{self._by_column.get(field, field)}{dot}{inside}"

    @cached_property
    def extras(self) -> dict[str, str]:
        """The columns that the engine writes only for readers of the table."""
        return {n: c for n, c in self.track.items() if n in EXTRAS}

    def identify(self, record: Record, new_id: typing.Callable[[], str]) -> str:
        """The id of a new record: made of its key if it has one, otherwise a new id."""
        if self.id_field is not None:
            return str(getattr(record, self.id_field)) or new_id()
        if record.id or not self.key or self.database_id:
            return record.id or new_id()
        return key_id([getattr(record, name) for name in self.key])

    def identify_all(
        self, records: Sequence[Record], new_id: typing.Callable[[], str]
    ) -> list[str]:
        """The ids of new records of this kind, as ``identify`` makes them."""
        if self.id_field is not None or not self.key or self.database_id:
            return [self.identify(record, new_id) for record in records]
        values = [record.__dict__ for record in records]
        ids = ids_of_keys([[v[name] for v in values] for name in self.key])
        return [v["id"] or id for v, id in zip(values, ids, strict=True)]

    def id_of(self, *parts: object, **named: object) -> str:
        """The id that a record with this key has: ``Post.kind.id_of("twitter", "123")``."""
        given = [named[name] for name in self.key] if named else list(parts)
        return str(given[0]) if self.key == (self.id_field,) else key_id(given)

    def absent(self, id: str) -> NotFound:
        """The refusal for an id without a record. If it looks like a key, it shows the id."""
        made_of_key = self.key and not self.database_id and self.id_field is None
        key_id = id_of_key_text(id, len(self.key)) if made_of_key else ""
        if key_id:
            return NotFound(text("record_not_found_by_key", id=id, table=self.table, key_id=key_id))
        return NotFound(text("record_not_found", id=id, table=self.table))

    def check_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Validate business fields before they are written.

        Raises UndeclaredField, or BadRecord with every value that does not fit.
        """
        if not fields:
            return {}
        if unknown := fields.keys() - self.by_name.keys():
            raise undeclared(self.model, sorted(unknown))
        if keys := [name for name in fields if name in self.key]:
            raise UndeclaredField(text("key_field", table=self.table, name=", ".join(keys)))
        try:
            return self.model.checked(fields)
        except ValidationError as error:
            raise BadRecord("; ".join(_faults(error))) from None

    def build(self, values: dict[str, Any]) -> Record:
        """A record from stored values.

        Rows of an attached table are validated: other programs write them too.
        """
        return self.build_foreign(values) if self.attached else self.construct(values)

    def build_foreign(self, values: dict[str, Any]) -> Record:
        """A record that another program may have written; BadRecord if it cannot be read.

        Text in ``created_at`` or ``updated_at`` that is no time is shown as it is, and is no fault.
        """
        odd = {n: values[n] for n in ("created_at", "updated_at") if _is_odd_time(values.get(n))}
        record = self.draft(values | dict.fromkeys(odd), f"{self.table} {values.get('id')}: ")
        record.__dict__.update(odd)
        return record

    @cached_property
    def construct(self) -> typing.Callable[[dict[str, Any]], Record]:
        """Build a record of trusted values, without validation; a missing field is None.

        The dictionary becomes the record's own. Every claimed record is built here. A record of
        13 fields takes 0.3 µs; ``model_construct`` takes 5.0 µs, and copying a blank record
        2.0 µs, of the 15 to 20 µs that claiming and settling it costs. Only this and
        ``strict_fields`` set pydantic's private attributes.
        """
        model = self.model
        if model.model_post_init is not BaseModel.model_post_init:  # or private attributes
            return lambda values: model.model_construct(None, **values)
        empty: dict[str, Any] = dict.fromkeys(model.model_fields)
        fields_set = set(empty)  # shared: it has every field, so no record can add one
        new, count = object.__new__, len(empty)
        # The setters of pydantic's slots: ``object.__setattr__`` would look them up each time.
        slots = [
            BaseModel.__dict__[name].__set__
            for name in (
                "__dict__",
                "__pydantic_fields_set__",
                "__pydantic_extra__",
                "__pydantic_private__",
            )
        ]
        set_values, set_fields_set, set_extra, set_private = slots

        def construct(values: dict[str, Any]) -> Record:
            record = new(model)
            set_values(record, values if len(values) == count else empty | values)
            set_fields_set(record, fields_set)
            set_extra(record, None)
            set_private(record, None)
            return record

        return construct

    def draft(self, values: Mapping[str, Any], where: str = "") -> Record:
        """A record from untrusted input. Raises BadRecord with every fault, after ``where``."""
        try:
            return self.model.model_validate(values)
        except ValidationError as error:
            raise BadRecord(where + "; ".join(_faults(error))) from None

    def fault_of(self, record: Record) -> str | None:
        """Why a record that another program may have written does not fit its declaration."""
        names = self.by_name.keys()
        try:
            self.model.model_validate({name: getattr(record, name) for name in names})
        except ValidationError as error:
            return "; ".join(_faults(error))
        return None

    def as_json(self, record: Record) -> dict[str, Any]:
        """The record as the API shows it; mapped tracking columns also under their own names."""
        shown = record.model_dump(mode="json", warnings=False)  # other programs write any type
        shown |= {
            column: shown[name]
            for name, column in self.columns.items()
            if column not in shown and name != "id"
        }
        return {n: each for n, each in shown.items() if n not in ("fence", "leased_by")}


def _is_odd_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and not datetime.fromisoformat(value)
    except ValueError:
        return True


@value
class Ref:
    """Which record: its kind and its id."""

    kind: Kind
    id: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self.id == other.id and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.id)  # fast; records of different kinds seldom share an id

    def __str__(self) -> str:
        return f"{self.kind.table} {self.id}"


def kind_of(record: Kind | type[Record]) -> Kind:
    """The kind of a record class, or the given kind."""
    return record if isinstance(record, Kind) else record.kind


def _faults(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(map(str, e['loc'])) or 'record'}: {e['msg']} (got {e['input']!r:.80})"
        for e in error.errors(include_url=False)
    ]

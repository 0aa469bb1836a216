"""Records: typed business rows with a lifecycle, and the Kind that describes them to a store."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from esclusa.model import columns as declared
from esclusa.model.columns import (
    EXTRAS,
    NEEDED,
    PARTITION_CALL,
    SYSTEM_PREFIX,
    TRACKING,
    ColumnType,
    Field,
    Track,
    column_type,
)
from esclusa.model.declaration import (
    Adopt,
    adoption,
    column_faults,
    declaration_faults,
    shape_faults,
)
from esclusa.model.errors import (
    BadRecord,
    DeclarationError,
    NotFound,
    UndeclaredField,
)
from esclusa.model.keys import id_of_key_text, key_id
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.strict_fields import StrictFields, undeclared
from esclusa.model.texts import text
from esclusa.model.value import value


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
        """The name in Python of a field that may be given by its column. Unknown names stay."""
        return self._by_column.get(name, name)

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
        if not self.attached:
            return self.construct(values)
        return self.draft(values, f"{self.table} {values.get('id')}: ")

    @cached_property
    def construct(self) -> typing.Callable[[dict[str, Any]], Record]:
        """Build a record of trusted values, without validation; a missing field is None.

        The dictionary becomes the record's own. Every claimed record is built here. A record of
        13 fields takes 0.6 µs; ``model_construct`` takes 5.0 µs, and copying a blank record
        2.0 µs, of the 30 to 40 µs that claiming and settling it costs. Only this and
        ``strict_fields`` set pydantic's private attributes.
        """
        model = self.model
        if model.model_post_init is not BaseModel.model_post_init:  # or private attributes
            return lambda values: model.model_construct(None, **values)
        empty: dict[str, Any] = dict.fromkeys(model.model_fields)
        fields_set = set(empty)  # shared: it has every field, so no record can add one
        new, put = object.__new__, object.__setattr__

        def construct(values: dict[str, Any]) -> Record:
            record = new(model)
            put(record, "__dict__", values if len(values) == len(empty) else empty | values)
            put(record, "__pydantic_fields_set__", fields_set)
            put(record, "__pydantic_extra__", None)
            put(record, "__pydantic_private__", None)
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


class Record(StrictFields):
    """A business row with a lifecycle, declared as a subclass.

    For example::

        class Post(Record, table="posts", key=("platform", "post_id")):
            platform: str
            post_id: str
            lifecycle = Lifecycle("waiting -> working -> done")

    ``key``: the fields that make it unique. The id is made of them.
    ``track`` and ``columns``: the columns of an existing table (see ``track``).
    ``within`` and ``parent``: the field with the id of the parent record, and the parent's class,
    for Firestore, where documents are nested (``within="folio_id", parent=Folio``).
    ``refs``: fields with the id of another record, and its class or table
    (``refs={"post_doc_id": Post}``). Console and API link to that record, and back if an index
    begins with the field.
    ``id``: the id column. If it is the column of a text field, that field is the record's id.
    ``database_id``: the database generates the ids, if it can.
    ``insert``: whether Esclusa inserts such records into a table of another program.
    ``optional``: fields whose column such a table may lack. They are neither read nor written
    there, and have their default. ``added``: fields whose column ``esclusa migrate`` adds to it.
    ``partitions``: the function of that program that makes the partitions of the table on
    PostgreSQL, with its arguments; ``records.make_partitions`` calls it where it exists.
    ``unique``, ``foreign_keys`` and ``types`` are for tables that Esclusa creates: fields that are
    unique together, fields of ``refs`` that are foreign keys (deletes and updates cascade), and the
    type of a column on PostgreSQL (``types={"amount": "numeric(14, 0)"}``).
    ``adopt``: the first state of existing rows that pass a filter, when the status column is added
    (``adopt={"success": {"file": not_null}}``). Other rows begin in the initial state.
    ``adopt=False``: Firestore documents of other programs are no records and stay as they are.

    An assignment in a handler is not stored: the answer must have the field.
    """

    model_config = ConfigDict(
        ignored_types=(Lifecycle,),
        extra="ignore",
        protected_namespaces=(),
        ser_json_bytes="base64",
        val_json_bytes="base64",
        defer_build=True,  # a command that only reads needs no validators
    )

    kind: ClassVar[Kind]
    lifecycle: ClassVar[Lifecycle]

    id: str = ""
    status: str = ""
    attempts: int = 0
    due_at: datetime | None = None
    fence: int = 0
    leased_by: str | None = None
    last_error: dict[str, Any] | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()  # `__pydantic_init_subclass__` gets the options

    @classmethod
    def __pydantic_init_subclass__(
        cls,
        *,
        table: str | None = None,
        key: str | Sequence[str] = (),
        track: Track | None = None,
        columns: Mapping[str, str] | None = None,
        id: str = "id",
        attach: bool | None = None,
        history: bool = True,
        archive: bool = False,
        index: Sequence[Sequence[str]] = (),
        within: str | None = None,
        parent: type[Record] | None = None,
        refs: Mapping[str, type[Record] | str] | None = None,
        database_id: bool = False,
        insert: bool | None = None,
        optional: Sequence[str] = (),
        added: Sequence[str] = (),
        shared_key: bool = False,
        unique: Sequence[Sequence[str]] = (),
        foreign_keys: Sequence[str] = (),
        types: Mapping[str, str] | None = None,
        partitions: str = "",
        adopt: Adopt | Literal[False] | None = None,
        system: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__pydantic_init_subclass__()
        unknown = [f"{name}= is not an option of a record" for name in kwargs]
        if table is None:  # a common base class
            if unknown:
                raise DeclarationError(f"record {cls.__name__}", unknown)
            return
        key = (key,) if isinstance(key, str) else tuple(key)
        columns = columns or {}
        tracked = declared.track() if track is None else track
        faults = unknown + declaration_faults(cls, key, columns, index, within)
        faults += shape_faults(cls, tracked, optional, added, unique, types or {})
        if partitions and not PARTITION_CALL.match(partitions):
            faults.append("partitions is a call such as 'make_months(12, 2)'")
        if table.lower().startswith(SYSTEM_PREFIX) is not system:
            faults.append(
                f"{table}: only the names of Esclusa's own tables begin with {SYSTEM_PREFIX}"
            )
        fields = []
        for name, info in cls.model_fields.items():
            if name in Record.model_fields:
                continue
            column = columns.get(name, name)
            kind_of, nullable = column_type(info)
            if kind_of is None:
                faults.append(f"field {name}: a column cannot hold {info.annotation}")
                continue
            fields.append(Field(name, column, kind_of, nullable))
        faults += column_faults(table, id, fields, tracked)
        if parent is not None and within is None:
            faults.append(f"parent={parent.__name__} needs within=, the field that holds its id")
        followed = {
            name: target if isinstance(target, str) else target.kind.table
            for name, target in (refs or {}).items()
        }
        faults += [
            f"refs: it has no text field {name}"
            for name in followed
            if "text" not in [f.type for f in fields if f.name == name]
        ]
        faults += [
            f"foreign_keys names {name}, which refs does not have"
            for name in foreign_keys
            if name not in followed
        ]
        if parent is not None and within is not None:
            followed.setdefault(within, parent.kind.table)
        if faults:
            raise DeclarationError(f"record {cls.__name__}", faults)
        cls.kind = Kind(
            name=cls.__name__,
            table=table,
            model=cls,
            lifecycle=cls.lifecycle,
            fields=tuple(fields),
            key=key,
            track=tracked,
            id_column=id,
            attached=track is not None if attach is None else attach,
            history=history,
            archive=archive,
            indexes=tuple(tuple(i) for i in index),
            within=within,
            database_id=database_id,
            parent=None if parent is None else parent.kind,
            refs=tuple(followed.items()),
            optional=frozenset(optional),
            added=frozenset(added),
            shared_key=shared_key,
            inserts=insert,
            unique=tuple(tuple(names) for names in unique),
            foreign_keys=tuple(foreign_keys),
            sql_types=tuple((types or {}).items()),
            partitions=partitions,
            adopted=adopt is not False,
            system=system,
        )
        if adopt:
            cls.kind = replace(cls.kind, adopt=adoption(cls.kind, adopt))

    @classmethod
    def checked(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Validate some fields without the others; returns the converted values.

        pydantic's public methods validate a whole model, or every assignment to every instance.
        ``__pydantic_validator__`` is the only way to validate single fields with the model's own
        field validators; nothing else in Esclusa uses it.
        """
        blank = copy(_blank(cls))
        for name, given in fields.items():
            cls.__pydantic_validator__.validate_assignment(blank, name, given)
        return {name: getattr(blank, name) for name in fields}

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.id)


@cache
def _blank(model: type[Record]) -> Record:
    """A record with default values; copying it is faster than making one."""
    return model.model_construct()


def kind_of(record: Kind | type[Record]) -> Kind:
    """The kind of a record class, or the given kind."""
    return record if isinstance(record, Kind) else record.kind


def _faults(error: ValidationError) -> list[str]:
    return [
        f"{'.'.join(map(str, e['loc'])) or 'record'}: {e['msg']} (got {e['input']!r:.80})"
        for e in error.errors(include_url=False)
    ]

"""Records: typed business rows with a lifecycle, declared as subclasses of Record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from esclusa.model import columns as declared
from esclusa.model.columns import PARTITION_CALL, SYSTEM_PREFIX, Field, Track, column_type
from esclusa.model.declaration import (
    Adopt,
    adoption,
    column_faults,
    declaration_faults,
    shape_faults,
)
from esclusa.model.errors import DeclarationError
from esclusa.model.kind import Kind, Ref
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.strict_fields import StrictFields


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
    ``refused``: by which a table is known that cannot be used, and what to do about it: a column
    that is no field, which such a table has, or a field, whose column it lacks
    (``refused={"claimed_by": "it is a table of version 0.1.0; …"}``).
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
        refused: Mapping[str, str] | None = None,
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
            refused=tuple((refused or {}).items()),
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
        field validators; only this and the constructor use it.
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

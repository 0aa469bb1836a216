"""SQLAlchemy: records made of mapped classes, and inserts in the caller's session.

``class OrderRecord(MappedRecord[Order]): lifecycle = Lifecycle("…")`` has the columns of ``Order``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import create_model

from esclusa.extras import with_advice
from esclusa.integrations.fields import record_options, union_with_none
from esclusa.model.errors import DeclarationError
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted
from esclusa.stores.host_inserts import HostStatement, Insertions, execute
from esclusa.stores.postgres.host_inserts import insertions as postgres_insertions
from esclusa.stores.postgres.names import SCHEMA
from esclusa.stores.sqlite.host_inserts import insertions as sqlite_insertions

try:
    from sqlalchemy import Column, Connection, Table, inspect, text
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Mapper, Session
except ModuleNotFoundError as error:
    raise with_advice(error) from None

M = TypeVar("M")


class MappedRecord(Record, Generic[M]):
    """A record of the table of a mapped class, whose columns are declared only there.

    ``class OrderRecord(MappedRecord[Order])``. The options are those of ``Record``. By default the
    tracking columns begin with ``esclusa_``, and the database notifies workers of new rows:
    ``track=track(prefix="esclusa_", notify=True)``. A column that the tracking uses is no field,
    and neither is one whose name every record has (``id``, ``status``, ``updated_at``). The mypy
    plugin ``esclusa.mypy`` knows the types of the fields.
    """

    mapped: ClassVar[type[Any]]

    if TYPE_CHECKING:  # without the plugin, fields may be read and given by name

        def __init__(self, **fields: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    else:

        def __class_getitem__(cls, mapped: Any) -> Any:
            return cls if isinstance(mapped, TypeVar) else _base(mapped)

        @classmethod
        def __pydantic_init_subclass__(cls, **options: Any) -> None:
            if hasattr(cls, "lifecycle"):
                options = record_options(cls, _described(cls.mapped), options)
            super().__pydantic_init_subclass__(**options)


@cache
def _base(mapped: type[Any]) -> type[MappedRecord[Any]]:
    """The common base of the records of a mapped class: the fields, without table and lifecycle."""
    fields: dict[str, Any] = {name: (kind, default) for name, _, kind, default in _fields(mapped)}
    base: Any = create_model(
        f"{mapped.__name__}Fields", __base__=MappedRecord, __module__=mapped.__module__, **fields
    )
    base.mapped = mapped
    made: type[MappedRecord[Any]] = base
    return made


def _described(mapped: type[Any]) -> dict[str, Any]:
    """The options of a record that the mapped class shows."""
    table, keys = _table(mapped), list(inspect(mapped).primary_key)
    if len(keys) != 1:
        names = ", ".join(key.name for key in keys)
        raise DeclarationError(
            f"record of {mapped.__name__}", [f"its primary key needs one column, not {names}"]
        )
    columns = {name: column.name for name, column, _, _ in _fields(mapped)}
    return {
        "table": table.name,
        "id": keys[0].name,
        "columns": {name: column for name, column in columns.items() if name != column},
        "database_id": bool(
            keys[0] is table.autoincrement_column or keys[0].server_default is not None
        ),
    }


def _fields(mapped: type[Any]) -> Iterator[tuple[str, Column[Any], Any, Any]]:
    """Name, column, type and default of each mapped column.

    Without the primary key, and without names that a record has itself, such as ``status``.
    """
    mapper: Mapper[Any] = inspect(mapped)
    for attribute in mapper.column_attrs:
        column = attribute.columns[0]
        if not isinstance(column, Column) or column.primary_key or column.computed is not None:
            continue
        if attribute.key in Record.model_fields:
            continue
        try:
            kind: Any = column.type.python_type
        except NotImplementedError:
            kind = Any
        kind = Any if kind in (dict, list, object) else kind  # JSON holds anything
        default: Any = getattr(column.default, "arg", None) if column.default else None
        scalar = default if getattr(column.default, "is_scalar", False) else None
        server = column.server_default is not None
        optional = bool(column.nullable) or column.default is not None or server
        if optional and scalar is None:
            yield attribute.key, column, union_with_none(kind), None
        else:
            yield attribute.key, column, kind, scalar if optional else ...


def _table(mapped: type[Any]) -> Table:
    table = inspect(mapped).local_table
    if not isinstance(table, Table):
        raise DeclarationError(f"record of {mapped.__name__}", ["it is not mapped to a table"])
    return table


def insert(
    session: Session | Connection, records: Sequence[Record], *, schema: str = SCHEMA
) -> list[Inserted | Duplicate]:
    """Add records in the session's transaction; a known key is left as it is.

    Workers learn of them when it is committed. What the session holds is flushed first. PostgreSQL
    with any driver, and SQLite. ``schema``: ``ESCLUSA_POSTGRES_SCHEMA`` of the workers. Raises
    BadRecord before anything is sent if a value cannot be stored, and SQLAlchemy's own errors.
    """
    if isinstance(session, Session):
        session.flush()
        connection = session.connection()
    else:
        connection = session

    def run(statement: HostStatement) -> Sequence[Sequence[Any]]:
        bound = {f"p{number}": value for number, value in enumerate(statement.values, 1)}
        return connection.execute(text(statement.sql), bound).all()

    return execute(_insertions(connection.dialect.name, records, schema), run)


async def insert_async(
    session: AsyncSession | AsyncConnection, records: Sequence[Record], *, schema: str = SCHEMA
) -> list[Inserted | Duplicate]:
    """The same in an async session."""
    return await session.run_sync(lambda sync: insert(sync, records, schema=schema))


def _insertions(dialect: str, records: Sequence[Record], schema: str) -> Insertions:
    if dialect == "postgresql":
        return postgres_insertions(records, _placeholder, schema)
    if dialect == "sqlite":
        return sqlite_insertions(records, _placeholder)
    raise TypeError(f"records are inserted into PostgreSQL or SQLite, not {dialect}")


def _placeholder(number: int) -> str:
    return f":p{number}"

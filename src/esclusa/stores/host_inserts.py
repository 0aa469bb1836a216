"""Inserts on the connection of a host application, as statements that it executes itself.

The statements of a store are a generator: it yields each ``HostStatement``, is sent its rows, and
returns one answer for each record. So one composition serves every driver, sync and async.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeAlias
from uuid import uuid4

from esclusa.model.errors import BadRecord
from esclusa.model.kind import Kind
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted
from esclusa.model.storable import misfit
from esclusa.model.value import value

# How the driver writes the nth parameter of a statement, counted from 1.
Placeholder: TypeAlias = Callable[[int], str]
Answer: TypeAlias = Inserted | Duplicate


@value
class HostStatement:
    """A statement and the values that it binds, in order."""

    sql: str
    values: tuple[Any, ...]


Insertions: TypeAlias = Generator[HostStatement, Sequence[Sequence[Any]], list[Answer]]


def execute(
    insertions: Insertions, run: Callable[[HostStatement], Sequence[Sequence[Any]]]
) -> list[Answer]:
    """Execute each statement with ``run``, which returns its rows; return the answers."""
    try:
        statement = next(insertions)
        while True:
            statement = insertions.send(run(statement))
    except StopIteration as done:
        answers: list[Answer] = done.value
        return answers


async def execute_async(
    insertions: Insertions, run: Callable[[HostStatement], Awaitable[Sequence[Sequence[Any]]]]
) -> list[Answer]:
    """The same with a driver whose calls are awaited."""
    try:
        statement = next(insertions)
        while True:
            statement = insertions.send(await run(statement))
    except StopIteration as done:
        answers: list[Answer] = done.value
        return answers


def new_id(record: Record) -> str | None:
    """The id of a new record; None if the database makes it."""
    kind = record.kind
    if kind.database_id and not record.id and kind.id_field is None:
        return None
    return kind.identify(record, lambda: str(uuid4()))


def given_values(record: Record) -> dict[str, Any]:
    """What a new record brings, by its name in Python: business fields, and tracking if it is set.

    Raises BadRecord for an undeclared state or a value that no store can hold, before anything is
    sent: a refused statement would end the host's transaction.
    """
    kind, values = record.kind, record.__dict__
    if record.status and record.status not in kind.lifecycle.states:
        states = ", ".join(kind.lifecycle.states)
        raise BadRecord(f"{kind.table}: {record.status!r} is not one of its states ({states})")
    if (wrong := misfit(kind, values)) is not None:
        raise wrong
    given = {f.name: values[f.name] for f in kind.fields if values[f.name] is not None}
    tracking = ("status", "attempts", "due_at", "created_at")
    given |= {name: values[name] for name in tracking if name in kind.track and values[name]}
    return given


def by_table(records: Sequence[Record]) -> list[tuple[int, Record]]:
    """The records with their places, in one order in every transaction: this prevents deadlocks."""
    numbered = list(enumerate(records))
    return sorted(numbered, key=lambda each: (each[1].kind.table, new_key(each[1])))


def new_key(record: Record) -> str:
    """What records of one table are ordered by."""
    return ":".join(str(getattr(record, name)) for name in record.kind.key) or record.id


def unexpected_duplicate(kind: Kind) -> BadRecord:
    """The error for a record without key that a unique index of its table refuses."""
    return BadRecord(
        f"{kind.table}: a record without id or key violates a unique index of the table;"
        " declare its key"
    )

"""Inserts on Django's own connection, in the transaction of ``atomic()``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connections

from esclusa.integrations.django.system import settings_of_host
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted
from esclusa.stores.host_inserts import HostStatement, Insertions, execute
from esclusa.stores.postgres.host_inserts import insertions as postgres_insertions
from esclusa.stores.postgres.names import SCHEMA
from esclusa.stores.sqlite.host_inserts import insertions as sqlite_insertions


def insert(records: Sequence[Record], *, using: str = "default") -> list[Inserted | Duplicate]:
    """Add records in the current transaction; a known key is left as it is.

    Workers learn of them when it is committed. ``using``: the name of the database, as for a
    queryset. Raises BadRecord before anything is sent if a value cannot be stored, and Django's own
    errors.
    """
    connection = connections[using]

    def run(statement: HostStatement) -> Sequence[Sequence[Any]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.sql, statement.values)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    return execute(_insertions(connection.vendor, records), run)


def _insertions(vendor: str, records: Sequence[Record]) -> Insertions:
    if vendor == "postgresql":
        schema = settings_of_host().get("postgres_schema", SCHEMA)
        return postgres_insertions(records, _placeholder, schema)
    if vendor == "sqlite":
        return sqlite_insertions(records, _placeholder)
    raise TypeError(f"records are inserted into PostgreSQL or SQLite, not {vendor}")


def _placeholder(number: int) -> str:
    return "%s"

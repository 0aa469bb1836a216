"""Names of an installation: its schema, its tables, and what else its sessions share by name.

Several installations can use one database. Each has a schema of its own, with Esclusa's own tables.
Business tables are found as the role's search path finds them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from esclusa.model.columns import SYSTEM_PREFIX
from esclusa.model.kind import Kind

# The schema of system tables, unless another one is set.
SCHEMA = "esclusa"
_MARK = re.compile(r"Made by Esclusa \(schema ([^)]*)\)")
# The end of the comment of a table whose ids version 0.1.0 made.
_EARLIER_IDS = ", with ids of version 0.1.0"


def quote(name: str) -> str:
    """Return a declared name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Installation:
    """What is named after the schema of an installation.

    ``portable``: use nothing that databases which speak PostgreSQL's protocol often lack: ``ctid``,
    ``LISTEN`` and ``NOTIFY``, advisory locks, schema changes in transactions.
    """

    schema: str = SCHEMA
    portable: bool = False

    def system(self, table: str) -> str:
        """Return the identifier of a system table: ``esclusa_runs`` is ``esclusa.runs``."""
        return f"{quote(self.schema)}.{quote(self.name(table))}"

    def name(self, table: str) -> str:
        """Return the name of a table, or of a system table within its schema."""
        return table.removeprefix(SYSTEM_PREFIX)

    def table(self, kind: Kind, schema: str | None = None) -> str:
        """Return the identifier of a kind's table; of a business table, in this schema if given."""
        if kind.system:
            return self.system(kind.table)
        return quote(kind.table) if schema is None else f"{quote(schema)}.{quote(kind.table)}"

    @property
    def archive_schema(self) -> str:
        """The schema of its archive tables."""
        return "archive" if self.schema == SCHEMA else f"{self.schema}_archive"

    def archive(self, table: str) -> str:
        """Return the identifier of a table's archive."""
        return f"{quote(self.archive_schema)}.{quote(table)}"

    @property
    def history(self) -> str:
        return self.system("history")

    @property
    def budgets(self) -> str:
        return self.system("budgets")

    @property
    def leases(self) -> str:
        return self.system("leases")

    @property
    def key_turns(self) -> str:
        return self.system("key_turns")

    @property
    def migrations(self) -> str:
        return self.system("migrations")

    @property
    def wakes(self) -> str:
        return self.system("wakes")

    @property
    def migration_locks(self) -> str:
        return self.system("migration_locks")

    @property
    def channel(self) -> str:
        """The channel of NOTIFY."""
        return self.schema

    @property
    def application(self) -> str:
        """The name of every session, by which the sessions of other workers are known."""
        return SCHEMA if self.schema == SCHEMA else f"{SCHEMA} {self.schema}"

    @property
    def migration_lock(self) -> int:
        """The advisory lock that is held while a schema is migrated."""
        digest = hashlib.sha256(f"{SCHEMA} {self.schema}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    @property
    def mark(self) -> str:
        """The comment of every table that it creates."""
        return f"Made by Esclusa (schema {self.schema})"

    def mark_statement(self, ident: str, *, earlier_ids: bool = False) -> str:
        """Return the statement that marks a table as made by this installation.

        ``earlier_ids``: version 0.1.0 made its ids, which are not changed yet.
        """
        return f"COMMENT ON TABLE {ident} IS '{self.mark}{_EARLIER_IDS if earlier_ids else ''}'"

    def refusal(self, ident: str, made_by: str | None) -> str | None:
        """Return why a table that this installation must have made cannot be used, if so."""
        if made_by == self.schema:
            return None
        table = ident.replace('"', "")
        if made_by is not None:
            return f"table {table} belongs to the installation of the schema {made_by}"
        return f"table {table} exists, and Esclusa did not make it"


def has_earlier_ids(comment: str | None) -> bool:
    """Whether version 0.1.0 made the ids of a table, by the table's comment."""
    return (comment or "").endswith(_EARLIER_IDS)


def maker(comment: str | None) -> str | None:
    """Return the schema of the installation that made a table, by the table's comment."""
    found = _MARK.search(comment or "")
    return found and found[1]

"""The statements that a PostgreSQL server was sent, read from its log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .postgres import PostgresServer

SERVER_OPTIONS = {"log_statement": "all", "log_line_prefix": "%p|%a|", "log_duration": "off"}

_LINE = re.compile(r"(\d+)\|(.*?)\|LOG:  (?:statement|execute [^:]*|parse [^:]*): (.*)", re.DOTALL)
_DDL = re.compile(r"\s*(CREATE|ALTER|DROP|COMMENT|GRANT|REVOKE|TRUNCATE)\b", re.IGNORECASE)
_BEGIN = re.compile(r"\s*(BEGIN|START TRANSACTION)\b", re.IGNORECASE)
_END = re.compile(r"\s*(COMMIT|ROLLBACK|END)\b(?! TO)", re.IGNORECASE)
_FORBIDDEN = (
    re.compile(r"\bctid\b"),
    re.compile(r"^\s*(UN)?LISTEN\b|^\s*NOTIFY\b", re.IGNORECASE),
    re.compile(r"pg_notify"),
    re.compile(r"advisory"),
)


class StatementLog:
    """Reads what sessions of an application ran, from where the last reading ended.

    ``skip``: begin with what is logged from now on.
    """

    def __init__(self, server: PostgresServer, application: str, *, skip: bool = False) -> None:
        self._server, self._application = server, application
        self._offset = server.log.stat().st_size if skip else 0
        self._open: set[str] = set()  # the sessions in a transaction

    def statements(self) -> Iterator[tuple[str, str]]:
        """Session and statement of what is new."""
        log: Path = self._server.log
        with log.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
            self._offset = file.tell()
        lines = re.split(r"\n(?=\d+\|)", new.decode(errors="replace"))
        for line in lines:
            found = _LINE.match(line)
            if found and found[2].split(" ")[0] == self._application:
                yield found[1], found[3]

    def not_portable(self) -> list[str]:
        """What is new and uses a feature that the portable profile leaves out."""
        faults = []
        for session, statement in self.statements():
            if any(each.search(statement) for each in _FORBIDDEN):
                faults.append(f"not portable: {statement}")
            parts = re.split(r";\s*\n?(?=\S)", re.sub(r"(?s)\$(\w*)\$.*?\$\1\$", "''", statement))
            is_ddl = any(_DDL.match(part) for part in parts)
            if is_ddl and (len(parts) > 1 or session in self._open):
                faults.append(f"a schema change in a transaction: {statement}")
            if _BEGIN.match(statement):
                self._open.add(session)
            if _END.match(statement):
                self._open.discard(session)
        return faults

"""What `esclusa migrate` shows: what would happen to each table, and the statements for a DBA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from esclusa.model.columns import SYSTEM_PREFIX
from esclusa.model.migration import MigrationStep, transactions

SYSTEM = "system tables"


def by_table(steps: Sequence[MigrationStep]) -> dict[str, list[MigrationStep]]:
    """Return the steps of each table that people want to read of, in order."""
    tables: dict[str, list[MigrationStep]] = {}
    for step in steps:
        if step.summary:
            tables.setdefault(step.table or SYSTEM, []).append(step)
    return tables


def answer(steps: Sequence[MigrationStep], notes: Sequence[str]) -> dict[str, Any]:
    """Return what would happen, as JSON."""
    return {
        "tables": [
            {
                "table": table,
                "foreign": any(step.foreign for step in done),
                "steps": [{"summary": step.summary, "sql": step.sql} for step in done],
            }
            for table, done in by_table(steps).items()
        ],
        "notes": list(notes),
    }


def overview(steps: Sequence[MigrationStep], notes: Sequence[str]) -> str:
    """Return what would happen, for people: tables of other programs first, ours in short."""
    tables = by_table(steps)
    system = {table for table in tables if table == SYSTEM or table.startswith(SYSTEM_PREFIX)}
    changed = [(table, done) for table, done in tables.items() if table not in system]
    lines = []
    for table, done in sorted(changed, key=lambda each: not each[1][0].foreign):
        foreign = any(step.foreign for step in done)
        lines.append(f"{table} (a table of another program)" if foreign else table)
        for step in done:
            beside = ", while other programs go on" if step.outside else ""
            lines.append(f"  {step.summary}{beside}")
    if system:
        count = sum(len(tables[table]) for table in system)
        lines.append(f"{SYSTEM}: {count} changes of Esclusa's own tables; --sql shows them")
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])


def script(steps: Sequence[MigrationStep]) -> str:
    """Return the statements as a script for psql or sqlite3.

    The steps of one table are one transaction; those that must not be in one stand alone.
    """
    parts, table = [], None
    for group in transactions(steps):
        if group[0].table != table:
            table = group[0].table
            parts.append(f"-- {table or SYSTEM}")
        statements = [f"{step.sql.rstrip().rstrip(';')};" for step in group]
        if len(statements) > 1:
            statements = ["BEGIN;", *statements, "COMMIT;"]
        parts.append("\n".join(statements))
    return "\n\n".join(parts)


def foreign_tables(steps: Sequence[MigrationStep]) -> list[str]:
    """Return the tables of other programs that the steps change."""
    return list(by_table([step for step in steps if step.foreign]))

"""Migrations: their steps, what they do to tables of other programs, and what these must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from esclusa.model.columns import EXTRAS
from esclusa.model.errors import ForeignTables
from esclusa.model.value import value

if TYPE_CHECKING:
    from esclusa.model.kind import Kind
    from esclusa.model.stage import Stage

# Called with a line for people when a step begins, waits or ends.
Progress: TypeAlias = Callable[[str], None]

_SOME_TIME = "2026-01-01 00:00:00.000000+00:00"


@value
class MigrationStep:
    """One statement of a migration.

    ``summary``: for people; a step without one changes nothing that work depends on, or belongs to
    the step before. ``foreign``: another program made the table. ``outside``: it must not run
    inside a transaction, because it takes long and must not hold locks, or because the database
    does not allow it. ``optional``: work does not depend on it. ``help``: what to do if the role
    may not run it.
    """

    summary: str
    sql: str
    table: str = ""
    foreign: bool = False
    outside: bool = False
    optional: bool = False
    help: str = "let a role that may change the schema run what `esclusa migrate --sql` prints"


@value
class TableFindings:
    """What does not fit in an existing table.

    ``faults``: no work is possible. ``notes``: some values would be refused.
    """

    faults: list[str]
    notes: list[str]


@value
class RowSituation:
    """Tracking values that are written together; times and JSON as text."""

    state: str
    values: dict[str, str | int | None]


def situations(kind: Kind, stages: Sequence[Stage]) -> Iterator[RowSituation]:
    """Return the forms in which a record is written, for each state.

    It is free or leased (in a hold state always leased), and some attempts may have failed.
    """
    tries = [stage.retry.tries for stage in stages if stage.retry.tries is not None]
    staged = {state for stage in stages for state in stage.states}
    holds = {stage.hold for stage in stages}
    taken = {state for stage in stages if stage.hold is None for state in stage.take}
    failed = {"last_error": '{"type": "e"}', "error_type": "e", "error_message": "e"}
    leased = {"leased_by": "worker-1-abcd/8", "leased_at": _SOME_TIME}
    for state in kind.lifecycle.states:
        free: dict[str, str | int | None] = {"status": state, "attempts": 0, "fence": 1}
        free |= dict.fromkeys(("due_at", "created_at", "updated_at"), _SOME_TIME)
        free |= dict.fromkeys(("leased_by", "last_error", *EXTRAS))
        free["finished_at"] = None if state in staged else _SOME_TIME
        forms = [] if state in holds else [free]
        forms += [free | leased | {"attempts": 1}] if state in holds | taken else []
        for form in forms:
            yield RowSituation(state, form)
            if state != kind.initial:
                yield RowSituation(state, form | failed | {"attempts": max(tries, default=1)})


def text_id_fault(kind: Kind, column: str, type: str) -> str:
    """The fault of an id column that cannot hold the ids of new records, which are text."""
    return (
        f"column {kind.table}.{column} (for id) is {type}, and the ids of new records are text; if"
        f" the table makes its ids, set database_id = true in [tables.{kind.table}]; if nothing is"
        " inserted here, insert = false"
    )


def targets_first(kinds: Iterable[Kind]) -> list[Kind]:
    """Return the kinds so that the target of a foreign key comes before its table."""
    by_table = {kind.table: kind for kind in kinds}
    ordered: dict[str, Kind] = {}

    def add(kind: Kind, on_the_way: frozenset[str]) -> None:
        for field, table in kind.refs:
            if field in kind.foreign_keys and table in by_table and table not in on_the_way:
                add(by_table[table], on_the_way | {kind.table})
        ordered.setdefault(kind.table, kind)

    for kind in by_table.values():
        add(kind, frozenset({kind.table}))
    return list(ordered.values())


def transactions(steps: Sequence[MigrationStep]) -> list[list[MigrationStep]]:
    """Group the steps as they run: those of one table in one transaction, others each alone."""
    groups: list[list[MigrationStep]] = []
    for (_, outside), group in groupby(steps, key=lambda s: (s.table, s.outside)):
        together = list(group)
        groups += [[step] for step in together] if outside else [together]
    return groups


def summaries(steps: Sequence[MigrationStep]) -> list[str]:
    """Return what the steps do, a line each."""
    return [step.summary for step in steps if step.summary]


def refuse_foreign(steps: Sequence[MigrationStep]) -> None:
    """Raise ForeignTables if a step changes a table that another program made."""
    refused: dict[str, list[str]] = {}
    for step in steps:
        if step.foreign and step.summary:
            refused.setdefault(step.table, []).append(step.summary)
    if refused:
        raise ForeignTables(
            "tables of other programs must be changed, which only `esclusa migrate` does; look at"
            " `esclusa migrate --dry-run`, then run: esclusa migrate",
            [f"{table}: {'; '.join(done)}" for table, done in refused.items()],
        )

"""Existing rows of a table: the state in which they begin, ids of new rows, totals."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.databases import Database
from conformance.helpers import claim, find_all, read
from conformance.kinds import stage

from esclusa.model.columns import track
from esclusa.model.errors import DeclarationError
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import Total, above, grouping, not_null, query
from esclusa.model.record import Record
from esclusa.model.settlement import Inserted

LIFE = """
    pending -> busy -> success | error
    busy -> pending
    error -> pending
"""
COLUMNS: dict[str, Any] = {"id": "int", "link": "text", "kept": "text", "likes": "int"}
ROWS = [
    {"id": 1, "link": "a", "kept": None, "likes": 1},
    {"id": 2, "link": "b", "kept": "file:b", "likes": 2},
    {"id": 3, "link": None, "kept": "file:c", "likes": 200},
    {"id": 4, "link": "d", "kept": None, "likes": 200},
]


class Old(
    Record,
    table="viejas",
    track=track(prefix="x_"),
    database_id=True,
    adopt={"success": {"kept": not_null}, "error": {"likes": above(100)}},
):
    link: str | None = None
    kept: str | None = None
    likes: int | None = None
    lifecycle = Lifecycle(LIFE)


WORK = stage(
    "work", Old.kind, take="pending", hold="busy", exhausted="error", where={"link": not_null}
)


@pytest.fixture
async def table(empty_database: Database) -> Database:
    await empty_database.make_table("viejas", COLUMNS, "id", ROWS)
    return empty_database


async def test_adopted_rows_begin_in_the_declared_state(table: Database, bare_store: Any) -> None:
    store = await bare_store()
    pending = await store.pending((Old.kind,), (WORK,))
    assert any("UPDATE" in step.sql.upper() and "viejas" in step.sql for step in pending)
    done = await store.migrate((Old.kind,), (WORK,), foreign=True)
    assert "adopt rows of viejas as success" in done
    await store.use((Old.kind,), (WORK,))
    found = {r.id: (r.status, r.attempts) for r in await find_all(store, Old)}
    assert found == {
        "1": ("pending", 0),
        "2": ("success", 0),
        "3": ("success", 0),
        "4": ("error", 0),
    }
    foreign = [{name: row[name] for name in COLUMNS} for row in await table.rows("viejas", "id")]
    assert foreign == ROWS
    assert [x.ref.id for x in await claim(store, WORK)] == ["1"]


async def test_rows_are_adopted_once(table: Database, bare_store: Any) -> None:
    store = await bare_store((Old.kind,), (WORK,))
    await table.write("viejas", "id", 1, kept="file:a")
    assert await store.migrate((Old.kind,), (WORK,), foreign=True) == []
    assert (await read(store, Old, "1")).status == "pending"


async def test_a_table_with_a_status_column_is_not_adopted(
    empty_database: Database, bare_store: Any
) -> None:
    rows = [row | {"x_status": None} for row in ROWS]
    await empty_database.make_table("viejas", COLUMNS | {"x_status": "text"}, "id", rows)
    store = await bare_store((Old.kind,), (WORK,))
    assert {r.status for r in await find_all(store, Old)} == {"pending"}


async def test_existing_attempts_are_kept(empty_database: Database, bare_store: Any) -> None:
    rows = [row | {"x_attempts": 3 if row["id"] == 2 else None} for row in ROWS]
    await empty_database.make_table("viejas", COLUMNS | {"x_attempts": "int"}, "id", rows)
    store = await bare_store((Old.kind,), (WORK,))
    assert {r.id: (r.status, r.attempts) for r in await find_all(store, Old)} == {
        "1": ("pending", 0),
        "2": ("success", 3),
        "3": ("success", 0),
        "4": ("error", 0),
    }


async def test_ids_are_generated_if_the_table_does_not(
    empty_database: Database, bare_store: Any
) -> None:
    await empty_database.make_table("viejas", COLUMNS | {"id": "text"}, "id")
    store = await bare_store((Old.kind,), (WORK,))
    answers = await store.insert([Old(link="a"), Old(link="b"), Old(id="mine", link="c")])
    assert all(isinstance(answer, Inserted) for answer in answers)
    assert len({answer.id for answer in answers}) == 3
    assert answers[2].id == "mine"
    assert [(await read(store, Old, answer.id)).link for answer in answers] == ["a", "b", "c"]


async def test_totals_of_an_attached_table_read_null_tracking_as_its_default(
    table: Database, bare_store: Any
) -> None:
    store = await bare_store((Old.kind,), (WORK,))
    assert table is not None
    found = await store.totals(
        query(Old, {"link": not_null}), grouping(Old.kind, ["status"], ["attempts"])
    )
    assert found == [
        Total({"status": state}, 1, {"attempts": 0}) for state in ("error", "pending", "success")
    ]


def test_adopt_is_checked_when_it_is_declared() -> None:
    with pytest.raises(DeclarationError, match="'lost', which is not one of its states"):

        class Wrong(
            Record, table="w", track=track(prefix="x_"), adopt={"lost": {"link": not_null}}
        ):
            link: str | None = None
            lifecycle = Lifecycle(LIFE)

    with pytest.raises(DeclarationError, match="has no field nothing"):

        class Wronger(
            Record, table="w", track=track(prefix="x_"), adopt={"success": {"nothing": not_null}}
        ):
            link: str | None = None
            lifecycle = Lifecycle(LIFE)

    with pytest.raises(DeclarationError, match="existing table"):

        class Own(Record, table="w", adopt={"success": {"link": not_null}}):
            link: str | None = None
            lifecycle = Lifecycle(LIFE)

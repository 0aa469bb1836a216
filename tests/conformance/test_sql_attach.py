"""Existing tables of SQL stores: missing columns, ids that are null or double, generated ids."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.databases import SQL, Database
from conformance.helpers import claim_request, read
from conformance.test_store_adopt import WORK, Old
from conformance.test_store_attach import COLUMNS, LOAD, Media, rows

from esclusa.model.errors import EsclusaError, SchemaError

pytestmark = pytest.mark.parametrize("provider", SQL, indirect=True)


async def test_a_missing_business_or_id_column_names_table_and_column(
    empty_database: Database, bare_store: Any
) -> None:
    columns = {n: t for n, t in COLUMNS.items() if n not in ("pk", "imagen")}
    await empty_database.make_table("publicaciones", {"other": "int", **columns}, "other")
    store = await bare_store()
    with pytest.raises(SchemaError) as caught:
        await store.migrate((Media.kind,), (LOAD,), foreign=True)
    for word in ("publicaciones", "imagen", "pk"):
        assert word in str(caught.value)
    assert await empty_database.rows("publicaciones", "other") == []
    with pytest.raises(SchemaError):
        await store.pending((Media.kind,), (LOAD,))


async def test_a_row_without_an_id_is_not_claimed(
    empty_database: Database, bare_store: Any
) -> None:
    """Another column is the primary key. A row without an id does not hold up the others."""
    given = [
        {"other": n, **row, "pk": None if n == 2 else row["pk"]} for n, row in enumerate(rows(), 1)
    ]
    await empty_database.make_table(
        "publicaciones", {"other": "int", **COLUMNS, "imagen_local": "text"}, "other", given
    )
    store = await bare_store((Media.kind,), (LOAD,))
    assert sorted(lease.ref.id for lease in await store.claim(claim_request(LOAD))) == [
        "10",
        "40",
        "50",
        "60",
    ]
    assert await store.claim(claim_request(LOAD)) == []


async def test_an_id_column_with_duplicates_is_refused(
    empty_database: Database, bare_store: Any
) -> None:
    given = [{"other": n, **row, "pk": 7} for n, row in enumerate(rows(), 1)]
    await empty_database.make_table(
        "publicaciones", {"other": "int", **COLUMNS, "imagen_local": "text"}, "other", given
    )
    store = await bare_store()
    with pytest.raises(EsclusaError, match="pk"):
        await store.migrate((Media.kind,), (LOAD,), foreign=True)


async def test_the_table_generates_ids_if_it_can(empty_database: Database, bare_store: Any) -> None:
    store = await bare_store((Old.kind,), (WORK,))  # a new table, which generates ids
    one, two = await store.insert([Old(link="a"), Old(link="b")])
    assert int(two.id) > int(one.id)
    assert (await read(store, Old, two.id)).link == "b"

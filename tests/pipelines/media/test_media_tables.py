"""Tables of other programs, in layouts and with values that the documentation does not name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipelines.media.conftest import TABLE, NewService, environ_of, feed, sql

from esclusa.app import open_store
from esclusa.health import check_schema
from esclusa.model.errors import SchemaError, SchemaRefused
from esclusa.settings import load

PLAIN = "post_id text, tipo_item text, imagen_url text, imagen_local text"
NUMBERS = "post_id bigint, tipo_item text, imagen_url text, imagen_local text"
OURS = {
    "imagen_local",
    "media_status",
    "media_attempts",
    "media_last_error",
    "media_updated_at",
    "media_due_at",
    "media_fence",
    "media_leased_by",
}

LAYOUTS = {
    "a key of two columns": {
        "sqlite": f"id INTEGER, dia TEXT DEFAULT 'hoy', {PLAIN}, PRIMARY KEY (id, dia)",
        "postgres": f"id bigint GENERATED ALWAYS AS IDENTITY, dia date DEFAULT '2026-01-01', "
        f"{PLAIN}, PRIMARY KEY (id, dia)",
    },
    "post ids are numbers": {
        "sqlite": f"id INTEGER PRIMARY KEY, {NUMBERS}",
        "postgres": f"id serial PRIMARY KEY, {NUMBERS}",
    },
    "names in capitals": {
        "sqlite": f"ID INTEGER PRIMARY KEY, {PLAIN.upper()}, MEDIA_ATTEMPTS REAL"
    },
    "padded states, attempts with decimals": {
        "postgres": f"id serial PRIMARY KEY, {PLAIN}, media_status char(20) DEFAULT 'pending', "
        f"media_attempts numeric(4, 1) DEFAULT 0"
    },
    "an enumerated state, small numbers, no zone": {
        "postgres": f"id serial PRIMARY KEY, {PLAIN}, media_status publica NOT NULL DEFAULT "
        "'pending', media_attempts smallint NOT NULL DEFAULT 0, media_last_error json, "
        "media_updated_at timestamp"
    },
}


def of(layouts: dict[str, dict[str, str]]) -> Any:
    """Each layout, on the store that supports it."""
    found = [
        pytest.param(dialect, body, id=f"{name}-{dialect}")
        for name, by in layouts.items()
        for dialect, body in by.items()
    ]
    return pytest.mark.parametrize(("empty_database", "body"), found, indirect=["empty_database"])


async def make(database: Any, body: str) -> None:
    if "publica " in body:
        await sql(
            database, "CREATE TYPE publica AS ENUM ('pending', 'downloading', 'success', 'error')"
        )
    await sql(database, f"CREATE TABLE {TABLE} ({body})")


def others(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name.lower() not in OURS} for row in rows
    ]


def answer(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    named = [{name.lower(): value for name, value in row.items()} for row in rows]
    return [(str(row["media_status"]).strip(), int(row["media_attempts"])) for row in named]


@of(LAYOUTS)
async def test_layout_works(
    empty_database: Any, new_service: NewService, body: str, cdn: Any
) -> None:
    await make(empty_database, body)
    insert = (
        f"INSERT INTO {TABLE} ({'id, ' if 'id INTEGER' in body else ''}post_id, imagen_url) VALUES"
    )
    for n, path in enumerate(("/m/jpg/80/a", "/html", "/gone/500"), 1):
        await sql(
            empty_database,
            f"{insert} ({f'{n}, ' if 'id INTEGER' in body else ''}{n}, '{cdn[1]}{path}')",
        )
    before = await sql(empty_database, f"SELECT * FROM {TABLE} ORDER BY id")
    service = await new_service(empty_database)
    assert await service.runtime.migrate() == []
    run = await service.run()
    assert (run.counters["success"], run.counters["error"], run.counters["retried"]) == (1, 1, 1)
    after = await service.rows()
    assert others(after) == others(before)
    assert answer(after) == [("success", 1), ("error", 1), ("pending", 1)]
    value = {
        "item": "photo",
        "verb": "add",
        "post_id": "77",
        "photo_id": 5,
        "link": f"{service.at}/m/jpg/80/b",
    }
    assert (await service.deliver(feed(value)))[1]["created"] == 1
    assert (await service.run()).counters["success"] == 1
    assert {state for state, _ in answer(await service.rows())} == {"success", "error", "pending"}
    counts = {
        c.state: c.count
        for c in await service.runtime.store.tally(service.runtime.engine.all_kinds[0])
        if c.count
    }
    assert sum(counts.values()) == 4


@of(
    {
        "a link that the table makes": {
            "sqlite": "id INTEGER PRIMARY KEY, post_id text, tipo_item text, imagen_local text, "
            "raw text, imagen_url text GENERATED ALWAYS AS (json_extract(raw, '$.link'))",
            "postgres": "id serial PRIMARY KEY, post_id text, tipo_item text, imagen_local text, "
            "raw jsonb, imagen_url text GENERATED ALWAYS AS (raw ->> 'link') STORED",
        }
    }
)
async def test_values_are_read(
    empty_database: Any, new_service: NewService, body: str, cdn: Any
) -> None:
    await make(empty_database, body)
    await sql(
        empty_database,
        f"INSERT INTO {TABLE} (post_id, raw) VALUES ('1', $1)",
        json.dumps({"link": f"{cdn[1]}/m/jpg/80/a"}),
    )
    service = await new_service(empty_database)
    assert (await service.run()).counters["success"] == 1


UNFIT = {
    "errors that are never empty": {
        "sqlite": f"id INTEGER PRIMARY KEY, {PLAIN}, media_last_error text NOT NULL DEFAULT '{{}}'",
        "postgres": f"id serial PRIMARY KEY, {PLAIN}, media_last_error jsonb NOT NULL DEFAULT "
        f"'{{}}'",
    },
    "short errors": {"postgres": f"id serial PRIMARY KEY, {PLAIN}, media_last_error varchar(60)"},
    "short states": {"postgres": f"id serial PRIMARY KEY, {PLAIN}, media_status varchar(10)"},
    "ids without a type": {"sqlite": f"id PRIMARY KEY, {PLAIN}"},
    "ids of bytes": {"sqlite": f"id BLOB PRIMARY KEY, {PLAIN}"},
    "times as text": {"postgres": f"id serial PRIMARY KEY, {PLAIN}, media_updated_at text"},
}


@of(UNFIT)
async def test_unsuitable_table_is_refused_with_advice(
    empty_database: Any, new_service: NewService, body: str
) -> None:
    """Refused before a row is taken: an error that cannot be written would keep it held."""
    await make(empty_database, body)
    await sql(
        empty_database,
        f"INSERT INTO {TABLE} (id, post_id, imagen_url) VALUES (1, '1', 'http://127.0.0.1:9/a')",
    )
    before = await sql(empty_database, f"SELECT * FROM {TABLE}")
    column = (
        "id" if body.startswith(("id PRIMARY", "id BLOB")) else body.rpartition(", ")[2].split()[0]
    )
    with pytest.raises(
        SchemaError,
        match=rf"column {TABLE}\.{column} \(for .*(run: ALTER|make it|declare it|must hold)",
    ):
        await new_service(empty_database)
    assert await sql(empty_database, f"SELECT * FROM {TABLE}") == before


@pytest.mark.parametrize("empty_database", ["postgres"], indirect=True)
async def test_state_missing_in_enum_is_reported(
    empty_database: Any, new_service: NewService
) -> None:
    await sql(empty_database, "CREATE TYPE estado AS ENUM ('pending', 'success', 'error')")
    await sql(
        empty_database,
        f"CREATE TABLE {TABLE} (id serial PRIMARY KEY, {PLAIN}, media_status estado)",
    )
    with pytest.raises(
        SchemaError,
        match=rf"{TABLE}.media_status \(for status\) .*ALTER TYPE estado ADD VALUE 'downloading'",
    ):
        await new_service(empty_database)
    await sql(empty_database, "ALTER TYPE estado ADD VALUE 'downloading'")
    await new_service(empty_database)


async def test_view_is_refused(
    empty_database: Any, new_service: NewService, tmp_path: Path
) -> None:
    await sql(empty_database, f"CREATE TABLE base (id INTEGER PRIMARY KEY, {PLAIN})")
    await sql(empty_database, f"CREATE VIEW {TABLE} AS SELECT * FROM base")
    with pytest.raises(SchemaError, match=f"{TABLE} is a view"):
        await new_service(empty_database)
    async with open_store(
        load(environ=environ_of(empty_database, tmp_path, "http://127.0.0.1:9"))
    ) as runtime:
        # the doctor does not promise that a run would repair it
        found = await check_schema(runtime)
    assert (found.verdict, f"{TABLE} is a view" in found.text) == ("fail", True)


@pytest.mark.parametrize("empty_database", ["postgres"], indirect=True)
async def test_missing_privilege_names_the_owner(empty_database: Any, tmp_path: Path) -> None:
    await sql(empty_database, f"CREATE TABLE {TABLE} (id serial PRIMARY KEY, {PLAIN})")
    await sql(empty_database, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    await sql(empty_database, "DROP SCHEMA IF EXISTS esclusa CASCADE")
    await sql(empty_database, "CREATE ROLE pobre LOGIN")
    await sql(empty_database, f"GRANT SELECT, INSERT, UPDATE ON {TABLE} TO pobre")
    environ = environ_of(
        empty_database,
        tmp_path,
        "http://127.0.0.1:9",
        ESCLUSA_STORE=empty_database.url.replace("postgres@", "pobre@"),
    )
    try:
        async with open_store(load(environ=environ)) as runtime:
            create = "CREATE SCHEMA esclusa AUTHORIZATION pobre;"
            with pytest.raises(SchemaRefused, match=f"permission denied .* run: {create}"):
                await runtime.migrate(foreign=True)
            await sql(empty_database, create)
            with pytest.raises(SchemaRefused, match=r"no schema .*esclusa migrate --sql"):
                await runtime.migrate(foreign=True)
            await sql(empty_database, "GRANT USAGE ON SCHEMA public TO pobre")
            with pytest.raises(SchemaRefused, match=r"must be owner .*esclusa migrate --sql"):
                await runtime.migrate(foreign=True)
            assert (await check_schema(runtime)).verdict == "fail"
    finally:
        await sql(empty_database, "DROP OWNED BY pobre")
        await sql(empty_database, "DROP ROLE pobre")
    assert await sql(empty_database, "SELECT 1 FROM pg_tables WHERE schemaname = 'esclusa'") == []


async def test_last_errors_of_any_form_are_read(
    new_service: NewService, empty_database: Any
) -> None:
    """Invalid errors do not keep a row from its download."""
    written = ['"a text"', "[1, 2]", "7", "null", "true", '{"message": 5}'] + (
        ["no JSON {"] if empty_database.dialect == "sqlite" else []
    )
    kind = "jsonb" if empty_database.dialect == "postgres" else "text"
    await sql(
        empty_database,
        f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, {PLAIN}, media_attempts int, "
        f"media_last_error {kind})",
    )
    service = await new_service(empty_database)
    for n, text in enumerate(written):
        await service.row(
            f"/m/jpg/80/{n}", id=n, media_last_error=text, media_attempts=-2 if n else None
        )
    shown = (await service.pub("0")).last_error
    assert shown is not None
    assert shown["message"] == "a text"
    assert (await service.run()).counters["success"] == len(written)


async def test_empty_address_counts_as_no_file(
    new_service: NewService, empty_database: Any
) -> None:
    """Some tables store an empty text instead of NULL."""
    await sql(
        empty_database,
        f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, {PLAIN} NOT NULL DEFAULT '')",
    )
    await sql(
        empty_database,
        f"INSERT INTO {TABLE} (id, post_id, imagen_local) VALUES (1, 'a', 'https://x/a.jpg')",
    )
    await sql(empty_database, f"INSERT INTO {TABLE} (id, post_id) VALUES (2, 'b')")
    service = await new_service(empty_database)
    assert [row["media_status"] for row in await service.rows()] == ["success", None]
    await service.row("/m/jpg/80/a", id=3)
    assert (await service.run()).counters["success"] == 1


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("tenant text NOT NULL", "tenant"),
        ("media_status text CONSTRAINT e CHECK (media_status IN ('pending', 'success'))", "error"),
    ],
)
async def test_a_table_that_would_refuse_rows_is_refused(
    new_service: NewService, empty_database: Any, column: str, why: str
) -> None:
    await sql(empty_database, f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, {PLAIN}, {column})")
    with pytest.raises(SchemaError, match=why):
        await new_service(empty_database)


async def test_refused_insert_is_reported_without_the_row(
    new_service: NewService, empty_database: Any
) -> None:
    """The row's link is signed: it must not appear in an error or in a log."""
    states = (
        "media_status text CONSTRAINT estados CHECK (media_status <> 'downloading' "
        "OR coalesce(post_id, '') = 'x')"
    )
    await sql(empty_database, f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, {PLAIN}, {states})")
    service = await new_service(empty_database)
    await service.row("/m/jpg/80/a?sig=secret", id=1)
    run = await service.run()
    assert run.outcome == "error"
    assert "estados" in run.message
    assert "BadRecord" in run.message
    assert "secret" not in run.message


async def test_refused_address_is_reported_without_the_row(
    new_service: NewService, empty_database: Any
) -> None:
    address = "imagen_local text CONSTRAINT direcciones CHECK (imagen_local LIKE 'https:%')"
    await sql(
        empty_database,
        f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, "
        f"{PLAIN.replace('imagen_local text', address)})",
    )
    service = await new_service(empty_database)
    await service.row("/m/jpg/80/a?sig=secret", id=1)
    assert (await service.run()).counters["retried"] == 1
    error = (await service.seen("1"))["media_last_error"]
    assert (error["type"], "direcciones" in error["message"], "secret" in error["message"]) == (
        "rejected",
        True,
        False,
    )


COUNTED = f"{PLAIN}, media_attempts int DEFAULT 0 CHECK (media_attempts BETWEEN 0 AND 5)"


@of(
    {
        "0 to 5": {
            "sqlite": f"id INTEGER PRIMARY KEY, {COUNTED}",
            "postgres": f"id serial PRIMARY KEY, {COUNTED}",
        }
    }
)
async def test_crash_in_fifth_attempt_ends_at_five(
    empty_database: Any, new_service: NewService, body: str, cdn: Any
) -> None:
    """A table whose attempts are limited to 0..5, as in the seed, blocks nothing.

    The row was being handled alone, as the mark of its holder says.
    """
    await make(empty_database, body)
    insert = f"INSERT INTO {TABLE} (id, post_id, imagen_url) VALUES"
    await sql(
        empty_database,
        f"{insert} (1, 'died', '{cdn[1]}/m/jpg/80/a'), (2, 'fine', '{cdn[1]}/m/jpg/80/b')",
    )
    service = await new_service(empty_database)
    held = (
        "media_status = 'downloading', media_attempts = 5, media_leased_by = 'dead/1', "
        "media_fence = 5"
    )
    await sql(empty_database, f"UPDATE {TABLE} SET {held}, media_due_at = NULL WHERE id = 1")
    run = await service.run()
    assert (run.counters["success"], run.counters["error"]) == (1, 1)
    died = await service.seen("1")
    assert (died["media_status"], died["media_attempts"], died["media_last_error"]["type"]) == (
        "error",
        5,
        "crash",
    )
    assert died["media_last_error"]["attempt"] == 5

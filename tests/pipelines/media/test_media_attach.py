"""Tables that others made, in layouts and with values that no page names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipelines.media.conftest import TABLE, NewYard, environ_of, feed, sql

from esclusa.app import open_store
from esclusa.health import check_schema
from esclusa.model.errors import SchemaError
from esclusa.settings import load

PLAIN = "post_id text, tipo_item text, imagen_url text, imagen_local text"
NUMBERS = "post_id bigint, tipo_item text, imagen_url text, imagen_local text"
OURS = {"imagen_local", "media_status", "media_attempts", "media_last_error", "media_updated_at", "media_due_at", "media_fence",
        "media_leased_by"}  # fmt: skip

LAYOUTS = {
    "a key of two columns": {
        "sqlite": f"id INTEGER, dia TEXT DEFAULT 'hoy', {PLAIN}, PRIMARY KEY (id, dia)",
        "postgres": f"id bigint GENERATED ALWAYS AS IDENTITY, dia date DEFAULT '2026-01-01', {PLAIN}, PRIMARY KEY (id, dia)",
    },
    "post ids are numbers": {
        "sqlite": f"id INTEGER PRIMARY KEY, {NUMBERS}",
        "postgres": f"id serial PRIMARY KEY, {NUMBERS}",
    },
    "names in capitals": {
        "sqlite": f"ID INTEGER PRIMARY KEY, {PLAIN.upper()}, MEDIA_ATTEMPTS REAL"
    },
    "padded states, attempts with decimals": {
        "postgres": f"id serial PRIMARY KEY, {PLAIN}, media_status char(20) DEFAULT 'pending', media_attempts numeric(4, 1) DEFAULT 0"
    },
    "an enumerated state, small numbers, no zone": {
        "postgres": f"id serial PRIMARY KEY, {PLAIN}, media_status publica NOT NULL DEFAULT 'pending', media_attempts smallint NOT NULL"
        " DEFAULT 0, media_last_error json, media_updated_at timestamp"
    },
}


def of(layouts: dict[str, dict[str, str]]) -> Any:
    """Each layout on the store that it is one of."""
    found = [
        pytest.param(dialect, body, id=f"{name}-{dialect}")
        for name, by in layouts.items()
        for dialect, body in by.items()
    ]
    return pytest.mark.parametrize(("bare", "body"), found, indirect=["bare"])


async def make(place: Any, body: str) -> None:
    if "publica " in body:
        await sql(
            place, "CREATE TYPE publica AS ENUM ('pending', 'downloading', 'success', 'error')"
        )
    await sql(place, f"CREATE TABLE {TABLE} ({body})")


def others(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name.lower() not in OURS} for row in rows
    ]


def told(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    named = [{name.lower(): value for name, value in row.items()} for row in rows]
    return [(str(row["media_status"]).strip(), int(row["media_attempts"])) for row in named]


@of(LAYOUTS)
async def test_it_works_in(bare: Any, new_yard: NewYard, body: str, cdn: Any) -> None:
    await make(bare, body)
    insert = (
        f"INSERT INTO {TABLE} ({'id, ' if 'id INTEGER' in body else ''}post_id, imagen_url) VALUES"
    )
    for n, path in enumerate(("/m/jpg/80/a", "/html", "/gone/500"), 1):
        await sql(
            bare, f"{insert} ({f'{n}, ' if 'id INTEGER' in body else ''}{n}, '{cdn[1]}{path}')"
        )
    before = await sql(bare, f"SELECT * FROM {TABLE} ORDER BY id")
    yard = await new_yard(bare)
    assert await yard.runtime.migrate() == []
    run = await yard.run()
    assert (run.counters["success"], run.counters["error"], run.counters["retried"]) == (1, 1, 1)
    after = await yard.rows()
    assert others(after) == others(before)
    assert told(after) == [("success", 1), ("error", 1), ("pending", 1)]
    value = {
        "item": "photo",
        "verb": "add",
        "post_id": "77",
        "photo_id": 5,
        "link": f"{yard.at}/m/jpg/80/b",
    }
    assert (await yard.deliver(feed(value)))[1]["created"] == 1
    assert (await yard.run()).counters["success"] == 1
    assert {state for state, _ in told(await yard.rows())} == {"success", "error", "pending"}
    counts = {
        c.state: c.count
        for c in await yard.runtime.store.tally(yard.runtime.engine.all_kinds[0])
        if c.count
    }
    assert sum(counts.values()) == 4


@of({
    "a link that the table makes": {
        "sqlite": "id INTEGER PRIMARY KEY, post_id text, tipo_item text, imagen_local text, raw text,"
        " imagen_url text GENERATED ALWAYS AS (json_extract(raw, '$.link'))",
        "postgres": "id serial PRIMARY KEY, post_id text, tipo_item text, imagen_local text, raw jsonb,"
        " imagen_url text GENERATED ALWAYS AS (raw ->> 'link') STORED",
    }
})  # fmt: skip
async def test_it_reads(bare: Any, new_yard: NewYard, body: str, cdn: Any) -> None:
    await make(bare, body)
    await sql(
        bare,
        f"INSERT INTO {TABLE} (post_id, raw) VALUES ('1', $1)",
        json.dumps({"link": f"{cdn[1]}/m/jpg/80/a"}),
    )
    yard = await new_yard(bare)
    assert (await yard.run()).counters["success"] == 1


UNFIT = {
    "errors that are never empty": {
        "sqlite": f"id INTEGER PRIMARY KEY, {PLAIN}, media_last_error text NOT NULL DEFAULT '{{}}'",
        "postgres": f"id serial PRIMARY KEY, {PLAIN}, media_last_error jsonb NOT NULL DEFAULT '{{}}'",
    },
    "short errors": {"postgres": f"id serial PRIMARY KEY, {PLAIN}, media_last_error varchar(60)"},
    "short states": {"postgres": f"id serial PRIMARY KEY, {PLAIN}, media_status varchar(10)"},
    "ids without a type": {"sqlite": f"id PRIMARY KEY, {PLAIN}"},
    "ids of bytes": {"sqlite": f"id BLOB PRIMARY KEY, {PLAIN}"},
    "times as text": {"postgres": f"id serial PRIMARY KEY, {PLAIN}, media_updated_at text"},
}


@of(UNFIT)
async def test_it_is_refused_with_a_word_what_to_do(
    bare: Any, new_yard: NewYard, body: str
) -> None:
    """Before the first row is taken: an error that cannot be written would keep its row held for ever."""
    await make(bare, body)
    await sql(
        bare,
        f"INSERT INTO {TABLE} (id, post_id, imagen_url) VALUES (1, '1', 'http://127.0.0.1:9/a')",
    )
    before = await sql(bare, f"SELECT * FROM {TABLE}")
    column = (
        "id" if body.startswith(("id PRIMARY", "id BLOB")) else body.rpartition(", ")[2].split()[0]
    )
    with pytest.raises(
        SchemaError,
        match=rf"column {TABLE}\.{column} \(for .*(run: ALTER|make it|declare it|must hold)",
    ):
        await new_yard(bare)
    assert await sql(bare, f"SELECT * FROM {TABLE}") == before


@pytest.mark.parametrize("bare", ["postgres"], indirect=True)
async def test_a_state_that_its_type_lacks_is_told(bare: Any, new_yard: NewYard) -> None:
    await sql(bare, "CREATE TYPE estado AS ENUM ('pending', 'success', 'error')")
    await sql(bare, f"CREATE TABLE {TABLE} (id serial PRIMARY KEY, {PLAIN}, media_status estado)")
    with pytest.raises(
        SchemaError,
        match=rf"{TABLE}.media_status \(for status\) .*ALTER TYPE estado ADD VALUE 'downloading'",
    ):
        await new_yard(bare)
    await sql(bare, "ALTER TYPE estado ADD VALUE 'downloading'")
    await new_yard(bare)


async def test_a_view_is_no_table(bare: Any, new_yard: NewYard, tmp_path: Path) -> None:
    await sql(bare, f"CREATE TABLE base (id INTEGER PRIMARY KEY, {PLAIN})")
    await sql(bare, f"CREATE VIEW {TABLE} AS SELECT * FROM base")
    with pytest.raises(SchemaError, match=f"{TABLE} is a view"):
        await new_yard(bare)
    async with open_store(
        load(environ=environ_of(bare, tmp_path, "http://127.0.0.1:9"))
    ) as runtime:
        found = await check_schema(runtime)  # the doctor does not say that a run would mend it
    assert (found.verdict, f"{TABLE} is a view" in found.text) == ("fail", True)


@pytest.mark.parametrize("bare", ["postgres"], indirect=True)
async def test_a_role_that_may_not_change_the_schema_is_told_who_can(
    bare: Any, tmp_path: Path
) -> None:
    await sql(bare, f"CREATE TABLE {TABLE} (id serial PRIMARY KEY, {PLAIN})")
    await sql(bare, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    await sql(bare, "CREATE ROLE pobre LOGIN")
    await sql(bare, f"GRANT SELECT, INSERT, UPDATE ON {TABLE} TO pobre")
    said = environ_of(
        bare, tmp_path, "http://127.0.0.1:9", ESCLUSA_STORE=bare.url.replace("postgres@", "pobre@")
    )
    try:
        async with open_store(load(environ=said)) as runtime:
            with pytest.raises(SchemaError, match=r"no schema .*esclusa migrate --sql"):
                await runtime.migrate()
            await sql(bare, "GRANT USAGE ON SCHEMA public TO pobre")
            with pytest.raises(SchemaError, match=r"permission denied .*esclusa migrate --sql"):
                await runtime.migrate()
            assert (await check_schema(runtime)).verdict == "warn"
    finally:
        await sql(bare, "DROP OWNED BY pobre")
        await sql(bare, "DROP ROLE pobre")
    assert await sql(bare, "SELECT 1 FROM pg_tables WHERE tablename LIKE 'esclusa%'") == []


async def test_errors_that_others_wrote_in_any_form_are_read(new_yard: NewYard, bare: Any) -> None:
    """They keep no row from its file."""
    written = ['"a text"', "[1, 2]", "7", "null", "true", '{"message": 5}'] + (
        ["no JSON {"] if bare.dialect == "sqlite" else []
    )
    kind = "jsonb" if bare.dialect == "postgres" else "text"
    await sql(
        bare,
        f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, {PLAIN}, media_attempts int, media_last_error {kind})",
    )
    yard = await new_yard(bare)
    for n, text in enumerate(written):
        await yard.row(
            f"/m/jpg/80/{n}", id=n, media_last_error=text, media_attempts=-2 if n else None
        )
    shown = (await yard.pub("0")).last_error
    assert shown is not None
    assert shown["message"] == "a text"
    assert (await yard.run()).counters["success"] == len(written)


async def test_an_empty_address_is_no_file(new_yard: NewYard, bare: Any) -> None:
    """A table may say so instead of NULL."""
    await sql(bare, f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, {PLAIN} NOT NULL DEFAULT '')")
    await sql(
        bare, f"INSERT INTO {TABLE} (id, post_id, imagen_local) VALUES (1, 'a', 'https://x/a.jpg')"
    )
    await sql(bare, f"INSERT INTO {TABLE} (id, post_id) VALUES (2, 'b')")
    yard = await new_yard(bare)
    assert [row["media_status"] for row in await yard.rows()] == ["success", None]
    await yard.row("/m/jpg/80/a", id=3)
    assert (await yard.run()).counters["success"] == 1


async def test_what_the_table_refuses_is_told_without_the_row(new_yard: NewYard, bare: Any) -> None:
    """The row's link is signed: it belongs neither in an error nor in a log."""
    states = "media_status text CONSTRAINT estados CHECK (media_status IN ('pending', 'success', 'error'))"
    await sql(bare, f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, {PLAIN}, {states})")
    yard = await new_yard(bare)
    await yard.row("/m/jpg/80/a?sig=secret", id=1)
    run = await yard.run()
    assert run.outcome == "error"
    assert "estados" in run.message
    assert "BadRecord" in run.message
    assert "secret" not in run.message


async def test_an_address_that_the_table_refuses_is_told_without_the_row(
    new_yard: NewYard, bare: Any
) -> None:
    address = "imagen_local text CONSTRAINT direcciones CHECK (imagen_local LIKE 'https:%')"
    await sql(
        bare,
        f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, {PLAIN.replace('imagen_local text', address)})",
    )
    yard = await new_yard(bare)
    await yard.row("/m/jpg/80/a?sig=secret", id=1)
    assert (await yard.run()).counters["retried"] == 1
    error = (await yard.seen("1"))["media_last_error"]
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
async def test_a_crash_in_the_fifth_attempt_ends_at_five(
    bare: Any, new_yard: NewYard, body: str, cdn: Any
) -> None:
    """A table whose attempts are 0 to 5, as the seed's are, holds nobody up."""
    await make(bare, body)
    insert = f"INSERT INTO {TABLE} (id, post_id, imagen_url) VALUES"
    await sql(
        bare, f"{insert} (1, 'died', '{cdn[1]}/m/jpg/80/a'), (2, 'fine', '{cdn[1]}/m/jpg/80/b')"
    )
    yard = await new_yard(bare)
    held = "media_status = 'downloading', media_attempts = 5, media_leased_by = 'dead', media_fence = 5"
    await sql(bare, f"UPDATE {TABLE} SET {held}, media_due_at = NULL WHERE id = 1")
    run = await yard.run()
    assert (run.counters["success"], run.counters["error"]) == (1, 1)
    died = await yard.seen("1")
    assert (died["media_status"], died["media_attempts"], died["media_last_error"]["type"]) == (
        "error",
        5,
        "crash",
    )
    assert died["media_last_error"]["attempt"] == 5

"""The team's table is taken over: rows in every state, videos, tenants, folders, neighbours."""

from __future__ import annotations

import asyncio
import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from pipelines.media.conftest import TABLE, NewService, environ_of, feed, file_at, sql
from pipelines.media.origin import add, checksums, make_table, rows
from pipelines.media.test_media_deliveries import changes

from esclusa.app import open_runtime
from esclusa.health import check_pipelines
from esclusa.model.errors import SettingsError
from esclusa.pipelines.media import deliveries
from esclusa.pipelines.media.paths import object_path
from esclusa.pipelines.media.records import FurtherPicture, MediaFile
from esclusa.settings import load

PATH = "{nombre_nora}/publicaciones_meta/{post_id}{ext}"
TEAM = {
    "MEDIA_PATH": PATH,
    "MEDIA_TAKE": "tipo_item=photo|video,mensaje",
    "MEDIA_TENANTS": "101=aura,202=nora",
}


def at(database: Any, **ago: float) -> Any:
    """A time without a zone, in UTC, as the team's job writes it."""
    moment = datetime.now(UTC) - timedelta(**ago)
    naive = moment.replace(tzinfo=None)
    return naive if database.dialect == "postgres" else naive.isoformat(sep=" ")


async def test_rows_in_every_state_are_taken_over(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database, link = empty_database, f"{cdn[1]}/m/jpg/900/"
    await make_table(database)
    error = json.dumps({"message": "x", "type": "timeout", "timestamp": "t", "attempt": 4})
    given: dict[str, dict[str, Any]] = {
        "new": {},
        "null_state": {"media_status": None, "media_attempts": None},
        "failed_four_times": {
            "media_attempts": 4,
            "media_last_error": error,
            "media_updated_at": at(database, hours=1),
        },
        "orphan": {"media_status": "downloading", "media_updated_at": at(database, minutes=11)},
        "fresh": {"media_status": "downloading", "media_updated_at": at(database, minutes=5)},
        "done": {"media_status": "success", "media_updated_at": None},
        "given_up": {"media_status": "error", "media_attempts": 5, "media_last_error": error},
        "too_many": {"media_attempts": 7},
        "unknown": {"media_status": "descargando"},
        "story": {"tipo_item": "video", "mensaje": None},
        "empty_caption": {"mensaje": ""},
        "comment": {"tipo_item": "comment"},
        "share": {"tipo_item": "share"},
    }
    for post, values in given.items():
        await add(database, post, link + post, **values)
    await add(database, "no_link", None)
    await add(database, "empty_link", "")
    await add(database, "film", f"{cdn[1]}/m/mp4/5000/film", tipo_item="video")
    before, whole = await checksums(database), await rows(database)

    service = await new_service(database, **TEAM)
    run = await service.run()
    after = await rows(database)
    taken = {post for post, row in after.items() if row["media_status"] == "success"} - {"done"}
    assert taken == {"new", "null_state", "failed_four_times", "orphan", "film"}
    assert run.counters["success"] == 5
    assert await checksums(database) == before

    photo, film = after["new"], after["film"]
    assert file_at(photo["imagen_local"]).read_bytes()
    assert photo["imagen_local"].endswith("/aura/publicaciones_meta/new.jpg")
    assert photo["imagen_descargada_en"]
    assert photo["video_local"] is None
    assert photo["procesada"]
    assert photo["procesada_en"]
    assert film["imagen_local"] is None
    assert film["imagen_descargada_en"] is None
    assert film["video_local"] == film["video_url_public"]
    assert film["video_local"].endswith("/aura/publicaciones_meta/film.mp4")
    assert film["video_storage_path"] == "aura/publicaciones_meta/film.mp4"
    assert film["video_descargado_en"]
    assert film["procesada"]
    # The rest is as it was.
    same = set(given) - taken - {"too_many"}
    mine = ("media_fence", "media_leased_by", "media_due_at")
    for post in same | {"no_link", "empty_link"}:
        now = {name: value for name, value in after[post].items() if name not in mine}
        assert now == whole[post]
    # Six attempts and more: an error, without a call.
    assert (after["too_many"]["media_status"], after["too_many"]["media_attempts"]) == ("error", 7)
    assert not any("too_many" in call["path"] for call in cdn[0].calls)

    model = service.runtime.read_model
    for post, why in (
        ("story", "mensaje is not empty"),
        ("comment", "tipo_item"),
        ("unknown", "descargando"),
        ("no_link", "imagen_url is not empty"),
        ("empty_link", "imagen_url is not empty"),
        ("fresh", "another program has it"),
    ):
        found = await model.why(TABLE, str(after[post]["id"]))
        assert why in found.text
    # Ten minutes after it was written, the row of the other program is an orphan.
    await service.later(360)
    await service.run()
    assert (await rows(database))["fresh"]["media_status"] == "success"
    assert await checksums(database) == before


async def test_migrate_adds_only_what_is_missing(
    empty_database: Any, new_service: NewService
) -> None:
    database = empty_database
    await make_table(database)

    async def shape() -> list[dict[str, Any]]:
        if database.dialect == "sqlite":
            return await sql(database, f"PRAGMA table_info({TABLE})")
        return await sql(
            database,
            "SELECT column_name AS name, data_type, is_nullable, column_default"
            f" FROM information_schema.columns WHERE table_name = '{TABLE}'"
            " ORDER BY ordinal_position",
        )

    before = await shape()
    await new_service(database, **TEAM)
    after = await shape()
    assert after[: len(before)] == before
    added = [column["name"] for column in after[len(before) :]]
    assert added == ["media_due_at", "media_fence", "media_leased_by"] or set(added) == {
        "media_due_at",
        "media_fence",
        "media_leased_by",
    }


async def test_a_first_attach_knows_what_was_downloaded(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database, link = empty_database, f"{cdn[1]}/m/jpg/900/"
    await make_table(database, tracking=False)
    public = "https://abc.supabase.co/storage/v1/object/public/meta-webhooks/aura/x.jpg"
    await add(database, "photo_done", link + "a", imagen_local=public)
    await add(database, "video_done", link + "b", tipo_item="video", video_local=public)
    await add(database, "path", link + "c", imagen_local="/var/www/x.jpg")
    await add(database, "local", link + "d", imagen_local="http://localhost:5000/x.jpg")
    await add(database, "other", link + "e", imagen_local="https://old.example/x.jpg")
    await add(database, "new", link + "f")
    service = await new_service(database, SUPABASE_URL='"https://abc.supabase.co"', **TEAM)
    states = {post: row["media_status"] for post, row in (await rows(database)).items()}
    assert {post for post, state in states.items() if state == "success"} == {
        "photo_done",
        "video_done",
    }
    cdn[0].order("/m/jpg/900/c", status=503)
    await service.run()
    after = await rows(database)
    assert after["path"]["imagen_local"] == "/var/www/x.jpg"  # until the new file is there
    assert {post for post, row in after.items() if row["media_status"] == "success"} == set(
        after
    ) - {"path"}
    assert after["local"]["imagen_local"].endswith("local.jpg")


async def test_a_null_state_with_the_file_set_is_a_success(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await make_table(database)
    public = "https://abc.supabase.co/storage/v1/object/public/meta-webhooks/aura/x.jpg"
    await add(database, "1_2", f"{cdn[1]}/m/jpg/9/x", media_status=None, imagen_local=public)
    service = await new_service(database, SUPABASE_URL="https://abc.supabase.co", **TEAM)
    await service.run()
    row = (await rows(database))["1_2"]
    assert (row["media_status"], row["imagen_local"]) == ("success", public)
    assert not cdn[0].calls


async def test_a_row_that_lost_only_its_state_is_not_downloaded_again(
    empty_database: Any, new_service: NewService, cdn: Any, tmp_path: Path
) -> None:
    database = empty_database
    await make_table(database)
    old = tmp_path / "artifacts" / "aura" / "publicaciones_meta" / "1_2.jpg"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"\xff\xd8\xff the team's file")
    await add(database, "1_2", f"{cdn[1]}/m/jpg/900/x")
    service = await new_service(database, **TEAM)
    await service.run()
    row = (await rows(database))["1_2"]
    assert row["media_status"] == "success"
    assert file_at(row["imagen_local"]).read_bytes() == b"\xff\xd8\xff the team's file"
    assert not cdn[0].calls


def test_paths_of_two_posts_never_clash() -> None:
    class Row:
        nombre_nora, id = "aura", "7"

        def __init__(self, post_id: str) -> None:
            self.post_id = post_id

    posts = ["1/2", "1_2", "..", "", "a/../b", "é", "a b", "x" * 500]
    found = [object_path(Row(post), ".jpg", PATH) for post in posts]
    assert len(set(found)) == len(posts)
    assert found[1] == "aura/publicaciones_meta/1_2.jpg"
    assert found[6] == "aura/publicaciones_meta/a b.jpg"  # as the team's program writes it
    assert all(path.count("/") == 2 and "/../" not in path for path in found)


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("MEDIA_PATH", "files/{nothing}{ext}", "names nothing"),
        ("MEDIA_PATH", "files/{nombre_nora}{ext}", "needs {post_id} or {id}"),
        ("MEDIA_PATH", "files/{post_id}", "needs {ext}"),
        ("MEDIA_TENANTS", "101", "is not page=tenant"),
        ("MEDIA_TAKE", "likes=3", "is not a condition"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, name: str, value: str, fault: str) -> None:
    with pytest.raises(SettingsError, match=fault) as caught:
        load(environ={"ESCLUSA_PIPELINES": "media", name: value})
    assert name in str(caught.value)


async def test_the_webhook_fills_the_teams_columns(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await make_table(database)
    service = await new_service(database, **TEAM)
    value = {
        "item": "photo",
        "verb": "add",
        "post_id": "202_5",
        "photo_id": "9",
        "link": f"{cdn[1]}/m/jpg/900/a",
        "message": "café",
        "created_time": 1_700_000_001,
    }
    status, answer = await service.deliver(feed(value, id="202"))
    assert (status, answer["created"]) == (200, 1)
    row = (await rows(database))["202_5"]
    assert (row["page_id"], row["nombre_nora"], row["mensaje"]) == ("202", "nora", "café")
    assert row["created_time"] == 1_700_000_001
    assert json.loads(row["webhook_data"]) == value
    assert row["procesada"] in (False, 0)  # as the table has it by default
    await service.run()
    row = (await rows(database))["202_5"]
    assert row["imagen_local"].endswith("/nora/publicaciones_meta/202_5.jpg")


async def test_further_pictures_of_a_post_are_downloaded_beside_its_row(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await make_table(database)
    service = await new_service(database, MEDIA_TENANTS="*=aura", MEDIA_PATH=PATH)
    photos = [f"{cdn[1]}/m/png/{900 + n}/p{n}" for n in range(3)]
    value = {"item": "status", "verb": "add", "post_id": "101_7", "photos": photos}
    status, answer = await service.deliver(feed(value, id="101"))
    assert (status, answer["created"]) == (200, 3)
    assert (await service.deliver(feed(value, id="101")))[1]["known"] == 3
    assert set(await rows(database)) == {"101_7"}
    await service.run()
    row = (await rows(database))["101_7"]
    pictures = [p async for p in service.records.each(FurtherPicture, order="part")]
    assert [p.status for p in pictures] == ["success", "success"]
    files = [row["imagen_local"], *(p.imagen_local for p in pictures)]
    assert [file_at(each).stat().st_size for each in files] == [900, 901, 902]
    assert [p.media_size for p in pictures] == [901, 902]
    # An edit reaches a further picture that is not there yet, and a post of their own webhook.
    await add(database, "101_8", None)
    value = {
        "item": "photo",
        "verb": "add",
        "post_id": "101_8",
        "photo_id": "1",
        "link": f"{cdn[1]}/m/jpg/950/q",
    }
    assert "errors" not in (await service.deliver(feed(value, id="101")))[1]
    await service.run()
    assert (await rows(database))["101_8"]["media_status"] == "success"


async def test_comments_never_become_media(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await make_table(database)
    service = await new_service(database, **TEAM)
    await add(database, "101_1", None, tipo_item="comment", mensaje="nice")
    comment = {
        "item": "comment",
        "verb": "add",
        "post_id": "101_1",
        "comment_id": "c",
        "photo": f"{cdn[1]}/m/jpg/900/a",
    }
    assert (await service.deliver(feed(comment, id="101")))[1]["created"] == 0
    await service.run()
    row = (await rows(database))["101_1"]
    assert (row["tipo_item"], row["imagen_url"], row["imagen_local"]) == ("comment", None, None)


@pytest.mark.parametrize("verb", ["add", "edited"])
async def test_the_row_of_a_comment_never_gets_the_link_of_its_post(
    empty_database: Any, new_service: NewService, cdn: Any, verb: str
) -> None:
    """Their webhook made a row of the comment, which came before the photo of the post."""
    database = empty_database
    await make_table(database)
    service = await new_service(database, **TEAM)
    await add(database, "101_1", None, tipo_item="comment", mensaje="nice")
    before = await rows(database)
    photo = {
        "item": "photo",
        "verb": verb,
        "post_id": "101_1",
        "photo_id": "7",
        "link": f"{cdn[1]}/m/jpg/900/a",
        "message": "café",
    }
    status, answer = await service.deliver(feed(photo, id="101"))
    assert (status, "errors" in answer) == (200, False)
    await service.run()
    assert await rows(database) == before
    pictures = [p async for p in service.records.each(FurtherPicture)]
    assert [p.status for p in pictures] == (["success"] if verb == "add" else [])


async def test_an_edit_reaches_the_picture_of_a_post_whose_row_is_a_comment(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    await make_table(empty_database)
    service = await new_service(empty_database, **TEAM)
    await add(empty_database, "101_1", None, tipo_item="comment", mensaje="nice")
    photo = {"item": "photo", "verb": "add", "post_id": "101_1", "photo_id": "7"}
    await service.deliver(feed(photo | {"link": f"{cdn[1]}/gone/404"}, id="101"))
    await service.run()
    edited = photo | {"verb": "edited", "link": f"{cdn[1]}/m/jpg/900/new"}
    assert (await service.deliver(feed(edited, id="101")))[1]["updated"] == 1
    await service.run()
    [picture] = [p async for p in service.records.each(FurtherPicture)]
    assert (picture.status, picture.media_size) == ("success", 900)


async def test_without_a_rule_every_row_with_a_link_is_taken(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    """The team's rule is a setting: a share's link, which is a page, ends in error without it."""
    database, link = empty_database, f"{cdn[1]}/m/jpg/900/"
    await make_table(database)
    await add(database, "story", link + "a", tipo_item="video", mensaje=None)
    await add(database, "comment", link + "b", tipo_item="comment")
    await add(database, "share", f"{cdn[1]}/html", tipo_item="share")
    service = await new_service(database, **(TEAM | {"MEDIA_TAKE": ""}))
    await service.run()
    states = {post: row["media_status"] for post, row in (await rows(database)).items()}
    assert states == {"story": "success", "comment": "success", "share": "error"}
    warnings = [check.text for check in check_pipelines(service.runtime.settings)]
    assert any("MEDIA_TAKE is not set" in warning for warning in warnings)


async def test_a_neighbour_writes_rows_that_we_hold(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await make_table(database)
    service = await new_service(database, **TEAM)
    id = await add(database, "101_1", f"{cdn[1]}/m/jpg/900/a")
    cdn[0].order("/m/jpg/900/a", fault="slow", seconds=1.0)
    run = asyncio.create_task(service.run())
    await asyncio.sleep(0.5)
    truth = "true" if database.dialect == "postgres" else "1"
    await sql(database, f"UPDATE {TABLE} SET publicada_gbp = {truth} WHERE id = {id}")
    await run
    row = (await rows(database))["101_1"]
    assert row["publicada_gbp"]
    assert row["media_status"] == "success"


async def test_the_proof_of_a_file_is_kept(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    import hashlib

    from esclusa.simulators.media_cdn import content

    database = empty_database
    await make_table(database)
    service = await new_service(database, **TEAM)
    id = await add(database, "101_1", f"{cdn[1]}/m/jpg/900/a")
    await service.run()
    file = await service.records.first(MediaFile, {"publication": str(id)})
    assert file is not None
    digest = hashlib.sha256(content("jpg", 900, "a")).hexdigest()
    assert (file.sha256, file.size, file.type) == (digest, 900, "image/jpeg")
    related = await service.runtime.read_model.related(TABLE, str(id))
    assert "media_files" in {relation["table"] for relation in related}


async def test_columns_for_the_proof_are_used_where_the_table_has_them(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await make_table(database)
    for column, type in (("media_sha256", "text"), ("media_size", "bigint")):
        await sql(database, f"ALTER TABLE {TABLE} ADD COLUMN {column} {type}")
    service = await new_service(database, **TEAM)
    await add(database, "101_1", f"{cdn[1]}/m/jpg/900/a")
    await service.run()
    row = (await rows(database))["101_1"]
    assert len(row["media_sha256"]) == 64
    assert row["media_size"] == 900
    assert await service.records.first(MediaFile) is None


async def test_one_row_that_the_table_refuses_at_the_claim_stops_no_other(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await make_table(database)
    check = (
        f"ALTER TABLE {TABLE} ADD CONSTRAINT odd CHECK"
        " (post_id <> 'bad' OR media_status <> 'downloading')"
    )
    if database.dialect == "sqlite":
        check = f"""CREATE TRIGGER odd BEFORE UPDATE ON {TABLE}
            WHEN NEW.post_id = 'bad' AND NEW.media_status = 'downloading'
            BEGIN SELECT RAISE(ABORT, 'refused'); END"""
    await sql(database, check)
    service = await new_service(database, **TEAM)
    for post in ("a", "bad", "b", "c"):
        await add(database, post, f"{cdn[1]}/m/jpg/900/{post}")
    await service.run()
    states = {post: row["media_status"] for post, row in (await rows(database)).items()}
    assert states == {"a": "success", "bad": "pending", "b": "success", "c": "success"}


@pytest.mark.parametrize("empty_database", ["postgres"], indirect=True)
async def test_rows_with_uuids_are_taken_in_the_order_of_their_creation(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await sql(
        database,
        f"""CREATE TABLE {TABLE} (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), post_id text,
        tipo_item text, imagen_url text, imagen_local text, creada_en timestamptz)""",
    )
    for n in range(40):
        await sql(
            database,
            f"""INSERT INTO {TABLE} (post_id, imagen_url, creada_en)
            VALUES ('{n}', '{cdn[1]}/m/jpg/90/{n}',
                now() - interval '1 hour' + {n} * interval '1 s')""",
        )
    tables = {TABLE: {"track": {"created_at": "creada_en"}}}
    service = await new_service(database, MEDIA_CONCURRENCY="1", ESCLUSA_TABLES=json.dumps(tables))
    await service.run()
    names = [call["path"].rpartition("/")[2] for call in cdn[0].calls]
    assert names == [str(n) for n in range(40)]


@pytest.mark.parametrize("empty_database", ["postgres"], indirect=True)
async def test_system_tables_are_closed_to_the_roles_of_supabase(
    empty_database: Any, new_service: NewService
) -> None:
    database = empty_database
    await sql(
        database,
        """DO $$ BEGIN
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') THEN CREATE ROLE anon; END IF;
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'authenticated')
            THEN CREATE ROLE authenticated; END IF;
        ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO anon, authenticated;
        GRANT USAGE ON SCHEMA public TO anon, authenticated; END $$""",
    )
    await make_table(database)
    await sql(database, f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
    await new_service(database, **TEAM)
    open_to_anon = await sql(
        database,
        """SELECT c.oid::regclass::text AS name FROM pg_class c
        WHERE c.relkind = 'r' AND c.relnamespace = 'esclusa'::regnamespace
            AND has_schema_privilege('anon', 'esclusa', 'USAGE')""",
    )
    assert open_to_anon == []
    ours = ("media_deliveries", "media_notices", "media_pictures", "media_files")
    connection = await asyncpg.connect(database.url)
    for role in ("anon", "authenticated"):
        await connection.execute(f"SET ROLE {role}")
        for table in (*ours, "esclusa.dead_letters", "esclusa.history"):
            for statement in (f"SELECT 1 FROM {table}", f"DELETE FROM {table}"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)
    await connection.close()
    [theirs] = await sql(
        database, f"SELECT has_table_privilege('anon', '{TABLE}', 'SELECT') AS open"
    )
    assert theirs["open"]  # as it was
    secured = await sql(
        database, f"SELECT relrowsecurity FROM pg_class WHERE oid = '{TABLE}'::regclass"
    )
    assert secured == [{"relrowsecurity": True}]


@pytest.mark.parametrize("empty_database", ["postgres"], indirect=True)
async def test_the_role_of_the_guide_has_the_rights_that_a_worker_needs(
    empty_database: Any, new_service: NewService, cdn: Any, tmp_path: Path
) -> None:
    """The statements of docs/pipelines/media.md, after `migrate`, on a table with policies."""
    database, role = empty_database, f"esclusa_worker_{secrets.token_hex(4)}"
    await make_table(database)
    await sql(database, f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
    await new_service(database, **TEAM)  # migrates as the owner
    guide = Path(__file__).parents[3] / "docs" / "pipelines" / "media.md"
    statements = guide.read_text().partition("```sql\n")[2].partition("```")[0]
    connection = await asyncpg.connect(database.url)
    await connection.execute(statements.replace("esclusa_worker", role))
    await add(database, "theirs", f"{cdn[1]}/m/jpg/900/a")
    environ = environ_of(database, tmp_path, cdn[1], **TEAM)
    url = urlsplit(database.url)
    environ["ESCLUSA_STORE"] = url._replace(netloc=f"{role}@{url.hostname}:{url.port}").geturl()
    async with open_runtime(load(environ=environ)) as runtime, runtime.engine.running() as engine:
        await deliveries.receive(runtime, json.dumps(changes(cdn[1], 4, 0)))
        run = await engine.run_cycle("media.download")
        assert (run.outcome, run.counters["success"]) == ("ok", 5)
    await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    await connection.close()


async def test_the_three_queries_count_old_and_new_rows_alike(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await make_table(database)
    await add(database, "old", f"{cdn[1]}/m/jpg/900/o", media_status="success", media_attempts=1)
    await add(database, "new", f"{cdn[1]}/m/jpg/900/n")
    service = await new_service(database, **TEAM)
    await service.run()
    found = await sql(
        database,
        f"""SELECT media_status, COUNT(*) as total, AVG(media_attempts) as avg_intentos
        FROM {TABLE} WHERE imagen_url IS NOT NULL GROUP BY media_status""",
    )
    assert [(r["media_status"], r["total"], float(r["avg_intentos"])) for r in found] == [
        ("success", 2, 1.0)
    ]


async def test_a_link_too_long_for_their_index_is_reported(
    empty_database: Any, new_service: NewService, cdn: Any
) -> None:
    database = empty_database
    await make_table(database)
    service = await new_service(database, **TEAM)
    import random

    long = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=7000))
    values = [
        {
            "item": "photo",
            "verb": "add",
            "post_id": f"101_{n}",
            "photo_id": str(n),
            "link": f"{cdn[1]}/m/jpg/900/{long if n == 1 else n}",
            "message": "x",
        }
        for n in range(3)
    ]
    _, answer = await service.deliver(feed(*values, id="101"))
    refused = database.dialect == "postgres"  # SQLite's indexes have no such limit
    assert answer["created"] == (2 if refused else 3)
    assert ("errors" in answer) is refused

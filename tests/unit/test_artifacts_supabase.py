"""Artifacts in Supabase Storage: errors in the body, allowed characters of keys, settings.

Supabase's own client is the oracle.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.supabase import supabase_bucket

from esclusa.artifacts import open_artifacts
from esclusa.artifacts.supabase import SupabaseArtifacts, key_of, path_of
from esclusa.http import session
from esclusa.model.errors import ArtifactError, ArtifactExists, ArtifactMissing, SettingsError
from esclusa.simulators import SimulatorProcess
from esclusa.simulators.supabase import SERVICE_KEY, SupabaseSimulator


@pytest.fixture
async def simulator() -> AsyncIterator[tuple[SupabaseSimulator, str]]:
    made = SupabaseSimulator()
    yield made, await made.start()
    await made.stop()


@pytest.fixture
async def artifacts(simulator: tuple[SupabaseSimulator, str]) -> AsyncIterator[Any]:
    store = open_artifacts(
        "supabase://media",
        environ={"SUPABASE_URL": simulator[1], "SUPABASE_SERVICE_KEY": SERVICE_KEY},
    )
    await store.open()
    yield store
    await store.close()


@pytest.fixture(scope="module")
def simulator_process() -> Iterator[SimulatorProcess]:
    with SimulatorProcess("supabase") as server:
        yield server


@pytest.mark.parametrize(
    "path", ["a/b.jpg", "x!y", "x!21y", "año/ñ.jpg", "50%.png", "#~[]", "!", "a b&c", "日本"]
)
def test_keys_have_allowed_characters_only_and_round_trip(path: str) -> None:
    key = key_of(path)
    assert set(key) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_/!.*'()&$=@;:+,?- "
    )
    assert path_of(key) == path


def test_keys_are_unique_and_preserve_prefixes() -> None:
    names = ["ñ", "!C3!B1", "%C3%B1", "n!", "n%21", "n!21"]
    assert len({key_of(name) for name in names}) == len(names)
    assert key_of("año/x").startswith(key_of("año/"))


async def test_public_url_needs_no_key(artifacts: Any) -> None:
    address = await artifacts.put("media/1-456_789%2F.jpg", b"picture", content_type="image/jpeg")
    async with session() as http, http.get(address) as answer:
        assert (answer.status, answer.content_type, await answer.read()) == (
            200,
            "image/jpeg",
            b"picture",
        )
    async with session() as http, http.get(artifacts.public_url("none.jpg")) as answer:
        assert answer.status == 400  # as Supabase does
        assert (await answer.json())["statusCode"] == "404"


async def test_errors_have_the_servers_message(
    simulator: tuple[SupabaseSimulator, str], artifacts: Any
) -> None:
    server, _ = simulator
    bucket = server.buckets["media"]
    with pytest.raises(ArtifactMissing, match="Object not found"):
        await artifacts.get("none")
    await artifacts.put("x", b"1", create=True)
    with pytest.raises(ArtifactExists):
        await artifacts.put("x", b"2", create=True)
    bucket.file_size_limit = 10
    with pytest.raises(
        ArtifactError, match=r"413.*EntityTooLarge.*exceeded the maximum allowed size"
    ):
        await artifacts.put("big", b"x" * 11)
    bucket.file_size_limit, bucket.allowed_mime_types = None, ["image/*"]
    with pytest.raises(ArtifactError, match="mime type text/html is not supported"):
        await artifacts.put("page", b"<html>", content_type="text/html")
    await artifacts.put("picture", b"x", content_type="image/png")
    for fault, words in (
        (
            {
                "status": 429,
                "body": {
                    "statusCode": "429",
                    "error": "too_many_connections",
                    "code": "SlowDown",
                    "message": "Too many",
                },
            },
            "SlowDown",
        ),
        (
            {
                "status": 544,
                "body": {"statusCode": "544", "code": "DatabaseTimeout", "message": "timed out"},
            },
            "DatabaseTimeout",
        ),
        (
            {"status": 500, "body": {"statusCode": "500", "error": "Internal", "message": "broke"}},
            "broke",
        ),
        ({"fault": "html"}, "HTTP 502"),
        ({"fault": "cut"}, "read it"),
    ):
        server.order("/storage/v1/object/media/picture", **fault)
        with pytest.raises(ArtifactError, match=words) as caught:
            await artifacts.get("picture")
        assert not isinstance(caught.value, ArtifactMissing)
    server.buckets.clear()
    with pytest.raises(ArtifactError, match="Bucket not found") as lost:
        await artifacts.get("x")
    assert not isinstance(lost.value, ArtifactMissing)


@pytest.mark.parametrize(
    "body",
    ["<html>Log in</html>", "", "null", "[]", "{}", '{"half": ', "\x00"],
    ids=["page", "nothing", "null", "list", "bare", "half", "zero"],
)
async def test_foreign_answer_is_not_a_success(
    simulator: tuple[SupabaseSimulator, str], artifacts: Any, body: str
) -> None:
    """The login page of a gateway has status 200, too, but no file was written."""
    server, url = simulator
    for call in (
        lambda: artifacts.put("x", b"x"),
        lambda: artifacts.keep("x", b"x"),
        lambda: artifacts.info("x"),
        lambda: anext(artifacts.list()),
        lambda: open_artifacts(
            "supabase://media", environ={"SUPABASE_URL": url, "SUPABASE_SERVICE_KEY": SERVICE_KEY}
        ).open(),
    ):
        server.order("/", status=200, body=body)
        with pytest.raises(ArtifactError, match="is not from Supabase; check SUPABASE_URL"):
            await call()
    assert [info async for info in artifacts.list()] == []


async def test_upload_to_a_server_that_stops_reading_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "film").write_bytes(bytes(64 << 20))
    monkeypatch.setattr("esclusa.artifacts.supabase._UPLOAD_SECONDS", 0.2)
    monkeypatch.setattr("esclusa.artifacts.supabase._SLOWEST_UPLOAD", 1 << 30)
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET "):
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\nConnection: close\r\n\r\n"
                b'{"name":"media"}'
            )
        else:
            await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        store = open_artifacts(
            "supabase://media",
            environ={"SUPABASE_URL": address, "SUPABASE_SERVICE_KEY": SERVICE_KEY},
        )
        await store.open()
        async with asyncio.timeout(20):
            with pytest.raises(ArtifactError, match=r"x: cannot write it: .*it took too long"):
                await store.put("x", tmp_path / "film")
        await store.close()
        over.set()


async def test_open_reports_wrong_key_missing_bucket_and_silent_server(
    simulator: tuple[SupabaseSimulator, str],
) -> None:
    _, url = simulator
    for store, words in (
        (SupabaseArtifacts("media", address=url, key="wrong-and-secret"), "Invalid Compact JWS"),
        (SupabaseArtifacts("nobody", address=url, key=SERVICE_KEY), "Bucket not found"),
        (SupabaseArtifacts("media", address="http://127.0.0.1:9", key=SERVICE_KEY), "127.0.0.1:9"),
    ):
        with pytest.raises(ArtifactError, match=words) as caught:
            await store.open()
        assert "wrong-and-secret" not in str(caught.value) + repr(store)
        assert SERVICE_KEY not in str(caught.value)
        with pytest.raises(ArtifactError, match="not open"):
            await store.get("x")


@pytest.mark.parametrize(
    ("url", "environ", "named"),
    [
        ("supabase://media", {}, "SUPABASE_URL"),
        (
            "supabase://media",
            {"SUPABASE_URL": "x.supabase.co", "SUPABASE_SERVICE_KEY": "k"},
            "SUPABASE_URL",
        ),
        (
            "supabase://media",
            {"SUPABASE_URL": "https://key@x.supabase.co", "SUPABASE_SERVICE_KEY": "k"},
            "SUPABASE_URL",
        ),
        ("supabase://media", {"SUPABASE_URL": "https://x.supabase.co"}, "SUPABASE_SERVICE_KEY"),
        (
            "supabase://media",
            {"SUPABASE_URL": "https://x.supabase.co", "SUPABASE_SERVICE_KEY": "a\nb"},
            "SUPABASE_SERVICE_KEY",
        ),
        (
            "supabase://media",
            {"SUPABASE_URL": "https://x.supabase.co", "SUPABASE_SERVICE_KEY_FILE": "/none/at/all"},
            "SUPABASE_SERVICE_KEY_FILE",
        ),
        (
            "supabase://",
            {"SUPABASE_URL": "https://x.supabase.co", "SUPABASE_SERVICE_KEY": "k"},
            "ESCLUSA_ARTIFACTS",
        ),
        (
            "supabase://media/prefix",
            {"SUPABASE_URL": "https://x.supabase.co", "SUPABASE_SERVICE_KEY": "k"},
            "ESCLUSA_ARTIFACTS",
        ),
        (
            "supabase://key@media",
            {"SUPABASE_URL": "https://x.supabase.co", "SUPABASE_SERVICE_KEY": "k"},
            "SUPABASE_SERVICE_KEY",
        ),
    ],
)
def test_wrong_settings_are_named(url: str, environ: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        open_artifacts(url, environ=environ)


def test_public_url_can_be_set() -> None:
    environ = {"SUPABASE_URL": "https://x.supabase.co/", "SUPABASE_SERVICE_KEY": "k"}
    assert open_artifacts("supabase://media", environ=environ).public_url("a/ñ.jpg") == (
        "https://x.supabase.co/storage/v1/object/public/media/a/%21C3%21B1.jpg"
    )
    store = open_artifacts(
        "supabase://media", environ=environ, public_url="https://cdn.example/media"
    )
    assert store.public_url("a.jpg") == "https://cdn.example/media/a.jpg"


async def test_supabases_client_and_ours_read_each_others_objects(
    simulator_process: SimulatorProcess,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import storage3
    from storage3.exceptions import StorageApiError

    url, environ = supabase_bucket(simulator_process)
    name = url.removeprefix("supabase://")
    store = open_artifacts(url, environ=environ)
    await store.open()
    client = storage3.create_client(
        f"{simulator_process.url}/storage/v1/",
        {"Authorization": f"Bearer {SERVICE_KEY}"},
        is_async=True,
    )
    theirs = client.from_(name)
    await store.put("a/b c.jpg", b"ours", content_type="image/jpeg")
    assert await theirs.download("a/b c.jpg") == b"ours"
    assert await theirs.get_public_url("a/b c.jpg") == store.public_url("a/b c.jpg")
    await theirs.upload("x/y.png", b"theirs", {"content-type": "image/png"})
    assert await store.get("x/y.png") == b"theirs"
    with pytest.raises(StorageApiError) as caught:
        await theirs.upload("x/y.png", b"again")
    assert (str(caught.value.status), caught.value.code) == ("409", "Duplicate")
    with pytest.raises(StorageApiError, match="Invalid key"):
        await theirs.upload("ñ.png", b"x")
    assert [info.path async for info in store.list()] == ["a/b c.jpg", "x/y.png"]
    await store.close()
    await client.session.aclose()

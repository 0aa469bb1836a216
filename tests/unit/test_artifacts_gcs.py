"""Artifacts in Cloud Storage: generations, lost answers, refusals, errors."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from support.gcs import BUCKET, GcsServer, gcs_server

from esclusa.artifacts.gcs import PART, GcsArtifacts
from esclusa.model.errors import ArtifactError, ArtifactExists, ArtifactMissing


@pytest.fixture(scope="module")
def server() -> Iterator[GcsServer]:
    with gcs_server() as started:
        yield started


@pytest.fixture
async def artifacts(server: GcsServer) -> AsyncIterator[GcsArtifacts]:
    store = GcsArtifacts(BUCKET, uuid.uuid4().hex, endpoint=server.endpoint)
    await store.open()
    yield store
    server.faults(lose=0, refuse=0)
    await store.close()


def key(store: GcsArtifacts, path: str) -> str:
    return f"{store.url.removeprefix(f'gs://{BUCKET}/')}/{path}"


async def test_version_is_the_generation(artifacts: GcsArtifacts, server: GcsServer) -> None:
    await artifacts.put("a.pdf", b"%PDF", content_type="application/pdf")
    blob = await asyncio.to_thread(server.client().bucket(BUCKET).get_blob, key(artifacts, "a.pdf"))
    info = await artifacts.info("a.pdf")
    assert info is not None
    assert (info.version, blob.content_type) == (str(blob.generation), "application/pdf")


@pytest.mark.parametrize("size", [10, PART + 1, 2 * PART])
async def test_create_with_a_lost_answer_succeeds_once(
    artifacts: GcsArtifacts, server: GcsServer, size: int
) -> None:
    server.faults(lose=1)
    await artifacts.put(
        "x", b"1" * size, create=True
    )  # written, not answered, repeated, refused because its object exists
    assert await artifacts.get("x") == b"1" * size
    with pytest.raises(ArtifactExists):
        await artifacts.put(
            "x", b"1" * size, create=True
        )  # equal content does not count: only one create succeeds


async def test_lost_answer_does_not_hide_an_existing_object(
    artifacts: GcsArtifacts, server: GcsServer
) -> None:
    await artifacts.put("x", b"first", create=True)
    server.faults(lose=1)
    with pytest.raises(ArtifactExists):
        await artifacts.put("x", b"first", create=True)
    assert await artifacts.get("x") == b"first"


async def test_unconditional_write_is_repeated_only_if_nothing_was_done(
    artifacts: GcsArtifacts, server: GcsServer
) -> None:
    server.faults(refuse=2, status=503)
    await artifacts.put("x", b"as it is")
    server.faults(refuse=2, status=429)
    await artifacts.delete("x")
    before = server.faults(lose=1)
    with pytest.raises(ArtifactError, match="cannot write it"):
        await artifacts.put("x", b"another may write meanwhile")
    assert server.faults() - before == 1
    before = server.faults(refuse=1, status=500)
    with pytest.raises(ArtifactError, match="500 refused on purpose"):
        await artifacts.put("x", b"this may have been done")
    assert server.faults() - before == 1


async def test_reads_are_repeated(artifacts: GcsArtifacts, server: GcsServer) -> None:
    await artifacts.put("x", b"here")
    for status in (408, 429, 500, 502, 503, 504):
        server.faults(refuse=1, status=status)
        assert await artifacts.get("x") == b"here"
    server.faults(refuse=1, status=500)
    assert await artifacts.info("x") is not None


async def test_refusals_have_the_servers_message(
    artifacts: GcsArtifacts, server: GcsServer
) -> None:
    for verb in (
        lambda: artifacts.put("x", b"1"),
        lambda: artifacts.put("x", b"1", create=True),
        lambda: artifacts.get("x"),
        lambda: artifacts.delete("x"),
    ):
        server.faults(refuse=1, status=403)
        with pytest.raises(
            ArtifactError, match=r"x: cannot .* it: 403 refused on purpose"
        ) as caught:
            await verb()
        assert not isinstance(caught.value, ArtifactMissing)


async def test_object_replaced_during_a_stream_is_not_mixed(artifacts: GcsArtifacts) -> None:
    await artifacts.put("x", b"1" * (2 * PART))
    reading = artifacts.stream("x", PART)
    assert set(await anext(reading)) == {ord("1")}
    await artifacts.put("x", b"2" * (2 * PART))
    with pytest.raises(ArtifactError, match="replaced while it was read"):
        await anext(reading)


async def test_unusable_bucket(server: GcsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArtifactError, match="ESCLUSA_ARTIFACTS: there is no bucket no-such"):
        await GcsArtifacts("no-such", endpoint=server.endpoint).open()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(ArtifactError, match="credentials"):
        await GcsArtifacts("no-such").open()
    with pytest.raises(ArtifactError, match="is not open"):
        await GcsArtifacts("no-such").get("x")


async def test_folders_made_by_hand_are_not_listed(
    artifacts: GcsArtifacts, server: GcsServer
) -> None:
    folder = server.client().bucket(BUCKET).blob(key(artifacts, "made/"))
    await asyncio.to_thread(folder.upload_from_string, b"")
    await artifacts.put("made/x", b"x")
    assert [info.path async for info in artifacts.list()] == ["made/x"]

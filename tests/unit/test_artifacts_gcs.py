"""Cloud Storage as artifacts: generations, lost answers, refusals, and what is said when it cannot be used."""

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
async def kept(server: GcsServer) -> AsyncIterator[GcsArtifacts]:
    store = GcsArtifacts(BUCKET, uuid.uuid4().hex, endpoint=server.endpoint)
    await store.open()
    yield store
    server.faults(lose=0, refuse=0)
    await store.close()


def key(store: GcsArtifacts, path: str) -> str:
    return f"{store.url.removeprefix(f'gs://{BUCKET}/')}/{path}"


async def test_the_version_is_the_generation(kept: GcsArtifacts, server: GcsServer) -> None:
    await kept.put("a.pdf", b"%PDF", content_type="application/pdf")
    blob = await asyncio.to_thread(server.client().bucket(BUCKET).get_blob, key(kept, "a.pdf"))
    info = await kept.info("a.pdf")
    assert info is not None
    assert (info.version, blob.content_type) == (str(blob.generation), "application/pdf")


@pytest.mark.parametrize("size", [10, PART + 1, 2 * PART])
async def test_a_create_whose_answer_is_lost_succeeds_once(
    kept: GcsArtifacts, server: GcsServer, size: int
) -> None:
    server.faults(lose=1)
    await kept.put(
        "x", b"1" * size, create=True
    )  # written, answered by nothing, sent again, refused because of itself
    assert await kept.get("x") == b"1" * size
    with pytest.raises(ArtifactExists):
        await kept.put(
            "x", b"1" * size, create=True
        )  # the same content is no proof: only one may create


async def test_a_lost_answer_does_not_make_a_loser_win(
    kept: GcsArtifacts, server: GcsServer
) -> None:
    await kept.put("x", b"first", create=True)
    server.faults(lose=1)
    with pytest.raises(ArtifactExists):
        await kept.put("x", b"first", create=True)
    assert await kept.get("x") == b"first"


async def test_a_write_without_precondition_is_sent_again_only_when_nothing_was_done(
    kept: GcsArtifacts, server: GcsServer
) -> None:
    server.faults(refuse=2, status=503)
    await kept.put("x", b"as it is")
    server.faults(refuse=2, status=429)
    await kept.delete("x")
    before = server.faults(lose=1)
    with pytest.raises(ArtifactError, match="cannot write it"):
        await kept.put("x", b"another may write meanwhile")
    assert server.faults() - before == 1
    before = server.faults(refuse=1, status=500)
    with pytest.raises(ArtifactError, match="500 refused to order"):
        await kept.put("x", b"this may have been done")
    assert server.faults() - before == 1


async def test_reads_are_sent_again(kept: GcsArtifacts, server: GcsServer) -> None:
    await kept.put("x", b"here")
    for status in (408, 429, 500, 502, 503, 504):
        server.faults(refuse=1, status=status)
        assert await kept.get("x") == b"here"
    server.faults(refuse=1, status=500)
    assert await kept.info("x") is not None


async def test_what_is_refused_says_so(kept: GcsArtifacts, server: GcsServer) -> None:
    for verb in (
        lambda: kept.put("x", b"1"),
        lambda: kept.put("x", b"1", create=True),
        lambda: kept.get("x"),
        lambda: kept.delete("x"),
    ):
        server.faults(refuse=1, status=403)
        with pytest.raises(ArtifactError, match=r"x: cannot .* it: 403 refused to order") as caught:
            await verb()
        assert not isinstance(caught.value, ArtifactMissing)


async def test_a_long_object_replaced_while_it_is_read_is_never_mixed(kept: GcsArtifacts) -> None:
    await kept.put("x", b"1" * (2 * PART))
    reading = kept.stream("x", PART)
    assert set(await anext(reading)) == {ord("1")}
    await kept.put("x", b"2" * (2 * PART))
    with pytest.raises(ArtifactError, match="replaced while it was read"):
        await anext(reading)


async def test_a_bucket_that_cannot_be_used(
    server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArtifactError, match="ESCLUSA_ARTIFACTS: there is no bucket no-such"):
        await GcsArtifacts("no-such", endpoint=server.endpoint).open()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(ArtifactError, match="credentials"):
        await GcsArtifacts("no-such").open()
    with pytest.raises(ArtifactError, match="is not open"):
        await GcsArtifacts("no-such").get("x")


async def test_folders_made_by_hand_are_no_objects(kept: GcsArtifacts, server: GcsServer) -> None:
    folder = server.client().bucket(BUCKET).blob(key(kept, "made/"))
    await asyncio.to_thread(folder.upload_from_string, b"")
    await kept.put("made/x", b"x")
    assert [info.path async for info in kept.list()] == ["made/x"]

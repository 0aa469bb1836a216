"""Artifacts in S3: servers that refuse or do not answer, uploads in parts, keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from support.loopback import free_port
from support.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server, moto_server, seaweed_server

from esclusa.artifacts import open_artifacts
from esclusa.artifacts.s3 import S3Artifacts
from esclusa.model.errors import ArtifactError, ArtifactMissing

MB = 1 << 20
BUCKET = "esclusa-special"


@pytest.fixture(scope="module")
def moto() -> Iterator[S3Server]:
    with moto_server() as server:
        server.client().create_bucket(Bucket=BUCKET)
        yield server


@pytest.fixture(scope="module")
def seaweed() -> Iterator[S3Server]:
    with seaweed_server() as server:
        server.client().create_bucket(Bucket=BUCKET)
        yield server


@pytest.fixture(params=["moto", "seaweed"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found


async def pieces(count: int, then: BaseException | None = None) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * MB
    if then is not None:
        raise then


def uploads(server: S3Server) -> list[Any]:
    found: list[Any] = server.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    return found


async def test_another_client_sees_keys_and_content_types(server: S3Server) -> None:
    store = open_artifacts(f"s3://{BUCKET}/a/prefix", environ=server.environ)
    await store.put("año/x y+%.txt", b"hello", content_type="text/plain; charset=utf-8")
    await store.put("big.bin", pieces(12), content_type="application/x-big")
    await store.put("made.bin", pieces(12), content_type="application/x-made", create=True)
    client = server.client()
    found = client.get_object(Bucket=BUCKET, Key="a/prefix/año/x y+%.txt")
    assert (found["Body"].read(), found["ContentType"]) == (b"hello", "text/plain; charset=utf-8")
    for name in ("big", "made"):
        head = client.head_object(Bucket=BUCKET, Key=f"a/prefix/{name}.bin")
        assert (head["ContentLength"], head["ContentType"]) == (12 * MB, f"application/x-{name}")


async def test_failed_or_cancelled_upload_leaves_no_part(server: S3Server) -> None:
    store = open_artifacts(f"s3://{BUCKET}/parts", environ=server.environ)
    with pytest.raises(ValueError, match="midway"):
        await store.put("x", pieces(20, then=ValueError("midway")))
    assert uploads(server) == []
    stuck = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        async for block in pieces(20):
            yield block
        stuck.set()
        await asyncio.Event().wait()

    put = asyncio.create_task(store.put("x", endless()))
    await stuck.wait()
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert uploads(server) == []
    assert await store.info("x") is None


async def test_missing_bucket(server: S3Server) -> None:
    store = open_artifacts("s3://esclusa-none", environ=server.environ)
    with pytest.raises(
        ArtifactError,
        match=r"ESCLUSA_ARTIFACTS: the bucket esclusa-none cannot be used: 404.*NoSuchBucket",
    ) as caught:
        await store.open()
    assert not isinstance(caught.value, ArtifactMissing)
    with pytest.raises(ArtifactError, match="cannot list"):
        [info async for info in store.list()]


async def test_wrong_secret_key_is_refused_and_not_shown(seaweed: S3Server) -> None:
    store = open_artifacts(
        f"s3://{BUCKET}",
        environ=seaweed.environ | {"AWS_SECRET_ACCESS_KEY": "not-the-right-secret"},
    )
    for trial in (store.open(), store.put("x", b"x"), store.get("x"), store.delete("x")):
        with pytest.raises(ArtifactError, match="403") as caught:
            await trial
        assert "not-the-right-secret" not in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not isinstance(caught.value, ArtifactMissing)


async def test_missing_keys_are_named(moto: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    # The keys then come from the instance's service; here from a port without a listener.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    store = open_artifacts(f"s3://{BUCKET}", environ={"AWS_ENDPOINT_URL": moto.endpoint})
    with pytest.raises(
        ArtifactError, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"
    ):
        await store.open()


async def test_unreachable_endpoint(seaweed: S3Server) -> None:
    port = free_port()
    store = open_artifacts(
        f"s3://{BUCKET}", environ=seaweed.environ | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    )
    begun = time.monotonic()
    for trial in (
        store.open(),
        store.put("x", b"x"),
        store.put("x", pieces(12)),
        store.get("x"),
        store.info("x"),
        store.delete("x"),
    ):
        with pytest.raises(ArtifactError, match=f"127.0.0.1:{port}") as caught:
            await trial
        assert SECRET_KEY not in str(caught.value)
        assert not isinstance(caught.value, ArtifactMissing)
    assert time.monotonic() - begun < 30


async def test_stream_never_mixes_two_versions(server: S3Server) -> None:
    store = open_artifacts(f"s3://{BUCKET}/mixed", environ=server.environ)
    await store.put("x", b"1" * (11 * MB))
    stream = store.stream("x")
    assert (await anext(stream))[:1] == b"1"
    await store.put("x", b"2" * (11 * MB))
    with pytest.raises(ArtifactError, match="412"):
        assert not [block async for block in stream if b"2" in block]


async def test_ordered_list_is_not_sorted_again(moto: S3Server) -> None:
    store = S3Artifacts(
        BUCKET,
        "ordered",
        endpoint=moto.endpoint,
        region=REGION,
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        ordered=True,
    )
    names = ["a", "a-b/c", "a/b", "a/b-c", "a/b.txt", "ab", "b/1", "b/10", "b/2"]
    await asyncio.gather(*(store.put(name, b"x") for name in names))
    for prefix in ("", "a", "a/", "a/b", "b/1", "ab", "none", "b/3", "a/b."):
        assert [info.path async for info in store.list(prefix)] == [
            name for name in names if name.startswith(prefix)
        ]

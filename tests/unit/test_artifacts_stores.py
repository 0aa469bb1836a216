"""The same behaviour on every artifact store; no test depends on which store it gets.

The stores are a folder, S3 (moto and SeaweedFS), Cloud Storage and Supabase.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from support.gcs import BUCKET as GCS_BUCKET
from support.gcs import GcsServer, gcs_server
from support.paths import BAD_PATHS
from support.s3 import S3Server, moto_server, seaweed_server
from support.supabase import supabase_bucket

from esclusa.artifacts import open_artifacts
from esclusa.artifacts.supabase import path_of
from esclusa.model.errors import ArtifactError, ArtifactExists, ArtifactMissing
from esclusa.ports.artifacts import Artifacts
from esclusa.simulators import SimulatorProcess

MB = 1 << 20
BUCKET = "esclusa-tests"


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    with moto_server() as server:
        server.client().create_bucket(Bucket=BUCKET)
        yield server


@pytest.fixture(scope="session")
def seaweed() -> Iterator[S3Server]:
    with seaweed_server() as server:
        server.client().create_bucket(
            Bucket=BUCKET
        )  # one bucket for all tests, because each needs several volumes
        yield server


@pytest.fixture(scope="session")
def supabase() -> Iterator[SimulatorProcess]:
    with SimulatorProcess("supabase") as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    with gcs_server() as server:
        yield server


OpenArtifacts = Callable[[], Awaitable[Artifacts]]


@pytest.fixture(params=["local", "moto", "seaweed", "gcs", "supabase"])
async def another(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenArtifacts]:
    """Opens the same store again, as another worker would."""
    if request.param == "local":
        url, environ = (tmp_path / "kept").as_uri(), {}
    elif request.param == "supabase":
        url, environ = supabase_bucket(request.getfixturevalue("supabase"))
    elif request.param == "gcs":
        google: GcsServer = request.getfixturevalue("gcs")
        url, environ = f"gs://{GCS_BUCKET}/some/{uuid.uuid4().hex}", google.environ
    else:
        server: S3Server = request.getfixturevalue(request.param)
        url, environ = f"s3://{BUCKET}/some/{uuid.uuid4().hex}", server.environ

    opened: list[Artifacts] = []

    async def opener() -> Artifacts:
        store = open_artifacts(url, environ=environ)
        await store.open()
        opened.append(store)
        return store

    yield opener
    for store in opened:
        await store.close()


@pytest.fixture
async def artifacts(another: OpenArtifacts) -> Artifacts:
    return await another()


async def paths(store: Artifacts, prefix: str = "") -> list[str]:
    return [info.path async for info in store.list(prefix)]


async def pieces(*blocks: bytes, then: BaseException | None = None) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block
        await asyncio.sleep(0)
    if then is not None:
        raise then


async def test_put_and_get(artifacts: Artifacts) -> None:
    address = await artifacts.put("a/b.txt", b"hello", content_type="text/plain")
    assert await artifacts.get("a/b.txt") == b"hello"
    assert address == artifacts.public_url("a/b.txt")
    assert urlsplit(address).path.endswith("/a/b.txt")
    info = await artifacts.info("a/b.txt")
    assert info is not None
    assert (info.path, info.size) == ("a/b.txt", 5)
    assert info.modified is not None
    assert abs((datetime.now(UTC) - info.modified).total_seconds()) < 60


@pytest.mark.parametrize("create", [False, True])
async def test_bodies_of_every_type(artifacts: Artifacts, tmp_path: Path, create: bool) -> None:
    file = tmp_path / "given"
    file.write_bytes(b"from a file")
    await artifacts.put("bytes", b"from memory", create=create)
    await artifacts.put("path", file, create=create)
    await artifacts.put("pieces", pieces(b"from ", b"", b"pieces"), create=create)
    assert [await artifacts.get(path) for path in ("bytes", "path", "pieces")] == [
        b"from memory",
        b"from a file",
        b"from pieces",
    ]
    assert file.exists()


@pytest.mark.parametrize("create", [False, True])
async def test_empty_bodies(artifacts: Artifacts, tmp_path: Path, create: bool) -> None:
    file = tmp_path / "empty"
    file.touch()
    await artifacts.put("bytes", b"", create=create)
    await artifacts.put("path", file, create=create)
    await artifacts.put("pieces", pieces(), create=create)
    await artifacts.put("pieces2", pieces(b"", b""), create=create)
    for path in ("bytes", "path", "pieces", "pieces2"):
        assert await artifacts.get(path) == b""
        assert [block async for block in artifacts.stream(path)] == []
        info = await artifacts.info(path)
        assert info is not None
        assert info.size == 0


async def test_second_put_replaces_and_changes_the_version(artifacts: Artifacts) -> None:
    versions = set()
    for content in (b"one", b"two", b"three"):
        await artifacts.put("x", content)
        assert await artifacts.get("x") == content
        info = await artifacts.info("x")
        assert info is not None
        again = await artifacts.info("x")
        assert again is not None
        assert again.version == info.version
        versions.add(info.version)
    assert len(versions) == 3


async def test_keep_and_sync(artifacts: Artifacts, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"a file")

    async def parts() -> AsyncIterator[bytes]:
        yield b"two "
        yield b"parts"

    await artifacts.put("a/0", b"replaced")
    found = [
        await artifacts.keep("a/0", b"bytes"),
        await artifacts.keep("a/1", tmp_path / "body"),
        await artifacts.keep("b/2", parts(), content_type="text/plain"),
    ]
    assert [await artifacts.get(path) for path in ("a/0", "a/1", "b/2")] == [
        b"bytes",
        b"a file",
        b"two parts",
    ]
    assert [each.url for each in found] == [
        artifacts.public_url(path) for path in ("a/0", "a/1", "b/2")
    ]
    await asyncio.gather(artifacts.sync(found), artifacts.sync(found))
    await artifacts.sync([])
    assert [each.error for each in found] == [None] * 3
    with pytest.raises(ArtifactError, match="bad//path"):
        await artifacts.keep("bad//path", b"x")


async def test_create_refuses_an_existing_name(artifacts: Artifacts) -> None:
    await artifacts.put("x", b"first", create=True)
    with pytest.raises(ArtifactExists, match="x"):
        await artifacts.put("x", b"second", create=True)
    with pytest.raises(ArtifactExists, match="x"):
        await artifacts.put("x", pieces(b"third"), create=True)
    assert await artifacts.get("x") == b"first"


async def test_one_of_many_concurrent_creates_succeeds(another: OpenArtifacts) -> None:
    stores = [await another() for _ in range(4)]
    for turn in range(2):
        bodies = [f"racer {number}".encode() for number in range(8)]
        done = await asyncio.gather(
            *(
                stores[number % 4].put(f"race/{turn}", body, create=True)
                for number, body in enumerate(bodies)
            ),
            return_exceptions=True,
        )
        winners = [number for number, result in enumerate(done) if isinstance(result, str)]
        assert len(winners) == 1
        assert all(
            isinstance(result, ArtifactExists)
            for number, result in enumerate(done)
            if number not in winners
        )
        assert await stores[0].get(f"race/{turn}") == bodies[winners[0]]


async def test_missing_object(artifacts: Artifacts) -> None:
    assert await artifacts.info("none") is None
    assert await artifacts.info("no/folder/none") is None
    with pytest.raises(ArtifactMissing, match="none"):
        await artifacts.get("none")
    with pytest.raises(ArtifactMissing, match="no/folder/none"):
        [block async for block in artifacts.stream("no/folder/none")]
    await artifacts.delete("none")
    await artifacts.delete("no/folder/none")


async def test_folder_is_not_an_object(artifacts: Artifacts) -> None:
    await artifacts.put("folder/x", b"x")
    assert await artifacts.info("folder") is None
    with pytest.raises(ArtifactMissing):
        await artifacts.get("folder")
    await artifacts.delete("folder")
    assert await paths(artifacts) == ["folder/x"]


async def test_delete(artifacts: Artifacts) -> None:
    await artifacts.put("a/b/c", b"x")
    await artifacts.delete("a/b/c")
    assert await artifacts.info("a/b/c") is None
    assert await paths(artifacts) == []
    await artifacts.put("a", b"a file where a folder was")
    assert await artifacts.get("a") == b"a file where a folder was"


NAMES = [
    "año/ñandú %41 x+y&z.txt",
    "日本/🙂.bin",
    "x y/[1] {2} #3 ?4 *5 ~6 '7' \"8\" <9> |^`",
    "%2E%2E%2Fetc",
    "a/..b",
    ".hidden",
    "dot.",
    "a=b;c,d@e",
]


async def test_names_round_trip_exactly(artifacts: Artifacts) -> None:
    for name in NAMES:
        address = await artifacts.put(name, name.encode())
        assert address.isascii()
        read = unquote(urlsplit(address).path)
        assert read.endswith("/" + name) or path_of(read).endswith(
            "/" + name
        )  # the server may refuse some characters
    for name in NAMES:
        assert await artifacts.get(name) == name.encode()
    assert await paths(artifacts) == sorted(NAMES)


@pytest.mark.parametrize("path", BAD_PATHS)
async def test_every_method_refuses_bad_paths(artifacts: Artifacts, path: str) -> None:
    with pytest.raises(ArtifactError, match="bad artifact path"):
        await artifacts.put(path, b"x")
    with pytest.raises(ArtifactError, match="bad artifact path"):
        await artifacts.get(path)
    with pytest.raises(ArtifactError, match="bad artifact path"):
        [block async for block in artifacts.stream(path)]
    with pytest.raises(ArtifactError, match="bad artifact path"):
        await artifacts.info(path)
    with pytest.raises(ArtifactError, match="bad artifact path"):
        await artifacts.delete(path)
    with pytest.raises(ArtifactError, match="bad artifact path"):
        artifacts.public_url(path)
    with pytest.raises(ArtifactError, match="bad artifact prefix"):
        await paths(artifacts, "../" + path)


async def test_lists_are_sorted_by_the_whole_path(artifacts: Artifacts) -> None:
    names = [
        "a/b",
        "a-b/c",
        "a.txt",
        "a/b.txt",
        "ab",
        "a/b-c",
        "a/c/d",
        "A",
        "b/1",
        "b/10",
        "b/2",
        "ñ",
        "z",
        "🙂",
    ]
    await asyncio.gather(*(artifacts.put(name, b"x") for name in names))
    assert await paths(artifacts) == sorted(names)
    assert await paths(artifacts, "a") == sorted(name for name in names if name.startswith("a"))
    assert await paths(artifacts, "a/") == ["a/b", "a/b-c", "a/b.txt", "a/c/d"]
    assert await paths(artifacts, "a/b") == ["a/b", "a/b-c", "a/b.txt"]
    assert await paths(artifacts, "b/1") == ["b/1", "b/10"]
    assert await paths(artifacts, "none/at/all") == []
    infos = [info async for info in artifacts.list("a/b.txt")]
    assert infos == [await artifacts.info("a/b.txt")]


@pytest.mark.parametrize("blocks", [0, 1, 20])
async def test_failing_source_leaves_nothing_and_raises_its_own_error(
    artifacts: Artifacts, blocks: int
) -> None:
    await artifacts.put("before", b"as it was")
    for path in ("new", "before"):
        for create in (False, True):
            # A store may report an existing object at once or at the end.
            errors = (TimeoutError, ArtifactExists) if create and path == "before" else TimeoutError
            with pytest.raises(errors, match=r"midway|already"):
                await artifacts.put(
                    path, pieces(*[b"x" * MB] * blocks, then=TimeoutError("midway")), create=create
                )
    assert await artifacts.get("before") == b"as it was"
    assert await paths(artifacts) == ["before"]


async def test_cancelled_put_leaves_nothing_and_closes_its_source(artifacts: Artifacts) -> None:
    closed, stuck = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            for _ in range(20):
                yield b"x" * MB
            stuck.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    put = asyncio.create_task(artifacts.put("x", endless()))
    await stuck.wait()
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert closed.is_set()
    assert await paths(artifacts) == []


async def test_bodies_of_a_wrong_type(artifacts: Artifacts, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="bytes, a Path or an async iterable"):
        await artifacts.put("x", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="yields bytes"):
        await artifacts.put("x", pieces("text"))  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match="body cannot be read") as caught:
        await artifacts.put("x", tmp_path / "none")
    assert not isinstance(caught.value, ArtifactMissing)
    assert await paths(artifacts) == []


class Big:
    """A body of 50 MB that is never held whole."""

    def __init__(self) -> None:
        self.block = os.urandom(MB)
        digest = hashlib.sha256()
        for number in range(50):
            digest.update(self.make(number))
        self.digest = digest.hexdigest()

    def make(self, number: int) -> bytes:
        return number.to_bytes(4, "big") + self.block[4:]

    async def source(self) -> AsyncIterator[bytes]:
        for number in range(50):
            yield self.make(number)


def own_memory() -> int:
    """Private memory of this process in bytes, without pages of files."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


@pytest.mark.parametrize("kind", ["pieces", "path", "create"])
async def test_large_body_needs_bounded_memory(
    artifacts: Artifacts, tmp_path: Path, kind: str
) -> None:
    big = Big()
    file = tmp_path / "big"
    if kind == "path":
        with file.open("wb") as out:
            out.writelines(big.make(number) for number in range(50))
    await artifacts.put("warm", pieces(*[b"x" * MB] * 20))
    await artifacts.get("warm")
    most, done = 0, asyncio.Event()
    before = own_memory()

    async def watch() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, own_memory() - before)
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    tracemalloc.start()
    try:
        await artifacts.put(
            "big", file if kind == "path" else big.source(), create=kind == "create"
        )
        digest, size = hashlib.sha256(), 0
        async for block in artifacts.stream("big"):
            assert len(block) <= MB
            digest.update(block)
            size += len(block)
        traced = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        done.set()
        await watching
    assert (size, digest.hexdigest()) == (50 * MB, big.digest)
    assert traced < 36 * MB
    assert most < 45 * MB


async def test_a_kept_object_that_must_be_new_leaves_the_existing_one(artifacts: Artifacts) -> None:
    await artifacts.put("a/0", b"first")
    kept = []
    try:
        kept.append(await artifacts.keep("a/0", b"second", create=True))
    except ArtifactExists:
        pass  # a remote store says so at once
    else:
        await artifacts.sync(kept)
        assert isinstance(kept[0].error, ArtifactExists)
    assert await artifacts.get("a/0") == b"first"
    new = await artifacts.keep("a/1", b"new", create=True)
    await artifacts.sync([new])
    assert new.error is None
    assert await artifacts.get("a/1") == b"new"

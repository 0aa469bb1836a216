"""Artifacts in a folder: links, durability, batches, leftovers of a killed process."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from esclusa.app import open_store
from esclusa.artifacts import disk
from esclusa.artifacts.batches import ThreadBatches
from esclusa.artifacts.local import LocalArtifacts
from esclusa.artifacts.paths import RESERVED
from esclusa.model.errors import ArtifactError
from esclusa.settings import load


class FakeLibrary:
    """The C library's file system calls with a given result, which waits for ``go_on``."""

    def __init__(self, errno: int = 0, *, held: bool = False) -> None:
        self.errno = errno
        self.begun, self.go_on = Event(), Event()
        if not held:
            self.go_on.set()

    def fstatfs(self, _handle: int, status: Any) -> int:
        ctypes.memmove(status, bytes(ctypes.c_long(0xEF53)), ctypes.sizeof(ctypes.c_long))
        return 0

    def syncfs(self, _handle: int) -> int:
        self.begun.set()
        self.go_on.wait()
        ctypes.set_errno(self.errno)
        return -1 if self.errno else 0


@pytest.fixture
async def artifacts(tmp_path: Path) -> LocalArtifacts:
    store = LocalArtifacts(tmp_path / "kept")
    await store.open()
    return store


async def test_links_that_lead_outside_are_refused(
    artifacts: LocalArtifacts, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (artifacts.root / "way").symlink_to(outside)
    (artifacts.root / "file").symlink_to(outside / "secret")
    for path in ("way/secret", "file"):
        with pytest.raises(ArtifactError, match="leads outside"):
            await artifacts.get(path)
        with pytest.raises(ArtifactError, match="leads outside"):
            await artifacts.info(path)
        with pytest.raises(ArtifactError, match="leads outside"):
            [block async for block in artifacts.stream(path)]
    for create in (False, True):
        with pytest.raises(ArtifactError, match="leads outside"):
            await artifacts.put("way/new", b"x", create=create)
        with pytest.raises(ArtifactError, match="leads outside"):
            await artifacts.put("way/deep/new", b"x", create=create)
    with pytest.raises(ArtifactError, match="leads outside"):
        await artifacts.delete("way/secret")
    with pytest.raises(ArtifactError, match="leads outside"):
        [info async for info in artifacts.list("way/")]
    assert [info async for info in artifacts.list()] == []
    # A put over a link replaces the link and leaves its target alone.
    await artifacts.put("file", b"mine")
    assert await artifacts.get("file") == b"mine"
    assert sorted(os.listdir(outside)) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


async def test_links_that_stay_inside_are_followed(artifacts: LocalArtifacts) -> None:
    await artifacts.put("a/x", b"x")
    (artifacts.root / "b").symlink_to(artifacts.root / "a")
    (artifacts.root / "c").symlink_to(artifacts.root / "a" / "x")
    assert [await artifacts.get(path) for path in ("b/x", "c")] == [b"x", b"x"]
    assert [info.path async for info in artifacts.list()] == ["a/x", "c"]


async def test_root_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    store = LocalArtifacts(tmp_path / "root")
    await store.open()
    await store.put("a/x", b"x")
    assert await store.get("a/x") == b"x"
    assert (tmp_path / "real" / "a" / "x").read_bytes() == b"x"


async def test_root_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        ArtifactError,
        match=r"ESCLUSA_ARTIFACTS: the folder .*file/kept cannot be created or written",
    ):
        await LocalArtifacts(tmp_path / "file" / "kept").open()
    with pytest.raises(ArtifactError, match="ESCLUSA_ARTIFACTS"):
        await LocalArtifacts("/proc/kept").open()


def unfinished(artifacts: LocalArtifacts) -> list[str]:
    """The hidden files: not artifacts yet."""
    return sorted(
        found.name for found in (artifacts.root / f"{RESERVED}making").rglob("*") if found.is_file()
    )


async def test_put_recreates_a_removed_folder(artifacts: LocalArtifacts) -> None:
    (artifacts.root / f"{RESERVED}making").rmdir()
    artifacts.root.rmdir()
    await artifacts.put("a/x", b"x")
    assert await artifacts.get("a/x") == b"x"


async def test_name_is_either_a_file_or_a_folder(artifacts: LocalArtifacts) -> None:
    await artifacts.put("a", b"x")
    await artifacts.put("d/x", b"x")
    with pytest.raises(ArtifactError, match="a/b: cannot write"):
        await artifacts.put("a/b", b"y")
    with pytest.raises(ArtifactError, match="d: cannot write"):
        await artifacts.put("d", b"y")
    assert [info.path async for info in artifacts.list()] == ["a", "d/x"]


async def test_leftovers_of_a_killed_process_are_hidden_and_removed_after_a_day(
    artifacts: LocalArtifacts,
) -> None:
    making = artifacts.root / f"{RESERVED}making"
    for name, age in (("old", 90_000), ("young", 60)):
        (making / name).write_bytes(b"half")
        then = (making / name).stat().st_mtime - age
        os.utime(making / name, (then, then))
    assert [info async for info in artifacts.list()] == []
    await artifacts.open()
    assert unfinished(artifacts) == ["young"]


async def test_no_hidden_file_is_left(artifacts: LocalArtifacts) -> None:
    for number in range(5):
        await artifacts.put("x", str(number).encode())
    assert sorted(os.listdir(artifacts.root)) == [f"{RESERVED}making", "x"]
    assert unfinished(artifacts) == []


async def test_invalid_names_of_other_programs_are_not_listed(artifacts: LocalArtifacts) -> None:
    (artifacts.root / "back\\slash").write_bytes(b"x")
    (artifacts.root / "new\nline").write_bytes(b"x")
    with open(os.fsencode(artifacts.root) + b"/\xff", "wb"):
        pass
    await artifacts.put("fine", b"x")
    assert [info.path async for info in artifacts.list()] == ["fine"]


async def test_many_artifacts_are_listed_in_order(artifacts: LocalArtifacts) -> None:
    folder = artifacts.root / "many"
    folder.mkdir()
    for number in range(1001):
        (folder / f"{number:04}").touch()
    found = [info.path async for info in artifacts.list("many/")]
    assert len(found) == 1001
    assert found == sorted(found)


async def test_each_file_of_a_batch_has_its_own_result(
    artifacts: LocalArtifacts, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (artifacts.root / "way").symlink_to(tmp_path / "outside")
    (artifacts.root / "file").write_bytes(b"in the way")
    good = {
        f"{folder}/{number}": f"{folder} {number}".encode()
        for folder in ("a", "b/c/d")
        for number in range(50)
    }
    bad = {
        "way/x": "leads outside",
        "file/x": "file/x: cannot write it: Not a directory",
        "once": "an object of that name exists already",
    }
    await artifacts.put("once", b"first")
    puts = [artifacts.put(path, content) for path, content in good.items()]
    puts[50:50] = [artifacts.put(path, b"x", create=path == "once") for path in bad]
    answers = await asyncio.gather(*puts, return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    assert all(
        isinstance(answer, ArtifactError) and why in str(answer)
        for answer, why in zip(failed, bad.values(), strict=True)
    )
    assert {path: await artifacts.get(path) for path in good} == good
    assert await artifacts.get("once") == b"first"
    assert unfinished(artifacts) == os.listdir(tmp_path / "outside") == []


async def test_put_syncs_content_then_name_before_it_returns(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def named(handle: int) -> None:
        events.append(
            ("sync", os.readlink(f"/proc/self/fd/{handle}").removeprefix(f"{artifacts.root}/"))
        )
        fsync(handle)

    def moved(hidden: str, target: str) -> None:
        replace(hidden, target)
        events.append(
            (
                f"move {hidden.removeprefix(f'{artifacts.root}/')}",
                target.removeprefix(f"{artifacts.root}/"),
            )
        )

    monkeypatch.setattr(os, "fsync", named)
    monkeypatch.setattr(os, "replace", moved)

    async def put(path: str) -> None:
        await artifacts.put(path, b"x" * 5000)
        events.append(("returned", path))

    paths = [f"new/deep/{number}" for number in range(40)]
    await asyncio.gather(*(put(path) for path in paths))
    for path in paths:
        [at] = [
            n
            for n, (_, where) in enumerate(events)
            if where == path and events[n][0].startswith("move ")
        ]
        returned = events.index(("returned", path))
        assert ("sync", events[at][0].removeprefix("move ")) in events[:at]
        assert ("sync", "new/deep") in events[at:returned]
    first = events.index(("returned", "new/deep/0"))
    # The folders were new as well, and one batch shares their syncs.
    assert {("sync", "new"), ("sync", str(artifacts.root))} <= set(events[:first])
    assert events.count(("sync", "new/deep")) < len(paths)


async def test_without_durability_nothing_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {
        "ESCLUSA_STORE": f"sqlite:////{tmp_path}/x.db",
        "ESCLUSA_ARTIFACTS": str(tmp_path / "files"),
        "ESCLUSA_PIPELINES": "media",
    }
    settings = load(environ=environ | {"ESCLUSA_ARTIFACTS_DURABLE": "no"})
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    async with open_store(settings) as runtime:
        bodies: list[Any] = [b"x" * 5000, Path(__file__), blocks(3)]
        for number, body in enumerate(bodies):
            await runtime.artifacts.put(f"deep/{number}", body)
        assert [info.size async for info in runtime.artifacts.list()] == [
            5000,
            Path(__file__).stat().st_size,
            3 << 20,
        ]
    assert synced == []
    assert load(environ=environ).artifacts_durable  # the default


async def test_failed_sync_is_reported(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def break_at(parent: str, depth: int = 1) -> None:
        def broken(handle: int) -> None:
            if parent in [
                folder.name
                for folder in Path(os.readlink(f"/proc/self/fd/{handle}")).parents[:depth]
            ]:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            fsync(handle)

        monkeypatch.setattr(os, "fsync", broken)

    await artifacts.put("a/old", b"x")
    break_at(artifacts.root.name)  # the names in the folder
    with pytest.raises(ArtifactError, match="a/x: cannot write it: Input/output error"):
        await artifacts.put("a/x", b"x")
    break_at(f"{RESERVED}making", 2)  # the content
    bodies: list[Any] = [b"x", artifacts.root / "a" / "old", blocks(3)]
    for body in bodies:
        with pytest.raises(ArtifactError, match="a/y: cannot write it: Input/output error"):
            await artifacts.put("a/y", body)
    assert await artifacts.info("a/y") is None
    assert unfinished(artifacts) == []


@pytest.mark.parametrize("count", [1, 3, 40])
async def test_sync_makes_kept_files_durable(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A few files are synced one by one, many by one sync of the whole file system."""
    synced: list[str] = []
    monkeypatch.setattr(disk, "_LIBRARY", FakeLibrary())
    fsync, system = os.fsync, artifacts._writer._file_system.sync

    def named(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}").removeprefix(f"{artifacts.root}/"))
        fsync(handle)

    def whole() -> bool:
        synced.append(str(artifacts.root))
        return system()

    monkeypatch.setattr(os, "fsync", named)
    monkeypatch.setattr(artifacts._writer._file_system, "sync", whole)
    paths = [f"new/deep/{number}" for number in range(count)]
    found = await asyncio.gather(*(artifacts.keep(path, b"x" * 5000) for path in paths))
    assert synced == []
    await artifacts.sync(found)
    assert set(synced) == (
        {*paths, "new/deep", "new", str(artifacts.root)} if count < 8 else {str(artifacts.root)}
    )
    assert [each.error for each in found] == [None] * count


async def test_many_files_are_synced_one_by_one_on_an_unreliable_file_system(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(disk, "_RELIABLE", frozenset())
    found = await asyncio.gather(*(artifacts.keep(f"a/{number}", b"x") for number in range(40)))
    await artifacts.delete("a/7")  # a deleted file is skipped
    await artifacts.sync(found)
    assert [each.error for each in found] == [None] * 40
    assert len(synced) == 39 + 2


@pytest.mark.parametrize("count", [2, 40])
async def test_lost_files_have_an_error(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    fsync = os.fsync

    def broken(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}").endswith("/0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", broken)
    monkeypatch.setattr(disk, "_LIBRARY", FakeLibrary(errno.EIO))
    found = [await artifacts.keep(f"a/{number}", b"x") for number in range(count)]
    await artifacts.sync(found)
    # A single sync names the lost file; a sync of the whole file system does not.
    lost = 1 if count < 8 else count
    assert [str(each.error) for each in found[:lost]] == [
        f"a/{number}: cannot write it: Input/output error" for number in range(lost)
    ]
    assert [each.error for each in found[lost:]] == [None] * (count - lost)


async def test_files_kept_during_a_failing_sync_have_an_error(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reports a loss once, for every file written before the report."""
    library = FakeLibrary(errno.EIO, held=True)
    monkeypatch.setattr(disk, "_LIBRARY", library)
    before = [await artifacts.keep(f"a/{number}", b"x") for number in range(8)]
    syncing = asyncio.create_task(artifacts.sync(before))
    await asyncio.to_thread(library.begun.wait)
    meanwhile = [await artifacts.keep(f"b/{number}", b"x") for number in range(8)]
    assert [await artifacts.get(f"b/{number}") for number in range(8)] == [
        b"x"
    ] * 8  # they are written
    library.go_on.set()
    await syncing
    library.errno = 0
    after = [await artifacts.keep(f"c/{number}", b"x") for number in range(8)]
    await artifacts.sync([*meanwhile, *after])
    assert [str(each.error) for each in meanwhile] == [
        f"b/{number}: cannot write it: Input/output error" for number in range(8)
    ]
    assert (None in [each.error for each in before], {each.error for each in after}) == (
        False,
        {None},
    )


async def test_read_only_file_system_is_detected(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its journal failed, ext4 answers ``syncfs`` as if there were nothing to write."""
    monkeypatch.setattr(disk, "_LIBRARY", FakeLibrary())
    found = [await artifacts.keep(f"a/{number}", b"x") for number in range(8)]

    def read_only(_: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "fsync", read_only)
    await artifacts.sync(found)
    assert [str(each.error) for each in found] == [
        f"a/{number}: cannot write it: Read-only file system" for number in range(8)
    ]


async def test_file_system_is_opened_before_the_first_write(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss is reported to handles that were open before, even if another program syncs first."""
    monkeypatch.setattr(disk, "_LIBRARY", FakeLibrary())
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os,
        "open",
        lambda path, *more, **named: opened.append(str(path)) or real(path, *more, **named),
    )
    found = [await artifacts.keep(f"a/{number}", b"x") for number in range(8)]
    await artifacts.sync(found)
    assert (opened[0], opened.count(str(artifacts.root))) == (str(artifacts.root), 1)
    assert {each.error for each in found} == {None}


async def test_replacing_content_is_synced_before_the_rename(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record may refer to the old content, which must survive if the new one is lost."""
    events: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: events.append("sync") or fsync(handle))
    monkeypatch.setattr(os, "replace", lambda *names: events.append("move") or replace(*names))
    await artifacts.keep("a", b"old")
    await artifacts.keep("a", b"new")
    assert await artifacts.get("a") == b"new"
    assert events == ["move", "sync", "move"]


async def test_interrupted_sync_does_not_count(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [await artifacts.keep(f"a/{number}", b"x") for number in range(8)]

    def broken() -> bool:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(artifacts._writer._file_system, "sync", broken)
        with pytest.raises(MemoryError):
            await artifacts.sync(found)
    monkeypatch.setattr(disk, "_LIBRARY", FakeLibrary(errno.EIO))
    await artifacts.sync(found)
    assert None not in [each.error for each in found]


async def test_work_in_a_thread_is_awaited_through_repeated_cancellation(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is not closed while a thread reads it, and an unfinished sync does not count."""
    library = FakeLibrary(held=True)
    monkeypatch.setattr(disk, "_LIBRARY", library)
    found = [await artifacts.keep(f"a/{number}", b"x") for number in range(8)]
    syncing = asyncio.create_task(artifacts.sync(found))
    await asyncio.to_thread(library.begun.wait)
    for _ in range(5):
        syncing.cancel()
        await asyncio.sleep(0)
    assert not syncing.done()
    library.errno = errno.EIO
    library.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await syncing
    await artifacts.sync(found)
    assert None not in [each.error for each in found]


class DelayedWrites:
    """Kept files are written once ``go_on`` is set."""

    def __init__(self, artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = Event()
        self.written: list[str] = []
        keep = artifacts._writer._keeps._work

        def delayed(files: list[Any]) -> None:
            self.go_on.wait(30)
            keep(files)
            self.written += [file.path for file in files]

        monkeypatch.setattr(artifacts._writer._keeps, "_work", delayed)


@pytest.fixture
def delayed(artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch) -> DelayedWrites:
    return DelayedWrites(artifacts, monkeypatch)


async def test_keep_of_a_small_file_does_not_wait(
    artifacts: LocalArtifacts, delayed: DelayedWrites
) -> None:
    found = [await artifacts.keep(f"a/{number}", b"x") for number in range(40)]
    assert delayed.written == []
    synced = asyncio.create_task(artifacts.sync(found))
    await asyncio.sleep(0.05)
    assert not synced.done()
    delayed.go_on.set()
    await synced
    assert sorted(delayed.written) == sorted(f"a/{number}" for number in range(40))
    assert [each.error for each in found] == [None] * 40


@pytest.mark.parametrize(
    "call",
    [
        lambda artifacts: artifacts.get("a"),
        lambda artifacts: artifacts.info("a"),
        lambda artifacts: anext(artifacts.stream("a")),
        lambda artifacts: anext(artifacts.list()),
        lambda artifacts: artifacts.delete("a"),
        lambda artifacts: artifacts.put("a", b"newer"),
        lambda artifacts: artifacts.keep("a", b"newer"),
        lambda artifacts: artifacts.close(),
    ],
)
async def test_other_calls_wait_for_a_kept_file(
    artifacts: LocalArtifacts, delayed: DelayedWrites, call: Any
) -> None:
    await artifacts.keep("a", b"x")
    waiting = asyncio.ensure_future(call(artifacts))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    delayed.go_on.set()
    assert await waiting != b""
    assert delayed.written[0] == "a"


async def test_files_of_one_name_are_written_in_order(
    artifacts: LocalArtifacts, delayed: DelayedWrites
) -> None:
    await artifacts.keep("a", b"first")
    second = asyncio.create_task(artifacts.keep("a", b"second"))
    await asyncio.sleep(0.05)
    delayed.go_on.set()
    await artifacts.sync([await second])
    assert await artifacts.get("a") == b"second"
    await artifacts.keep("a", b"third")
    await artifacts.delete("a")
    assert await artifacts.info("a") is None


async def test_keep_waits_if_much_is_unwritten(
    artifacts: LocalArtifacts, delayed: DelayedWrites, tmp_path: Path
) -> None:
    """Unwritten files are in memory, which is bounded."""
    (tmp_path / "file").write_bytes(b"x")
    many = [asyncio.create_task(artifacts.keep(f"a/{number}", b"x")) for number in range(100)]
    large = asyncio.create_task(artifacts.keep("large", bytes(1 << 19)))
    file = asyncio.create_task(artifacts.keep("file", tmp_path / "file"))
    await asyncio.sleep(0.05)
    assert (sum(each.done() for each in many), large.done(), file.done()) == (64, False, False)
    delayed.go_on.set()
    await artifacts.sync(await asyncio.gather(*many, large, file))
    assert len([info async for info in artifacts.list()]) == 102
    assert len(artifacts._writer._unwritten) <= 102
    await artifacts.sync([await artifacts.keep("one more", b"x")])
    assert len(artifacts._writer._unwritten) == 1  # written files are forgotten


async def test_failed_write_is_reported_by_sync(artifacts: LocalArtifacts) -> None:
    await artifacts.put("a", b"a file, not a folder")
    bad, good = await artifacts.keep("a/b", b"x"), await artifacts.keep("b", b"x")
    await artifacts.sync([bad, good])
    assert (str(bad.error), good.error) == ("a/b: cannot write it: Not a directory", None)
    with pytest.raises(ArtifactError, match="a/b: cannot write it: Not a directory"):
        await artifacts.keep("a/b", bytes(1 << 19))
    with pytest.raises(ArtifactError, match="bad artifact path"):
        await artifacts.keep("../b", b"x")
    assert unfinished(artifacts) == []


async def test_missing_thread_fails_one_batch_only(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container limits its threads. Later files must not wait for work that never started."""

    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(artifacts._threads, "submit", none_left)
        few = [await artifacts.keep(f"a/{number}", b"x") for number in range(3)]
        for call in (artifacts.keep("large", bytes(1 << 19)), artifacts.put("put", b"x")):
            with pytest.raises(
                ArtifactError, match="no thread can be started: can't start new thread"
            ):
                await call
    good = await artifacts.keep("b", b"x")
    async with asyncio.timeout(20):
        await artifacts.sync([*few, good])
        await artifacts.put("put", b"x")
        await artifacts.sync([await artifacts.keep("a/0", b"x")])
    assert [str(each.error) for each in [*few, good]] == [
        "no thread can be started: can't start new thread"
    ] * 3 + ["None"]
    assert [info.path async for info in artifacts.list()] == ["a/0", "b", "put"]


async def test_synced_files_leave_the_page_cache(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run over a million files must not displace other pages."""
    events: list[str] = []

    def named(verb: str, handle: int) -> None:
        events.append(f"{verb} {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")

    monkeypatch.setattr(os, "fsync", lambda handle: named("sync", handle))
    monkeypatch.setattr(os, "posix_fadvise", lambda handle, *_: named("drop", handle))
    await artifacts.sync([await artifacts.keep("a/1", b"x"), await artifacts.keep("a/2", b"x")])
    assert [each for each in events if each.startswith("drop")] == ["drop 1", "drop 2"]
    assert events.index("sync 2") < events.index("drop 1")


async def test_missing_file_handles_fail_the_sync_of_a_folder(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def none_left(path: str, flags: int, *more: int) -> int:
        if path == f"{artifacts.root}/a":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", none_left)
    with pytest.raises(ArtifactError, match="a/x: cannot write it: Too many open files"):
        await artifacts.put("a/x", b"x")


async def test_partial_writes_are_continued(
    artifacts: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[:1000]))
    await artifacts.put("x", bytes(range(250)) * 41)
    assert await artifacts.get("x") == bytes(range(250)) * 41


async def test_cancelled_put_is_complete_or_absent(artifacts: LocalArtifacts) -> None:
    puts = [asyncio.create_task(artifacts.put(f"a/{n}", b"x" * 3000)) for n in range(200)]
    await asyncio.sleep(0)
    for put in puts[::2]:
        put.cancel()
    answers = await asyncio.gather(*puts, return_exceptions=True)
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True, False] * 100
    assert {info.size async for info in artifacts.list()} == {3000}
    streamed = asyncio.create_task(artifacts.put("b", blocks(3, then=asyncio.Event())))
    while not unfinished(artifacts):
        await asyncio.sleep(0.001)
    streamed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await streamed
    assert await artifacts.info("b") is None
    assert unfinished(artifacts) == []


async def blocks(count: int, then: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * (1 << 20)
    if then is not None:
        await then.wait()


async def test_waiting_batches_fail_too_without_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Event()

    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with ThreadPoolExecutor(1) as threads:
        batches = ThreadBatches(
            threads, lambda items: None if gate.wait(30) else items.clear(), max_items=2, parallel=1
        )
        first, *waiting = [batches.post("it") for _ in range(6)]
        monkeypatch.setattr(threads, "submit", none_left)
        gate.set()
        async with asyncio.timeout(20):
            await first
            assert {
                str(error) for error in await asyncio.gather(*waiting, return_exceptions=True)
            } == {"no thread can be started: can't start new thread"}


@pytest.mark.parametrize("first", ["the work ends", "the caller is cancelled"])
async def test_caller_cancelled_as_its_batch_ends_returns(first: str) -> None:
    gate = Event()
    ended: list[str] = []
    with ThreadPoolExecutor(1) as threads:
        batches = ThreadBatches(
            threads,
            lambda items: ended.extend(items) if gate.wait(30) else None,
            max_items=1,
            parallel=1,
        )
        task = asyncio.create_task(batches.add("it"))
        await asyncio.sleep(0)
        if first == "the caller is cancelled":
            task.cancel()
        gate.set()
        while not ended:
            time.sleep(0.01)  # the loop sees both events at once, in this order
        time.sleep(0.05)
        task.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await task
    assert ended == ["it"]

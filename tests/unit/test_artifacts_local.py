"""What is special to a folder: links, permissions, what a killed process leaves."""

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


class Library:
    """The system's calls for a whole file system, with an answer of our own; it comes when ``go_on`` is set."""

    def __init__(self, says: int = 0, *, held: bool = False) -> None:
        self.says = says
        self.begun, self.go_on = Event(), Event()
        if not held:
            self.go_on.set()

    def fstatfs(self, _handle: int, about: Any) -> int:
        ctypes.memmove(about, bytes(ctypes.c_long(0xEF53)), ctypes.sizeof(ctypes.c_long))
        return 0

    def syncfs(self, _handle: int) -> int:
        self.begun.set()
        self.go_on.wait()
        ctypes.set_errno(self.says)
        return -1 if self.says else 0


@pytest.fixture
async def kept(tmp_path: Path) -> LocalArtifacts:
    store = LocalArtifacts(tmp_path / "kept")
    await store.open()
    return store


async def test_links_that_lead_outside_are_refused(kept: LocalArtifacts, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (kept.root / "way").symlink_to(outside)
    (kept.root / "file").symlink_to(outside / "secret")
    for path in ("way/secret", "file"):
        with pytest.raises(ArtifactError, match="leads outside"):
            await kept.get(path)
        with pytest.raises(ArtifactError, match="leads outside"):
            await kept.info(path)
        with pytest.raises(ArtifactError, match="leads outside"):
            [block async for block in kept.stream(path)]
    for create in (False, True):
        with pytest.raises(ArtifactError, match="leads outside"):
            await kept.put("way/new", b"x", create=create)
        with pytest.raises(ArtifactError, match="leads outside"):
            await kept.put("way/deep/new", b"x", create=create)
    with pytest.raises(ArtifactError, match="leads outside"):
        await kept.delete("way/secret")
    with pytest.raises(ArtifactError, match="leads outside"):
        [info async for info in kept.list("way/")]
    assert [info async for info in kept.list()] == []
    # A put over a link puts the object in its place and leaves what it led to alone.
    await kept.put("file", b"mine")
    assert await kept.get("file") == b"mine"
    assert sorted(os.listdir(outside)) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


async def test_links_that_stay_inside_are_followed(kept: LocalArtifacts) -> None:
    await kept.put("a/x", b"x")
    (kept.root / "b").symlink_to(kept.root / "a")
    (kept.root / "c").symlink_to(kept.root / "a" / "x")
    assert [await kept.get(path) for path in ("b/x", "c")] == [b"x", b"x"]
    assert [info.path async for info in kept.list()] == ["a/x", "c"]


async def test_a_root_that_is_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")
    store = LocalArtifacts(tmp_path / "root")
    await store.open()
    await store.put("a/x", b"x")
    assert await store.get("a/x") == b"x"
    assert (tmp_path / "real" / "a" / "x").read_bytes() == b"x"


async def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        ArtifactError, match=r"ESCLUSA_ARTIFACTS: the folder .*file/kept cannot be created or written"
    ):
        await LocalArtifacts(tmp_path / "file" / "kept").open()
    with pytest.raises(ArtifactError, match="ESCLUSA_ARTIFACTS"):
        await LocalArtifacts("/proc/kept").open()


def unfinished(kept: LocalArtifacts) -> list[str]:
    """Files that are not objects yet."""
    return sorted(
        found.name for found in (kept.root / f"{RESERVED}making").rglob("*") if found.is_file()
    )


async def test_put_works_when_the_folder_was_taken_away(kept: LocalArtifacts) -> None:
    (kept.root / f"{RESERVED}making").rmdir()
    kept.root.rmdir()
    await kept.put("a/x", b"x")
    assert await kept.get("a/x") == b"x"


async def test_a_file_is_no_folder(kept: LocalArtifacts) -> None:
    await kept.put("a", b"x")
    await kept.put("d/x", b"x")
    with pytest.raises(ArtifactError, match="a/b: cannot write"):
        await kept.put("a/b", b"y")
    with pytest.raises(ArtifactError, match="d: cannot write"):
        await kept.put("d", b"y")
    assert [info.path async for info in kept.list()] == ["a", "d/x"]


async def test_what_a_killed_writer_left_is_hidden_and_swept_after_a_day(
    kept: LocalArtifacts,
) -> None:
    making = kept.root / f"{RESERVED}making"
    for name, age in (("old", 90_000), ("young", 60)):
        (making / name).write_bytes(b"half")
        then = (making / name).stat().st_mtime - age
        os.utime(making / name, (then, then))
    assert [info async for info in kept.list()] == []
    await kept.open()
    assert unfinished(kept) == ["young"]


async def test_nothing_is_left_beside_the_objects(kept: LocalArtifacts) -> None:
    for number in range(5):
        await kept.put("x", str(number).encode())
    assert sorted(os.listdir(kept.root)) == [f"{RESERVED}making", "x"]
    assert unfinished(kept) == []


async def test_files_that_others_left_under_strange_names_do_no_harm(kept: LocalArtifacts) -> None:
    (kept.root / "back\\slash").write_bytes(b"x")
    (kept.root / "new\nline").write_bytes(b"x")
    with open(os.fsencode(kept.root) + b"/\xff", "wb"):
        pass
    await kept.put("fine", b"x")
    assert [info.path async for info in kept.list()] == ["fine"]


async def test_many_objects_are_listed_page_by_page(kept: LocalArtifacts) -> None:
    folder = kept.root / "many"
    folder.mkdir()
    for number in range(1001):
        (folder / f"{number:04}").touch()
    found = [info.path async for info in kept.list("many/")]
    assert len(found) == 1001
    assert found == sorted(found)


async def test_of_many_that_are_made_together_each_has_its_own_fate(
    kept: LocalArtifacts, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (kept.root / "way").symlink_to(tmp_path / "outside")
    (kept.root / "file").write_bytes(b"in the way")
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
    await kept.put("once", b"first")
    puts = [kept.put(path, content) for path, content in good.items()]
    puts[50:50] = [kept.put(path, b"x", create=path == "once") for path in bad]
    answers = await asyncio.gather(*puts, return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    assert all(
        isinstance(answer, ArtifactError) and why in str(answer)
        for answer, why in zip(failed, bad.values(), strict=True)
    )
    assert {path: await kept.get(path) for path in good} == good
    assert await kept.get("once") == b"first"
    assert unfinished(kept) == os.listdir(tmp_path / "outside") == []


async def test_the_disk_has_content_then_name_before_anybody_hears_of_it(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def named(handle: int) -> None:
        said.append(("sync", os.readlink(f"/proc/self/fd/{handle}").removeprefix(f"{kept.root}/")))
        fsync(handle)

    def moved(hidden: str, target: str) -> None:
        replace(hidden, target)
        said.append(
            (f"move {hidden.removeprefix(f'{kept.root}/')}", target.removeprefix(f"{kept.root}/"))
        )

    monkeypatch.setattr(os, "fsync", named)
    monkeypatch.setattr(os, "replace", moved)

    async def put(path: str) -> None:
        await kept.put(path, b"x" * 5000)
        said.append(("heard", path))

    paths = [f"new/deep/{number}" for number in range(40)]
    await asyncio.gather(*(put(path) for path in paths))
    for path in paths:
        [at] = [
            n
            for n, (_, where) in enumerate(said)
            if where == path and said[n][0].startswith("move ")
        ]
        heard = said.index(("heard", path))
        assert ("sync", said[at][0].removeprefix("move ")) in said[:at]
        assert ("sync", "new/deep") in said[at:heard]
    first = said.index(("heard", "new/deep/0"))
    assert {("sync", "new"), ("sync", str(kept.root))} <= set(
        said[:first]
    )  # the folders were new as well
    assert said.count(("sync", "new/deep")) < len(paths)  # and what waits together shares it


async def test_a_folder_that_need_not_outlive_a_power_cut_waits_for_no_disk(
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
    assert load(environ=environ).artifacts_durable  # unless told otherwise


async def test_what_the_disk_does_not_take_is_told(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
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

    await kept.put("a/old", b"x")
    break_at(kept.root.name)  # the names in the folder
    with pytest.raises(ArtifactError, match="a/x: cannot write it: Input/output error"):
        await kept.put("a/x", b"x")
    break_at(f"{RESERVED}making", 2)  # the content
    bodies: list[Any] = [b"x", kept.root / "a" / "old", blocks(3)]
    for body in bodies:
        with pytest.raises(ArtifactError, match="a/y: cannot write it: Input/output error"):
            await kept.put("a/y", body)
    assert await kept.info("a/y") is None
    assert unfinished(kept) == []


@pytest.mark.parametrize("count", [1, 3, 40])
async def test_the_disk_has_what_was_kept_once_it_is_synced(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A few are synced each, a crowd by one call for the whole file system."""
    synced: list[str] = []
    monkeypatch.setattr(disk, "_LIBRARY", Library())
    fsync, system = os.fsync, kept._writer._file_system.sync

    def named(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}").removeprefix(f"{kept.root}/"))
        fsync(handle)

    def whole() -> bool:
        synced.append(str(kept.root))
        return system()

    monkeypatch.setattr(os, "fsync", named)
    monkeypatch.setattr(kept._writer._file_system, "sync", whole)
    paths = [f"new/deep/{number}" for number in range(count)]
    found = await asyncio.gather(*(kept.keep(path, b"x" * 5000) for path in paths))
    assert synced == []
    await kept.sync(found)
    assert set(synced) == (
        {*paths, "new/deep", "new", str(kept.root)} if count < 8 else {str(kept.root)}
    )
    assert [each.error for each in found] == [None] * count


async def test_a_crowd_is_synced_one_by_one_where_the_system_cannot_sync_as_a_whole(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(disk, "_RELIABLE", frozenset())
    found = await asyncio.gather(*(kept.keep(f"a/{number}", b"x") for number in range(40)))
    await kept.delete("a/7")  # whoever took it away need not hear that it is not safe
    await kept.sync(found)
    assert [each.error for each in found] == [None] * 40
    assert len(synced) == 39 + 2


@pytest.mark.parametrize("count", [2, 40])
async def test_what_the_disk_lost_has_its_error(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    fsync = os.fsync

    def broken(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}").endswith("/0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", broken)
    monkeypatch.setattr(disk, "_LIBRARY", Library(errno.EIO))
    found = [await kept.keep(f"a/{number}", b"x") for number in range(count)]
    await kept.sync(found)
    # Of a few the disk says which; of a crowd that something is lost.
    lost = 1 if count < 8 else count
    assert [str(each.error) for each in found[:lost]] == [
        f"a/{number}: cannot write it: Input/output error" for number in range(lost)
    ]
    assert [each.error for each in found[lost:]] == [None] * (count - lost)


async def test_what_is_kept_while_the_disk_loses_something_may_be_what_it_lost(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells a loss once: whoever wrote before it was told would not hear of it again."""
    library = Library(errno.EIO, held=True)
    monkeypatch.setattr(disk, "_LIBRARY", library)
    before = [await kept.keep(f"a/{number}", b"x") for number in range(8)]
    syncing = asyncio.create_task(kept.sync(before))
    await asyncio.to_thread(library.begun.wait)
    meanwhile = [await kept.keep(f"b/{number}", b"x") for number in range(8)]
    assert [await kept.get(f"b/{number}") for number in range(8)] == [b"x"] * 8  # they are written
    library.go_on.set()
    await syncing
    library.says = 0
    after = [await kept.keep(f"c/{number}", b"x") for number in range(8)]
    await kept.sync([*meanwhile, *after])
    assert [str(each.error) for each in meanwhile] == [
        f"b/{number}: cannot write it: Input/output error" for number in range(8)
    ]
    assert (None in [each.error for each in before], {each.error for each in after}) == (
        False,
        {None},
    )


async def test_a_file_system_that_has_given_up_is_asked_once_more(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ext4 without its journal answers a sync of the whole as if there were nothing to write."""
    monkeypatch.setattr(disk, "_LIBRARY", Library())
    found = [await kept.keep(f"a/{number}", b"x") for number in range(8)]

    def read_only(_: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "fsync", read_only)
    await kept.sync(found)
    assert [str(each.error) for each in found] == [
        f"a/{number}: cannot write it: Read-only file system" for number in range(8)
    ]


async def test_the_system_is_listened_to_from_before_the_first_write(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what it lost to those who had it open: another program that syncs it first must not be the only one to hear."""
    monkeypatch.setattr(disk, "_LIBRARY", Library())
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os,
        "open",
        lambda path, *more, **named: opened.append(str(path)) or real(path, *more, **named),
    )
    found = [await kept.keep(f"a/{number}", b"x") for number in range(8)]
    await kept.sync(found)
    assert (opened[0], opened.count(str(kept.root))) == (str(kept.root), 1)
    assert {each.error for each in found} == {None}


async def test_content_that_takes_the_place_of_another_is_on_the_disk_first(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object that is there may be named by a record, whose it stays whatever becomes of the new one."""
    said: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: said.append("sync") or fsync(handle))
    monkeypatch.setattr(os, "replace", lambda *names: said.append("move") or replace(*names))
    await kept.keep("a", b"old")
    await kept.keep("a", b"new")
    assert await kept.get("a") == b"new"
    assert said == ["move", "sync", "move"]


async def test_what_a_sync_did_not_see_to_its_end_is_still_not_safe(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [await kept.keep(f"a/{number}", b"x") for number in range(8)]

    def broken() -> bool:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(kept._writer._file_system, "sync", broken)
        with pytest.raises(MemoryError):
            await kept.sync(found)
    monkeypatch.setattr(disk, "_LIBRARY", Library(errno.EIO))
    await kept.sync(found)
    assert None not in [each.error for each in found]


async def test_work_in_a_thread_is_waited_for_however_often_it_is_cancelled(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server cancels again and again until it is heard; a file must not be closed while a thread reads it, nor a sync be taken
    for done that is not."""
    library = Library(held=True)
    monkeypatch.setattr(disk, "_LIBRARY", library)
    found = [await kept.keep(f"a/{number}", b"x") for number in range(8)]
    syncing = asyncio.create_task(kept.sync(found))
    await asyncio.to_thread(library.begun.wait)
    for _ in range(5):
        syncing.cancel()
        await asyncio.sleep(0)
    assert not syncing.done()
    library.says = errno.EIO
    library.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await syncing
    await kept.sync(found)
    assert None not in [each.error for each in found]


class Held:
    """A folder whose kept objects are written when the test says so."""

    def __init__(self, kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = Event()
        self.written: list[str] = []
        keep = kept._writer._keeps._work

        def held(drafts: list[Any]) -> None:
            self.go_on.wait(30)
            keep(drafts)
            self.written += [draft.path for draft in drafts]

        monkeypatch.setattr(kept._writer._keeps, "_work", held)


@pytest.fixture
def held(kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(kept, monkeypatch)


async def test_who_keeps_a_small_file_goes_on_while_it_is_written(
    kept: LocalArtifacts, held: Held
) -> None:
    found = [await kept.keep(f"a/{number}", b"x") for number in range(40)]
    assert held.written == []
    synced = asyncio.create_task(kept.sync(found))
    await asyncio.sleep(0.05)
    assert not synced.done()
    held.go_on.set()
    await synced
    assert sorted(held.written) == sorted(f"a/{number}" for number in range(40))
    assert [each.error for each in found] == [None] * 40


@pytest.mark.parametrize(
    "ask",
    [
        lambda kept: kept.get("a"),
        lambda kept: kept.info("a"),
        lambda kept: anext(kept.stream("a")),
        lambda kept: anext(kept.list()),
        lambda kept: kept.delete("a"),
        lambda kept: kept.put("a", b"newer"),
        lambda kept: kept.keep("a", b"newer"),
        lambda kept: kept.close(),
    ],
)
async def test_whoever_asks_for_what_was_kept_waits_until_it_is_there(
    kept: LocalArtifacts, held: Held, ask: Any
) -> None:
    await kept.keep("a", b"x")
    asked = asyncio.ensure_future(ask(kept))
    await asyncio.sleep(0.05)
    assert not asked.done()
    held.go_on.set()
    assert await asked != b""
    assert held.written[0] == "a"


async def test_two_of_one_name_come_in_their_order(kept: LocalArtifacts, held: Held) -> None:
    await kept.keep("a", b"first")
    second = asyncio.create_task(kept.keep("a", b"second"))
    await asyncio.sleep(0.05)
    held.go_on.set()
    await kept.sync([await second])
    assert await kept.get("a") == b"second"
    await kept.keep("a", b"third")
    await kept.delete("a")
    assert await kept.info("a") is None


async def test_who_brings_much_waits_until_it_is_written(
    kept: LocalArtifacts, held: Held, tmp_path: Path
) -> None:
    """What waits to be written is in memory, and that is bounded."""
    (tmp_path / "file").write_bytes(b"x")
    many = [asyncio.create_task(kept.keep(f"a/{number}", b"x")) for number in range(100)]
    large = asyncio.create_task(kept.keep("large", bytes(1 << 19)))
    file = asyncio.create_task(kept.keep("file", tmp_path / "file"))
    await asyncio.sleep(0.05)
    assert (sum(each.done() for each in many), large.done(), file.done()) == (64, False, False)
    held.go_on.set()
    await kept.sync(await asyncio.gather(*many, large, file))
    assert len([info async for info in kept.list()]) == 102
    assert len(kept._writer._unwritten) <= 102
    await kept.sync([await kept.keep("one more", b"x")])
    assert len(kept._writer._unwritten) == 1  # what is written is not remembered


async def test_what_cannot_be_written_has_its_error_when_it_is_synced(kept: LocalArtifacts) -> None:
    await kept.put("a", b"a file, not a folder")
    bad, good = await kept.keep("a/b", b"x"), await kept.keep("b", b"x")
    await kept.sync([bad, good])
    assert (str(bad.error), good.error) == ("a/b: cannot write it: Not a directory", None)
    with pytest.raises(
        ArtifactError, match="a/b: cannot write it: Not a directory"
    ):  # who waits hears it at once
        await kept.keep("a/b", bytes(1 << 19))
    with pytest.raises(ArtifactError, match="bad artifact path"):
        await kept.keep("../b", b"x")
    assert unfinished(kept) == []


async def test_a_system_without_threads_is_told_and_the_next_ones_are_written(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has its limit of them. Who comes later must not wait for what was never begun."""

    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(kept._threads, "submit", none_left)
        few = [await kept.keep(f"a/{number}", b"x") for number in range(3)]
        for call in (kept.keep("large", bytes(1 << 19)), kept.put("put", b"x")):
            with pytest.raises(
                ArtifactError, match="cannot start to write: can't start new thread"
            ):
                await call
    good = await kept.keep("b", b"x")
    async with asyncio.timeout(20):
        await kept.sync([*few, good])
        await kept.put("put", b"x")
        await kept.sync([await kept.keep("a/0", b"x")])
    assert [str(each.error) for each in [*few, good]] == [
        "cannot start to write: can't start new thread"
    ] * 3 + ["None"]
    assert [info.path async for info in kept.list()] == ["a/0", "b", "put"]


async def test_what_the_disk_has_takes_no_memory(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run over a million files leaves the memory of the machine to those who read."""
    said: list[str] = []

    def named(verb: str, handle: int) -> None:
        said.append(f"{verb} {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")

    monkeypatch.setattr(os, "fsync", lambda handle: named("sync", handle))
    monkeypatch.setattr(os, "posix_fadvise", lambda handle, *_: named("forget", handle))
    await kept.sync([await kept.keep("a/1", b"x"), await kept.keep("a/2", b"x")])
    assert [each for each in said if each.startswith("forget")] == ["forget 1", "forget 2"]
    assert said.index("sync 2") < said.index("forget 1")


async def test_a_folder_that_cannot_be_opened_for_want_of_handles_is_not_safe(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def none_left(path: str, flags: int, *more: int) -> int:
        if path == f"{kept.root}/a":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", none_left)
    with pytest.raises(ArtifactError, match="a/x: cannot write it: Too many open files"):
        await kept.put("a/x", b"x")


async def test_a_disk_that_takes_little_at_a_time(
    kept: LocalArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: write(handle, content[:1000]))
    await kept.put("x", bytes(range(250)) * 41)
    assert await kept.get("x") == bytes(range(250)) * 41


async def test_a_put_that_is_cancelled_is_whole_or_not_there(kept: LocalArtifacts) -> None:
    puts = [asyncio.create_task(kept.put(f"a/{n}", b"x" * 3000)) for n in range(200)]
    await asyncio.sleep(0)
    for put in puts[::2]:
        put.cancel()
    answers = await asyncio.gather(*puts, return_exceptions=True)
    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True, False] * 100
    assert {info.size async for info in kept.list()} == {3000}
    poured = asyncio.create_task(kept.put("b", blocks(3, then=asyncio.Event())))
    while not unfinished(kept):
        await asyncio.sleep(0.001)
    poured.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poured
    assert await kept.info("b") is None
    assert unfinished(kept) == []


async def blocks(count: int, then: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * (1 << 20)
    if then is not None:
        await then.wait()


async def test_what_waits_behind_a_batch_is_told_too_that_no_thread_is_left(
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
            } == {"cannot start to write: can't start new thread"}


@pytest.mark.parametrize("first", ["the work ends", "it is called off"])
async def test_who_is_called_off_as_its_batch_ends_does_not_wait_for_ever(first: str) -> None:
    gate = Event()
    ended: list[str] = []
    with ThreadPoolExecutor(1) as threads:
        batches = ThreadBatches(
            threads, lambda items: ended.extend(items) if gate.wait(30) else None, max_items=1, parallel=1
        )
        task = asyncio.create_task(batches.add("it"))
        await asyncio.sleep(0)
        if first == "it is called off":
            task.cancel()
        gate.set()
        while not ended:
            time.sleep(0.01)  # the loop hears of both at once, in this order
        time.sleep(0.05)
        task.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await task
    assert ended == ["it"]

"""What is special to a folder: links, permissions, what a killed process leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from esclusa.artifacts.local import LocalArtifacts
from esclusa.artifacts.paths import RESERVED
from esclusa.model.errors import ArtifactError


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
    with pytest.raises(ArtifactError, match=r"ESCLUSA_ARTIFACTS: the folder .*file/kept cannot be made or written"):
        await LocalArtifacts(tmp_path / "file" / "kept").open()
    with pytest.raises(ArtifactError, match="ESCLUSA_ARTIFACTS"):
        await LocalArtifacts("/proc/kept").open()


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


async def test_what_a_killed_writer_left_is_hidden_and_swept_after_a_day(kept: LocalArtifacts) -> None:
    making = kept.root / f"{RESERVED}making"
    for name, age in (("old", 90_000), ("young", 60)):
        (making / name).write_bytes(b"half")
        then = (making / name).stat().st_mtime - age
        os.utime(making / name, (then, then))
    assert [info async for info in kept.list()] == []
    await kept.open()
    assert os.listdir(making) == ["young"]


async def test_nothing_is_left_beside_the_objects(kept: LocalArtifacts) -> None:
    for number in range(5):
        await kept.put("x", str(number).encode())
    assert sorted(os.listdir(kept.root)) == [f"{RESERVED}making", "x"]
    assert os.listdir(kept.root / f"{RESERVED}making") == []


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

"""Workers that die between download and settlement, several workers, and other artifact stores."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pipelines.media.conftest import MediaService, NewService, environ_of, file_at
from support.s3 import S3Server, moto_server
from support.supabase import supabase_bucket

from esclusa.pipelines.media.records import Publication
from esclusa.simulators import SimulatorProcess
from esclusa.simulators.media_cdn import content

WORKER = Path(__file__).parent / "worker.py"
POINTS = [
    "in the middle of the body",
    "before keep",
    "after keep",
    "before sync",
    "after sync",
    "before settle",
    "after settle",
]


def start(service: MediaService, folder: Path, kill_at: str = "") -> subprocess.Popen[bytes]:
    environ = environ_of(
        service.database,
        folder,
        service.at,
        ESCLUSA_LEASE_SECONDS="1",
        MEDIA_MAX_ATTEMPTS="20",
        KILL_AT=kill_at,
    )
    with (folder / "workers.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(WORKER)],
            env=os.environ | environ,
            cwd=folder,
            stdout=log,
            stderr=log,
        )


async def until(service: MediaService, count: int, folder: Path) -> None:
    try:
        async with asyncio.timeout(40):
            while (await service.records.count(Publication, {"status": "success"}))[0] < count:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(
            f"not all of {count}: {(folder / 'workers.log').read_text()[-3000:]}"
        ) from None


async def whole(service: MediaService, ids: list[str], folder: Path, crashes: int = 0) -> None:
    """Assert that every row ended once with exactly its file, and that its history has no gap."""
    for n, id in enumerate(ids):
        pub = await service.pub(id)
        assert (pub.status, pub.leased_by, pub.last_error) == ("success", None, None)
        assert 1 <= pub.attempts <= crashes + 1  # a crash counts if the row was handled alone
        assert pub.imagen_local is not None
        assert file_at(pub.imagen_local).read_bytes() == content("jpg", 3000 + n, str(n))
        steps = await service.runtime.store.history(pub.ref)
        assert all(a.to == b.frm for a, b in pairwise(steps)), steps
        assert sum(step.to == "success" for step in steps) == 1
    kept = [p for p in (folder / "artifacts" / "media").iterdir() if p.is_file()]
    assert len(kept) == len(ids)


@pytest.mark.promise(1)
async def test_kill_at_every_point_between_download_and_settlement(
    service: MediaService, tmp_path: Path
) -> None:
    ids: list[str] = []
    for point in POINTS:
        ids += [
            await service.row(f"/m/jpg/{3000 + n}/{n}", f"p{n}")
            for n in range(len(ids), len(ids) + 5)
        ]
        dying = start(service, tmp_path, point)
        try:
            assert await asyncio.to_thread(dying.wait, 30) == -signal.SIGKILL, point
        finally:
            dying.kill()
    living = start(service, tmp_path)
    try:
        await until(service, len(ids), tmp_path)
    finally:
        living.kill()
        living.wait()
    await whole(service, ids, tmp_path, len(POINTS))


@pytest.mark.promise(3)
async def test_several_processes_share_by_claims(service: MediaService, tmp_path: Path) -> None:
    """«media.download is a shared cycle»."""
    ids = [await service.row(f"/m/jpg/{3000 + n}/{n}", f"p{n}") for n in range(60)]
    team = [start(service, tmp_path) for _ in range(3)]
    try:
        await until(service, len(ids), tmp_path)
    finally:
        for process in team:
            process.kill()
            process.wait()
    await whole(service, ids, tmp_path)
    asked = [count for path, count in service.cdn.counts.items() if path.startswith("GET /m/jpg")]
    assert asked == [1] * 60


@pytest.fixture(scope="module")
def supabase() -> Iterator[SimulatorProcess]:
    with SimulatorProcess("supabase") as server:
        yield server


@pytest.fixture(scope="module")
def moto() -> Iterator[S3Server]:
    with moto_server() as server:
        server.client().create_bucket(Bucket="media")
        yield server


async def test_files_in_supabase_and_its_errors(
    new_service: NewService,
    database: Any,
    supabase: SimulatorProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Point 3; storage_error contains the store's message."""
    url, environ = supabase_bucket(supabase, allowed_mime_types=["image/*"])
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    service = await new_service(database, ESCLUSA_ARTIFACTS=url, **environ)
    good, film = (
        await service.row("/m/jpg/4000/a", "1_2/ñ"),
        await service.row("/m/mp4/4000/b", "film"),
    )
    await service.run()
    row = await service.seen(good)
    assert row["media_status"] == "success"
    assert row["imagen_local"].startswith(f"{supabase.url}/storage/v1/object/public/")
    async with service.web.get(row["imagen_local"]) as answer:
        assert (answer.status, answer.content_type) == (200, "image/jpeg")
        assert await answer.read() == content("jpg", 4000, "a")
    row = await service.seen(film)
    assert (row["media_status"], row["media_attempts"], row["media_last_error"]["type"]) == (
        "pending",
        1,
        "storage_error",
    )
    assert "mime type video/mp4 is not supported" in row["media_last_error"]["message"]


async def test_files_in_s3(
    new_service: NewService, database: Any, moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Point 3."""
    for name, value in moto.environ.items():
        monkeypatch.setenv(name, value)
    service = await new_service(database, ESCLUSA_ARTIFACTS="s3://media/prefix", **moto.environ)
    id = await service.row(f"/m/mp4/{3 << 20}/film", "film", tipo_item="video")
    await service.run()
    row = await service.seen(id)
    assert row["media_status"] == "success", row["media_last_error"]
    assert urlsplit(row["imagen_local"]).path == f"/media/prefix/media/{id}-film.mp4"
    found = moto.client().get_object(Bucket="media", Key=f"prefix/media/{id}-film.mp4")
    assert found["Body"].read() == content("mp4", 3 << 20, "film")
    assert found["ContentType"] == "video/mp4"

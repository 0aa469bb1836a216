"""Storage and links that fail: outages, Retry-After, expired links, a disk that hangs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cli.test_alert_processes import webhook
from pipelines.media.conftest import (
    TABLE,
    MediaService,
    NewService,
    environ_of,
    feed,
    file_at,
    sql,
)
from support.loopback import free_port

from esclusa.artifacts import file_writer
from esclusa.model.system_records import Alert
from esclusa.pipelines.media.links import expiry
from esclusa.pipelines.media.records import Publication
from esclusa.simulators import SimulatorProcess
from esclusa.simulators.graph_api import TOKEN, GraphApiSimulator
from esclusa.simulators.media_cdn import sign
from esclusa.simulators.supabase import SERVICE_KEY, SupabaseSimulator


async def count(service: MediaService, status: str) -> int:
    return int((await service.records.count(Publication, {"status": status}))[0])


async def test_an_hour_without_storage_ends_no_row_and_raises_one_alert(
    database: Any, new_service: NewService, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SupabaseSimulator()
    address = await storage.start()
    monkeypatch.setenv("SUPABASE_URL", address)
    monkeypatch.setenv("SUPABASE_KEY", f' "{SERVICE_KEY}" ')
    service = await new_service(
        database,
        ESCLUSA_ARTIFACTS="supabase://media",
        SUPABASE_URL=address,
        SUPABASE_KEY=SERVICE_KEY,
    )
    for n in range(40):
        await service.row(f"/m/jpg/90/{n}", f"p{n}")
    storage.order("/storage/v1/object/media", status=544, times=100_000)
    for _ in range(12):  # a run every five minutes
        await service.run()
        await service.runtime.engine.judge.judge()
        await service.later(300)
    assert await count(service, "error") == 0
    assert await count(service, "pending") == 40
    attempts = [p.attempts async for p in service.records.each(Publication)]
    assert max(attempts) <= 1
    alerts = [alert async for alert in service.records.each(Alert)]
    assert [alert.key for alert in alerts] == ["stage_paused:media.download"]
    storage.faults.clear()
    await service.later(900)
    await service.run()
    assert await count(service, "success") == 40
    await service.runtime.engine.judge.judge()
    assert [a.status async for a in service.records.each(Alert)] == ["ended"]
    found = await service.records.first(Publication)
    assert found.imagen_local.startswith(f"{address}/storage/v1/object/public/media/")
    await storage.stop()


async def test_retry_after_is_honoured(service: MediaService) -> None:
    id = await service.row("/m/jpg/90/a")
    service.cdn.order("/m/jpg/90/a", status=503, headers={"Retry-After": "7200"})
    await service.run()
    pub = await service.pub(id)
    assert (pub.status, pub.attempts) == ("pending", 1)
    left = (pub.due_at - await service.runtime.store.now()).total_seconds()
    assert 7100 < left <= 7200
    await service.run()
    assert (await service.pub(id)).status == "pending"
    await service.later(7201)
    await service.run()
    assert (await service.pub(id)).status == "success"


async def test_retry_after_counts_and_never_shortens_the_backoff(
    database: Any, new_service: NewService
) -> None:
    """Any 4xx or 5xx is an attempt, so that a link that is always asked to wait ends too."""
    service = await new_service(database, MEDIA_BACKOFF_SECONDS="60", MEDIA_MAX_ATTEMPTS="2")
    id = await service.row("/m/jpg/90/a")
    service.cdn.order("/m/jpg/90/a", status=429, headers={"Retry-After": "0"}, times=2)
    await service.run()
    pub = await service.pub(id)
    left = (pub.due_at - await service.runtime.store.now()).total_seconds()
    assert (pub.status, pub.attempts, 50 < left <= 60) == ("pending", 1, True)
    await service.later(61)
    await service.run()
    pub = await service.pub(id)
    assert (pub.status, pub.attempts, pub.last_error["type"]) == ("error", 2, "http_error")


async def test_the_same_dead_links_raise_one_alert(database: Any, new_service: NewService) -> None:
    service = await new_service(database, MEDIA_BACKOFF_SECONDS="60")
    for n in range(6):
        await service.row(f"/gone/404?{n}", f"dead{n}")
    for n in range(4):
        await service.run()
        for k in range(10):
            await service.row(f"/m/jpg/90/{n}-{k}", f"good{n}-{k}")
        await service.run()
        await service.later(3600)
    alerts = [alert async for alert in service.records.each(Alert)]
    assert [alert.name for alert in alerts] == ["error_rate"]


# expired links


@pytest.fixture
async def graph() -> AsyncIterator[tuple[GraphApiSimulator, str]]:
    made = GraphApiSimulator()
    yield made, await made.start()
    await made.stop()


@pytest.mark.parametrize("item", ["photo", "video", "status"])
async def test_an_expired_link_is_refreshed(
    database: Any, new_service: NewService, graph: Any, item: str
) -> None:
    service = await new_service(
        database, META_ACCESS_TOKEN=TOKEN, META_GRAPH_URL=f"{graph[1]}/v23.0"
    )
    kind = "mp4" if item == "video" else "jpg"
    expired = service.at + sign(f"/m/{kind}/900/x", lifetime=-60)
    fresh = service.at + sign(f"/m/{kind}/900/x")
    graph[0].add("77", fresh) if item != "status" else graph[0].add("1_2", links=[fresh])
    value: dict[str, Any] = {"item": item, "verb": "add", "post_id": "1_2"}
    value |= {"photos": [expired]} if item == "status" else {f"{item}_id": "77", "link": expired}
    assert (await service.deliver(feed(value)))[1]["created"] == 1
    run = await service.run()
    assert run.counters["success"] == 1
    [row] = await service.rows()
    assert row["imagen_url"] == expired  # only an edit of the webhook changes it
    assert file_at(row["imagen_local"]).stat().st_size == 900


async def test_without_a_fresh_link_the_row_fails_as_before(
    database: Any, new_service: NewService, graph: Any
) -> None:
    service = await new_service(
        database, META_ACCESS_TOKEN="wrong", META_GRAPH_URL=f"{graph[1]}/v23.0"
    )
    id = await service.row(sign("/m/jpg/900/x", lifetime=-60))
    await service.run()
    pub = await service.pub(id)
    assert (pub.status, pub.attempts, pub.last_error["type"]) == ("pending", 1, "http_error")
    assert "URL signature expired" in pub.last_error["message"]
    assert graph[0].counts  # it was asked


async def test_a_throttled_graph_api_counts_no_attempt(
    database: Any, new_service: NewService, graph: Any
) -> None:
    service = await new_service(
        database, META_ACCESS_TOKEN=TOKEN, META_GRAPH_URL=f"{graph[1]}/v23.0"
    )
    error = {"error": {"message": "(#4) limit reached", "type": "OAuthException", "code": 4}}
    graph[0].order("/v23.0", status=403, body=json.dumps(error))
    id = await service.row(sign("/m/jpg/900/x", lifetime=-60))
    await service.run()
    pub = await service.pub(id)
    assert (pub.status, pub.attempts) == ("pending", 0)


async def test_links_that_expire_soonest_come_first(database: Any, new_service: NewService) -> None:
    service = await new_service(database, MEDIA_CONCURRENCY="1")
    hours = [9, 3, 20, 1, 5]
    for n in hours:
        await service.row(sign(f"/m/jpg/90/{n}", lifetime=3600 * n), f"p{n}")
    await service.row("/m/jpg/90/never", "never")
    await service.run()
    names = [call["path"].rpartition("/")[2] for call in service.cdn.calls]
    assert names == ["1", "3", "5", "9", "20", "never"]


def test_the_expiry_of_a_link() -> None:
    assert expiry("https://x/a.jpg?_nc=1&oe=65A1B2C3&oh=1").timestamp() == 0x65A1B2C3
    assert expiry("https://x/a.jpg?ext=1700000000&hash=1").timestamp() == 1_700_000_000
    for link in (None, "", "https://x/a.jpg", "https://x?oe=zz", "https://x?oe=" + "f" * 40, "::="):
        assert expiry(link) is None


# log lines


async def test_log_lines_name_the_post_and_the_attempt(
    database: Any, new_service: NewService, capfd: Any
) -> None:
    service = await new_service(database, ESCLUSA_LOG_LEVEL="info", MEDIA_MAX_ATTEMPTS="2")
    await service.row("/gone/500", "456_789")
    await service.run()
    await service.run()
    err = capfd.readouterr().err
    assert "post 456_789 will retry (attempt 1/2)" in err
    assert "post 456_789 reached the maximum of attempts (2)" in err


# a disk that hangs


async def test_a_disk_that_hangs_holds_up_neither_settlements_nor_the_stop(
    database: Any, new_service: NewService, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, write = threading.Event(), file_writer.FileWriter._keep_batch

    def hang(self: Any, files: Any) -> None:
        goes_on.wait(60)
        write(self, files)

    monkeypatch.setattr(file_writer.FileWriter, "_keep_batch", hang)
    service = await new_service(database)
    good = await service.row("/m/jpg/90/a", "good")
    run = asyncio.create_task(service.run())
    await asyncio.sleep(1.5)
    bad = await service.row("/html", "bad")
    second = asyncio.create_task(service.runtime.engine.runner.handle("media.download", bad))
    async with asyncio.timeout(10):
        while (await service.pub(bad)).status != "error":
            await asyncio.sleep(0.05)
    assert (await service.pub(good)).status == "downloading"
    goes_on.set()
    await asyncio.gather(run, second)
    async with asyncio.timeout(10):
        while (await service.pub(good)).status != "success":
            await asyncio.sleep(0.05)


HANGING = """
import threading, sys
from esclusa.artifacts import file_writer
file_writer.FileWriter._keep_batch = lambda self, files: threading.Event().wait(600)
from esclusa.app import main
main(["worker"])
"""


@pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)
async def test_a_worker_stops_although_its_disk_hangs(
    service: MediaService, tmp_path: Path
) -> None:
    environ = environ_of(
        service.database, tmp_path, service.at, MEDIA_INTERVAL_SECONDS="1", ESCLUSA_LOG_LEVEL="info"
    )
    await service.row("/m/jpg/90/a")
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING], env=os.environ | environ, cwd=tmp_path
    )
    async with asyncio.timeout(30):
        while await count(service, "downloading") == 0:
            await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(process.wait, 40)
    assert time.monotonic() - began < 25


# a job that cannot start


@pytest.mark.parametrize("empty_database", ["sqlite"], indirect=True)
async def test_a_job_that_cannot_start_alerts_the_webhook_once(
    service: MediaService, tmp_path: Path
) -> None:
    with webhook() as (address, got), SimulatorProcess("supabase") as storage:
        environ = os.environ | environ_of(
            service.database,
            tmp_path,
            service.at,
            ESCLUSA_ALERT_WEBHOOK=address,
            ESCLUSA_ARTIFACTS="supabase://missing-bucket",
            SUPABASE_URL=storage.url,
            SUPABASE_SERVICE_KEY=SERVICE_KEY,
        )
        command = [sys.executable, "-m", "esclusa", "media", "run"]
        for _ in range(2):
            done = await asyncio.to_thread(
                subprocess.run, command, env=environ, cwd=tmp_path, capture_output=True
            )
            assert done.returncode != 0
        assert [(post["event"], post["name"]) for post in got] == [("begun", "not_started")]
        assert "missing-bucket" in got[0]["message"]
        environ["ESCLUSA_ARTIFACTS"] = str(tmp_path / "artifacts")
        done = await asyncio.to_thread(
            subprocess.run, command, env=environ, cwd=tmp_path, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        assert [post["event"] for post in got] == ["begun", "ended"]


@pytest.mark.parametrize("empty_database", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("missing", ["storage", "column"])
async def test_what_a_job_lacks_is_named_in_the_post_to_the_webhook(
    service: MediaService, tmp_path: Path, missing: str
) -> None:
    with webhook() as (address, got):
        environ = os.environ | environ_of(
            service.database, tmp_path, service.at, ESCLUSA_ALERT_WEBHOOK=address
        )
        if missing == "storage":  # nothing listens there
            environ |= {"ESCLUSA_ARTIFACTS": "supabase://media", "SUPABASE_KEY": SERVICE_KEY}
            environ |= {"SUPABASE_URL": f"http://127.0.0.1:{free_port()}"}
        else:
            await sql(service.database, f"ALTER TABLE {TABLE} DROP COLUMN tipo_item")
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "esclusa", "media", "run"],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
        )
        assert done.returncode != 0
        [post] = got
        assert (post["event"], post["name"]) == ("begun", "not_started")
        assert ("tipo_item" if missing == "column" else "127.0.0.1") in post["message"]

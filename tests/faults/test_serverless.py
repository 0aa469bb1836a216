"""A service that is killed after it accepted an event: the next tick, elsewhere, does the work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.firestore import FirestoreEmulator
from support.gcs import BUCKET, gcs_server
from support.pubsub import PubSubEmulator

PIPELINE = """
import asyncio
import os
from fastapi import APIRouter
from esclusa import App, Attempt, Backoff, Create, Lifecycle, Outcome, Permanent, Record, To
from pathlib import Path

TOPIC = os.environ.get("TOPIC")

class Folder(Record, table="folders", key="name"):
    name: str
    lifecycle = Lifecycle("new -> listing -> listed\\nlisting -> new | lost")

class Page(Record, table="pages", key="name"):
    name: str
    lifecycle = Lifecycle("new -> reading -> read\\nreading -> new | lost")

app = App("scan")

retry = Backoff(tries=5, base=0, jitter=0)

@app.stage(Folder, take="new", hold="listing", exhausted="lost", retry=retry)
async def list_(folder: Folder, at: Attempt) -> Outcome:
    return To("listed", also=[Create(Page(name=f"{folder.name}/{n}")) for n in range(20)])

@app.stage(
    Page, take="new", hold="reading", exhausted="lost", retry=retry, concurrency=2,
    dead_letter_topic=TOPIC,
)
async def read(page: Page, at: Attempt) -> Outcome:
    await asyncio.sleep(0.05 if not Path("slow").exists() else 30)
    if TOPIC and page.name.endswith("/7"):
        raise Permanent("this page cannot be read", type="bad_page")
    await at.artifacts.put(f"{page.name}.txt", b"read", create=True)
    return To("read")

@app.routes
def routes(runtime):
    router = APIRouter()

    @router.post("/event")
    async def event(name: str) -> dict[str, bool]:
        await runtime.engine.records.insert([Folder(name=name)])
        return {"accepted": True}

    return router
"""


class Instance:
    """A server process that is killed at the end."""

    def __init__(self, folder: Path, **more: str) -> None:
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("ESCLUSA_") and name != "PORT"
        }
        environ = (
            clean
            | {
                "ESCLUSA_PIPELINES": "scan.py",
                "ESCLUSA_LOG_LEVEL": "error",
                "ESCLUSA_LEASE_SECONDS": "1",
            }
            | more
        )
        command = [sys.executable, "-m", "esclusa", "serve", "--port", "0"]
        self.process = subprocess.Popen(
            command, cwd=folder, stderr=subprocess.PIPE, text=True, env=environ
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        address = re.search(r"http://[^ ;]+", line)
        assert address is not None, line
        self.address = address[0].rstrip(".")

    def call(self, method: str, path: str) -> Any:
        request = urllib.request.Request(self.address + path, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def counts(self, table: str) -> dict[str, int]:
        return {
            c["state"]: c["count"]
            for c in self.call("GET", f"/api/kinds/{table}")["counts"]
            if c["count"]
        }

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.mark.promise(1)
def test_an_accepted_event_survives_its_instance(tmp_path: Path) -> None:
    (tmp_path / "scan.py").write_text(PIPELINE)
    first = Instance(tmp_path)
    try:
        start = time.monotonic()
        assert first.call("POST", "/event?name=a") == {"accepted": True}
        assert time.monotonic() - start < 5  # answered before any work
        assert first.counts("folders") == {"new": 1}
    finally:
        first.kill()
    second = Instance(tmp_path)
    try:
        ticked = second.call("POST", "/tick?seconds=30")
        assert ticked["complete"]
        assert second.counts("folders") == {"listed": 1}
        assert second.counts("pages") == {"read": 20}
        assert second.call("POST", "/tick")["runs"] == []
    finally:
        second.kill()


@pytest.mark.promise(1)
def test_a_tick_that_is_killed_leaves_nothing_stuck(tmp_path: Path) -> None:
    (tmp_path / "scan.py").write_text(PIPELINE)
    (tmp_path / "slow").touch()
    first = Instance(tmp_path)
    try:
        first.call("POST", "/event?name=a")
        tick = f"u.Request('{first.address}/tick?seconds=60', method='POST')"
        ticking = subprocess.Popen(
            [sys.executable, "-c", f"import urllib.request as u; u.urlopen({tick})"],
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 30
        while first.counts("pages").get("reading", 0) < 2:
            assert time.monotonic() < deadline, "the tick did not start the work"
            time.sleep(0.05)
    finally:
        first.kill()
    assert ticking.wait(20) != 0
    (tmp_path / "slow").unlink()
    second = Instance(tmp_path)
    try:
        deadline = time.monotonic() + 30
        # The orphans are due when their leases end, a second later.
        while second.counts("pages") != {"read": 20}:
            assert time.monotonic() < deadline, second.counts("pages")
            second.call("POST", "/tick?seconds=5")
            time.sleep(0.2)
        assert second.counts("folders") == {"listed": 1}
    finally:
        second.kill()


EMULATORS = FirestoreEmulator.missing() or PubSubEmulator.missing()


@pytest.mark.skipif(EMULATORS is not None, reason=EMULATORS or "")
@pytest.mark.promise(1)
def test_an_accepted_event_survives_its_instance_on_google_cloud(tmp_path: Path) -> None:
    """The same with records in Firestore, files in Cloud Storage and dead letters to Pub/Sub."""
    (tmp_path / "scan.py").write_text(PIPELINE)
    project = f"esclusa-{uuid.uuid4().hex[:12]}"
    with FirestoreEmulator() as firestore, PubSubEmulator() as pubsub, gcs_server() as storage:
        topic = pubsub.topic()
        environ = storage.environ | {
            "FIRESTORE_EMULATOR_HOST": firestore.host,
            "PUBSUB_EMULATOR_HOST": pubsub.host,
            "TOPIC": topic.name,
            "ESCLUSA_STORE": f"firestore://{project}",
            "ESCLUSA_ARTIFACTS": f"gs://{BUCKET}/{project}",
            "ESCLUSA_PUBLISH": f"pubsub://{project}",
        }
        first = Instance(tmp_path, **environ)
        try:
            assert first.call("POST", "/event?name=a") == {"accepted": True}
        finally:
            first.kill()
        second = Instance(tmp_path, **environ)
        try:
            ticked = second.call("POST", "/tick?seconds=50")
            assert ticked["complete"]
            assert second.counts("folders") == {"listed": 1}
            assert second.counts("pages") == {"read": 19, "lost": 1}
            assert second.counts("esclusa_outbox") == {"published": 1}
            assert second.counts("esclusa_dead_letters") == {"open": 1}
        finally:
            second.kill()
        [message] = topic.read(1)
        assert json.loads(message.data)["error_type"] == "bad_page"
        assert message.attributes["event_id"]
        kept = [blob.name for blob in storage.client().list_blobs(BUCKET, prefix=project)]
        assert len(kept) == 19
        topic.close()

"""Downloads of 2,000 files of 100 KB, 32 at a time: the whole pipeline beside a bare aiohttp loop.

The rows come from webhook calls, which the pipeline has kept whole. The loop has no table, computes
no checksum and does not sync its files to disk. The pipeline does by default; it does not sync with
``ESCLUSA_ARTIFACTS_DURABLE=no``, and is measured both ways. Each side is a process of its own: the
pipeline runs as ``esclusa run`` does, the loop as a script would. For comparison each round also
runs the loop on uvloop, and the script that does the same durable work (``bench.media_script``).
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
import uuid
from pathlib import Path

import aiohttp
import uvloop

from bench import media_script
from bench.driver import Driver
from bench.measures import Measure, Scale, in_process, progress
from bench.report import Report, rates
from esclusa.app import open_runtime
from esclusa.cli.session import run_fast
from esclusa.pipelines.media import deliveries
from esclusa.settings import load
from esclusa.simulators import SimulatorProcess

SIZE = 100_000
AT_ONCE = 32
_BARE = "bare aiohttp loop to disk"
# The second comparison, for a pipeline that syncs its files (True) and one that does not.
_OTHERS = {False: "the same on uvloop", True: "a script, the same durable work"}


async def media(driver: Driver, report: Report, scale: Scale) -> None:
    """Files of 100 KB downloaded, checked, stored and settled, beside a bare aiohttp loop."""
    count = scale.of(2000)
    ours: dict[tuple[str, bool], list[float]] = {
        (store, durable): [] for store in ("SQLite", "PostgreSQL") for durable in (True, False)
    }
    bare: dict[tuple[str, bool], list[float]] = {side: [] for side in ours}
    others: dict[tuple[str, bool], list[float]] = {side: [] for side in ours}
    with SimulatorProcess("media_cdn") as cdn:
        urls = [f"{cdn.url}/m/jpg/{SIZE}/{n}" for n in range(count)]
        for turn in range(scale.rounds):
            # Delete nothing before the end: allocation can be slow where much was just deleted.
            folder = Path(tempfile.mkdtemp(prefix="esclusa-media-", dir=driver.folder))
            before = await in_process(_loop, urls, folder / "bare")
            for (name, durable), rate in ours.items():
                place = folder / f"{name} {durable}"
                took = await in_process(_pipeline, urls, _store(driver, place), place, durable)
                after = await in_process(_loop, urls, folder / f"bare after {name} {durable}")
                rate.append(count / took)
                # The mean of the loops just before and just after, as the machine's speed varies.
                beside = 2 * count / (before + after)
                bare[name, durable].append(beside)
                before = after
                place = folder / f"{name} {_OTHERS[durable]}"
                if durable:
                    took = await in_process(_script, urls, _store(driver, place), place)
                else:
                    took = await in_process(_uvloop, urls, place)
                others[name, durable].append(count / took)
                progress(
                    f"media {turn + 1}/{scale.rounds}  {_label(name, durable)}:"
                    f" {rate[-1]:,.0f}/s beside {beside:,.0f}/s;"
                    f" {_OTHERS[durable]}: {count / took:,.0f}/s"
                )
    for (name, durable), rate in ours.items():
        what, goal = _label(name, durable), 0.85 if durable else None
        report.rows.append(rates(what, rate, _BARE, bare[name, durable], goal or 0.8))
        report.rows.append(rates(what, rate, _OTHERS[durable], others[name, durable], goal))


def _store(driver: Driver, place: Path) -> str:
    """A new store, of the kind that the folder is named after."""
    if place.name.startswith("SQLite"):
        return f"sqlite:////{place}.db"
    return driver.server.create_database(f"media_{uuid.uuid4().hex}")


def _label(store: str, durable: bool) -> str:
    return f"media, {store}{'' if durable else ', not durable'}"


def _loop(urls: list[str], folder: Path) -> float:
    return asyncio.run(_bare(urls, folder))


def _uvloop(urls: list[str], folder: Path) -> float:
    return uvloop.run(_bare(urls, folder))


def _script(urls: list[str], store: str, folder: Path) -> float:
    return asyncio.run(media_script.run(urls, store, folder, AT_ONCE, _prepare_machine))


def _pipeline(urls: list[str], store: str, folder: Path, durable: bool) -> float:
    return run_fast(_ours(urls, store, folder, durable))


def _prepare_machine() -> None:
    """Give every side the same start: nothing left to write to disk, and warm memory.

    On a virtual machine the first write to a page of memory can take several times as long.
    """
    os.sync()
    used = bytearray(400 << 20)
    used[::4096] = bytes(len(used) // 4096)


async def _bare(urls: list[str], folder: Path) -> float:
    """Fetch and write the files as a script would; return the seconds."""
    folder.mkdir(parents=True)
    todo = iter(enumerate(urls))
    _prepare_machine()
    start = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:

        async def work() -> None:
            for number, url in todo:
                async with session.get(url) as answer:
                    body = await answer.read()
                await asyncio.to_thread((folder / f"{number}.jpg").write_bytes, body)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.perf_counter() - start


async def _ours(urls: list[str], store: str, folder: Path, durable: bool) -> float:
    environ = {
        "ESCLUSA_STORE": store,
        "ESCLUSA_ARTIFACTS": str(folder),
        "ESCLUSA_PIPELINES": "media",
        "ESCLUSA_LOG_LEVEL": "warning",
        "ESCLUSA_ARTIFACTS_DURABLE": str(durable),
        "MEDIA_ALLOW_HOSTS": "127.0.0.1",
        "MEDIA_CONCURRENCY": str(AT_ONCE),
    }
    async with open_runtime(load(environ=environ)) as runtime, runtime.engine.running() as engine:
        for start in range(0, len(urls), 500):
            await deliveries.receive(runtime, _delivery(start, urls[start : start + 500]))
        _prepare_machine()
        begun = time.perf_counter()
        run = await engine.run_cycle("media.download")
        took = time.perf_counter() - begun
        if run.counters["success"] != len(urls):
            raise RuntimeError(f"not every file was downloaded: {dict(run.counters)}")
        return took


def _delivery(first: int, urls: list[str]) -> str:
    """A webhook call with a photo for each link."""
    changes = [
        {
            "field": "feed",
            "value": {"item": "photo", "verb": "add", "post_id": f"p{first + n}", "link": url},
        }
        for n, url in enumerate(urls)
    ]
    return json.dumps({"object": "page", "entry": [{"id": "1", "changes": changes}]})


MEASURES: dict[str, Measure] = {"media": media}

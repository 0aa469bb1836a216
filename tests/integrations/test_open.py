"""``esclusa.open`` runs inside an application, and leaves its logging and signals alone."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import esclusa
from esclusa import Inserted
from esclusa.model.errors import SettingsError

from . import shop
from .shop import Order, app


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


async def test_a_record_goes_from_insert_to_its_end(store: str) -> None:
    async with esclusa.open(app, store=store, worker=True) as runtime:
        [answer] = await runtime.records.insert([Order(number="1", amount=12)])
        done = await runtime.wait(Order, answer.id, timeout=20)
        assert (answer, done.status) == (Inserted("1"), "charged")
        assert (await runtime.read_model.status())["workers"]


async def test_without_a_worker_nothing_is_handled(store: str) -> None:
    async with esclusa.open(app, store=store) as runtime:
        await runtime.records.insert([Order(number="1")])
        with pytest.raises(TimeoutError, match=r"orders 1 is still new.*esclusa why orders 1"):
            await runtime.wait(Order, "1", timeout=0.05)
        await runtime.operations("ana").run("shop.charge")
        assert (await runtime.wait(Order, "1")).status == "charged"


async def test_wait_for_states_and_for_a_record_that_failed(store: str) -> None:
    async with esclusa.open(app, store=store, worker=True) as runtime:
        await runtime.records.insert([Order(number="1", amount=5000)])
        failed = await runtime.wait(Order, "1", timeout=20)
        assert (failed.status, failed.last_error and failed.last_error["message"]) == (
            "failed",
            "it is worth too much",
        )
        with pytest.raises(ValueError, match="orders has no state paid"):
            await runtime.wait(Order, "1", until=["paid"])
        with pytest.raises(esclusa.NotFound):
            await runtime.wait(Order, "2")


async def test_the_hosts_logging_and_signals_stay(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    signals = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    caplog.set_level("INFO", logger="esclusa")
    async with esclusa.open(app, store=store, worker=True) as runtime:
        await runtime.records.insert([Order(number="1")])
        await runtime.wait(Order, "1", timeout=20)
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == signals
    assert (root.level, list(root.handlers)) == before
    [settled] = [r for r in caplog.records if getattr(r, "esclusa", {}).get("result") == "moved"]
    assert settled.name == "esclusa"
    fields: dict[str, Any] = settled.__dict__["esclusa"]
    assert fields["engine_stage"] == "shop.charge"


async def test_a_worker_for_some_cycles(store: str) -> None:
    with pytest.raises(esclusa.NotFound, match="chargge"):
        async with esclusa.open(app, store=store, worker=["shop.chargge"]):
            pass
    async with esclusa.open(app, store=store, worker=["shop.charge"]) as runtime:
        await runtime.records.insert([Order(number="1")])
        await runtime.wait(Order, "1", timeout=20)


async def test_settings_come_before_the_environment_and_faults_are_named(store: str) -> None:
    environ = {"ESCLUSA_STORE": "nonsense", "ESCLUSA_PIPELINES": "nothing"}
    async with esclusa.open(app, store=store, environ=environ) as runtime:
        assert runtime.store.url == store
    with pytest.raises(TypeError, match="stoer is not a setting of Esclusa"):
        async with esclusa.open(app, stoer=store):
            pass
    with pytest.raises(SettingsError, match="no pipeline is named"):
        async with esclusa.open(store=store, environ={}):
            pass


def test_plain_functions_insert_read_and_wait(store: str) -> None:
    with esclusa.open_sync(app, store=store, worker=True) as runtime:
        answers = runtime.insert([Order(number=str(n)) for n in range(5)])
        found = [runtime.wait(Order, answer.id, timeout=20).status for answer in answers]
        assert found == ["charged"] * 5
        assert runtime.count(Order, {"status": "charged"}) == 5
        page = runtime.find(Order, order="number", limit=2)
        assert ([each.number for each in page.items], page.next is None) == (["0", "1"], False)
        assert runtime.call(lambda r: r.read_model.status())["workers"]
        order = runtime.get(Order, "3")
        assert order is not None


def test_other_threads_may_use_it_and_errors_reach_them(store: str) -> None:
    with esclusa.open_sync(app, store=store) as runtime:
        answers: list[Any] = []
        threads = [
            threading.Thread(target=lambda n=n: answers.extend(runtime.insert([Order(number=n)])))
            for n in "abc"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answer.id for answer in answers) == ["a", "b", "c"]
        with pytest.raises(esclusa.NotFound):
            runtime.wait(Order, "z")
        with pytest.raises(esclusa.EsclusaError, match="failed"):
            runtime.operate("ana", lambda o: o.move("orders", "failed", ids=["a"], reason="no"))


async def test_the_worker_ends_in_order_with_the_application(store: str) -> None:
    async with esclusa.open(app, store=store, worker=True) as runtime:
        await runtime.records.insert([Order(number=str(n)) for n in range(50)])
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    async with esclusa.open(app, store=store) as runtime:
        held, _ = await runtime.records.count(Order, {"status": "charging"})
        assert held == 0
    assert shop.handled

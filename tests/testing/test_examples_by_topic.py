"""The examples of single topics do what their first lines say."""

from __future__ import annotations

import hashlib
import hmac
import sys
import urllib.error
import urllib.request
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.processes import Esclusa, get

from esclusa import App
from esclusa.app import open_runtime
from esclusa.loading import load_app
from esclusa.settings import load
from esclusa.testing import Harness

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> tuple[App, Any]:
    app = load_app(f"{EXAMPLES / name}.py:app")
    return app, sys.modules[f"esclusa_file_{name}"]


def project(folder: Path, name: str, **settings: str) -> Esclusa:
    """A folder in which the command runs with this example."""
    pipelines = str(EXAMPLES / f"{name}.py:app")
    settings |= {"ESCLUSA_PIPELINES": pipelines, "ESCLUSA_LOG_LEVEL": "error"}
    return Esclusa(folder, **settings)


def test_each_example_is_tested() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    names = [path.stem for path in EXAMPLES.glob("*.py")]
    assert len(names) >= 12
    assert [n for n in names if f'"{n}"' not in tests and f'"{n}.py"' not in tests] == []


async def test_quota_spends_five_a_second_and_pauses_when_the_service_asks() -> None:
    app, m = example("quota")
    async with Harness(app, now=datetime(2026, 3, 2, 15, tzinfo=UTC)) as h:
        await h.insert_all([m.Address(text=f"street {n}") for n in range(12)])
        await h.run_due()
        done = Counter(a.status for a in await h.all_records(m.Address))
        assert 0 < done["located"] < 12  # one every fifth of a second, not all at once
        for _ in range(12):
            await h.skip(0.2)
            await h.run_due()
        assert {a.status for a in await h.all_records(m.Address)} == {"located"}

        busy = await h.insert(m.Address(text="busy"))
        await h.skip(1)
        await h.run_due()
        await h.assert_state(busy, "new", attempts=0)  # waiting counts no attempt
        assert "the service answers 429" in await h.why(busy)


async def test_quota_waits_for_the_next_day_of_the_provider() -> None:
    app, m = example("quota")
    async with Harness(app, now=datetime(2026, 3, 2, 15, tzinfo=UTC)) as h:
        await h.spend(m.calls, 1)
        [day, _] = await h.engine.store.usage(m.calls)
        assert day.reset == datetime(2026, 3, 3, 3, tzinfo=UTC)  # midnight in Santiago


async def test_the_compared_pipeline_does_what_its_peer_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/comparison.md: the same service, the same numbers; and a worker that is killed."""
    app = load_app(f"{EXAMPLES / 'compare' / 'quota.py'}:app")
    m: Any = sys.modules["esclusa_file_quota"]
    calls: list[str] = []

    async def temperature(city: str) -> float:
        calls.append(city)
        if city == "city-07":
            raise m.UnknownCity("there is no such city")
        if len(calls) % 4 == 0:
            raise TimeoutError("busy")
        return 20.0

    monkeypatch.setattr(m, "temperature", temperature)
    monkeypatch.setattr(m, "cities", [f"city-{n:02}" for n in range(25)])
    async with Harness(app, now=datetime(2026, 3, 2, 15, tzinfo=UTC)) as h:
        await h.run("collect")
        await h.run("collect")
        await h.run_stage("ask")
        found = Counter(reading.status for reading in await h.all_records(m.Reading))
        assert (len(calls), found) == (20, {"done": 15, "failed": 1, "waiting": 9})
        h.kill("before_handler")
        await h.skip("1m")
        await h.run_stage("ask")
        await h.skip_lease()
        await h.run_until_idle("10m")
        found = Counter(reading.status for reading in await h.all_records(m.Reading))
        assert found == {"done": 24, "failed": 1}


async def test_shared_budget_counts_both_stages_and_gives_back() -> None:
    app, m = example("shared_budget")
    async with Harness(app) as h:
        await h.insert_all([m.Search(words=words) for words in ("tea", "nothing")])
        await h.run_due()
        [hit] = await h.all_records(m.Hit)
        assert (hit.status, hit.title) == ("done", "tea")
        [window] = await h.engine.store.usage(m.units)
        assert window.used == 5 + 0 + 1


async def test_per_customer_takes_turns() -> None:
    app, m = example("per_customer")
    async with Harness(app) as h:
        many = [m.Call(customer_id="big", number=n) for n in range(60)]
        few = [m.Call(customer_id=f"small-{n}", number=1) for n in range(5)]
        await h.insert_all([*many, *few])
        await h.run_due()
        order = [record.customer_id for call in h.calls for record in call.records]
        assert len(order) == 65
        assert {f"small-{n}" for n in range(5)} <= set(order[:30])  # not behind the big one


def post(url: str, body: bytes, **headers: str) -> int:
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_webhook_stores_a_signed_call_once(tmp_path: Path) -> None:
    esclusa = project(tmp_path, "webhook", SHOP_WEBHOOK_SECRET="s3cret")
    body = b'{"number": 7, "amount": 12}'
    signature = {"X-Signature": hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()}
    with esclusa.start("serve", "--worker", "--port", "0", ESCLUSA_LOG_LEVEL="info") as server:
        url = f"{server.address()}/webhooks/shop"
        assert post(url, body) == 401
        assert post(url, body + b" ", **signature) == 401
        assert [post(url, body, **signature) for _ in range(2)] == [202, 202]
        server.until_logged("shop-events.apply: moved")
        assert server.stop() == 0
    [event] = esclusa.json("records", "webhook_events")["items"]
    assert (event["id"], event["status"], event["amount"]) == ("7", "applied", 12)


async def test_report_writes_yesterdays_sales_once() -> None:
    app, m = example("report")
    noon = datetime(2026, 3, 2, 12, tzinfo=m.ZONE)
    async with Harness(app, now=noon) as h:
        times = [noon.replace(day=1, hour=0), noon.replace(day=1, hour=23), noon]
        sales = [
            m.Sale(number=n, amount=10 * n, sold_at=time) for n, time in enumerate(times, start=1)
        ]
        await h.insert_all(sales)
        await h.run("daily")
        await h.run("daily")
        [report] = await h.all_records(m.Report)
        assert (report.status, str(report.day), report.total) == ("written", "2026-03-01", 30)
        assert await h.artifacts.get("reports/2026-03-01.csv") == b"number,amount\n1,10\n2,20\n"


async def test_dead_letters_keep_what_is_needed_and_make_a_complaint() -> None:
    app, m = example("dead_letters")
    async with Harness(app) as h:
        await h.insert(m.Letter(number=1, email="ana@example.com", text="private"))
        lost = await h.insert(m.Letter(number=2, email="ana at example.com", text="private"))
        await h.run_due()
        await h.assert_state(lost, "failed")
        [letter] = await h.dead_letters()
        assert letter.error_type == "bad_address"
        assert (letter.payload["number"], letter.payload["email"]) == (2, "ana at example.com")
        assert "text" not in letter.payload
        assert [c.letter for c in await h.all_records(m.Complaint)] == ["2"]


async def test_dead_letters_are_corrected_and_sent_back() -> None:
    app, m = example("dead_letters")
    async with Harness(app) as h:
        lost = await h.insert(m.Letter(number=2, email="ana at example.com"))
        await h.run_due()
        done = await h.operations.redrive(
            where={"error_type": "bad_address"}, fields={"email": "ana@example.com"}, reason="typo"
        )
        assert done.moved == 1
        await h.run_due()
        await h.assert_state(lost, "sent", email="ana@example.com")


async def test_metrics_has_figures_of_its_own() -> None:
    app, m = example("metrics")
    async with Harness(app) as h:
        await h.insert_all([m.Order(number=n, country="CL", amount=100) for n in (1, 2)])
        await h.insert(m.Order(number=3, country="PE", amount=7))
        found = {g.labels["country"]: g.value for g in await m.figures(h.records)}
        assert found == {"CL": 200, "PE": 7}
        run = await h.run("charge")
        assert run.answer()["counters"]["charged"] == 3


def test_import_csv_reports_rows_and_adds_nothing_twice(tmp_path: Path) -> None:
    esclusa = project(tmp_path, "import_csv")
    (tmp_path / "people.csv").write_text(
        "email,name,age\nana@example.com,Ana,31\neva@example.com,Eva,\nbob@example.com,Bob,old\n"
    )
    first = esclusa.call("contacts", "import", "people.csv")
    assert first.returncode == 1
    assert "2 new, 0 known, 1 refused" in first.stdout
    assert "row 3: " in first.stdout
    again = esclusa.call("contacts", "import", "people.csv")
    assert "0 new, 2 known, 1 refused" in again.stdout


async def test_console_page_shows_a_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, m = example("console_page")
    pipelines = str(EXAMPLES / "console_page.py:app")
    settings = load(environ={}, overrides={"pipelines": pipelines, "log_level": "error"})
    async with open_runtime(settings) as runtime:
        await runtime.records.insert([m.Parcel(number="7", receiver="Ana & Eva")])
    esclusa = project(tmp_path, "console_page")
    with esclusa.start("serve", "--port", "0", ESCLUSA_LOG_LEVEL="info") as server:
        url = server.address()
        status, label = get(f"{url}/console/parcels/7/label")
        assert (status, "To Ana &amp; Eva" in label) == (200, True)
        assert "/console/parcels/7/label" in get(f"{url}/console/records/labelled_parcels/7")[1]
        assert get(f"{url}/api/views/parcels.to-send")[1]["items"] == []
        assert esclusa.call("run", "parcels.pack").returncode == 0
        items = get(f"{url}/api/views/parcels.to-send")[1]["items"]
        assert items == [{"id": "7", "receiver": "Ana & Eva"}]

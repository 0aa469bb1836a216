"""The pipeline's routes, commands and settings."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pipelines.tenders.conftest import TendersTrial, environ_of

from esclusa.app import open_runtime, open_store
from esclusa.cli import code_of
from esclusa.model.errors import SettingsError
from esclusa.pipelines.tenders import app
from esclusa.pipelines.tenders.worker_records import WorkerRun
from esclusa.settings import load
from esclusa.simulators import SimulatorProcess

BODY = {
    "installation_id": "i-1",
    "push_token": "ExponentPushToken[abc]",
    "platform": "ios",
    "preferences": {
        "enabled": True,
        "regions": [" Región del Biobío"],
        "categories": ["8512"],
        "buyers": ["7375"],
        "amount_min": 1000,
        "amount_max": 2e9,
        "keywords": ["hospital"],
        "quiet_hours": {"start": "22:00", "end": "07:00", "timezone": "America/Santiago"},
    },
}


async def test_an_unknown_region_is_refused(trial: TendersTrial) -> None:
    """Regions by name or code; one that no tender can have is named."""
    await trial.device("a", regions=["O’Higgins", "Metropolitana", "8", "bío bío"])
    body = {"installation_id": "b", "push_token": "ExponentPushToken[b]"}
    status, answer = await trial.call(
        "POST", "/devices", body | {"preferences": {"regions": ["Biobío", "Atlántida"]}}
    )
    assert status == 422
    assert "Atlántida" in str(answer)
    assert (await trial.call("GET", "/devices/b"))[0] == 404


async def test_a_device_registers_and_registers_again(trial: TendersTrial, place: Any) -> None:
    """POST /devices needs two fields; posting again replaces preferences and reactivates."""
    status, answer = await trial.call("POST", "/devices", BODY)
    assert (status, answer["created"], answer["active"], answer["platform"]) == (
        200,
        True,
        True,
        "ios",
    )
    assert answer["preferences"]["regions"] == ["Región del Biobío"]
    [row] = await place.rows("notification_preferences", "installation_id")
    assert row["installation_id"] == "i-1"
    await place.write("device_installations", "installation_id", "i-1", active=False)
    assert not (await trial.installation("i-1")).active
    status, answer = await trial.call(
        "POST", "/devices", {"installation_id": "i-1", "push_token": "ExpoPushToken[new]"}
    )
    assert (
        status,
        answer["created"],
        answer["active"],
        answer["push_token"],
        answer["platform"],
    ) == (
        200,
        False,
        True,
        "ExpoPushToken[new]",
        None,
    )
    assert answer["preferences"] == {
        "enabled": True,
        "regions": [],
        "categories": [],
        "buyers": [],
        "keywords": [],
        "amount_min": None,
        "amount_max": None,
        "quiet_hours": None,
        "types": [],
        "events": [],
        "digest": None,
        "daily_cap": None,
    }
    assert len(await place.rows("device_installations", "installation_id")) == 1


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"installation_id": None}, "installation_id"),
    ({"installation_id": " "}, "installation_id"),
    ({"installation_id": "x\0y"}, "installation_id"),
    ({"push_token": "abc"}, "push_token"),
    ({"push_token": "ExponentPushToken[]"}, "push_token"),
    ({"push_token": 5}, "push_token"),
    ({"platform": "windows"}, "platform"),
    ({"preference": {}}, "preference"),
    ({"preferences": {"region": ["x"]}}, "preferences.region"),
    ({"preferences": {"regions": "x"}}, "preferences.regions"),
    ({"preferences": {"regions": [5]}}, "preferences.regions.0"),
    ({"preferences": {"keywords": [""]}}, "preferences.keywords.0"),
    ({"preferences": {"amount_min": -1}}, "preferences.amount_min"),
    ({"preferences": {"amount_min": "much"}}, "preferences.amount_min"),
    ({"preferences": {"amount_min": 5, "amount_max": 4}}, "preferences"),
    (
        {"preferences": {"quiet_hours": {"start": "25:00", "end": "07:00"}}},
        "preferences.quiet_hours.start",
    ),
    ({"preferences": {"quiet_hours": {"start": "22:00"}}}, "preferences.quiet_hours.end"),
    (
        {
            "preferences": {
                "quiet_hours": {"start": "22:00", "end": "07:00", "timezone": "Chile/Nowhere"}
            }
        },
        "preferences.quiet_hours.timezone",
    ),
    (
        {"preferences": {"quiet_hours": {"start": "22:00", "end": "22:00"}}},
        "preferences.quiet_hours",
    ),
]


async def test_an_invalid_body_names_the_field_and_stores_nothing(
    trial: TendersTrial, place: Any
) -> None:
    for change, field in REFUSED:
        body = {k: v for k, v in {**BODY, **change}.items() if v is not None}
        status, answer = await trial.call("POST", "/devices", body)
        assert status == 422, (change, answer)
        assert f"body.{field}" in [fault["where"] for fault in answer["faults"]]
        assert field.rpartition(".")[2] in answer["detail"]
    assert await place.rows("device_installations", "installation_id") == []
    assert await place.rows("notification_preferences", "installation_id") == []


async def test_a_body_that_is_not_json_is_refused(trial: TendersTrial) -> None:
    status, answer = await trial.call(
        "POST",
        "/devices",
        data=b'{"installation_id": ',
        headers={"Content-Type": "application/json"},
    )
    assert (status, answer["title"]) == (400, "Body is not JSON")


async def test_delete_removes_a_device_once(trial: TendersTrial, place: Any) -> None:
    """DELETE of an unknown device: 404."""
    await trial.call("POST", "/devices", BODY)
    assert await trial.call("DELETE", "/devices/i-1") == (204, None)
    assert await place.rows("notification_preferences", "installation_id") == []
    status, answer = await trial.call("DELETE", "/devices/i-1")
    assert (status, answer["type"]) == (404, "urn:esclusa:problem:not-found")
    assert (await trial.call("GET", "/devices/i-1"))[0] == 404


async def test_tenders_are_listed_with_filters_and_a_cursor(trial: TendersTrial) -> None:
    codes = await trial.publish(5)
    await trial.run("ingest")
    status, page = await trial.call("GET", "/licitaciones?limit=3")
    assert (status, len(page["items"])) == (200, 3)
    _, rest = await trial.call("GET", f"/licitaciones?limit=3&after={page['next']}")
    assert {t["codigo_externo"] for t in page["items"] + rest["items"]} == set(codes)
    assert rest["next"] is None
    _, some = await trial.call(
        "GET", "/licitaciones?monto_estimado__gte=2000000&codigo_organismo=6920"
    )
    assert [t["codigo_organismo"] for t in some["items"]] == ["6920", "6920"]
    for number in ("NaN", "Infinity", "-Infinity", "sNaN", "1e", ""):
        status, answer = await trial.call("GET", f"/licitaciones?monto_estimado__gte={number}")
        assert (
            status,
            "monto_estimado is compared with a value of type decimal" in answer["detail"],
        ) == (400, True), (number, answer)
    for path in ("/licitaciones?color=rojo", "/licitaciones?order=nombre", "/regions?color=1"):
        status, answer = await trial.call("GET", path)
        name = path.partition("?")[2].partition("=")[0]
        assert (status, name in answer["detail"]) == (400, True), path
    status, one = await trial.call("GET", f"/licitaciones/{codes[0]}")
    assert (status, one["codigo_externo"], one["notificada"]) == (200, codes[0], False)
    assert (await trial.call("GET", "/licitaciones/9-9-L199"))[0] == 404


async def test_deliveries_are_listed_and_failed_ones_retried(
    trial: TendersTrial, place: Any
) -> None:
    for name in ("a", "b"):
        trial.expo.devices[await trial.device(name)] = {"ticket": "MessageTooBig"}
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    status, page = await trial.call("GET", "/deliveries?status=failed")
    assert (status, len(page["items"])) == (200, 2)
    assert {d["last_error_code"] for d in page["items"]} == {"MessageTooBig"}
    assert page["items"][0]["attempt_count"] == 1
    [code] = trial.chile.details
    related = await trial.runtime.read_model.related("licitaciones", code)
    assert {(r["way"], r["table"], len(r["items"])) for r in related} == {
        ("from", "notification_events", 1),
    }
    event = related[0]["items"][0]["id"]
    related = await trial.runtime.read_model.related("notification_events", event)
    assert ("from", "notification_deliveries", 2) in {
        (r["way"], r["table"], len(r["items"])) for r in related
    }
    status, answer = await trial.call("POST", "/deliveries/retry?installation_id=a&dry_run=true")
    assert (status, answer["matched"], answer["moved"]) == (200, 1, 0)
    assert (await trial.call("POST", "/deliveries/retry?installation_id=a"))[1]["moved"] == 1
    assert (await trial.call("POST", "/deliveries/retry"))[1]["moved"] == 1
    assert {d.status for d in await trial.deliveries()} == {"pending"}
    await trial.run("dispatch")
    first = (await trial.call("GET", "/deliveries?status=failed&limit=1"))[1]
    rest = (await trial.call("GET", f"/deliveries?status=failed&after={first['next']}"))[1]
    assert {d["installation_id"] for d in first["items"] + rest["items"]} == {"a", "b"}
    assert len((await trial.call("GET", "/deliveries?status=failed&status=sent"))[1]["items"]) == 2
    for method, path in (("GET", "/deliveries"), ("POST", "/deliveries/retry")):
        status, answer = await trial.call(method, f"{path}?status=nowhere")
        assert (status, "nowhere" in answer["detail"]) == (400, True)
        assert "pending, sent, retryable" in answer["detail"]
    assert (await trial.call("POST", "/deliveries/retry?nothing=1"))[0] == 400
    # Another program may have states of its own.
    [first, _] = await trial.deliveries()
    await place.write("notification_deliveries", "id", int(first.id), status="paused")
    for asked, count in (("status=paused", 1), ("status=paused&installation_id=x", 0)):
        status, page = await trial.call("GET", f"/deliveries?{asked}")
        assert (status, len(page["items"])) == (200, count)


async def test_deliveries_are_filtered_by_column_names(trial: TendersTrial) -> None:
    """Filters accept the mapped names: attempt_count, next_attempt_at, locked_by."""
    await trial.sent("d1")
    moment = f"{await trial.now():%Y-%m-%dT%H:%M:%SZ}"
    for asked, count in (
        ("attempt_count=1", 1),
        ("attempt_count__gte=2", 0),
        (f"next_attempt_at__gt={moment}", 1),
        ("locked_by__null=true", 1),
        ("status=sent&attempt_count=0,1", 1),
        (f"next_attempt_at<{moment}", 0),
    ):
        status, page = await trial.call("GET", f"/deliveries?{asked}")
        assert (status, len(page["items"])) == (200, count), (asked, page)
    status, page = await trial.call(
        "GET", "/api/records/notification_deliveries?order=-next_attempt_at&attempt_count__lt=5"
    )
    assert (status, len(page["items"])) == (200, 1)


async def test_a_retry_refuses_empty_parameters(trial: TendersTrial) -> None:
    """An empty parameter is refused: ignoring it would retry every failed delivery."""
    token = await trial.device("d1")
    trial.expo.devices[token] = {"ticket": "MessageTooBig"}
    await trial.publish()
    await trial.run("ingest")
    await trial.run("dispatch")
    for asked in ("limit=1", "installation_id=", "after=x", "order=id", "archived=true"):
        status, answer = await trial.call("POST", f"/deliveries/retry?{asked}")
        assert (status, asked.partition("=")[0] in answer["detail"]) == (400, True)
    assert (await trial.delivery()).status == "failed"
    _, answer = await trial.call("POST", "/deliveries/retry?attempt_count=1")
    assert answer["moved"] == 1


async def test_runs_are_listed_by_short_or_full_name(trial: TendersTrial) -> None:
    """GET /worker-runs?worker=dispatch lists runs with their counters and durations."""
    await trial.sent()
    for name in ("dispatch", "tenders.dispatch"):
        status, page = await trial.call("GET", f"/worker-runs?worker={name}")
        assert (status, len(page["items"])) == (200, 1)
        [run] = page["items"]
        assert (run["cycle"], run["outcome"], run["counters"]["sent"]) == (
            "tenders.dispatch",
            "ok",
            1,
        )
        assert run["counters"]["invalidated"] == 0
        assert run["duration_ms"] >= 0
    assert len((await trial.call("GET", "/worker-runs"))[1]["items"]) == 2
    started = await trial.now() - timedelta(days=1)
    rows = [
        WorkerRun(worker_name="sync", started_at=started, finished_at=started, licitaciones_new=7),
        WorkerRun(worker_name="archive_export", started_at=started),
        WorkerRun(worker_name="cleanup", started_at=started, error_message="no disk").but(
            finished_at=started
        ),
    ]
    await trial.records.insert(rows)
    found = {}
    for name in ("sync", "archive-export", "archive_export", "tenders.cleanup", "receipts"):
        status, page = await trial.call("GET", f"/worker-runs?worker={name}")
        assert status == 200
        found[name] = [(r["outcome"], r["licitaciones_new"]) for r in page["items"]]
    assert found == {
        "sync": [("ok", 7)],
        "archive-export": [("died", 0)],
        "archive_export": [("died", 0)],
        "tenders.cleanup": [("error", 0)],
        "receipts": [],
    }
    first = (await trial.call("GET", "/worker-runs?limit=2"))[1]
    rest = (await trial.call("GET", f"/worker-runs?after={first['next']}"))[1]
    assert [r["worker_name"] for r in first["items"]] == ["dispatch", "ingest"]
    assert len(rest["items"]) == 3
    assert (await trial.call("GET", "/worker-runs?worker=none"))[0] == 404
    text = (await trial.web.get(f"{trial.url}/metrics")).status
    assert text == 200


# the command line, with simulators in separate processes


@pytest.fixture
def cli(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with SimulatorProcess("chilecompra") as chile, SimulatorProcess("expo") as expo:
        for name, value in environ_of(place, tmp_path, chile.url, expo.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)

        def run(*args: str) -> int:
            return code_of(list(args), open_runtime=open_runtime, open_store=open_store)

        run.chile, run.expo = chile.url, expo.url  # type: ignore[attr-defined]
        yield run


def post(url: str, body: Any) -> Any:
    import urllib.request

    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    return json.loads(urllib.request.urlopen(request).read())


def test_commands(
    cli: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """devices import, each cycle with --once, drop-exported: exit codes and answers."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    lines = [
        BODY | {"installation_id": f"i{n}", "push_token": f"ExpoPushToken[{n}]", "preferences": {}}
        for n in range(3)
    ]
    file = tmp_path / "devices.ndjson"
    file.write_text(
        "\n".join(json.dumps(line) for line in [*lines, BODY | {"push_token": "no"}])
        + "\nno json\n",
        encoding="utf-8",
    )
    with file.open("a", encoding="utf-8") as more:
        more.write(
            json.dumps(BODY | {"push_token": "ExponentPushToken[\ud800]"})
        )  # half of a surrogate pair
    assert cli("tenders", "devices", "import", str(file), "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["created"], answer["known"], [e["row"] for e in answer["errors"]]) == (
        3,
        0,
        [4, 5, 6],
    )
    assert ["push_token" in e["error"] for e in answer["errors"]] == [True, False, True]
    file.write_text("\n".join(json.dumps(line) for line in [*lines, lines[0]]), encoding="utf-8")
    assert cli("tenders", "devices", "import", str(file), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"created": 0, "known": 4, "errors": []}

    today = f"{datetime.now(ZoneInfo('America/Santiago')):%Y-%m-%d}"
    post(f"{cli.chile}/_tenders", {"count": 2, "day": today})
    assert cli("tenders", "ingest", "--once", "--json") == 0
    run = json.loads(capsys.readouterr().out)
    assert (
        run["cycle"],
        run["outcome"],
        run["counters"]["new"],
        run["counters"]["deliveries"],
    ) == ("tenders.ingest", "ok", 2, 6)
    assert cli("tenders", "dispatch", "--once", "--json") == 0
    assert json.loads(capsys.readouterr().out)["counters"]["sent"] == 6
    monkeypatch.setenv("ESCLUSA_CLOCK_OFFSET_SECONDS", "1000")
    assert cli("tenders", "receipts", "--once", "--json") == 0
    assert json.loads(capsys.readouterr().out)["counters"]["ok"] == 6
    monkeypatch.setenv("ESCLUSA_CLOCK_OFFSET_SECONDS", str(400 * 86400))
    assert cli("tenders", "cleanup", "--once", "--json") == 0
    assert json.loads(capsys.readouterr().out)["counters"] == {
        "licitaciones": 2,
        "deliveries": 6,
        "kept": 0,
    }
    assert cli("tenders", "archive-export", "--once", "--json") == 0
    assert json.loads(capsys.readouterr().out)["counters"] == {"files": 2, "rows": 8, "dropped": 0}
    assert cli("tenders", "drop-exported", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "dropped": {"licitaciones": 0, "notification_deliveries": 0}
    }
    monkeypatch.setenv("ESCLUSA_CLOCK_OFFSET_SECONDS", str(431 * 86400))
    assert cli("tenders", "drop-exported", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "dropped": {"licitaciones": 2, "notification_deliveries": 6}
    }
    assert cli("tenders", "restore", today[:7], "--table", "licitaciones", "--json") == 0
    [file] = json.loads(capsys.readouterr().out)["files"]
    assert (file["table"], file["restored"], file["known"]) == ("licitaciones", 2, 0)
    assert cli("tenders", "restore", "2001-01") == 1
    assert "no verified file of 2001-01" in capsys.readouterr().err
    assert cli("tenders", "rates", "set", "UTM=69542", "uf=39485.65") == 0
    assert cli("tenders", "rates", "set", "UTM=-1") == 2
    capsys.readouterr()
    assert cli("tenders", "rates", "list", "--json") == 0
    rates = json.loads(capsys.readouterr().out)["items"]
    assert [(r["currency"], r["pesos"]) for r in rates] == [("CLF", "39485.65"), ("UTM", "69542")]


def test_exit_codes(
    cli: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Blocked exits 1, partial 5, a wrong setting 3, a missing file 2."""
    from datetime import datetime
    from zoneinfo import ZoneInfo

    post(f"{cli.chile}/_state", {"quota": 0})
    assert cli("tenders", "ingest", "--once", "--json") == 1
    run = json.loads(capsys.readouterr().out)
    assert (run["outcome"], "quota" in run["message"]) == ("blocked", True)
    post(f"{cli.chile}/_state", {"quota": 100})
    post(
        f"{cli.chile}/_tenders",
        {"count": 1, "day": f"{datetime.now(ZoneInfo('America/Santiago')):%Y-%m-%d}"},
    )
    (tmp_path / "d.ndjson").write_text(
        json.dumps({"installation_id": "a", "push_token": "ExponentPushToken[a]"}), encoding="utf-8"
    )
    assert cli("tenders", "devices", "import", "d.ndjson") == 0
    post(f"{cli.expo}/_devices", {"ExponentPushToken[a]": {"ticket": "MessageTooBig"}})
    assert cli("tenders", "ingest", "--once") == 0
    capsys.readouterr()
    assert cli("tenders", "dispatch", "--once", "--json") == 5
    assert json.loads(capsys.readouterr().out)["outcome"] == "partial"
    assert cli("tenders", "devices", "import", "none.ndjson") == 2
    monkeypatch.setenv("CLEANUP_CRON", "every day")
    assert cli("tenders", "ingest", "--once") == 3
    assert "CLEANUP_CRON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKER_INTERVAL_MINUTES", "0"),
        ("DISPATCH_INTERVAL_MINUTES", "soon"),
        ("ARCHIVE_EXPORT_CRON", "61 * * * *"),
        ("TENDERS_TIMEZONE", "Chile/None"),
        ("CHILECOMPRA_API_URL", "mercadopublico.cl"),
        ("EXPO_API_URL", "https://user:key@exp.host"),
        ("HOT_MONTHS", "0"),
        ("ARCHIVE_DROP_AFTER_DAYS", "-1"),
        ("ARCHIVE_ENDPOINT", "here"),
        ("HOT_MONTHS", "99999"),
        ("DELIVERY_RETENTION_DAYS", "9999999"),
        ("ARCHIVE_DROP_AFTER_DAYS", "99999999"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        load(environ={"ESCLUSA_PIPELINES": "tenders", name: value})


def test_schedules_and_singletons() -> None:
    """The schedules of the five cycles, and which are singletons."""
    [plan] = load(environ={"ESCLUSA_PIPELINES": "tenders"}).plans
    assert {c.name: (str(c.schedule), c.singleton) for c in plan.cycles} == {
        "tenders.ingest": ("every 2m", True),
        "tenders.dispatch": ("every 1m", False),
        "tenders.receipt": ("every 1m", False),
        "tenders.cleanup": ("cron 17 3 * * * (America/Santiago)", True),
        "tenders.archive-export": ("cron 47 3 * * * (America/Santiago)", True),
    }
    answer = list(app.checks_(plan.settings))  # type: ignore[misc]
    assert "CHILECOMPRA_TICKET" in answer[0]


async def test_concurrent_delete_and_register_leave_both_rows_or_none(
    trial: TendersTrial, place: Any
) -> None:
    """Concurrent DELETE and POST: no device without preferences, no preferences without device.

    A device without its preferences would get every notification.
    """
    body = {
        "installation_id": "i-1",
        "push_token": "ExponentPushToken[a]",
        "preferences": {"regions": ["Atacama"]},
    }
    for _ in range(25):
        calls = [trial.call("POST", "/devices", body), trial.call("DELETE", "/devices/i-1")]
        answers = await asyncio.gather(
            *calls, trial.call("DELETE", "/devices/i-1"), trial.call("POST", "/devices", body)
        )
        for (status, answer), allowed in zip(
            answers, ((200,), (204, 404), (204, 404), (200,)), strict=True
        ):
            assert status in allowed, answer
        devices, wanted = (
            await place.rows("device_installations", "installation_id"),
            await place.rows("notification_preferences", "installation_id"),
        )
        assert [row["installation_id"] for row in devices] == [
            row["installation_id"] for row in wanted
        ]
    assert await trial.call("POST", "/devices", body)
    assert (await trial.call("DELETE", "/devices/i-1"))[0] == 204
    assert await place.rows("notification_preferences", "installation_id") == []

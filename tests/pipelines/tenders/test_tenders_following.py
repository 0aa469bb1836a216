"""Known tenders: read again while they are open; events beside new ones; silence; daily caps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pipelines.tenders.conftest import NewTrial, TendersTrial

from esclusa.pipelines.tenders.following import events_of
from esclusa.pipelines.tenders.ingestion import working_hours_before
from esclusa.pipelines.tenders.records import Licitacion

API = "/servicios/v1/publico/licitaciones.json"
HOUR = 3601


async def followed(trial: TendersTrial, seconds: float = HOUR) -> Any:
    """Run ingest after the time in which known tenders are read again."""
    await trial.later(seconds)
    run = await trial.run("ingest")
    assert run.outcome == "ok", run.message
    return run


def change(trial: TendersTrial, code: str, **members: Any) -> None:
    """Let the source answer otherwise about a tender; ``FechaCierre`` is one of its dates."""
    detail = trial.chile.details[code]
    if "FechaCierre" in members:
        detail["Fechas"] = detail["Fechas"] | {"FechaCierre": members.pop("FechaCierre")}
    detail |= members


async def events(trial: TendersTrial) -> dict[str, list[str]]:
    """The types of events that each device was sent."""
    await trial.run("dispatch")
    sent: dict[str, list[str]] = {}
    for key in trial.expo.messages:
        name, _, *kind = key.split()
        sent.setdefault(name[18:-1], []).append(kind[0] if kind else "new")
    return sent


async def test_a_known_tender_is_refreshed_while_it_is_open(trial: TendersTrial) -> None:
    """GET shows its present state. Only what the list shows changed costs a call."""
    codes = await trial.publish(5)
    await trial.run("ingest")
    closing = f"{(await trial.now()) + timedelta(days=3):%Y-%m-%d}T18:00:00"
    change(trial, codes[2], FechaCierre=closing, Nombre="Corto", Descripcion="")
    before = trial.chile.counts[f"GET {API}"]
    run = await followed(trial)
    assert (run.counters["read"], run.counters["refreshed"], run.counters["new"]) == (1, 1, 0)
    assert trial.chile.counts[f"GET {API}"] - before == 3  # the day, the open ones, one detail
    status, answer = await trial.call("GET", f"/licitaciones/{codes[2]}")
    assert (status, answer["nombre"]) == (200, "Corto")
    local = datetime.fromisoformat(answer["fecha_cierre"]).astimezone(ZoneInfo("America/Santiago"))
    assert f"{local:%Y-%m-%dT%H:%M:%S}" == closing
    assert answer["descripcion"]  # nothing is taken away
    assert (await trial.run("ingest")).counters["followed"] == 0  # once in an hour


async def test_a_tender_past_its_closing_is_read_again(trial: TendersTrial) -> None:
    """It is no longer among the open ones; its new state is stored, and no device is notified."""
    await trial.device("all", events=["changed", "closing_soon", "awarded"])
    [code] = await trial.publish(1)
    await trial.run("ingest")
    change(trial, code, CodigoEstado=6, Estado="Cerrada")
    await followed(trial, 21 * 86_400)
    tender = await trial.tender(code)
    assert tender is not None
    assert (tender.codigo_estado, tender.estado) == (6, "Cerrada")
    assert await events(trial) == {"all": ["new"]}


async def test_a_tender_that_is_no_longer_open_is_read_again(trial: TendersTrial) -> None:
    """It was published on an earlier day, so that no list names its new state."""
    await trial.device("all", events=["changed"])
    codes = await trial.publish(2)
    await trial.run("ingest")
    change(trial, codes[0], CodigoEstado=18, Estado="Revocada")
    run = await followed(trial, 3 * 86_400)
    assert (run.counters["read"], run.counters["events"]) == (1, 1)
    tender = await trial.tender(codes[0])
    assert tender is not None
    assert tender.estado == "Revocada"


async def test_events_are_sent_to_devices_that_want_them(trial: TendersTrial) -> None:
    await trial.device("none")
    await trial.device("changes", events=["changed"])
    await trial.device("awards", events=["awarded"])
    await trial.device("elsewhere", events=["changed", "awarded"], regions=["Magallanes"])
    [code] = await trial.publish(1)
    await trial.run("ingest")
    assert set(await events(trial)) == {"none", "changes", "awards"}
    change(trial, code, MontoEstimado=5e6, CodigoEstado=19, Estado="Suspendida")
    await followed(trial)
    assert (await events(trial))["changes"] == ["new", "changed"]
    body = trial.expo.texts["ExponentPushToken[changes]"]["body"]
    assert "$5.000.000" in body
    assert "Suspendida" in body
    change(trial, code, CodigoEstado=5, Estado="Publicada")
    await followed(trial)
    change(trial, code, CodigoEstado=6, Estado="Cerrada")
    await followed(trial, 30 * 86_400)
    change(trial, code, CodigoEstado=8, Estado="Adjudicada")
    run = await followed(trial, 2 * 86_400)
    assert run.counters["events"] == 1
    assert await events(trial) == {
        "none": ["new"],
        "changes": ["new", "changed"],
        "awards": ["new", "awarded"],
    }
    # The same events are not written again.
    assert (await followed(trial)).counters["events"] == 0


async def test_a_tender_that_closes_soon_is_announced_once(new_trial: NewTrial) -> None:
    trial: TendersTrial = await new_trial(TENDERS_CLOSING_SOON_HOURS="24")
    await trial.device("late")
    await trial.device("soon", events=["closing_soon"])
    [code] = await trial.publish(1)
    await trial.run("ingest")
    assert (await followed(trial)).counters["events"] == 0
    closing = (
        f"{(await trial.now()).astimezone(ZoneInfo('America/Santiago')) + timedelta(hours=20)}"
    )
    change(trial, code, FechaCierre=f"{closing[:10]}T{closing[11:19]}")
    assert (await followed(trial)).counters["events"] == 1
    assert (await followed(trial)).counters["events"] == 0
    assert await events(trial) == {"late": ["new"], "soon": ["new", "closing_soon"]}
    assert trial.expo.texts["ExponentPushToken[soon]"]["title"] == "⏰ Cierra pronto"


async def test_calls_for_known_tenders_are_limited(new_trial: NewTrial) -> None:
    trial: TendersTrial = await new_trial(TENDERS_REFRESH_CALLS="3")
    codes = await trial.publish(8)
    await trial.run("ingest")
    for code in codes:
        change(trial, code, CodigoEstado=18, Estado="Revocada")
    for expected in 3, 3, 2, 0:
        assert (await followed(trial)).counters["refreshed"] == expected


async def test_an_outage_while_following_does_not_fail_the_run(trial: TendersTrial) -> None:
    codes = await trial.publish(8)
    await trial.run("ingest")
    for code in codes:
        change(trial, code, CodigoEstado=18, Estado="Revocada")
    trial.chile.order(API, times=100, status=503, match="codigo=")
    run = await followed(trial)
    assert (run.counters["read"], run.counters["refreshed"]) == (3, 0)
    trial.chile.faults.clear()
    trial.chile.order(API, times=100, status=503, match="estado=activas")
    run = await followed(trial)
    assert (run.counters["read"], run.counters["followed"]) == (0, 0)
    assert "known tenders were not compared" in (run.message or "")
    trial.chile.faults.clear()
    assert (await trial.run("ingest")).counters["refreshed"] == 8


# silence


async def test_no_new_tender_on_a_working_day_is_an_alert(trial: TendersTrial) -> None:
    """Six working hours; the first new tender ends it."""

    async def alerts() -> list[str]:
        _, answer = await trial.call("GET", "/api/alerts?status=raised")
        return [alert["name"] for alert in answer["items"]]

    now = (await trial.now()).astimezone(ZoneInfo("America/Santiago"))
    monday = (now + timedelta(days=7 - now.weekday())).replace(hour=9, minute=0, second=0)
    await trial.later((monday - now).total_seconds())
    await trial.run("ingest")
    for hours, expected in ((5, []), (0.9, []), (0.5, ["no_new_tenders"]), (1, ["no_new_tenders"])):
        await trial.later(hours * 3600)
        await trial.run("ingest")
        assert await alerts() == expected, hours
    await trial.publish(1)
    assert (await trial.run("ingest")).counters["new"] == 1
    assert await alerts() == []


@pytest.mark.parametrize(
    ("now", "hours", "since"),
    [
        ("2026-11-18T15:00", 6, "2026-11-18T09:00"),  # a Wednesday
        ("2026-11-18T10:00", 6, "2026-11-17T16:00"),
        ("2026-11-16T10:00", 6, "2026-11-13T16:00"),  # a Monday
        ("2026-11-15T10:00", 12, "2026-11-13T08:00"),
    ],
)
def test_working_hours(now: str, hours: float, since: str) -> None:
    zone = ZoneInfo("America/Santiago")
    found = working_hours_before(datetime.fromisoformat(now).replace(tzinfo=zone), hours)
    assert found.astimezone(zone) == datetime.fromisoformat(since).replace(tzinfo=zone)


# which change is an event


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, []),
        ({"nombre": "Otro"}, []),
        ({"fecha_cierre": datetime(2026, 12, 2, 15, tzinfo=UTC)}, ["changed"]),
        ({"monto_estimado": Decimal(6)}, ["changed"]),
        ({"moneda": "UTM"}, ["changed"]),
        ({"codigo_estado": 18}, ["changed"]),
        ({"codigo_estado": 6}, ["changed"]),  # before its time
        ({"codigo_estado": 6, "fecha_cierre": datetime(2026, 11, 1, tzinfo=UTC)}, []),
        ({"codigo_estado": 8}, ["awarded"]),
        # Before, the day was known without a time, which is stored as noon.
        ({"fecha_cierre": datetime(2026, 12, 1, 18, 30, tzinfo=UTC)}, []),
    ],
)
def test_which_changes_are_events(change: dict[str, Any], kinds: list[str]) -> None:
    before = Licitacion(
        codigo_externo="1-1-LP26",
        codigo_estado=5,
        moneda="CLP",
        monto_estimado=Decimal(5),
        fecha_publicacion=datetime(2026, 11, 1, tzinfo=UTC),
        fecha_cierre=datetime(2026, 12, 1, 15, tzinfo=UTC),
    )
    now = datetime(2026, 11, 18, tzinfo=UTC)
    found = list(events_of(before, before.but(**change), now))
    assert [kind.partition(":")[0] for kind in found] == kinds

"""The demo: today's tenders reach 150 devices in spite of throttles, outages and lost devices."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from esclusa import not_null, one_of
from esclusa.http import session
from esclusa.pipelines.tenders.devices import DeviceBody
from esclusa.pipelines.tenders.records import OPEN, Delivery, DeviceInstallation, Licitacion
from esclusa.pipelines.tenders.settings import CHILE

if TYPE_CHECKING:
    from esclusa import Runtime

SIMULATORS = ("chilecompra", "expo")
CYCLES = (
    "tenders.ingest",
    "tenders.dispatch",
    "tenders.receipt",
    "tenders.cleanup",
    "tenders.archive-export",
)
TENDERS, DEVICES, OLD = 12, 150, 300
TICKET = "F8537A18-6766-4DEF-9E59-426B4FEE2844"
SEND, API = "/--/api/v2/push/send", "/servicios/v1/publico/licitaciones.json"
PREFERENCES: tuple[dict[str, Any], ...] = (
    {},
    {"regions": ["Región del Biobío", "region de nuble"]},
    {"categories": ["8512"]},
    {"keywords": ["caminos"]},
    {"amount_min": 5_000_000},
)


def environ(urls: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the settings of the demo: the simulators, short intervals, and minutes of 0.2 s."""
    return {
        "CHILECOMPRA_TICKET": TICKET,
        "CHILECOMPRA_API_URL": urls["chilecompra"],
        "CHILECOMPRA_SITE_URL": urls["chilecompra"],
        "CHILECOMPRA_PACE_SECONDS": "0.1",
        "EXPO_API_URL": urls["expo"],
        "WORKER_INTERVAL_MINUTES": "0.05",
        "DISPATCH_INTERVAL_MINUTES": "0.015",
        "RECEIPT_INTERVAL_MINUTES": "0.015",
        "TENDERS_MINUTE_SECONDS": "0.2",
    }


async def prepare(runtime: Runtime, urls: dict[str, str], folder: Path) -> None:
    """Register devices, publish tenders, order faults, and export a month of old tenders."""
    now = await runtime.engine.clock.sync()
    records = [r for n in range(DEVICES) for r in DeviceBody.model_validate(_body(n)).records(now)]
    await runtime.records.put(records, who="demo")
    broken: dict[str, Any] = {_token(n): {"ticket": "ExpoError", "times": 2} for n in range(20)}
    broken |= {_token(n): {"receipt": "DeviceNotRegistered"} for n in range(20, 28)}
    broken |= {_token(n): {"ticket": "MessageTooBig"} for n in range(28, 31)}
    broken |= {_token(n): {"receipt": "MessageRateExceeded", "times": 1} for n in range(31, 40)}
    throttle = {
        "path": SEND,
        "times": 2,
        "status": 429,
        "headers": {"Retry-After": "1"},
        "body": {"errors": [{"code": "TOO_MANY_REQUESTS"}]},
    }
    refusal = {
        "path": API,
        "times": 2,
        "status": 429,
        "match": "codigo=",
        "body": {"Codigo": 10500},
    }
    day = f"{now.astimezone(ZoneInfo(CHILE)):%Y-%m-%d}"
    orders: list[tuple[str, str, Any]] = [
        ("expo", "/_devices", broken),
        ("expo", "/_faults", [throttle, {"path": SEND, "times": 2, "fault": "html"}]),
        ("chilecompra", "/_faults", refusal),
        ("chilecompra", "/_faults", {"path": "/BuscarLicitacion", "times": 1, "fault": "html"}),
        ("chilecompra", "/_tenders", {"count": TENDERS, "day": day, "site": True}),
    ]
    async with session() as http:
        for simulator, path, body in orders:
            async with http.post(urls[simulator] + path, json=body) as response:
                response.raise_for_status()
    old = [
        Licitacion(
            id=f"{n + 1}-9-LE25",
            codigo_externo=f"{n + 1}-9-LE25",
            nombre=f"Licitación antigua N° {n + 1}",
            fecha_publicacion=now - timedelta(days=500),
            notificada=True,
        )
        for n in range(OLD)
    ]
    await runtime.records.insert(old)
    operations = runtime.operations("demo")
    await operations.run("tenders.cleanup")
    await operations.run("tenders.archive-export")


def _body(n: int) -> dict[str, Any]:
    return {
        "installation_id": f"phone-{n:03}",
        "push_token": _token(n),
        "platform": "android" if n % 3 else "ios",
        "preferences": PREFERENCES[n % len(PREFERENCES)],
    }


def _token(n: int) -> str:
    return f"ExponentPushToken[phone-{n:03}]"


async def finished(runtime: Runtime) -> bool:
    """Whether every tender is written and no delivery is open."""
    return (
        (await runtime.records.count(Licitacion))[0] >= TENDERS
        and await runtime.records.first(Delivery) is not None
        and await runtime.records.first(Delivery, {"status": one_of(*OPEN)}) is None
    )


async def summary(runtime: Runtime) -> list[str]:
    """Return what happened, in a few sentences."""
    tenders = (await runtime.records.count(Licitacion))[0]
    states = {count.state: count.count for count in await runtime.store.tally(Delivery.kind)}
    again = sum(
        [1 async for d in runtime.records.each(Delivery, {"sent_at": not_null}) if d.sends > 1]
    )
    inactive = (await runtime.records.count(DeviceInstallation, {"active": False}))[0]
    exports = await runtime.read_model.records("esclusa_exports", {"table_name": "licitaciones"})
    verified = [export for export in exports.items if export.status == "verified"]
    rows = sum(getattr(export, "row_count", 0) for export in verified)
    invalid = f"{states.get('invalid', 0)} were for {inactive} devices that no longer exist"
    return [
        f"{tenders} new tenders became {sum(states.values())} notifications for {DEVICES} devices",
        f"{states.get('ok', 0)} delivered, {again} of them after a retry",
        f"{states.get('failed', 0)} failed permanently, {invalid}",
        f"{rows} old tenders were archived and exported to {len(verified)} verified Parquet file",
    ]

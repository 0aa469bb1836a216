"""The demo: today's tenders reach 150 phones through throttles, outages and phones that are gone. A minute lasts 0.2 s."""

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
    from esclusa.runtime import Runtime

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


def environ(urls: dict[str, str], folder: Path) -> dict[str, str]:
    """The simulators, and time made fast: the ladder's minutes last 0.2 s, the cycles run every second."""
    return {
        "CHILECOMPRA_TICKET": TICKET, "CHILECOMPRA_API_URL": urls["chilecompra"], "CHILECOMPRA_SITE_URL": urls["chilecompra"],
        "CHILECOMPRA_PACE_SECONDS": "0.1", "EXPO_API_URL": urls["expo"], "WORKER_INTERVAL_MINUTES": "0.05",
        "DISPATCH_INTERVAL_MINUTES": "0.015", "RECEIPT_INTERVAL_MINUTES": "0.015", "TENDERS_MINUTE_SECONDS": "0.2",
    }  # fmt: skip


async def prepare(runtime: Runtime, urls: dict[str, str], folder: Path) -> None:
    """Register the phones, publish the tenders, order the faults; let a month of old tenders become a Parquet file."""
    now = await runtime.engine.clock.sync()
    bodies = [DeviceBody.model_validate(_body(n)) for n in range(DEVICES)]
    await runtime.engine.records.put(
        [record for body in bodies for record in body.records(now)], who="demo"
    )
    broken: dict[str, Any] = {_token(n): {"ticket": "ExpoError", "times": 2} for n in range(20)}
    broken |= {_token(n): {"receipt": "DeviceNotRegistered"} for n in range(20, 28)}
    broken |= {_token(n): {"ticket": "MessageTooBig"} for n in range(28, 31)}
    broken |= {_token(n): {"receipt": "MessageRateExceeded", "times": 1} for n in range(31, 40)}
    faults = [
        {
            "path": SEND,
            "times": 2,
            "status": 429,
            "headers": {"Retry-After": "1"},
            "body": {"errors": [{"code": "TOO_MANY_REQUESTS"}]},
        },
        {"path": SEND, "times": 2, "fault": "html"},
    ]
    async with session() as web:

        async def tell(where: str, body: Any) -> None:
            async with web.post(where, json=body) as answer:
                answer.raise_for_status()

        await tell(f"{urls['expo']}/_devices", broken)
        await tell(f"{urls['expo']}/_faults", faults)
        await tell(
            f"{urls['chilecompra']}/_faults",
            {"path": API, "times": 2, "status": 429, "match": "codigo=", "body": {"Codigo": 10500}},
        )
        await tell(
            f"{urls['chilecompra']}/_faults",
            {"path": "/BuscarLicitacion", "times": 1, "fault": "html"},
        )
        day = f"{now.astimezone(ZoneInfo(CHILE)):%Y-%m-%d}"
        await tell(f"{urls['chilecompra']}/_tenders", {"count": TENDERS, "day": day, "site": True})
    then = now - timedelta(days=500)
    await runtime.engine.records.insert([
        Licitacion(codigo_externo=f"{n + 1}-9-LE25", nombre=f"Licitación antigua N° {n + 1}", fecha_publicacion=then, notificada=True)
        for n in range(OLD)
    ])  # fmt: skip
    operator = runtime.operations("demo")
    await operator.run("tenders.cleanup")
    await operator.run("tenders.archive-export")


def _body(n: int) -> dict[str, Any]:
    wanted: list[dict[str, Any]] = [
        {}, {"regions": ["Región del Biobío", "region de nuble"]}, {"categories": ["8512"]}, {"keywords": ["caminos"]},
        {"amount_min": 5_000_000},
    ]  # fmt: skip
    platform = "android" if n % 3 else "ios"
    return {
        "installation_id": f"phone-{n:03}",
        "push_token": _token(n),
        "platform": platform,
        "preferences": wanted[n % len(wanted)],
    }


def _token(n: int) -> str:
    return f"ExponentPushToken[phone-{n:03}]"


async def finished(runtime: Runtime) -> bool:
    """Every tender is in, and no delivery is on its way."""
    records = runtime.engine.records
    if (await records.count(Licitacion))[0] < TENDERS or not await records.first(Delivery):
        return False
    return await records.first(Delivery, {"status": one_of(*OPEN)}) is None


async def summary(runtime: Runtime) -> list[str]:
    """What a viewer should have seen."""
    records = runtime.engine.records
    states = {count.state: count.count for count in await runtime.store.tally(Delivery.kind)}
    again = sum([1 async for d in records.each(Delivery, {"sent_at": not_null}) if d.sends > 1])
    gone = (await records.count(DeviceInstallation, {"active": False}))[0]
    archives = [
        e
        for e in (
            await runtime.read_model.records("archive_exports", {"table_name": "licitaciones"})
        ).items
        if e.status == "verified"
    ]
    rows = sum(getattr(e, "row_count", 0) for e in archives)
    return [
        f"{(await records.count(Licitacion))[0]} new tenders became {sum(states.values())} notifications for {DEVICES} phones",
        f"{states.get('ok', 0)} delivered, {again} of them only after a retry",
        f"{states.get('failed', 0)} failed for good, {states.get('invalid', 0)} were for {gone} phones that are gone",
        f"{rows} old tenders went to the archive and into {len(archives)} Parquet file, read back and proved",
    ]

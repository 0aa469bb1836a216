"""The pipeline on each SQL store, against both simulators over HTTP, with a shifted clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp
import apsw
import asyncpg
import pytest
from conformance.databases import Database, DatabaseProvider
from pipelines.tenders import origin
from support.s3 import S3Server, moto_server

from esclusa.app import open_runtime, open_store
from esclusa.engine.runs import RunContext
from esclusa.pipelines.tenders.records import (
    NEW_TENDER,
    Delivery,
    DeviceInstallation,
    Licitacion,
    NotificationEvent,
)
from esclusa.settings import load
from esclusa.simulators.chilecompra import ChileCompraSimulator, sample_tender
from esclusa.simulators.expo import ExpoSimulator
from esclusa.web.server import Service, listen

STORES = ("sqlite", "postgres")
# The stores with the tables as the team's own programs make them, taken over.
ORIGINS = ("sqlite-origin", "postgres-origin")
on_origin = pytest.mark.parametrize("place", ORIGINS, indirect=True)


class TendersTrial:
    """A server with the pipeline, and its simulated services."""

    def __init__(
        self,
        runtime: Any,
        chile: ChileCompraSimulator,
        expo: ExpoSimulator,
        url: str,
        web: aiohttp.ClientSession,
    ) -> None:
        self.runtime, self.chile, self.expo, self.url = runtime, chile, expo, url
        self.web = web
        self.records = runtime.engine.records

    async def run(self, cycle: str) -> RunContext:
        run: RunContext = await self.runtime.engine.run_cycle(f"tenders.{cycle}")
        return run

    async def later(self, seconds: float) -> None:
        """Shift the store's time."""
        self.runtime.store.clock_offset += seconds
        await self.runtime.engine.clock.sync()

    async def now(self) -> datetime:
        moment: datetime = await self.runtime.store.now()
        return moment

    async def today(self) -> str:
        return f"{(await self.now()).astimezone(ZoneInfo('America/Santiago')):%Y-%m-%d}"

    async def publish(
        self, count: int = 1, *, site: bool = False, api: bool = True, **changes: Any
    ) -> list[str]:
        """Publish tenders of today; return their codes."""
        details = [
            sample_tender(len(self.chile.details) + n, await self.today()) | changes
            for n in range(count)
        ]
        self.chile.add(*details, site=site, api=api)
        return [detail["CodigoExterno"] for detail in details]

    async def call(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        if body is not None:
            options["json"] = body
        async with self.web.request(method, self.url + path, **options) as answer:
            text = await answer.text()
            return answer.status, (await answer.json(content_type=None)) if text else None

    async def device(self, name: str = "d1", **preferences: Any) -> str:
        """Register a device over HTTP; return its token."""
        token = f"ExponentPushToken[{name}]"
        status, answer = await self.call(
            "POST",
            "/devices",
            {"installation_id": name, "push_token": token, "preferences": preferences},
        )
        assert status == 200, answer
        return token

    async def deliveries(self, **where: Any) -> list[Delivery]:
        return [d async for d in self.records.each(Delivery, where)]

    async def store(self, drafts: Sequence[Delivery]) -> None:
        """Insert deliveries with their devices and events; each names the tender of its event."""
        devices = dict.fromkeys(draft.installation_id for draft in drafts)
        await self.records.insert([DeviceInstallation(installation_id=name) for name in devices])
        tenders = list(dict.fromkeys(draft.notification_event_id for draft in drafts))
        events = [NotificationEvent(type=NEW_TENDER, licitacion_id=id) for id in tenders]
        answers = await self.records.insert(events)
        ids = {tender: answer.id for tender, answer in zip(tenders, answers, strict=True)}
        await self.records.insert(
            [draft.but(notification_event_id=ids[draft.notification_event_id]) for draft in drafts]
        )

    async def delivery(self, name: str = "d1") -> Delivery:
        [found] = await self.deliveries(installation_id=name)
        return found

    async def tender(self, code: str) -> Licitacion | None:
        found: Licitacion | None = await self.records.get(Licitacion, code)
        return found

    async def installation(self, name: str = "d1") -> DeviceInstallation:
        found = await self.records.get(DeviceInstallation, name)
        assert found is not None
        return found  # type: ignore[no-any-return]

    async def sent(self, name: str = "d1", **preferences: Any) -> Delivery:
        """Register a device and send it one delivery."""
        await self.device(name, **preferences)
        await self.publish()
        assert (await self.run("ingest")).counters["new"] == 1
        assert (await self.run("dispatch")).named_counters["sent"] >= 1
        return await self.delivery(name)


NewTrial = Callable[..., Any]


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with moto_server() as server:
        yield server


@pytest.fixture(scope="session")
def databases() -> dict[str, list[Any]]:
    """PostgreSQL databases with the schema: emptying one is much faster than making one."""
    return {"postgres": [], "postgres-origin": []}


async def run_statement(place: Any, statement: str) -> None:
    """Run a statement of another program, with the table's foreign keys."""
    if place.url.startswith("sqlite"):
        connection = apsw.Connection(str(place.path))
        connection.set_busy_timeout(10_000)
        connection.pragma("foreign_keys", True)
        connection.execute(statement)
        connection.close()
    else:
        await place._run(statement)


async def take_over(place: Any) -> None:
    """Make the tables of the team in an empty database, and migrate them."""
    if place.url.startswith("sqlite"):
        for statement in filter(str.strip, origin.SQLITE.split(";\n")):
            place._run(statement)
    else:
        connection = await asyncpg.connect(place.url)
        await connection.execute("; ".join(origin.schema("a")))
        await connection.close()
    environ = {"ESCLUSA_STORE": place.url, "ESCLUSA_PIPELINES": "tenders"}
    async with open_store(load(environ=environ)) as runtime:
        await runtime.migrate(foreign=True)


@pytest.fixture(params=STORES)
async def place(
    request: pytest.FixtureRequest,
    providers: Callable[[str], DatabaseProvider],
    databases: dict[str, list[Any]],
) -> AsyncIterator[Database]:
    store, _, is_origin = request.param.partition("-")
    free = databases.get(request.param)
    if free:
        kept = free.pop()
    else:
        kept = await providers(store).database(empty=True)
        if is_origin:
            await take_over(kept)
    yield kept
    if free is None:
        await kept.remove()
        return
    rows = await kept._run(
        """SELECT schemaname, tablename FROM pg_tables
        WHERE schemaname IN ('public', 'archive', 'esclusa')"""
    )
    names = [
        f'"{r["schemaname"]}"."{r["tablename"]}"' for r in rows if r["tablename"] != "migrations"
    ]
    await kept._run("DO $$ BEGIN " + "".join(f"DELETE FROM {name}; " for name in names) + "END $$")
    free.append(kept)


def environ_of(
    place: Database, folder: Path, chile: str, expo: str, **settings: str
) -> dict[str, str]:
    return {
        "ESCLUSA_STORE": place.url,
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_PIPELINES": "tenders",
        "ESCLUSA_LOG_LEVEL": "error",
        "ESCLUSA_LEASE_SECONDS": "30",
        "ESCLUSA_GRACE_SECONDS": "2",
        "CHILECOMPRA_TICKET": "F8537A18-6766-4DEF-9E59-426B4FEE2844",
        "CHILECOMPRA_API_URL": chile,
        "CHILECOMPRA_SITE_URL": chile,
        "CHILECOMPRA_PACE_SECONDS": "0",
        "EXPO_API_URL": expo,
        **settings,
    }


@pytest.fixture
async def new_trial(place: Database, tmp_path: Path) -> AsyncIterator[NewTrial]:
    """``await new_trial(ARCHIVE_DROP="true")`` starts a server with these settings."""
    async with AsyncExitStack() as stack:
        chile, expo = ChileCompraSimulator(), ExpoSimulator()
        urls = [await chile.start(), await expo.start()]
        stack.push_async_callback(chile.stop)
        stack.push_async_callback(expo.stop)

        async def new(**settings: str) -> TendersTrial:
            runtime = await stack.enter_async_context(
                open_runtime(load(environ=environ_of(place, tmp_path, *urls, **settings)))
            )
            service = Service(runtime, worker=False)
            listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(service.run(listen("127.0.0.1", 0), listening.set_result))

            async def stop() -> None:
                service.stop()
                await task

            stack.push_async_callback(stop)
            await asyncio.wait([task, listening], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            web = await stack.enter_async_context(aiohttp.ClientSession())
            return TendersTrial(runtime, chile, expo, f"http://127.0.0.1:{await listening}", web)

        yield new


@pytest.fixture
async def trial(new_trial: NewTrial) -> TendersTrial:
    made: TendersTrial = await new_trial()
    return made

"""A small pipeline with routes, views and cycles, and a server over it on a free port."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from fastapi import APIRouter, HTTPException, Request, Response
from multidict import CIMultiDict
from pydantic import BaseModel
from yarl import URL

from esclusa import (
    ActionContext,
    App,
    Attempt,
    Backoff,
    Budget,
    Failure,
    Lifecycle,
    Outcome,
    Permanent,
    Record,
    Throttled,
    To,
    Window,
)
from esclusa.app import open_runtime
from esclusa.runtime import Runtime
from esclusa.settings import load
from esclusa.web import SELF_AUTHENTICATED, CurrentCaller, own_credentials
from esclusa.web.server import Service, listen


class Item(Record, table="items", key=("shop", "code")):
    shop: str
    code: str
    size: int | None = None
    note: str | None = None
    meta: dict[str, Any] = {}

    lifecycle = Lifecycle("""
        pending -> working -> done
        working -> pending | failed
        failed -> pending
    """)


class Sheet(Record, table="sheets", archive=True):
    title: str
    access_token: str | None = None
    options: dict[str, Any] = {}

    lifecycle = Lifecycle("draft -> filed")


class ShopSettings(BaseModel):
    misconfigured: str = ""


app = App("shop", settings=ShopSettings, records=[Sheet])


class Gate:
    """Holds the cycle ``shop.slow`` until a test opens it, in any event loop."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()


gates: list[Gate] = []


@app.stage(
    Item,
    take="pending",
    hold="working",
    exhausted="failed",
    retry=Backoff(tries=3),
    budget=Budget("supplier", Window("day", 1000)),
)
async def work(item: Item, at: Attempt) -> Outcome:
    if item.note == "logged":
        at.log("asked the supplier", level="warning", size=item.size, api_key="hunter22")
        at.log("a detail", level="debug")
    if item.note == "bad":
        raise Permanent("it cannot be sold", type="bad_item")
    if item.note and item.note.startswith("oops: "):
        raise KeyError(item.note)
    if item.note and item.note.startswith("bad: "):
        raise Permanent(item.note, type="bad_item")
    if item.note and item.note.startswith("later: "):
        raise Failure(item.note)
    if item.note == "assign":
        item.note = "lost"
    return To("done", size=(item.size or 0) + 1)


@app.cycle(singleton=True)
async def slow(run: Any) -> None:
    gates[-1].begun.set()
    await gates[-1].open.wait()
    run.count("slept")


@app.cycle()
async def stock(run: Any) -> None:
    await run.drain("work", limit=run.limit)
    run.count("asked", int(run.params.get("asked", 0)))


@app.action(Item, "Sell again", where={"status": "failed"})
async def sell_again(item: Item, at: ActionContext) -> To | str:
    """Try to sell failed items again."""
    return To("pending") if item.size else "it has no size"


@app.view(
    "Items that cannot be sold",
    es="Artículos que no se venden",
    of=Item,
    where={"status": "failed"},
)
async def unsold(records: Any, limit: int, after: str | None) -> dict[str, Any]:
    page = await records.find(Item, {"status": "failed"}, limit=limit, after=after)
    return {
        "items": [
            {"id": i.id, "code": i.code, "why": (i.last_error or {}).get("type")}
            for i in page.items
        ],
        "next": page.next,
    }


@app.routes
def routes(runtime: Runtime) -> APIRouter:
    router = APIRouter(prefix="/shop")

    @router.get("/hello")
    async def hello() -> dict[str, str]:
        return {"store": runtime.store.url.partition(":")[0]}

    @router.post("/hook", openapi_extra=SELF_AUTHENTICATED)
    async def hook(request: Request) -> dict[str, bool]:
        await request.body()
        return {"received": True}

    @router.get("/hook")
    async def get_hook() -> dict[str, bool]:
        return {"active": True}

    @router.get("/products/{code}")
    async def product(code: str) -> dict[str, str]:
        return {"code": code}

    @router.post("/parcels", openapi_extra=own_credentials(anonymous=True))
    async def add_parcel(caller: CurrentCaller) -> dict[str, str | None]:
        return {"who": caller.who, "role": caller.role}

    @router.post("/parcels/{code}", openapi_extra=own_credentials())
    async def change_parcel(code: str, caller: CurrentCaller) -> dict[str, str | None]:
        if caller.role is None and caller.credential != f"parcel-{code}":
            raise HTTPException(401, "this credential is not of this parcel")
        return {"who": caller.who, "role": caller.role}

    visits: list[int] = []

    @router.post("/visits")
    async def add_visit() -> dict[str, int]:
        visits.append(1)
        return {"visits": len(visits)}

    @router.delete("/visits", status_code=204)
    async def delete_visits() -> None:
        visits.clear()

    @router.get("/boom")
    async def boom() -> None:
        raise RuntimeError("the password is hunter2")

    @router.get("/block")
    async def block() -> None:
        time.sleep(3)

    @router.get("/large")
    async def large() -> Response:
        return Response(b"x" * 24_000_000)

    @router.post("/read-late")
    async def read_late(request: Request) -> dict[str, int]:
        await asyncio.sleep(2.5)
        return {"length": len(await request.body())}

    @router.get("/throttled")
    async def throttled() -> None:
        raise Throttled("the provider asks to wait", after=12.2, stage=False)

    return router


@app.checks
def checks(settings: ShopSettings) -> Iterator[str]:
    if settings.misconfigured:
        yield settings.misconfigured


class Reply:
    """A response that was read to its end."""

    def __init__(self, status: int, headers: Any, text: str) -> None:
        self.status, self.headers, self.text = status, headers, text

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    def problem(self, status: int) -> dict[str, Any]:
        """Assert that it is a problem of this status with all members; return its body."""
        assert self.status == status, self.text
        assert self.headers["content-type"] == "application/problem+json"
        body: dict[str, Any] = self.json
        assert body["status"] == status
        assert body["title"]
        assert body["detail"]
        assert body["type"]
        return body


class Client:
    def __init__(
        self, session: aiohttp.ClientSession, url: str, runtime: Runtime, service: Service
    ) -> None:
        self._session = session
        self.url = url
        self.runtime = runtime
        self.service = service

    async def call(self, method: str, path: str, token: str | None = None, **options: Any) -> Reply:
        headers: CIMultiDict[str] = CIMultiDict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        async with self._session.request(
            method, URL(self.url + path, encoded=True), headers=headers, **options
        ) as answer:
            return Reply(answer.status, answer.headers, await answer.text(errors="replace"))

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Reply:
        if body is not None:
            options["json"] = body
        return await self.call("POST", path, **options)

    async def send_raw(self, request: bytes) -> bytes:
        """Send these bytes; return what the server sends until it closes the connection."""
        url = URL(self.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        try:
            writer.write(request)
            async with asyncio.timeout(20):
                return await reader.read()
        finally:
            writer.close()

    async def add(self, *items: dict[str, Any]) -> None:
        answer = await self.post("/api/records/items", list(items))
        assert answer.json["errors"] == []


@asynccontextmanager
async def served(
    folder: Path,
    *,
    store: str = "",
    worker: bool = False,
    tokens: str = "",
    fault: str = "",
    environ: dict[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """A server with its own store, stopped in order at the end."""
    environ = (environ or {}) | {
        "ESCLUSA_STORE": store or f"sqlite:///{folder / 'shop.db'}",
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_PIPELINES": "shop",
        "ESCLUSA_API_TOKENS": tokens,
        "ESCLUSA_LEASE_SECONDS": "5",
        "ESCLUSA_GRACE_SECONDS": "2",
        "ESCLUSA_LOG_LEVEL": "error",
        "SHOP_MISCONFIGURED": fault,
    }
    settings = load(environ=environ, apps=lambda _: app)
    gates.append(Gate())
    async with open_runtime(settings) as runtime:
        service = Service(runtime, worker=worker)
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(
            service.run(listen("127.0.0.1", 0), listening.set_result, **options)
        )
        await asyncio.wait([task, listening], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        async with aiohttp.ClientSession() as session:
            yield Client(session, f"http://127.0.0.1:{await listening}", runtime, service)
        gates[-1].open.set()
        service.stop()
        await task

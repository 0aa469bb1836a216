"""What holds for every route: problems, headers, path prefixes, health, OpenAPI, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openapi_spec_validator import validate
from web.shop import Client, served

from esclusa.model import errors
from esclusa.model.budget import BudgetEmpty
from esclusa.web import problems
from esclusa.web.api import health
from esclusa.web.console import context
from esclusa.web.server import Service, create_app, listen, serve


async def test_unknown_path_and_wrong_method(shop: Client) -> None:
    assert "openapi.json" in (await shop.get("/nowhere")).problem(404)["detail"]
    answer = await shop.call("DELETE", "/api/kinds")
    assert "it accepts GET, HEAD" in answer.problem(405)["detail"]
    assert answer.headers["allow"] == "GET, HEAD"


async def test_allow_names_the_methods_of_every_route_at_the_path(shop: Client) -> None:
    assert (await shop.call("DELETE", "/api/records/items")).headers["allow"] == "GET, HEAD, POST"
    assert (await shop.call("OPTIONS", "/api/cycles/shop.stock/run")).headers["allow"] == "POST"


async def test_every_get_route_answers_head(shop: Client) -> None:
    for path in (
        "/",
        "/console/records",
        "/api/kinds",
        "/api/records/items?limit=1",
        "/metrics",
        "/openapi.json",
    ):
        answer = await shop.call("HEAD", path)
        assert (answer.status, answer.text) == (200, ""), path
        assert int(answer.headers["content-length"]) > 0, path
    assert (await shop.call("HEAD", "/api/records/items/nobody")).status == 404
    assert (await shop.call("HEAD", "/api/cycles/shop.stock/run")).status == 405


async def test_head_of_an_endless_response_ends(shop: Client) -> None:
    await shop.runtime.artifacts.put("photos/1.png", b"picture")
    async with asyncio.timeout(5):
        for path, media_type in (
            ("/console/live", "text/event-stream"),
            ("/api/artifacts/photos/1.png", "image/png"),
        ):
            requests = (
                f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
                "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            answer = await shop.send_raw(requests.encode())
            head, _, rest = answer.partition(b"\r\n\r\n")
            assert f"content-type: {media_type}".encode() in head.lower()
            assert rest.endswith(b'{"status":"ok"}')


@pytest.mark.parametrize(
    "sent",
    [
        "GET /api/kinds HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n",
        "GET /api/kinds HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST /api/records/items HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\n",
        "GET /api/kinds HTTP/1.1\r\n\r\n",
        "GET  /a path/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\r\n\r\n",
    ],
    ids=["no length", "two lengths", "bad chunk", "no host", "spaces", "tls"],
)
async def test_a_malformed_request_is_answered_with_a_problem(shop: Client, sent: str) -> None:
    answer = await shop.send_raw(sent.encode("latin-1"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 "), answer
    assert b"content-type: application/problem+json" in head.lower()
    assert json.loads(body)["type"] == "urn:esclusa:problem:bad-request"
    assert (await shop.get("/api/kinds")).status == 200


async def test_an_unexpected_error_is_answered_without_its_message(shop: Client) -> None:
    answer = await shop.get("/shop/boom")
    problem = answer.problem(500)
    assert "hunter2" not in answer.text
    assert "log" in problem["detail"]
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_unavailable_store(shop: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(*_: object, **__: object) -> None:
        raise errors.StoreUnavailable("shop.db: disk I/O error")

    monkeypatch.setattr(type(shop.runtime.store), "tally", unavailable)
    answer = await shop.get("/api/kinds")
    assert "disk I/O error" in answer.problem(503)["detail"]
    assert answer.headers["retry-after"] == "5"


async def test_throttled_by_an_external_service(shop: Client) -> None:
    answer = await shop.get("/shop/throttled")
    answer.problem(503)
    assert answer.headers["retry-after"] == "13"


def test_every_error_has_a_problem() -> None:
    arguments: dict[type, tuple[Any, ...]] = {
        errors.SettingsError: ("x", ["SOME_KEY is missing"]),
        errors.FaultsError: ("x", ["y"]),
        errors.UnknownState: ("x", "a", ["b"]),
        errors.UndeclaredMove: ("x", "a", "b", ["c"]),
        errors.UndeclaredState: ("x", "a", "t"),
    }

    def made(kind: type) -> Any:
        given = next((a for base, a in arguments.items() if issubclass(kind, base)), ("x",))
        return kind(*given, **({"after": 1} if kind is errors.Throttled else {}))

    status = {}
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.EsclusaError):
            status[name] = problems.error_response(made(kind)).status_code
    assert {n for n, s in status.items() if s == 404} == {"NotFound", "ArtifactMissing"}
    assert {n for n, s in status.items() if s == 409} == {
        "UndeclaredMove",
        "UnknownState",
        "UndeclaredEffect",
        "UndeclaredState",
        "AlreadyRunning",
        "Paused",
        "ArtifactExists",
    }
    assert {n for n, s in status.items() if s == 500} >= {
        "EsclusaError",
        "DeclarationError",
        "SchemaError",
        "SchemaBehind",
    }
    assert status["SettingsError"] == 503
    assert b"SOME_KEY is missing" in problems.error_response(made(errors.SettingsError)).body
    from datetime import UTC, datetime

    assert (
        problems.error_response(BudgetEmpty("b", datetime(2026, 1, 1, tzinfo=UTC))).headers[
            "retry-after"
        ]
        == "Thu, 01 Jan 2026 00:00:00 GMT"
    )


async def test_security_headers_on_every_answer(shop: Client) -> None:
    for path in ("/api/kinds", "/nowhere", "/healthz", "/metrics", "/openapi.json"):
        headers = (await shop.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


async def test_a_pipelines_routes_are_served(shop: Client) -> None:
    assert (await shop.get("/shop/hello")).json == {"store": "sqlite"}


# health


async def test_ready(shop: Client) -> None:
    answer = (await shop.get("/readyz")).json
    assert answer["status"] == "ready"
    assert {c["name"]: c["verdict"] for c in answer["checks"]} == {
        "store": "ok",
        "schema": "ok",
        "states": "ok",
        "artifacts": "ok",
        "shop": "ok",
    }


async def test_health_probes_may_use_head(shop: Client) -> None:
    for path in ("/healthz", "/readyz"):
        answer = await shop.call("HEAD", path)
        assert (answer.status, answer.text) == (200, "")


async def test_not_ready_when_a_pipeline_reports_a_fault(tmp_path: Path) -> None:
    async with served(tmp_path, fault="the shop has no key") as shop:
        answer = await shop.get("/readyz")
        assert answer.status == 503
        assert answer.json["status"] == "not ready"
        assert {
            "name": "shop",
            "verdict": "fail",
            "text": "the shop has no key",
            "do": "",
        } in answer.json["checks"]
        assert (await shop.get("/healthz")).status == 200


async def test_not_ready_when_the_store_is_unavailable(
    shop: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object) -> None:
        raise errors.StoreUnavailable("postgresql://user@secret-host does not answer")

    monkeypatch.setattr(type(shop.runtime.store), "now", unavailable)
    answer = await shop.get("/readyz")
    assert answer.status == 503
    assert "secret-host" not in answer.text  # anybody may call /readyz
    assert {c["name"]: c["verdict"] for c in answer.json["checks"]}["store"] == "fail"
    monkeypatch.undo()
    assert (await shop.get("/readyz")).status == 200


async def test_a_store_that_hangs_is_not_awaited(
    shop: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver whose server vanished may not even react to cancellation."""
    released, calls = asyncio.Event(), []

    async def hangs(*_: object, **__: object) -> None:
        calls.append(1)
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()
        raise errors.StoreUnavailable("it was unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(health, "CHECK_TIMEOUT", 0.05)
        patch.setattr(context, "PAGE_TIMEOUT", 0.05)
        for name in ("now", "find", "tally", "count", "backlog", "usage"):
            patch.setattr(shop.runtime.store, name, hangs, raising=False)
        ready = await shop.get("/readyz")
        assert ready.status == 503
        assert {
            "name": "store",
            "verdict": "fail",
            "text": "no answer within 0.05 s",
            "do": "",
        } in ready.json["checks"]
        assert (await shop.get("/metrics")).status == 200
        page = await shop.call("GET", "/console/runs", headers={"Accept-Language": "es"})
        assert page.status == 503
        assert "sin respuesta en 0.05 s" in page.text
        assert (
            "sin respuesta en 0.05 s"
            in (await shop.call("GET", "/console/health", headers={"Accept-Language": "es"})).text
        )
        assert len(calls) > 2
    released.set()
    assert (await shop.get("/readyz")).status == 200


async def test_metrics_show_what_is_due(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1"}, {"shop": "a", "code": "2"})
    answer = await shop.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'esclusa_due{stage="shop.work"} 2.0' in answer.text
    assert 'esclusa_worker_inflight{stage="shop.work"} 0.0' in answer.text
    assert 'esclusa_budget_limit{budget="supplier",window="day"} 1000.0' in answer.text
    await shop.post("/api/cycles/shop.stock/run")
    text = (await shop.get("/metrics")).text
    assert 'esclusa_runs_total{cycle="shop.stock",outcome="ok"} 1.0' in text
    assert 'esclusa_due{stage="shop.work"} 2.0' in text  # reused for a few seconds


# path prefix


async def test_a_prefix_by_setting(tmp_path: Path) -> None:
    async with served(tmp_path, root_path="/lock", tokens="a=aaaaaaaaaaaaaaaaaaaa") as shop:
        for path in ("/lock/healthz", "/healthz"):  # kept or removed by the proxy
            assert (await shop.get(path)).status == 200
        (await shop.get("/lock/api/kinds")).problem(401)
        assert (await shop.get("/lock/api/kinds", token="a" * 20)).status == 200
        assert (await shop.get("/lock/openapi.json", token="a" * 20)).json["servers"] == [
            {"url": "/lock"}
        ]
        assert (await shop.post("/lock/shop/hook")).json == {"received": True}
        for path in ("/lock", "/lock/"):
            assert "<h1>Map</h1>" in (await shop.get(path, token="a" * 20)).text
        (await shop.get("/other/api/kinds", token="a" * 20)).problem(404)
        assert (await shop.get("/lock/nothing", token="a" * 20)).problem(404)[
            "instance"
        ] == "/lock/nothing"


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        ("/lock", "/lock"),
        ("/a/b/", "/a/b"),
        ("/api", "/api"),
        ("//evil.example", None),
        ("/..", None),
        ("x", None),
    ],
)
async def test_a_prefix_by_header(shop: Client, prefix: str, url: str | None) -> None:
    answer = await shop.get("/openapi.json", headers={"X-Forwarded-Prefix": prefix})
    assert answer.json.get("servers") == ([{"url": url}] if url else None)
    assert (await shop.get("/api/kinds", headers={"X-Forwarded-Prefix": prefix})).status == 200


async def test_a_prefix_is_trusted_from_a_proxy_only(tmp_path: Path) -> None:
    async with served(tmp_path, proxies="192.0.2.1") as shop:
        assert (
            "servers"
            not in (await shop.get("/openapi.json", headers={"X-Forwarded-Prefix": "/lock"})).json
        )


# OpenAPI


async def test_the_openapi_document_is_valid_and_complete(shop: Client) -> None:
    document = (await shop.get("/openapi.json")).json
    validate(document)
    assert "servers" not in document
    paths = document["paths"]
    assert {
        "/api/kinds",
        "/api/kinds/{table}",
        "/api/records/{table}",
        "/api/records/{table}/{id}",
        "/api/records/{table}/{id}/history",
        "/api/records/{table}/{id}/why",
        "/api/records/{table}/move",
        "/api/records/{table}/retry",
        "/api/runs",
        "/api/runs/{id}",
        "/api/budgets",
        "/api/dead-letters",
        "/api/dead-letters/redrive",
        "/api/dead-letters/discard",
        "/api/cycles",
        "/api/cycles/{name}/run",
        "/api/cycles/{name}/pause",
        "/api/cycles/{name}/resume",
        "/api/alerts",
        "/api/workers",
        "/api/audit",
        "/api/status",
        "/api/stages",
        "/healthz",
        "/readyz",
        "/metrics",
        "/shop/hello",
        "/shop/hook",
    } <= set(paths)
    ids = [op["operationId"] for ops in paths.values() for op in ops.values()]
    assert len(ids) == len(set(ids))
    assert "HTTPValidationError" not in str(document)
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert operation["summary"], path
            assert "default" not in operation["responses"], "every status is listed"
            assert "application/problem+json" in str(operation["responses"]["500"])
            names = [p["name"] for p in operation.get("parameters", [])]
            if path.startswith("/api") and method == "post":
                assert "Idempotency-Key" in names
                assert {"200", "401", "403", "422"} <= set(operation["responses"])
    assert paths["/healthz"]["get"]["security"] == paths["/shop/hook"]["post"]["security"] == []
    assert document["security"] == [{"token": []}]


# start and stop


async def test_sigterm_stops_in_order(tmp_path: Path) -> None:
    async with served(tmp_path) as outer:
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(
            serve(outer.runtime, "127.0.0.1", 0, worker=True, started=listening.set_result)
        )
        port = await listening
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/healthz") as answer,
        ):
            assert answer.status == 200
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            await task
        workers = (await outer.get("/api/workers")).json["items"]
        assert [w["status"] for w in workers] == ["stopped"]


async def test_a_stop_during_startup_is_orderly(shop: Client) -> None:
    service = Service(shop.runtime, worker=True)
    service.stop()
    async with asyncio.timeout(10):
        await service.run(listen("127.0.0.1", 0))
    assert [w["status"] for w in (await shop.get("/api/workers")).json["items"]] == ["stopped"]


async def test_the_console_is_prepared_before_the_first_visit(
    shop: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    tally = type(shop.runtime.store).tally

    async def watched(self: Any, kind: Any, *cap: Any) -> Any:
        counted.append(kind.table)
        return await tally(self, kind, *cap)

    monkeypatch.setattr(type(shop.runtime.store), "tally", watched)
    app = create_app(shop.runtime)
    await app.state.prepare()
    assert {"items", "sheets"} <= set(counted)


async def test_the_server_starts_while_the_store_is_unavailable(
    shop: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object, **__: object) -> None:
        raise errors.StoreUnavailable("shop.db: disk I/O error")

    monkeypatch.setattr(type(shop.runtime.store), "tally", unavailable)
    await create_app(shop.runtime).state.prepare()


async def test_serve_refuses_a_public_address_without_tokens(shop: Client) -> None:
    with pytest.raises(errors.SettingsError, match="ESCLUSA_API_TOKENS"):
        await serve(shop.runtime, "0.0.0.0", 0, worker=False)

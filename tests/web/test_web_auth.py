"""Authentication: tokens, roles, failed attempts, loopback."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from web.shop import Client, served

from esclusa.model.errors import SettingsError
from esclusa.settings import ApiToken, is_loopback
from esclusa.web.auth.tokens import FailedAttempts, find_token, hash_tokens, require_tokens
from esclusa.web.server import listen

READ, OPERATE = "r" * 32, "o" * 32


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Client]:
    async with served(
        tmp_path, tokens=f"dashboard={READ}:read,operator={OPERATE}:operate"
    ) as client:
        yield client


READ_PATHS = [
    "/api/kinds",
    "/api/kinds/items",
    "/api/records/items",
    "/api/runs",
    "/api/budgets",
    "/api/dead-letters",
    "/api/cycles",
    "/api/alerts",
    "/api/workers",
    "/api/audit",
    "/api/status",
    "/api/stages",
    "/metrics",
    "/openapi.json",
    "/shop/hello",
    "/shop/hook",
]
WRITE_PATHS = [
    "/api/records/items",
    "/api/records/items/move",
    "/api/records/items/retry",
    "/api/dead-letters/redrive",
    "/api/dead-letters/discard",
    "/api/cycles/shop.stock/run",
    "/api/cycles/shop.stock/pause",
    "/api/cycles/shop.stock/resume",
]


async def test_every_route_needs_a_token(secured: Client) -> None:
    for method, path in [
        *(("GET", p) for p in READ_PATHS),
        *(("POST", p) for p in WRITE_PATHS),
        ("GET", "/nowhere"),
        ("PUT", "/api/kinds"),
    ]:
        answer = await secured.call(method, path)
        answer.problem(401)
        assert answer.headers["www-authenticate"] == 'Bearer realm="esclusa"'
    wrong = await secured.get("/api/kinds", token="x" * 32)
    wrong.problem(401)
    assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
    (await secured.get("/api/kinds", headers={"Authorization": f"Basic {READ}"})).problem(401)
    (await secured.get("/api/kinds", headers={"Authorization": "Bearer "})).problem(401)
    (await secured.get(f"/api/kinds?token={READ}")).problem(401)


async def test_the_role_read_reads_and_the_role_operate_writes(secured: Client) -> None:
    for path in READ_PATHS:
        assert (await secured.get(path, token=READ)).status == 200, path
        assert (await secured.get(path, token=OPERATE)).status == 200, path
    for path in WRITE_PATHS:
        problem = (await secured.post(path, {}, token=READ)).problem(403)
        assert "role operate" in problem["detail"]
        assert (await secured.post(path, {}, token=OPERATE)).status not in (401, 403), path
    assert (
        await secured.get("/api/kinds", headers={"Authorization": f"bearer  {READ}"})
    ).status == 200


async def test_the_role_read_cannot_learn_secrets(secured: Client) -> None:
    """Neither by reading nor by filtering and ordering; the role operate can."""
    sheet = {
        "id": "s",
        "title": "t",
        "access_token": "hunter2",
        "options": {"password": "hunter3", "size": 3},
    }
    await secured.post("/api/records/sheets", [sheet], token=OPERATE)
    stored = (await secured.get("/api/records/sheets/s", token=OPERATE)).json
    assert (stored["access_token"], stored["options"]) == (
        "hunter2",
        {"password": "hunter3", "size": 3},
    )
    for path in ("/api/records/sheets/s", "/api/records/sheets", "/api/search?q=s"):
        assert "hunter" not in (await secured.get(path, token=READ)).text, path
    shown = (await secured.get("/api/records/sheets/s", token=READ)).json
    assert (shown["title"], shown["access_token"], shown["options"]) == (
        "t",
        "***",
        {"password": "***", "size": 3},
    )
    for question in (
        "access_token=hunter2",
        "access_token__gte=h",
        "access_token__null=false",
        "order=access_token",
        "order=-access_token",
    ):
        assert (
            "secret"
            in (await secured.get(f"/api/records/sheets?{question}", token=READ)).problem(400)[
                "detail"
            ]
        )
        assert (
            await secured.get(f"/api/records/sheets?{question}", token=OPERATE)
        ).status == 200, question


async def test_open_paths_and_self_authenticated_webhooks_need_no_token(secured: Client) -> None:
    assert (await secured.get("/healthz")).json == {"status": "ok"}
    assert (await secured.get("/readyz")).status == 200
    assert (await secured.post("/shop/hook")).json == {"received": True}
    for path in ("/healthz/", "//healthz", "/healthz/../api/kinds", "/shop/hook/", "/shop/hook%2F"):
        assert (await secured.post(path)).status == 401, path


async def test_bodies_of_unknown_callers_are_small(secured: Client) -> None:
    """Many of them at a time must not fill the memory."""
    large, small = b"x" * 5_000_000, b"x" * 1_000_000

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield small

    for body in (io.BytesIO(large), chunks()):
        problem = (await secured.call("POST", "/shop/hook", data=body)).problem(413)
        assert "larger than 4 MB" in problem["detail"]
    assert (await secured.call("POST", "/shop/hook", data=small)).status == 200
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    sign_in = await secured.call("POST", "/console/sign-in", data=io.BytesIO(large), headers=form)
    assert sign_in.status == 413
    row = json.dumps([{"shop": "a", "code": "1", "note": large.decode()}]).encode()
    added = await secured.call("POST", "/api/records/items", OPERATE, data=io.BytesIO(row))
    assert added.json["created"] == 1


async def test_the_audit_names_the_token(secured: Client) -> None:
    await secured.post("/api/cycles/shop.stock/pause", {"reason": "inventory"}, token=OPERATE)
    audit = (await secured.get("/api/audit", token=READ)).json["items"][0]
    assert (audit["who"], audit["verb"], audit["reason"]) == ("api:operator", "pause", "inventory")


async def test_failed_attempts_are_limited(secured: Client) -> None:
    assert (await secured.get("/api/kinds", token=OPERATE)).status == 200
    for _ in range(20):
        (await secured.get("/api/kinds", token="wrong")).problem(401)
    answer = await secured.get("/api/kinds", token="wrong")
    answer.problem(429)
    assert 1 <= int(answer.headers["retry-after"]) <= 3
    # A right token is not accepted either: that would reveal a right guess.
    (await secured.get("/api/kinds", token=READ)).problem(429)
    # A token that was accepted from this address before still is.
    assert (await secured.get("/api/kinds", token=OPERATE)).status == 200
    other = await secured.get("/api/kinds", token=READ, headers={"X-Forwarded-For": "203.0.113.9"})
    assert other.status == 200  # a proxy on this machine forwards another caller
    assert (await secured.get("/healthz")).status == 200


@pytest.mark.parametrize(
    ("proxies", "added"),
    [
        ("*", "198.51.100.7"),
        ("*", "198.51.100.7:4711"),
        ("*, 192.0.2.0/24", "198.51.100.7, 192.0.2.9"),
        ("127.0.0.1, 192.0.2.9", "[2001:db8::7]:4711, 192.0.2.9"),
    ],
    ids=["any peer", "with port", "two proxies", "listed peer"],
)
async def test_a_made_up_forwarded_address_does_not_evade_the_limit(
    tmp_path: Path, proxies: str, added: str
) -> None:
    """A caller writes what it likes before the address that the trusted proxy adds."""
    async with served(tmp_path, tokens=f"operator={OPERATE}", proxies=proxies) as secured:
        for n in range(60):  # on a slow machine an attempt every three seconds is free
            made_up = f"203.0.113.{n}"
            headers = (
                [("X-Forwarded-For", made_up), ("X-Forwarded-For", added)]
                if n % 2
                else [("X-Forwarded-For", f"{made_up}, {added}")]
            )
            answer = await secured.get("/api/kinds", token="wrong", headers=headers)
            if answer.status == 429:
                break
        assert (answer.status, n >= 20) == (429, True)
        headers = [("X-Forwarded-For", "203.0.113.1, 198.51.100.8")]
        assert (await secured.get("/api/kinds", token=OPERATE, headers=headers)).status == 200


async def test_forwarded_headers_of_others_are_ignored(tmp_path: Path) -> None:
    async with served(tmp_path, tokens=f"operator={OPERATE}", proxies="192.0.2.1") as secured:
        for n in range(20):
            headers = {"X-Forwarded-For": f"203.0.113.{n}"}
            (await secured.get("/api/kinds", token="wrong", headers=headers)).problem(401)
        (await secured.get("/api/kinds", token="wrong")).problem(429)


def test_failed_attempts_expire_and_use_bounded_memory() -> None:
    now = 0.0
    failed_attempts = FailedAttempts(burst=3, seconds=10, addresses=5, clock=lambda: now)
    for _ in range(3):
        assert failed_attempts.wait("198.51.100.1") == 0
        failed_attempts.add_failure("198.51.100.1")
    assert failed_attempts.wait("198.51.100.1") == 10
    assert failed_attempts.wait("198.51.100.2") == 0
    now = 10.0
    assert failed_attempts.wait("198.51.100.1") == 0
    for n in range(100):
        failed_attempts.add_failure(f"192.0.2.{n}")
    assert len(failed_attempts) == 5
    for n in range(3):
        failed_attempts.add_failure(f"2001:db8::{n}")
    assert failed_attempts.wait("2001:db8::ffff") > 0  # one /64 network counts as one caller
    assert failed_attempts.wait("2001:db8:0:1::1") == 0


def test_tokens_are_compared_by_their_hashes() -> None:
    given = [ApiToken(name, _secret(value), "read") for name, value in (("a", "one"), ("b", "two"))]
    tokens = hash_tokens(given)
    assert find_token(tokens, "two") == tokens[1]
    assert find_token(tokens, "one") == tokens[0]
    assert find_token(tokens, "three") is None
    assert find_token(tokens, "ñ\udcff") is None
    assert "one" not in repr(tokens)


def _secret(value: str) -> object:
    from pydantic import SecretStr

    return SecretStr(value)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.4", False),
        ("localhost.example.com", False),
        ("", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_without_tokens_the_server_listens_on_loopback_only() -> None:
    with pytest.raises(SettingsError, match="ESCLUSA_API_TOKENS"):
        require_tokens("0.0.0.0", ())
    require_tokens("127.0.0.1", ())
    require_tokens("0.0.0.0", hash_tokens([ApiToken("a", _secret("x"))]))


def test_a_port_in_use_is_reported() -> None:
    first = listen("127.0.0.1", 0)
    try:
        with pytest.raises(SettingsError, match=r"PORT: cannot listen on 127\.0\.0\.1:\d+"):
            listen("127.0.0.1", first[0].getsockname()[1])
        with pytest.raises(SettingsError, match="cannot listen on"):
            listen("no.such.host.invalid", 0)
    finally:
        first[0].close()


def test_the_server_listens_on_every_address_of_a_name() -> None:
    sockets = listen("localhost", 0)
    try:
        assert len({each.getsockname()[1] for each in sockets}) == 1
        # Otherwise Nagle's algorithm delays every answer by 40 ms.
        assert all(each.proto == socket.IPPROTO_TCP for each in sockets)
    finally:
        for each in sockets:
            each.close()


async def test_without_tokens_only_this_machine_is_served(shop: Client) -> None:
    assert (await shop.get("/api/kinds")).status == 200
    assert (
        "only this machine"
        in (await shop.get("/api/kinds", headers={"Host": "evil.example"})).problem(403)["detail"]
    )
    (await shop.get("/api/kinds", headers={"X-Forwarded-For": "203.0.113.9"})).problem(403)
    assert (await shop.get("/healthz", headers={"Host": "evil.example"})).status == 200


async def test_without_tokens_cross_site_requests_are_refused(shop: Client) -> None:
    path = "/api/cycles/shop.stock/run"
    (await shop.post(path, headers={"Origin": "https://evil.example"})).problem(403)
    (await shop.post(path, headers={"Origin": "null"})).problem(403)
    (await shop.post(path, headers={"Sec-Fetch-Site": "cross-site"})).problem(403)
    assert (
        await shop.post(path, headers={"Origin": shop.url, "Sec-Fetch-Site": "same-origin"})
    ).status == 200

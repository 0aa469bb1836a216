"""Who may come in, and what for."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from web.shop import Client, served

from esclusa.model.errors import SettingsError
from esclusa.settings import ApiToken, is_loopback
from esclusa.web.auth.failed_attempts import FailedAttempts
from esclusa.web.auth.tokens import find_token, hash_tokens, require_tokens
from esclusa.web.server import listen

READ, OPERATE = "r" * 32, "o" * 32


@pytest.fixture
async def safe_session(tmp_path: Path) -> AsyncIterator[Client]:
    async with served(tmp_path, tokens=f"eye={READ}:read,hand={OPERATE}:operate") as client:
        yield client


READING = [
    "/api/kinds", "/api/kinds/items", "/api/records/items", "/api/runs", "/api/budgets", "/api/dead-letters", "/api/cycles",
    "/api/alerts", "/api/workers", "/api/audit", "/api/status", "/api/stages", "/metrics", "/openapi.json", "/shop/hello", "/shop/hook",
]  # fmt: skip
ACTING = [
    "/api/records/items", "/api/records/items/move", "/api/records/items/retry", "/api/dead-letters/redrive", "/api/dead-letters/discard",
    "/api/cycles/shop.stock/run", "/api/cycles/shop.stock/pause", "/api/cycles/shop.stock/resume",
]  # fmt: skip


async def test_every_route_wants_a_token(safe_session: Client) -> None:
    for method, path in [
        *(("GET", p) for p in READING),
        *(("POST", p) for p in ACTING),
        ("GET", "/nowhere"),
        ("PUT", "/api/kinds"),
    ]:
        answer = await safe_session.call(method, path)
        answer.problem(401)
        assert answer.headers["www-authenticate"] == 'Bearer realm="esclusa"'
    wrong = await safe_session.get("/api/kinds", token="x" * 32)
    wrong.problem(401)
    assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
    (await safe_session.get("/api/kinds", headers={"Authorization": f"Basic {READ}"})).problem(401)
    (await safe_session.get("/api/kinds", headers={"Authorization": "Bearer "})).problem(401)
    (await safe_session.get(f"/api/kinds?token={READ}")).problem(401)


async def test_a_reader_reads_and_an_operator_acts(safe_session: Client) -> None:
    for path in READING:
        assert (await safe_session.get(path, token=READ)).status == 200, path
        assert (await safe_session.get(path, token=OPERATE)).status == 200, path
    for path in ACTING:
        problem = (await safe_session.post(path, {}, token=READ)).problem(403)
        assert "role operate" in problem["detail"]
        assert (await safe_session.post(path, {}, token=OPERATE)).status not in (401, 403), path
    assert (
        await safe_session.get("/api/kinds", headers={"Authorization": f"bearer  {READ}"})
    ).status == 200


async def test_a_reader_does_not_learn_secrets(safe_session: Client) -> None:
    """Neither by looking nor by asking for them; an operator may."""
    sheet = {
        "id": "s",
        "title": "t",
        "access_token": "hunter2",
        "options": {"password": "hunter3", "size": 3},
    }
    await safe_session.post("/api/records/sheets", [sheet], token=OPERATE)
    kept = (await safe_session.get("/api/records/sheets/s", token=OPERATE)).json
    assert (kept["access_token"], kept["options"]) == (
        "hunter2",
        {"password": "hunter3", "size": 3},
    )
    for path in ("/api/records/sheets/s", "/api/records/sheets", "/api/search?q=s"):
        assert "hunter" not in (await safe_session.get(path, token=READ)).text, path
    told = (await safe_session.get("/api/records/sheets/s", token=READ)).json
    assert (told["title"], told["access_token"], told["options"]) == (
        "t",
        "***",
        {"password": "***", "size": 3},
    )
    for asked in (
        "access_token=hunter2",
        "access_token__gte=h",
        "access_token__null=false",
        "order=access_token",
        "order=-access_token",
    ):
        assert (
            "secret"
            in (await safe_session.get(f"/api/records/sheets?{asked}", token=READ)).problem(400)[
                "detail"
            ]
        )
        assert (
            await safe_session.get(f"/api/records/sheets?{asked}", token=OPERATE)
        ).status == 200, asked


async def test_the_open_paths_and_signed_webhooks_want_none(safe_session: Client) -> None:
    assert (await safe_session.get("/healthz")).json == {"status": "ok"}
    assert (await safe_session.get("/readyz")).status == 200
    assert (await safe_session.post("/shop/hook")).json == {"heard": True}
    for path in ("/healthz/", "//healthz", "/healthz/../api/kinds", "/shop/hook/", "/shop/hook%2F"):
        assert (await safe_session.post(path)).status == 401, path


async def test_acts_are_done_in_the_name_of_the_token(safe_session: Client) -> None:
    await safe_session.post("/api/cycles/shop.stock/pause", {"reason": "tea"}, token=OPERATE)
    audit = (await safe_session.get("/api/audit", token=READ)).json["items"][0]
    assert (audit["who"], audit["verb"], audit["reason"]) == ("api:hand", "pause", "tea")


async def test_guessing_is_slowed_down(safe_session: Client) -> None:
    assert (await safe_session.get("/api/kinds", token=OPERATE)).status == 200
    for _ in range(20):
        (await safe_session.get("/api/kinds", token="guess")).problem(401)
    answer = await safe_session.get("/api/kinds", token="guess")
    answer.problem(429)
    assert 1 <= int(answer.headers["retry-after"]) <= 3
    (await safe_session.get("/api/kinds", token=READ)).problem(
        429
    )  # or a right guess would be told from a wrong one
    assert (
        await safe_session.get("/api/kinds", token=OPERATE)
    ).status == 200  # who was let in from there before is no guesser
    other = await safe_session.get(
        "/api/kinds", token=READ, headers={"X-Forwarded-For": "203.0.113.9"}
    )
    assert other.status == 200  # as a proxy on this machine says of another caller
    assert (await safe_session.get("/healthz")).status == 200


def test_guesses_are_forgiven_with_time_and_kept_in_bounded_memory() -> None:
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
    assert failed_attempts.wait("2001:db8::ffff") > 0  # one network, one guesser
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
    ("host", "own"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("localhost", True), ("::1", True), ("[::1]", True), ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False), ("::", False), ("192.168.1.4", False), ("localhost.example.com", False), ("", False),
    ],
)  # fmt: skip
def test_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_without_tokens_the_server_listens_on_loopback_only() -> None:
    with pytest.raises(SettingsError, match="ESCLUSA_API_TOKENS"):
        require_tokens("0.0.0.0", ())
    require_tokens("127.0.0.1", ())
    require_tokens("0.0.0.0", hash_tokens([ApiToken("a", _secret("x"))]))


def test_a_port_that_is_taken_is_told() -> None:
    first = listen("127.0.0.1", 0)
    try:
        with pytest.raises(SettingsError, match=r"PORT: 127\.0\.0\.1:\d+ cannot be listened on"):
            listen("127.0.0.1", first[0].getsockname()[1])
        with pytest.raises(SettingsError, match="cannot be listened on"):
            listen("no.such.host.invalid", 0)
    finally:
        first[0].close()


def test_every_address_of_a_name_is_listened_on() -> None:
    sockets = listen("localhost", 0)
    try:
        assert len({each.getsockname()[1] for each in sockets}) == 1
        assert all(
            each.proto == socket.IPPROTO_TCP for each in sockets
        )  # or every answer waits 40 ms
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


async def test_without_tokens_another_sites_page_may_not_act(shop: Client) -> None:
    path = "/api/cycles/shop.stock/run"
    (await shop.post(path, headers={"Origin": "https://evil.example"})).problem(403)
    (await shop.post(path, headers={"Origin": "null"})).problem(403)
    (await shop.post(path, headers={"Sec-Fetch-Site": "cross-site"})).problem(403)
    assert (
        await shop.post(path, headers={"Origin": shop.url, "Sec-Fetch-Site": "same-origin"})
    ).status == 200

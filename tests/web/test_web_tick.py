"""POST /tick: who may call it, and what it answers."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from support.loopback import http_server
from web.shop import Client, served

from esclusa.model.errors import SettingsError
from esclusa.web.auth import oidc

ACCOUNT = "clock@project.iam.gserviceaccount.com"
AUDIENCE = "https://esclusa.example"
READ, OPERATE = "r" * 32, "o" * 32


class Issuer:
    """Signs tokens and publishes its keys as Google does."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.url = ""
        self.requests = 0
        self.down = False

    def token(self, key: Any = None, kid: str = "k1", **claims: Any) -> str:
        now = int(time.time())
        usual = {
            "iss": "https://accounts.google.com",
            "aud": AUDIENCE,
            "sub": "1",
            "email": ACCOUNT,
            "email_verified": True,
            "iat": now,
            "exp": now + 3600,
        }
        return jwt.encode(usual | claims, key or self.key, algorithm="RS256", headers={"kid": kid})

    async def keys(self, request: web.Request) -> web.Response:
        self.requests += 1
        if self.down:
            raise web.HTTPServiceUnavailable
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return web.json_response({"keys": [public | {"kid": "k1", "use": "sig", "alg": "RS256"}]})


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    async with http_server(web.get("/certs", issuer.keys)) as url:
        issuer.url = f"{url}/certs"
        yield issuer


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as started:
        yield started


@pytest.fixture
async def secured(tmp_path: Path, issuer: Issuer) -> AsyncIterator[Client]:
    environ = {
        "ESCLUSA_TICK_AUDIENCE": f"{AUDIENCE}, https://other.example/",
        "ESCLUSA_TICK_SERVICE_ACCOUNT": ACCOUNT,
        "ESCLUSA_OIDC_CERTS_URL": issuer.url,
    }
    async with served(
        tmp_path, tokens=f"dashboard={READ}:read,operator={OPERATE}:operate", environ=environ
    ) as client:
        yield client


async def test_a_tick_runs_what_is_due(shop: Client) -> None:
    await shop.add({"shop": "a", "code": "1"}, {"shop": "a", "code": "2", "note": "bad"})
    answer = await shop.post("/tick?seconds=20")
    assert answer.status == 200, answer.text
    [run] = [run for run in answer.json["runs"] if run["cycle"] == "shop.work"]
    assert (run["outcome"], run["counters"]["taken"]) == ("partial", 2)
    assert answer.json["complete"] is True
    assert (await shop.post("/tick")).json["runs"] == []


@pytest.mark.parametrize("seconds", ["0", "0.5", "4000", "nan", "x", ""])
async def test_a_wrong_time_limit_is_refused(shop: Client, seconds: str) -> None:
    (await shop.post(f"/tick?seconds={seconds}")).problem(422)


async def test_api_tokens_need_the_role_operate(secured: Client, issuer: Issuer) -> None:
    (await secured.post("/tick")).problem(401)
    (await secured.post("/tick", token="x" * 32)).problem(401)
    (await secured.post("/tick", token=READ)).problem(403)
    assert (await secured.post("/tick", token=OPERATE)).status == 200
    assert issuer.requests == 0


async def test_the_service_account_may_call_tick_and_nothing_else(
    secured: Client, issuer: Issuer
) -> None:
    for audience in (AUDIENCE, f"{AUDIENCE}/", "https://other.example"):
        assert (await secured.post("/tick", token=issuer.token(aud=audience))).status == 200
    assert issuer.requests == 1  # keys are cached
    (await secured.get("/api/kinds", token=issuer.token())).problem(401)
    (await secured.get("/tick", token=issuer.token())).problem(401)


async def test_other_tokens_are_refused(secured: Client, issuer: Issuer) -> None:
    for claim, setting in (
        ({"aud": "https://else.example"}, "ESCLUSA_TICK_AUDIENCE"),
        ({"email": "other@x"}, "ESCLUSA_TICK_SERVICE_ACCOUNT"),
        ({"email_verified": False}, "ESCLUSA_TICK_SERVICE_ACCOUNT"),
    ):
        problem = (await secured.post("/tick", token=issuer.token(**claim))).problem(403)
        assert problem["detail"].endswith(f"check {setting}")
    past = int(time.time()) - 100
    other_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    unsigned = jwt.encode(
        {"aud": AUDIENCE, "iss": "https://accounts.google.com"}, None, algorithm="none"
    )
    removed = issuer.token().rpartition(".")[0] + ".SIGNATURE_REMOVED_BY_GOOGLE"
    for token in (
        issuer.token(exp=past),
        issuer.token(iss="https://evil.example"),
        issuer.token(key=other_key),
        unsigned,
        removed,
        "a.b.c",
    ):
        (await secured.post("/tick", token=token)).problem(401)


async def test_failed_fetches_of_keys_are_throttled(
    secured: Client, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.down = True
    for _ in range(5):
        answer = await secured.post("/tick", token=issuer.token())
        assert answer.problem(503)["type"].endswith(":keys-unavailable")
        assert int(answer.headers["retry-after"]) > 0
    assert issuer.requests == 1
    issuer.down = False
    monkeypatch.setattr(oidc, "time", _Later(oidc.RETRY_PAUSE))
    assert (await secured.post("/tick", token=issuer.token())).status == 200
    assert issuer.requests == 2


async def test_unknown_keys_and_old_keys_do_not_cause_many_fetches(
    secured: Client, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await secured.post("/tick", token=issuer.token())).status == 200
    issuer.down = True
    monkeypatch.setattr(oidc, "time", _Later(oidc.FETCH_PAUSE))
    for n in range(5):
        (await secured.post("/tick", token=issuer.token(kid=f"forged {n}"))).problem(401)
    assert issuer.requests == 2
    monkeypatch.setattr(oidc, "time", _Later(oidc.KEY_LIFETIME + oidc.FETCH_PAUSE))
    for _ in range(5):  # old keys are better than none
        assert (await secured.post("/tick", token=issuer.token())).status == 200
    assert issuer.requests == 3


class _Later:
    """The module ``time``, some seconds later."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def monotonic(self) -> float:
        return time.monotonic() + self._seconds


async def test_an_audience_without_an_account_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="ESCLUSA_TICK_SERVICE_ACCOUNT"):
        async with served(tmp_path, environ={"ESCLUSA_TICK_AUDIENCE": AUDIENCE}):
            pass

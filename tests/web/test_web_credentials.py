"""Callers with credentials of a pipeline's own, and pages of other origins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from web.shop import Client, served

from esclusa.model.errors import SettingsError
from esclusa.settings import load

READ, OPERATE = "r" * 32, "o" * 32
APP = "https://app.example.cl"


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Client]:
    async with served(
        tmp_path,
        tokens=f"dashboard={READ}:read,operator={OPERATE}:operate",
        environ={"ESCLUSA_CORS_ORIGINS": f"{APP},https://other.example.cl"},
    ) as client:
        yield client


async def test_a_route_judges_credentials_that_are_no_api_token(secured: Client) -> None:
    """API tokens of both roles are named; another secret is the route's to check."""
    for secret, role in ((OPERATE, "operate"), (READ, "read"), ("parcel-7", None)):
        answer = await secured.post("/shop/parcels/7", token=secret)
        assert (answer.status, answer.json["role"]) == (200, role)
    assert (await secured.post("/shop/parcels/7", token=READ)).json["who"] == "api:dashboard"
    who = (await secured.post("/shop/parcels/7", token="parcel-7")).json["who"]
    assert who.startswith("credential:")
    assert "parcel-7" not in who
    assert (await secured.post("/shop/parcels/8", token="parcel-7")).problem(401)
    assert "Bearer" in (await secured.post("/shop/parcels/7")).problem(401)["detail"]


async def test_an_open_route_serves_anonymous_callers(secured: Client) -> None:
    assert (await secured.post("/shop/parcels")).json == {"who": "api", "role": None}
    assert (await secured.post("/shop/parcels", token=READ)).json["role"] == "read"


async def test_wrong_credentials_are_limited_as_wrong_tokens_are(secured: Client) -> None:
    """Otherwise such a route would let a caller guess API tokens without a limit."""
    assert (await secured.post("/shop/parcels/7", token="parcel-7")).status == 200
    statuses = [
        (await secured.post("/shop/parcels/8", token=f"guess-{n}")).status for n in range(25)
    ]
    assert statuses[:20] == [401] * 20
    assert statuses[-1] == 429
    assert (await secured.post("/shop/parcels/8", token="guess-99")).headers["retry-after"]
    # One that was accepted from this address before is not held up by others.
    assert (await secured.post("/shop/parcels/7", token="parcel-7")).status == 200


async def test_other_routes_refuse_such_credentials(secured: Client) -> None:
    assert (await secured.get("/api/kinds", token="parcel-7")).status == 401
    assert (await secured.post("/shop/visits", token=READ)).status == 403


async def test_without_tokens_every_caller_on_this_machine_operates(shop: Client) -> None:
    assert (await shop.post("/shop/parcels/7")).json["role"] == "operate"


async def test_pages_of_named_origins_may_call_the_api(secured: Client) -> None:
    """The preflight needs no token; answers may be read; cookies are not accepted."""
    asked = {"Origin": APP, "Access-Control-Request-Method": "PATCH"}
    asked["Access-Control-Request-Headers"] = "authorization, content-type"
    answer = await secured.call("OPTIONS", "/shop/parcels/7", headers=asked)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == APP
    assert "PATCH" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-credentials" not in answer.headers
    for status, token in ((200, READ), (401, "wrong")):
        answer = await secured.get("/api/kinds", token=token, headers={"Origin": APP})
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, APP)
    answer = await secured.get("/shop/boom", token=READ, headers={"Origin": APP})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (500, APP)


async def test_pages_of_other_origins_may_not(secured: Client, tmp_path: Path) -> None:
    foreign = {"Origin": "https://bad.example.cl"}
    answer = await secured.get("/api/kinds", token=READ, headers=foreign)
    assert "access-control-allow-origin" not in answer.headers
    preflight = foreign | {"Access-Control-Request-Method": "POST"}
    assert (await secured.call("OPTIONS", "/shop/visits", headers=preflight)).status == 400


async def test_a_server_without_tokens_obeys_pages_of_named_origins_only(tmp_path: Path) -> None:
    environ = {"ESCLUSA_CORS_ORIGINS": "http://localhost:8081"}
    async with served(tmp_path, environ=environ) as client:
        named = {"Origin": "http://localhost:8081", "Sec-Fetch-Site": "same-site"}
        assert (await client.post("/shop/visits", headers=named)).status == 200
        other = {"Origin": "http://localhost:8083", "Sec-Fetch-Site": "same-site"}
        assert (await client.post("/shop/visits", headers=other)).status == 403


async def test_every_origin_may_read_but_not_change_a_server_without_tokens(tmp_path: Path) -> None:
    async with served(tmp_path, environ={"ESCLUSA_CORS_ORIGINS": "*"}) as client:
        page = {"Origin": "https://bad.example.cl"}
        answer = await client.get("/api/kinds", headers=page)
        assert answer.headers["access-control-allow-origin"] == "*"
        assert (await client.post("/shop/visits", headers=page)).status == 403


@pytest.mark.parametrize("origin", ["app.example.cl", "https://a.cl/", "ftp://a.cl", "https://u@a"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(SettingsError, match="is no origin"):
        load(environ={"ESCLUSA_CORS_ORIGINS": origin})


async def test_a_parameter_that_a_list_does_not_have_is_refused(shop: Client) -> None:
    answer = await shop.get("/api/records/items?system=true")
    assert "system" in answer.problem(400)["detail"]

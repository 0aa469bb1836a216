"""Sessions of the console: sign-in from this site only, and sign-out that lasts everywhere."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from web.shop import Client, Reply, served

from esclusa.model import errors
from esclusa.model.system_records import EndedSession
from esclusa.web.console import pages

TOKENS = "maria=let-me-operate:operate"


async def sign_in(client: Client, **headers: str) -> Reply:
    return await client.call(
        "POST",
        "/console/sign-in",
        data={"token": "let-me-operate", "next": "/console/runs"},
        headers=headers,
        allow_redirects=False,
    )


async def session_of(client: Client) -> dict[str, str]:
    """Sign in; return the header with the session's cookie."""
    answer = await sign_in(client)
    assert answer.status == 303, answer.text
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


async def visit(client: Client, session: dict[str, str], path: str = "/console/runs") -> int:
    return (await client.call("GET", path, headers=session, allow_redirects=False)).status


async def sign_out(client: Client, session: dict[str, str]) -> Reply:
    page = (await client.get("/console/runs", headers=session)).text
    found = re.search(r'name="form_token" value="([^"]+)"', page)
    assert found, page
    return await client.call(
        "POST",
        "/console/sign-out",
        data={"form_token": found[1]},
        headers=session,
        allow_redirects=False,
    )


# sign-out


async def test_a_session_ends_in_every_process(tmp_path: Path) -> None:
    async with served(tmp_path, tokens=TOKENS) as one, served(tmp_path, tokens=TOKENS) as two:
        session, other = await session_of(one), await session_of(one)
        assert await visit(one, session) == await visit(two, session) == 200
        assert await visit(two, session, "/api/kinds") == 200
        assert (await sign_out(one, session)).status == 303
        for server in (one, two):  # a copy of the cookie is worth nothing any more
            assert await visit(server, session) == 303
            assert await visit(server, session, "/api/kinds") == 401
            assert await visit(server, session, "/console/live") == 401
            assert await visit(server, other) == 200  # another browser stays signed in
    async with served(tmp_path, tokens=TOKENS) as restarted:
        assert await visit(restarted, session) == 303
        assert await visit(restarted, other) == 200


async def test_sign_out_works_while_the_store_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object, **__: object) -> None:
        raise errors.StoreUnavailable("shop.db: disk I/O error")

    async with served(tmp_path, tokens=TOKENS) as client:
        session, other = await session_of(client), await session_of(client)
        for name in ("insert", "get"):
            monkeypatch.setattr(type(client.runtime.store), name, unavailable)
        answer = await sign_out(client, session)
        assert answer.status == 303
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert await visit(client, session) == 303  # this process remembers it
        # Pages report the outage; whatever does not need the store wants proof.
        assert await visit(client, other, "/console/health") == 200
        assert await visit(client, other, "/api/artifacts/photos/1.png") == 401


async def test_an_open_stream_ends_with_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "SESSION_CHECK", 0.2)
    async with served(tmp_path, tokens=TOKENS) as client:
        session = await session_of(client)
        stream = asyncio.create_task(client.get("/console/live", headers=session))
        await asyncio.wait([stream], timeout=1.5)
        assert not stream.done()
        await sign_out(client, session)
        async with asyncio.timeout(30):
            assert (await stream).status == 200


async def test_ended_sessions_are_pruned(tmp_path: Path) -> None:
    async with served(tmp_path, tokens=TOKENS) as client:
        records, now = client.runtime.engine.records, client.runtime.engine.clock.now()
        for session, age in (("old", 25), ("new", 23)):
            await records.insert(
                [EndedSession(session=session, ended_at=now - timedelta(hours=age))]
            )
        await client.post("/api/cycles/esclusa.prune/run", token="let-me-operate")
        assert [found.session async for found in records.each(EndedSession)] == ["new"]


# sign-in


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"Origin": "{url}"}, 303),
        ({"Origin": "{url}", "Sec-Fetch-Site": "same-origin"}, 303),
        ({"Sec-Fetch-Site": "none"}, 303),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "{url}.evil.example"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_sign_in_from_another_site_is_refused(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with served(tmp_path, tokens=TOKENS) as client:
        filled: dict[str, Any] = {n: v.format(url=client.url) for n, v in headers.items()}
        answer = await sign_in(client, **filled)
        assert answer.status == status
        assert ("set-cookie" in answer.headers) == (status == 303)


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(tmp_path: Path) -> None:
    async with served(tmp_path, tokens=TOKENS) as client:
        for scheme, secure in (("http", False), ("https", True)):
            cookie = (await sign_in(client, **{"X-Forwarded-Proto": scheme})).headers["set-cookie"]
            flags = {flag.strip().lower() for flag in cookie.split(";")[1:]}
            assert {"httponly", "samesite=lax", "path=/"} <= flags
            assert ("secure" in flags) == secure

"""Decisions in the console: a person who may not decide reads who may, and finds no form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from fastapi import FastAPI
from pydantic import BaseModel, Field

from esclusa import ActionContext, App, Attempt, Backoff, Lifecycle, Outcome, Permanent, Record, To
from esclusa.integrations.fastapi import Embedded, HostCaller
from esclusa.runtime import Runtime

REFUSED = "Only ana may move it out of "
ACTIONS = "/ops/console/actions/claims"
Read = Callable[..., Awaitable[str]]


class Claim(Record, table="claims", key="number"):
    number: str
    note: str | None = None
    lifecycle = Lifecycle("""
        new -> review -> approved
        new -> failed -> new
    """)


class Decision(BaseModel):
    note: str = Field(min_length=3)


def claims() -> App:
    app = App("claims")
    app.decision(Claim, ["review", "failed"], by=["ana"])

    @app.stage(Claim, take="new", exhausted="failed", retry=Backoff(tries=1))
    async def sort(claim: Claim, at: Attempt) -> Outcome:
        raise Permanent("it cannot be read")

    @app.action(Claim, "Approve", where={"status": "review"}, params=Decision)
    async def approve(claim: Claim, at: ActionContext) -> To:
        return To("approved", note=at.params.note)

    @app.action(Claim, "Pass", where={"status": "review"})
    async def skip(claim: Claim, at: ActionContext) -> To:
        return To("approved")

    @app.action(Claim, "Remark", where={"status": "review"})
    async def remark(claim: Claim, at: ActionContext) -> To:
        return To("review", note="seen")

    return app


@asynccontextmanager
async def console(folder: Path) -> AsyncIterator[tuple[Runtime, Read]]:
    esclusa = Embedded(claims(), store=f"sqlite:///{folder / 'claims.db'}")
    host = FastAPI()
    esclusa.mount(host, "/ops", caller=lambda r: HostCaller(r.headers["X-User"], "operate"))
    async with (
        esclusa.lifespan(),
        httpx.AsyncClient(transport=httpx.ASGITransport(host), base_url="http://host") as client,
    ):

        async def read(path: str, user: str, language: str = "en") -> str:
            headers = {"X-User": user, "Accept-Language": language}
            answer = await client.get(path, headers=headers)
            assert answer.status_code == 200, answer.text
            return answer.text

        await esclusa.opened.records.insert([Claim(number="1", status="review")])
        await esclusa.opened.records.insert([Claim(number="2")])
        await esclusa.opened.engine.run_cycle("claims.sort")
        yield esclusa.opened, read


async def test_only_those_who_decide_find_forms_of_records(tmp_path: Path) -> None:
    async with console(tmp_path) as (_, read):
        record, records = "/ops/console/records/claims/1", "/ops/console/records/claims"
        preview = f"{records}/act?verb=move&to=approved&status=review"
        page = await read(record, "ana")
        assert REFUSED not in page.split('id="actions"')[1]
        assert 'value="move"' in page
        assert "Approve…" in page
        page = await read(record, "beto")
        assert f"{REFUSED}review." in page.split('id="actions"')[1]
        assert 'value="move"' not in page
        assert "Approve…" not in page
        assert "Remark…" in page
        assert "Solo ana puede sacarlo de review." in await read(record, "beto", "es")
        page = await read("/ops/console/records/claims/2", "beto")
        assert f"{REFUSED}failed." in page
        assert 'value="retry"' not in page
        for path in (f"{records}?status=review", preview):
            assert REFUSED not in await read(path, "ana")
            page = await read(path, "beto")
            assert f"{REFUSED}review." in page
            assert 'value="move"' not in page or 'name="reason"' not in page
        page = await read(records, "beto")
        assert REFUSED not in page
        assert 'value="retry"' not in page


async def test_an_action_that_stays_in_the_state_is_offered_to_all(tmp_path: Path) -> None:
    async with console(tmp_path) as (_, read):
        for name, user, offered in (
            ("approve", "ana", True),
            ("approve", "beto", False),
            ("skip", "ana", True),
            ("skip", "beto", False),
            ("remark", "beto", True),
        ):
            page = await read(f"{ACTIONS}/{name}?ids=1", user)
            assert ('name="reason"' in page) is offered, (name, user)
            assert (f"{REFUSED}review." in page) is not offered


async def test_only_those_who_decide_retry_dead_letters(tmp_path: Path) -> None:
    async with console(tmp_path) as (runtime, read):
        [letter] = (await runtime.read_model.dead_letters({"status": "open"})).items
        group = "/ops/console/dead-letters/act?verb=redrive&table=claims"
        for path in ("/ops/console/dead-letters", f"/ops/console/dead-letters/{letter.id}", group):
            assert REFUSED not in await read(path, "ana")
            page = await read(path, "beto")
            assert f"{REFUSED}failed." in page
            assert "Retry…" not in page
            assert 'id="reason-redrive"' not in page
        assert 'name="reason"' not in await read(group, "beto")


async def test_why_names_those_who_decide(tmp_path: Path) -> None:
    async with console(tmp_path) as (runtime, _):
        answer = await runtime.read_model.why("claims", "1")
        assert [reason.code for reason in answer.reasons] == ["no_stage", "decision"]
        assert answer.reasons[1].text == "only ana may move it out of review"

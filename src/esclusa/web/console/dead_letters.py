"""Pages of dead letters: grouped by error, one by one, retried or discarded."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from esclusa.engine.audited import Acted
from esclusa.model.errors import NotFound
from esclusa.model.record import Record
from esclusa.model.system_records import DeadLetter
from esclusa.web.api import filters
from esclusa.web.console import page_data, render, translate
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.catalog import ngettext
from esclusa.web.console.context import ConsoleContext
from esclusa.web.console.forms import FormRefused
from esclusa.web.console.records import edited
from esclusa.web.console.refusals import Refusals

PAGE = 50
# Dead letters that a preview lists.
SAMPLE = 10


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""
    _pages(api, console)
    _actions(api, console)


def _shown(console: ConsoleContext, letter: Record) -> dict[str, Any]:
    """A dead letter as pages show it, secrets masked."""
    assert isinstance(letter, DeadLetter)
    return {
        "id": letter.id,
        "status": letter.status,
        "role": console.read_model.roles(letter.kind)[letter.status],
        "table": letter.table_name,
        "record": letter.record_id,
        "error_type": letter.error_type,
        "message": translate.stored(letter.error_message),
        "reason": translate.stored(letter.reason),
        "payload": render.masked({"payload": letter.payload})["payload"],
        "state_before": letter.state_before,
        "created_at": letter.created_at,
    }


def _pages(api: APIRouter, console: ConsoleContext) -> None:
    read_model = console.read_model

    @api.get("/console/dead-letters")
    async def groups(request: Request) -> Response:
        found, exact = await console.cache.get("dead letters", 1.0, read_model.dead_letter_groups)
        return await console.page(
            request,
            "dead-letters.html",
            here="dead-letters",
            groups=[
                g
                | {
                    "message": translate.stored(g["message"]),
                    "refused": _refused(console, request, g["table"]),
                }
                for g in found
            ],
            exact=exact,
        )

    @api.get("/console/dead-letters/list")
    async def letters(
        request: Request,
        table: str = "",
        error: str = "",
        status: str = "open",
        after: str | None = None,
    ) -> Response:
        given = {"table_name": table, "error_type": error, "status": status}
        where = filters.filter_from_query(
            DeadLetter.kind, [(f"{name}__eq", value) for name, value in given.items() if value]
        )
        page = await read_model.dead_letters(where, limit=PAGE, after=after)
        if table and not page.items:
            read_model.lookup(table)  # raises NotFound for one that never existed
        return await console.page(
            request,
            "dead-letter-list.html",
            here="dead-letters",
            letters=[_shown(console, letter) for letter in page.items],
            table=table,
            error=error,
            status=status,
            next=page.next,
            after=after,
            states=DeadLetter.lifecycle.states,
        )

    @api.get("/console/dead-letters/act")
    async def preview(
        request: Request, verb: str, table: str = "", error: str = "", reason: str = ""
    ) -> Response:
        return await _preview(console, request, verb, {"table": table, "error": error}, reason)

    @api.get("/console/dead-letters/{id}")
    async def letter(request: Request, id: str) -> Response:
        found = await read_model.record(DeadLetter.kind.table, id)
        assert isinstance(found, DeadLetter)
        record = await _record(console, found)
        role, outdated, refusal = "", False, None
        if record is not None:
            role = console.read_model.roles(record.kind).get(record.status, "failed")
            outdated = record.status not in read_model.retry_targets(record.kind)
            refusal = Refusals(console, request, record.kind).of(record.status)
        return await console.page(
            request,
            "dead-letter.html",
            here="dead-letters",
            letter=_shown(console, found),
            record=record,
            role=role,
            editable=page_data.editable(record) if record is not None else [],
            outdated=outdated,
            refusal=refusal,
        )


async def _record(console: ConsoleContext, letter: DeadLetter) -> Record | None:
    try:
        return await console.read_model.record(letter.table_name, letter.record_id)
    except NotFound:
        return None


def _refused(console: ConsoleContext, request: Request, table: str) -> list[str]:
    """Who may retry the records of a table, if the visitor may not."""
    try:
        return Refusals(console, request, console.read_model.lookup(table)).of_retries()
    except NotFound:  # of a pipeline that is not loaded
        return []


def _where(group: dict[str, str]) -> dict[str, Any]:
    """The open dead letters of a group; an empty table or error means any."""
    given = {"table_name": group["table"], "error_type": group["error"]}
    return {"status": "open", **{name: value for name, value in given.items() if value}}


async def _act(
    console: ConsoleContext, request: Request, verb: str, group: dict[str, str], **options: Any
) -> Acted:
    operations = console.operations(request)
    verbs = {"redrive": operations.redrive, "discard": operations.discard}
    if verb not in verbs:
        raise FormRefused(404, _("There is no such action."))
    return await verbs[verb](where=_where(group), **options)


async def _preview(
    console: ConsoleContext,
    request: Request,
    verb: str,
    group: dict[str, str],
    reason: str,
    *,
    changed: bool = False,
) -> Response:
    acted = await _act(console, request, verb, group, reason="", dry_run=True)
    page = await console.read_model.dead_letters(_where(group), limit=SAMPLE)
    return await console.page(
        request,
        "dead-letter-preview.html",
        here="dead-letters",
        http_status=409 if changed else 200,
        verb=verb,
        acted=acted,
        letters=[_shown(console, letter) for letter in page.items],
        refused=_refused(console, request, group["table"]) if verb == "redrive" else [],
        changed=changed,
        reason=reason,
        return_to=render.path("console", "dead-letters", "act", verb=verb, **group, reason=reason),
        **group,
    )


def _actions(api: APIRouter, console: ConsoleContext) -> None:
    @api.post("/console/dead-letters/act")
    async def many(request: Request) -> Response:
        form = await console.form(request)
        verb, group = form.get("verb"), {"table": form.get("table"), "error": form.get("error")}
        acted = await _act(console, request, verb, group, reason=form.reason, seen=form.matched)
        if acted.dry_run:
            return await _preview(console, request, verb, group, form.reason, changed=True)
        return console.redirect(
            request,
            render.url("console", "dead-letters"),
            _message(acted),
            details=[f"{p['id']}: {translate.sentence(p['why'])}" for p in acted.passed],
        )

    @api.post("/console/dead-letters/{id}")
    async def one(request: Request, id: str) -> Response:
        form = await console.form(request)
        letter = await console.read_model.record(DeadLetter.kind.table, id)
        assert isinstance(letter, DeadLetter)
        operations = console.operations(request)
        address = render.url("console", "dead-letters")
        if form.get("verb") == "discard":
            acted = await operations.discard(reason=form.reason, ids=[letter.id])
        else:
            record = await _record(console, letter)
            acted = await operations.redrive(
                reason=form.reason,
                ids=[letter.id],
                fields=edited(form, record) if record is not None else {},
            )
            address = render.url("console", "dead-letters", letter.id)
            if acted.moved:
                address = render.url("console", "records", letter.table_name, letter.record_id)
        return console.redirect(
            request,
            address,
            _message(acted),
            kind="good" if acted.moved else "warning",
            details=[translate.sentence(p["why"]) for p in acted.passed],
        )


def _message(acted: Acted) -> str:
    if acted.verb == "discard":
        return ngettext("{n} dead letter discarded.", "{n} dead letters discarded.", acted.moved)
    return ngettext("{n} dead letter retried.", "{n} dead letters retried.", acted.moved)

"""Dead letters: grouped by error, looked at, mended and sent back, or closed."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from esclusa.engine.operations import Acted, retry_targets
from esclusa.model.errors import NotFound
from esclusa.model.record import Record
from esclusa.model.system_records import DeadLetter
from esclusa.web.api import filters
from esclusa.web.console import render, views
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.catalog import ngettext
from esclusa.web.console.context import Desk, Refused
from esclusa.web.console.records import edited

PAGE = 50


def routes(desk: Desk) -> APIRouter:
    api = APIRouter(include_in_schema=False, route_class=desk.route())
    _looks(api, desk)
    _acts(api, desk)
    return api


def _shown(letter: DeadLetter) -> dict[str, Any]:
    payload = render.masked({"payload": letter.payload})["payload"]
    return {
        "id": letter.id, "status": letter.status, "table": letter.table_name, "record": letter.record_id, "error_type": letter.error_type,
        "message": views.said(letter.error_message), "payload": payload, "reason": views.said(letter.reason),
        "created_at": letter.created_at,
        "state_before": letter.state_before, "role": {"open": "failed", "redriven": "end", "discarded": "rest"}.get(letter.status, "rest"),
    }  # fmt: skip


def _looks(api: APIRouter, desk: Desk) -> None:
    @api.get("/console/dead-letters")
    async def groups(request: Request) -> Response:
        found, exact = await desk.kept("letters", 1.0, desk.read_model.dead_letter_groups)
        found = [g | {"message": views.said(g["message"])} for g in found]
        return await desk.page(request, "letters.html", here="letters", groups=found, exact=exact)

    @api.get("/console/dead-letters/list")
    async def letters(
        request: Request,
        table: str = "",
        error: str = "",
        status: str = "open",
        after: str | None = None,
    ) -> Response:
        said = [
            (n, v)
            for n, v in (("table_name", table), ("error_type", error), ("status", status))
            if v
        ]
        where = filters.filter_from_query(DeadLetter.kind, [(f"{n}__eq", v) for n, v in said])
        page = await desk.read_model.dead_letters(where, limit=PAGE, after=after)
        items = [_shown(x) for x in page.items if isinstance(x, DeadLetter)]
        values: dict[str, Any] = {
            "table": table,
            "error": error,
            "status": status,
            "next": page.next,
            "after": after,
            "states": DeadLetter.lifecycle.states,
        }
        return await desk.page(request, "letter-list.html", here="letters", letters=items, **values)

    @api.get("/console/dead-letters/act")
    async def preview(
        request: Request, verb: str, table: str = "", error: str = "", reason: str = ""
    ) -> Response:
        return await _preview(desk, request, verb, {"table": table, "error": error}, reason)

    @api.get("/console/dead-letters/{id}")
    async def letter(request: Request, id: str) -> Response:
        found = await desk.read_model.record(DeadLetter.kind.table, id)
        assert isinstance(found, DeadLetter)
        record, kind = await _record(desk, found), None
        if record is not None:
            kind = record.kind
        what = views.roles(kind, desk.runtime.engine.all_stages) if kind else {}
        values: dict[str, Any] = {
            "letter": _shown(found), "record": record, "role": what.get(record.status, "failed") if record else "",
            "editable": views.editable(kind, record) if kind and record else [],
            "gone_on": record is not None and record.status not in retry_targets(record.kind, desk.runtime.engine.all_stages),
        }  # fmt: skip
        return await desk.page(request, "letter.html", here="letters", **values)


async def _record(desk: Desk, letter: DeadLetter) -> Record | None:
    try:
        return await desk.read_model.record(letter.table_name, letter.record_id)
    except NotFound:
        return None


def _where(table: str, error: str) -> dict[str, Any]:
    return {
        "status": "open",
        **({"table_name": table} if table else {}),
        **({"error_type": error} if error else {}),
    }


async def _do(desk: Desk, request: Request, verb: str, group: dict[str, str], **how: Any) -> Acted:
    operator = desk.runtime.operations(str(request.state.who))
    act = {"redrive": operator.redrive, "discard": operator.discard}.get(verb)
    if act is None:
        raise Refused(404, _("There is no such act."))
    return await act(where=_where(group["table"], group["error"]), **how)


async def _preview(
    desk: Desk,
    request: Request,
    verb: str,
    group: dict[str, str],
    reason: str,
    *,
    changed: bool = False,
) -> Response:
    acted = await _do(desk, request, verb, group, reason="", dry_run=True)
    page = await desk.read_model.dead_letters(_where(group["table"], group["error"]), limit=10)
    items = [_shown(x) for x in page.items if isinstance(x, DeadLetter)]
    again = render.path("console", "dead-letters", "act", verb=verb, **group, reason=reason)
    values: dict[str, Any] = {
        "acted": acted,
        "verb": verb,
        "letters": items,
        "changed": changed,
        "reason": reason,
        "again": again,
        **group,
    }
    return await desk.page(
        request, "letter-act.html", here="letters", http=409 if changed else 200, **values
    )


def _acts(api: APIRouter, desk: Desk) -> None:
    @api.post("/console/dead-letters/act")
    async def many(request: Request) -> Response:
        form = await desk.form(request)
        group = {"table": form.get("table"), "error": form.get("error")}
        acted = await _do(
            desk, request, form.get("verb"), group, reason=form.reason, seen=form.seen
        )
        if acted.dry_run:
            return await _preview(desk, request, form.get("verb"), group, form.reason, changed=True)
        return desk.go(
            request,
            render.url("console", "dead-letters"),
            _told(acted),
            details=[f"{p['id']}: {views.said(p['why'])}" for p in acted.passed],
        )

    @api.post("/console/dead-letters/{id}")
    async def one(request: Request, id: str) -> Response:
        form = await desk.form(request)
        found = await desk.read_model.record(DeadLetter.kind.table, id)
        assert isinstance(found, DeadLetter)
        operator = desk.runtime.operations(str(request.state.who))
        if form.get("verb") == "discard":
            acted = await operator.discard(reason=form.reason, ids=[found.id])
            return desk.go(
                request,
                render.url("console", "dead-letters"),
                _told(acted),
                details=[views.said(p["why"]) for p in acted.passed],
            )
        record = await _record(desk, found)
        fields = edited(record.kind, form, record) if record is not None else {}
        acted = await operator.redrive(reason=form.reason, ids=[found.id], fields=fields)
        to = (
            render.url("console", "records", found.table_name, found.record_id)
            if acted.moved
            else render.url("console", "dead-letters", found.id)
        )
        return desk.go(
            request,
            to,
            _told(acted),
            kind="good" if acted.moved else "wait",
            details=[views.said(p["why"]) for p in acted.passed],
        )


def _told(acted: Acted) -> str:
    if acted.verb == "discard":
        return ngettext("{n} dead letter was closed.", "{n} dead letters were closed.", acted.moved)
    return ngettext(
        "{n} dead letter was sent back to work.",
        "{n} dead letters were sent back to work.",
        acted.moved,
    )

"""The pages of records: lists with filters, one record, and acts on many with a preview first."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from esclusa.engine.operations import Acted, retry_targets
from esclusa.model.errors import BadQuery, BadRecord, NotFound
from esclusa.model.query import beginning, one_of, parse_filter, query
from esclusa.model.record import Kind, Record
from esclusa.model.storable import storage_fault
from esclusa.observability import redact
from esclusa.web.api import filters
from esclusa.web.console import render, views
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.catalog import ngettext
from esclusa.web.console.context import Desk, Form, Refused

PAGE = 50
SHOWN = 10
"""So many records are named in a preview."""
CAP = 10_000
"""Matches are counted up to here; beyond, the page says "more than"."""
OWN = frozenset(
    {"q", "next", "verb", "to", "ids", "_field", "_op", "_value", "form_token", "reason", "matched"}
)
"""Parameters of the pages themselves; a field of such a name is asked for with an operator: ``q__eq=…``."""


def routes(desk: Desk) -> APIRouter:
    api = APIRouter(include_in_schema=False, route_class=desk.route())
    _lists(api, desk)
    _acts(api, desk)
    _one(api, desk)
    return api


def _said(request: Request) -> list[tuple[str, str]]:
    """The filter in the address, without what belongs to the page."""
    return [(n, v) for n, v in request.query_params.multi_items() if n not in OWN and v]


def _lists(api: APIRouter, desk: Desk) -> None:
    @api.get("/console/search")
    async def search(request: Request, q: str = "") -> Response:
        found = await desk.outlook.search(q.strip())
        if len(found) == 1 and len(found[0]["items"]) == 1:
            return RedirectResponse(
                render.url("console", "records", found[0]["table"], found[0]["items"][0]["id"]), 303
            )
        stages = desk.runtime.engine.all_stages
        what = {
            f["table"]: views.roles(desk.runtime.engine.kind(f["table"]), stages) for f in found
        }
        return await desk.page(request, "search.html", here="records", found=found, q=q, roles=what)

    @api.get("/console/records")
    async def kinds(request: Request, system: bool = False) -> Response:
        found = await views.kinds(desk, system=system)
        stages = desk.runtime.engine.all_stages
        what = {
            k["table"]: views.roles(desk.runtime.engine.kind(k["table"]), stages) for k in found
        }
        return await desk.page(
            request, "kinds.html", here="records", kinds=found, roles=what, system=system
        )

    @api.get("/console/records/{table}")
    async def records(
        request: Request,
        table: str,
        q: str = "",
        after: str | None = None,
        order: str = "",
        archived: bool = False,
    ) -> Response:
        kind = desk.runtime.engine.kind(table)
        if moved := _canonical(kind, request):
            return RedirectResponse(moved, 303)
        said = _said(request)
        where = filters.filter_from_query(kind, said, archived=archived)
        if q.strip():
            where = {**where, "id": beginning(q.strip())}
        chosen = [v for n, v in said if n == "status"]
        # each table has an index of states and changes: in one state, the last changed come first
        usual = (
            "-updated_at"
            if len(chosen) == 1 and "," not in chosen[0] and not q.strip() and not archived
            else ""
        )
        orders = filters.check_order(kind, order or usual)
        try:
            page = await desk.read_model.records(
                table, where, order=orders, limit=PAGE, after=after, archived=archived
            )
        except BadQuery:
            if order or not usual or after:
                raise
            usual, orders = "", ()  # a store that needs an index for it has none: then by id
            page = await desk.read_model.records(table, where, limit=PAGE, archived=archived)
        asked = query(kind, where, archived=archived)
        matched = await desk.kept(
            f"count {asked}", 1.0, lambda: desk.runtime.store.count(asked, CAP)
        )
        stages, names = desk.runtime.engine.all_stages, views.columns(kind)
        what = views.roles(kind, stages)
        counts = [asdict(c) for c in (await desk.counts.soon([kind]))[table]]
        keep = [p for p in said if p[0] not in ("after", "status")] + ([("q", q)] if q else [])
        here = [*(p for p in said if p[0] != "after"), *([("q", q)] if q else [])]
        base = render.url("console", "records", table)
        states = [
            c
            | {
                "role": what.get(c["state"], "failed"),
                "on": c["state"] in chosen,
                "href": f"{base}?{urlencode([('status', c['state']), *keep])}",
            }
            for c in counts
        ]
        values: dict[str, Any] = {
            "kind": kind, "table": table, "states": states, "all": f"{base}?{urlencode(keep)}" if keep else base, "any": not chosen,
            "rows": [views.row(kind, r, what, names) for r in page.items], "names": names, "matched": matched, "q": q,
            "order": order or usual,
            "chips": views.chips(kind, here, but=("status", "q")), "without_q": _address(kind, [p for p in here if p[0] != "q"]),
            "said": [p for p in said if p[0] != "after"],
            "after": after,
            "next": _address(kind, [*here, ("after", page.next)]) if page.next else None, "first": _address(kind, here),
            "archived": archived, "bare": _address(kind, [*(p for p in here if p[0] != "order"), ("", "")]).removesuffix("="),
            "fields": _askable(kind),
            "targets": [] if archived else [s for s in kind.lifecycle.states if kind.lifecycle.sources(s)], "roles": what,
            "worked": any(stage.kind == kind for stage in stages), "orders": _orders(kind), "retries": sorted(retry_targets(kind, stages)),
        }  # fmt: skip
        return await desk.page(request, "records.html", here="records", **values)


def _askable(kind: Kind) -> list[str]:
    """Fields that a filter may ask for; a secret is not guessed at."""
    types = {
        n: t
        for n, t in kind.types.items()
        if n not in ("fence", "id", "status") and not redact.secret_name(n)
    }
    return sorted(n for n, t in types.items() if t not in ("json", "bytes"))


def _orders(kind: Kind) -> list[str]:
    """Orders that an index serves."""
    return list(
        dict.fromkeys(i[0] for i in kind.indexes if not (i[0].startswith("-") and len(i) > 1))
    )


def _canonical(kind: Kind, request: Request) -> str | None:
    """The address that a filter form means: one parameter for each condition, so that it can be shared."""
    given = request.query_params
    base = [
        (n, v)
        for n, v in given.multi_items()
        if n not in ("_field", "_op", "_value", "q", "after") and v
    ]
    text = given.get("q", "").strip()
    if re.match(
        r"[A-Za-z_]\w*\s*(>=|<=|!=|=|>|<)", text
    ):  # field=value, field>=3: a filter as people write it
        parts = re.split(r"\s+(?=[A-Za-z_]\w*\s*(?:>=|<=|!=|=|>|<))", text)
        parse_filter(kind, parts)
        return _address(kind, [*base, *(_parameter(part) for part in parts)])
    if "_field" not in given:
        return None
    field, op, value = (
        given.get("_field", ""),
        given.get("_op", "eq"),
        given.get("_value", "").strip(),
    )
    if field and op in ("empty", "filled"):
        base.append((f"{field}__null", "true" if op == "empty" else "false"))
    elif field and value:
        base.append((field if op == "eq" else f"{field}__{op}", value))
    return _address(kind, [*base, *([("q", text)] if text else [])])


def _parameter(part: str) -> tuple[str, str]:
    match = re.match(r"\s*([A-Za-z_]\w*)\s*(>=|<=|!=|=|>|<)\s*(.*)", part, re.DOTALL)
    assert match is not None  # it was parsed as a filter before
    name, sign, value = match[1], match[2], match[3].strip()
    if value.lower() == "null":
        return f"{name}__null", "true" if sign == "=" else "false"
    if sign == "=" and len(value) > 1 and value[0] == value[-1] == '"':  # as it is, with its commas
        return f"{name}__eq", value[1:-1]
    return {
        "=": name,
        ">=": f"{name}__gte",
        "<=": f"{name}__lte",
        ">": f"{name}__gt",
        "<": f"{name}__lt",
    }[sign], value.strip('"')


def _address(kind: Kind, params: Sequence[tuple[str, str]]) -> str:
    base = render.url("console", "records", kind.table)
    return f"{base}?{urlencode(params)}" if params else base


def _acts(api: APIRouter, desk: Desk) -> None:
    async def would(
        request: Request, kind: Kind, items: Sequence[tuple[str, str]], **how: Any
    ) -> tuple[Acted, dict[str, Any]]:
        """What was asked for, done or only counted."""
        given = dict(items)
        ids = [v for n, v in items if n == "ids"]
        verb, to = given.get("verb", ""), given.get("to", "")
        said = [(n, v) for n, v in items if n not in OWN and n not in ("after", "order") and v]
        where = filters.filter_from_query(kind, said)
        if given.get("q", "").strip():
            where["id"] = beginning(given["q"].strip())
        if not ids and not where:
            where = {"status": one_of(*kind.lifecycle.states)}
        chosen: dict[str, Any] = {"ids": ids} if ids else {"where": where}
        operator = desk.runtime.operations(str(request.state.who))
        if verb == "retry":
            acted = await operator.retry(kind.table, **chosen, **how)
        elif verb == "move" and to:
            acted = await operator.move(kind.table, to, **chosen, **how)
        else:
            raise Refused(422, _("Choose what to do with the records."))
        return acted, {
            "ids": ids,
            "where": {"id": ids} if ids else where,
            "said": said,
            "verb": verb,
            "to": to,
            "q": given.get("q", ""),
        }

    async def preview(
        request: Request, kind: Kind, items: Sequence[tuple[str, str]], *, changed: bool = False
    ) -> Response:
        acted, asked = await would(request, kind, items, dry_run=True, reason="")
        where, asked_for = (
            asked["where"],
            [(n, v) for n, v in items if n not in ("form_token", "matched", "next")],
        )
        stages = desk.runtime.engine.all_stages
        targets = retry_targets(kind, stages)
        if asked["verb"] == "retry" and "status" not in where:
            where = {**where, "status": one_of(*targets)}
        sample = await desk.read_model.records(kind.table, where, limit=SHOWN)
        what = views.roles(kind, stages)
        names = views.columns(kind)[:3]
        rows = [views.row(kind, r, what, names) for r in sample.items]
        values: dict[str, Any] = {
            "kind": kind, "table": kind.table, "acted": acted, "asked": asked,
            "items": [i for i in asked_for if i[0] != "reason"], "reason": dict(items).get("reason", ""),
            "again": render.path("console", "records", kind.table, "act") + f"?{urlencode(asked_for)}",
            "rows": rows, "names": names, "changed": changed, "targets": targets, "roles": what, "chips": views.chips(kind, asked["said"]),
            "back": _address(kind, [(n, v) for n, v in items if n not in OWN - {"q"}]),
        }  # fmt: skip
        return await desk.page(
            request, "preview.html", here="records", http=409 if changed else 200, **values
        )

    @api.get("/console/records/{table}/act")
    async def look(request: Request, table: str) -> Response:
        return await preview(
            request, desk.runtime.engine.kind(table), request.query_params.multi_items()
        )

    @api.post("/console/records/{table}/act")
    async def act(request: Request, table: str) -> Response:
        kind = desk.runtime.engine.kind(table)
        form = await desk.form(request)
        done, _asked = await would(request, kind, form.items, reason=form.reason, seen=form.seen)
        if done.dry_run:
            return await preview(request, kind, form.items, changed=True)
        back = _address(kind, [(n, v) for n, v in form.items if n not in OWN - {"q"}])
        said = ngettext("{n} record was moved.", "{n} records were moved.", done.moved)
        details = [f"{p['id']}: {views.said(p['why'])}" for p in done.passed]
        if done.passed:
            said += " " + ngettext(
                "{n} was passed over.", "{n} were passed over.", len(done.passed)
            )
        return desk.go(request, back, said, kind="good" if done.moved else "wait", details=details)


def _one(api: APIRouter, desk: Desk) -> None:
    async def found(table: str, id: str) -> tuple[Record, bool]:
        try:
            return await desk.read_model.record(table, id), False
        except NotFound:
            kind = desk.runtime.engine.kind(table)
            page = (
                await desk.read_model.records(table, {"id": id}, limit=1, archived=True)
                if kind.archive
                else None
            )
            if page is None or not page.items:
                raise
            return page.items[0], True

    @api.get("/console/records/{table}/{id}")
    async def record(request: Request, table: str, id: str) -> Response:
        record, archived = await found(table, id)
        kind, stages = record.kind, desk.runtime.engine.all_stages
        what = views.roles(kind, stages)
        why = None if archived else await desk.read_model.why(table, record.id)
        counts = {record.status: {"count": 1, "exact": True}}
        values: dict[str, Any] = {
            "kind": kind, "table": table, "record": record, "role": what.get(record.status, "failed"), "archived": archived,
            "why": views.reasons(why) if why else [], "next_at": why.next if why else None,
            "steps": views.timeline(await desk.read_model.history(table, record.id, 500), what), "fields": views.fields(kind, record, desk),
            "related": [] if archived else await desk.outlook.related(table, record.id), "roles": what,
            "diagram": views.diagram(kind, stages, counts, {}, record.status), "ways": views.ways(kind, record, stages),
            "error": views.fault(record.last_error), "error_at": views.moment((record.last_error or {}).get("timestamp")),
            "editable": views.editable(kind, record),
            "trace": table == "documentos" and "extracciones" in {k.table for k in desk.runtime.engine.all_kinds},
            "other_roles": {k.table: views.roles(k, stages) for k in desk.runtime.engine.all_kinds},
        }  # fmt: skip
        return await desk.page(request, "record.html", here="records", **values)

    @api.post("/console/records/{table}/{id}")
    async def act(request: Request, table: str, id: str) -> Response:
        form = await desk.form(request)
        kind = desk.runtime.engine.kind(table)
        operator = desk.runtime.operations(str(request.state.who))
        if form.get("verb") == "retry":
            acted = await operator.retry(table, reason=form.reason, ids=[id])
        else:
            fields = edited(kind, form, await desk.read_model.record(table, id))
            acted = await operator.move(
                table, form.get("to"), reason=form.reason, ids=[id], fields=fields
            )
        said = _("The record was moved.") if acted.moved else _("Nothing was done.")
        details = [views.said(p["why"]) for p in acted.passed]
        return desk.go(
            request,
            render.url("console", "records", table, id),
            said,
            kind="good" if acted.moved else "wait",
            details=details,
        )


def edited(kind: Kind, form: Form, record: Record | None) -> dict[str, Any]:
    """The fields that a form changed, checked; Refused says what does not fit."""
    before = {field["name"]: field["text"] for field in views.editable(kind, record)}
    changed: dict[str, Any] = {}
    for name, text in form.items:
        field = kind.by_name.get(name.removeprefix("field."))
        text = text.replace("\r\n", "\n")  # noqa: PLW2901
        if (
            field is None
            or not name.startswith("field.")
            or field.name not in before
            or text == before[field.name]
        ):
            continue
        if text == "" and (field.nullable or field.type not in ("text", "json")):
            changed[field.name] = None
        elif field.type == "json":
            try:
                changed[field.name] = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise Refused(
                    422, _("{field} is not JSON: {error}", field=field.name, error=error)
                ) from None
        else:
            changed[field.name] = text
    try:
        checked = kind.check_fields(changed)
        for name, value in checked.items():
            if (fault := storage_fault(value)) is not None:
                raise BadRecord(f"{name}: {fault}")
        return checked
    except (
        BadQuery
    ) as error:  # pragma: no cover - check_fields raises BadRecord, which the page tells by itself
        raise Refused(422, str(error)) from None

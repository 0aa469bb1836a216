"""Pages of records: lists with filters, one record, and bulk actions with a preview."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from esclusa.engine.operations import Acted, Operations
from esclusa.exports import FORMATS, Format
from esclusa.model.errors import BadQuery, BadRecord, NotFound
from esclusa.model.query import beginning, one_of, parse_filter, query
from esclusa.model.record import Kind, Record
from esclusa.model.storable import storage_fault
from esclusa.model.suspects import worker_of
from esclusa.observability import redact
from esclusa.web.api import filters
from esclusa.web.api.common import pasted_id
from esclusa.web.api.exports import export_response, record_rows
from esclusa.web.console import page_data, render, translate
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.catalog import ngettext
from esclusa.web.console.context import ConsoleContext
from esclusa.web.console.forms import FormRefused, SubmittedForm

PAGE = 50
# Records that a preview lists.
SAMPLE = 10
# Matches are counted up to here; beyond, the page says "more than".
COUNT_CAP = 10_000
# Steps that the timeline of a record shows.
HISTORY = 500
# Parameters of the pages. A field with such a name is filtered with an operator: `q__eq=…`.
PAGE_PARAMETERS = frozenset(
    {"q", "next", "verb", "to", "ids", "_field", "_op", "_value", "form_token", "reason", "matched"}
)
# How a typed filter begins: `field=`, `field>=`.
CONDITION = r"[A-Za-z_]\w*\s*(?:>=|<=|!=|=|>|<)"
OPERATORS = {"=": "", ">=": "__gte", "<=": "__lte", ">": "__gt", "<": "__lt"}

Params = Sequence[tuple[str, str]]


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""
    for add in (_lists, _exports, _bulk, _record):
        add(api, console)


def _filter_items(items: Params, *skipped: str) -> list[tuple[str, str]]:
    """The filter among the parameters of a page or form, also what has no value."""
    return [(n, v) for n, v in items if n not in PAGE_PARAMETERS and n not in skipped]


def _lists(api: APIRouter, console: ConsoleContext) -> None:
    read_model = console.read_model

    @api.get("/console/search")
    async def search(request: Request, q: str = "") -> Response:
        found = await read_model.search(q.strip())
        if len(found) == 1 and len(found[0]["items"]) == 1:
            table, id = found[0]["table"], found[0]["items"][0]["id"]
            return RedirectResponse(render.url("console", "records", table, id), 303)
        return await console.page(
            request,
            "search.html",
            here="records",
            found=found,
            q=q,
            roles={
                f["table"]: console.read_model.roles(read_model.lookup(f["table"])) for f in found
            },
        )

    @api.get("/console/records")
    async def kinds(request: Request, system: bool = False) -> Response:
        return await console.page(
            request,
            "kinds.html",
            here="records",
            kinds=await page_data.kinds(console, system=system),
            roles={k.table: read_model.roles(k) for k in read_model.declared(system=system)},
            system=system,
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
        kind = read_model.lookup(table)
        items = _filter_items(request.query_params.multi_items(), "after")
        where = filters.filter_from_query(kind, items, archived=archived, any_state=True)
        if address := _canonical(kind, request):
            return RedirectResponse(address, 303)
        given = [(n, v) for n, v in items if v]
        q = q.strip()
        if q:
            where = {**where, "id": beginning(q)}
        states = [v for n, v in given if n == "status"]
        # Every table has an index on state and change, so one state is listed by last change.
        one_state = len(states) == 1 and "," not in states[0]
        usual = "-updated_at" if one_state and not q and not archived else ""
        try:
            page = await read_model.records(
                table,
                where,
                order=filters.check_order(kind, order or usual),
                limit=PAGE,
                after=after,
                archived=archived,
            )
        except BadQuery:
            if order or not usual or after:
                raise
            usual = ""  # the store has no index for this order, so list by id
            page = await read_model.records(table, where, limit=PAGE, archived=archived)
        if not page.items:
            filters.check_states(kind, where)
        matched = await console.cache.get(
            f"count {query(kind, where, archived=archived)}",
            1.0,
            lambda: read_model.count(table, where, cap=COUNT_CAP, archived=archived),
        )
        roles, columns = console.read_model.roles(kind), page_data.columns(kind)
        here = [*given, ("q", q)] if q else given
        any_state = [p for p in here if p[0] != "status"]
        return await console.page(
            request,
            "records.html",
            here="records",
            kind=kind,
            table=table,
            archived=archived,
            states=[
                asdict(c)
                | {
                    "role": roles.get(c.state, "failed"),
                    "current": c.state in states,
                    "href": _address(kind, [("status", c.state), *any_state]),
                }
                for c in (await console.counts.quick([kind]))[table]
            ],
            all_states=None if not states else _address(kind, any_state),
            roles=roles,
            worked=read_model.worked(kind),
            rows=[page_data.row(r, roles, columns) for r in page.items],
            columns=columns,
            matched=matched,
            q=q,
            given=given,
            chips=page_data.chips(kind, here, omit=("status", "q")),
            without_q=_address(kind, given),
            order=order or usual,
            orders=_orders(kind),
            ordered=_address(kind, [*(p for p in here if p[0] != "order"), ("order", "")]),
            after=after,
            next=_address(kind, [*here, ("after", page.next)]) if page.next else None,
            first=_address(kind, here),
            exports=[
                (form, _address(kind, [p for p in here if p[0] != "order"], "export", form))
                for form in FORMATS
            ],
            fields=_filterable(kind),
            targets=[s for s in kind.lifecycle.states if kind.lifecycle.sources(s)],
            retryable=bool(read_model.retry_targets(kind)),
            repairable=[n for n, _v in here] == ["status"]
            and page_data.is_repairable(kind, states[0]),
        )


def _exports(api: APIRouter, console: ConsoleContext) -> None:
    @api.get("/console/records/{table}/export/{form}")
    async def export(
        request: Request, table: str, form: Format, q: str = "", archived: bool = False
    ) -> Response:
        kind = console.read_model.lookup(table)
        items = _filter_items(request.query_params.multi_items(), "after", "order")
        where = filters.filter_from_query(kind, items, archived=archived, any_state=True)
        if q := q.strip():
            where = {**where, "id": beginning(q)}
        found = console.read_model.each(table, where, archived=archived)
        columns, rows = record_rows(kind, found, masked=True)
        return await export_response(request, table, columns, rows, form)


def _filterable(kind: Kind) -> list[str]:
    """Fields that the filter form offers; a secret could be guessed by filtering."""
    return sorted(
        name
        for name, type in kind.types.items()
        if name not in ("fence", "id", "status")
        and type not in ("json", "bytes")
        and not redact.secret_name(name)
    )


def _orders(kind: Kind) -> list[str]:
    """Orders that an index serves."""
    return list(
        dict.fromkeys(i[0] for i in kind.indexes if not (i[0].startswith("-") and len(i) > 1))
    )


def _canonical(kind: Kind, request: Request) -> str | None:
    """The address of a submitted filter, with one parameter per condition, so it can be shared.

    None if no filter form was submitted.
    """
    given = request.query_params
    skipped = ("_field", "_op", "_value", "q", "after")
    base = [(n, v) for n, v in given.multi_items() if n not in skipped and v]
    text = given.get("q", "").strip()
    if re.match(CONDITION, text):
        parts = re.split(rf"\s+(?={CONDITION})", text)
        parse_filter(kind, parts)
        return _address(kind, [*base, *map(_parameter, parts)])
    if "_field" not in given:
        return None
    field, operator = given.get("_field", ""), given.get("_op", "eq")
    value = given.get("_value", "").strip()
    if field and operator in ("empty", "filled"):
        base.append((f"{field}__null", "true" if operator == "empty" else "false"))
    elif field and value:
        base.append((field if operator == "eq" else f"{field}__{operator}", value))
    return _address(kind, [*base, *([("q", text)] if text else [])])


def _parameter(part: str) -> tuple[str, str]:
    """A typed condition as a parameter: ``a>=3`` becomes ``("a__gte", "3")``."""
    match = re.match(r"\s*([A-Za-z_]\w*)\s*(>=|<=|!=|=|>|<)\s*(.*)", part, re.DOTALL)
    assert match is not None  # parse_filter accepted it
    name, sign, value = match[1], match[2], match[3].strip()
    if value.lower() == "null":
        return f"{name}__null", "true" if sign == "=" else "false"
    if sign == "=" and len(value) > 1 and value[0] == value[-1] == '"':  # commas are part of it
        return f"{name}__eq", value[1:-1]
    return name + OPERATORS[sign], value.strip('"')


def _address(kind: Kind, params: Params, *parts: str) -> str:
    base = render.url("console", "records", kind.table, *parts)
    return f"{base}?{urlencode(params)}" if params else base


def _list_address(kind: Kind, items: Params) -> str:
    """The list from which a bulk action was started."""
    return _address(kind, [(n, v) for n, v in items if n == "q" or n not in PAGE_PARAMETERS])


def _bulk(api: APIRouter, console: ConsoleContext) -> None:
    async def act(
        request: Request, kind: Kind, items: Params, **options: Any
    ) -> tuple[Acted, dict[str, Any]]:
        """Perform the action that the form names, or only count (``dry_run=True``)."""
        form = dict(items)
        ids = [v for n, v in items if n == "ids"]
        conditions = _filter_items(items, "after", "order")
        given = [(n, v) for n, v in conditions if v]
        verb, to = form.get("verb", ""), form.get("to", "")
        where = filters.filter_from_query(kind, conditions, any_state=verb == "repair")
        if q := form.get("q", "").strip():
            where["id"] = beginning(q)
        if not ids and not where:
            where = {"status": one_of(*kind.lifecycle.states)}
        chosen: dict[str, Any] = {"ids": ids} if ids else {"where": where}
        acted = await _perform(console.operations(request), kind, form, chosen, options)
        where = {"id": ids} if ids else where
        return acted, {"ids": ids, "where": where, "given": given, "verb": verb, "to": to, "q": q}

    async def preview(
        request: Request, kind: Kind, items: Params, *, changed: bool = False
    ) -> Response:
        acted, choice = await act(request, kind, items, dry_run=True, reason="")
        where, targets = choice["where"], console.read_model.retry_targets(kind)
        if choice["verb"] == "retry" and "status" not in where:
            where = {**where, "status": one_of(*targets)}
        sample = await console.read_model.records(kind.table, where, limit=SAMPLE)
        roles, columns = console.read_model.roles(kind), page_data.columns(kind)[:3]
        fields = [(n, v) for n, v in items if n not in ("form_token", "matched", "next")]
        return await console.page(
            request,
            "preview.html",
            here="records",
            http_status=409 if changed else 200,
            table=kind.table,
            acted=acted,
            choice=choice,
            changed=changed,
            chips=page_data.chips(kind, choice["given"]),
            targets=targets,
            roles=roles,
            rows=[page_data.row(r, roles, columns) for r in sample.items],
            columns=columns,
            items=[i for i in fields if i[0] != "reason"],
            reason=dict(items).get("reason", ""),
            return_to=f"{render.path('console', 'records', kind.table, 'act')}?{urlencode(fields)}",
            back=_list_address(kind, items),
        )

    @api.get("/console/records/{table}/act")
    async def show_preview(request: Request, table: str) -> Response:
        return await preview(
            request, console.read_model.lookup(table), request.query_params.multi_items()
        )

    @api.post("/console/records/{table}/act")
    async def confirm(request: Request, table: str) -> Response:
        kind = console.read_model.lookup(table)
        form = await console.form(request)
        acted, _choice = await act(request, kind, form.items, reason=form.reason, seen=form.matched)
        if acted.dry_run:
            return await preview(request, kind, form.items, changed=True)
        message = ngettext("{n} record moved.", "{n} records moved.", acted.moved)
        if acted.passed:
            message += " " + ngettext("{n} skipped.", "{n} skipped.", len(acted.passed))
        return console.redirect(
            request,
            _list_address(kind, form.items),
            message,
            kind="good" if acted.moved else "warning",
            details=[f"{p['id']}: {translate.sentence(p['why'])}" for p in acted.passed],
        )


async def _perform(
    operations: Operations,
    kind: Kind,
    form: dict[str, str],
    chosen: dict[str, Any],
    options: dict[str, Any],
) -> Acted:
    """Perform the action that the form names on the chosen records."""
    verb, to = form.get("verb", ""), form.get("to", "")
    if verb == "retry":
        return await operations.retry(kind.table, **chosen, **options)
    if verb == "repair" and to:  # of all records in that state
        return await operations.repair(kind.table, form.get("status", ""), to, **options)
    if verb == "move" and to:
        return await operations.move(kind.table, to, **chosen, **options)
    raise FormRefused(422, _("Choose an action for the records."))


def _record(api: APIRouter, console: ConsoleContext) -> None:
    read_model = console.read_model

    async def find(table: str, id: str) -> tuple[Record, bool]:
        """The record, and whether it is in the archive."""
        try:
            return await read_model.record(table, id), False
        except NotFound:
            if not read_model.lookup(table).archive:
                raise
            page = await read_model.records(table, {"id": id}, limit=1, archived=True)
            if not page.items:
                raise
            return page.items[0], True

    @api.get("/console/records/{table}/{id:path}")
    async def record(request: Request, table: str, id: str) -> Response:
        record, archived = await find(table, await pasted_id(request, read_model, table, id))
        kind = record.kind
        roles = console.read_model.roles(kind)
        why = None if archived else await read_model.why(table, record.id)
        related = [] if archived else await read_model.related(table, record.id)
        return await console.page(
            request,
            "record.html",
            here="records",
            kind=kind,
            table=table,
            record=record,
            held_by=worker_of(record.leased_by),
            role=roles.get(record.status, "failed"),
            roles=roles,
            archived=archived,
            diagram=page_data.diagram(
                console, kind, {record.status: {"count": 1, "exact": True}}, {}, record.status
            ),
            why=page_data.reasons(why) if why else [],
            next_at=why.next if why else None,
            buttons=[
                *(b for e in console.extensions for b in e.buttons_of(record)),
                *_repair_button(record),
            ],
            error=page_data.error(record.last_error),
            error_at=page_data.error_time(record.last_error),
            fields=page_data.fields(console, record),
            related=related,
            related_roles={
                r["table"]: read_model.roles(read_model.lookup(r["table"])) for r in related
            },
            moves=page_data.possible_moves(console, record, roles),
            editable=page_data.editable(record),
            steps=page_data.timeline(await read_model.history(table, record.id, HISTORY), roles),
        )

    @api.post("/console/records/{table}/{id:path}")
    async def act(request: Request, table: str, id: str) -> Response:
        form = await console.form(request)
        operations = console.operations(request)
        if form.get("verb") == "retry":
            acted = await operations.retry(table, reason=form.reason, ids=[id])
        else:
            acted = await operations.move(
                table,
                form.get("to"),
                reason=form.reason,
                ids=[id],
                fields=edited(form, await read_model.record(table, id)),
            )
        return console.redirect(
            request,
            render.url("console", "records", table, id),
            _("The record was moved.") if acted.moved else _("Nothing was changed."),
            kind="good" if acted.moved else "warning",
            details=[translate.sentence(p["why"]) for p in acted.passed],
        )


def _repair_button(record: Record) -> list[tuple[str, str]]:
    """The way to the list of all records in the undeclared state of this one."""
    if not page_data.is_repairable(record.kind, record.status):
        return []
    return [(_("Repair…"), _address(record.kind, [("status", record.status)]))]


def edited(form: SubmittedForm, record: Record) -> dict[str, Any]:
    """The fields that the form changed; FormRefused or BadRecord if a value does not fit."""
    kind = record.kind
    before = {field["name"]: field["text"] for field in page_data.editable(record)}
    changed: dict[str, Any] = {}
    for input_name, given in form.items:
        prefix, _dot, name = input_name.partition(".")
        text = given.replace("\r\n", "\n")  # browsers send CRLF
        if prefix != "field" or name not in before or text == before[name]:
            continue
        field = kind.by_name[name]
        if text == "" and (field.nullable or field.type not in ("text", "json")):
            changed[name] = None
        elif field.type == "json":
            try:
                changed[name] = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise FormRefused(
                    422, _("{field} is not JSON: {error}", field=name, error=error)
                ) from None
        else:
            changed[name] = text
    checked = kind.check_fields(changed)
    for name, value in checked.items():
        if (fault := storage_fault(value)) is not None:
            raise BadRecord(f"{name}: {fault}")
    return checked

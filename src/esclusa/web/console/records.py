"""Pages of records: lists with filters, and one record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from esclusa.exports import FORMATS, Format, record_columns
from esclusa.model.errors import BadQuery, BadRecord, NotFound
from esclusa.model.kind import Kind
from esclusa.model.query import beginning, check_states
from esclusa.model.record import Record
from esclusa.model.storable import storage_fault
from esclusa.model.suspects import worker_of
from esclusa.observability import redact
from esclusa.web.api import filters
from esclusa.web.api.common import pasted_id
from esclusa.web.api.exports import export_response, record_rows
from esclusa.web.api.suggestions import first_suggestions, offered_fields
from esclusa.web.console import bulk, page_data, pipeline_actions, render, translate
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.context import ConsoleContext
from esclusa.web.console.forms import FormRefused, SubmittedForm
from esclusa.web.console.list_address import address_of, canonical, filter_items, saved_address
from esclusa.web.console.refusals import Refusals

PAGE = 50
# Matches are counted up to here; beyond, the page says "more than".
COUNT_CAP = 10_000
# Steps that the timeline of a record shows.
HISTORY = 500


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""
    for add in (_lists, _exports, bulk.add_routes, _record):
        add(api, console)


def _lists(api: APIRouter, console: ConsoleContext) -> None:
    read_model = console.read_model

    @api.get("/console/search")
    async def search(request: Request, q: str = "") -> Response:
        q = q.strip()
        found = await read_model.search(q)
        exact = [f["table"] for f in found if f["items"][0]["id"] == q]
        if len(exact) == 1:  # a record whose id only begins so may be another one
            return RedirectResponse(render.url("console", "records", exact[0], q), 303)
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
        columns: str = "",
        archived: bool = False,
    ) -> Response:
        kind = read_model.lookup(table)
        items = filter_items(request.query_params.multi_items(), "after")
        where = filters.filter_from_query(kind, items, archived=archived, any_state=True)
        q = q.strip()
        try:
            if address := canonical(kind, request):
                return RedirectResponse(address, 303)
        except BadQuery:
            ids = {"id": beginning(q)}  # an id may look like a filter
            if not (await read_model.records(table, ids, limit=1, archived=archived)).items:
                raise
        given = [(n, v) for n, v in items if v]
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
        if not page.items and "status" in where:
            check_states(kind, where, await read_model.states(table))
        matched = await console.cache.get(
            f"count {table} {archived} {where}",
            1.0,
            lambda: read_model.count(table, where, cap=COUNT_CAP, archived=archived),
        )
        chosen = [c.name for c in record_columns(kind, filters.chosen_columns(columns))]
        shown = [n for n in chosen if n not in ("id", "status")] if columns else None
        names = page_data.columns(kind, page.items) if shown is None else shown
        roles = console.read_model.roles(kind)
        here = [*given, ("q", q)] if q else given
        any_state = [p for p in here if p[0] != "status"]
        refusals, life = Refusals(console, request, kind), kind.lifecycle
        refused = refusals.of_all(where)
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
                    "href": address_of(kind, [("status", c.state), *any_state]),
                }
                for c in (await console.counts.quick([kind]))[table]
            ],
            all_states=None if not states else address_of(kind, any_state),
            roles=roles,
            worked=read_model.worked(kind),
            rows=[page_data.row(r, roles, names) for r in page.items],
            columns=names,
            default_columns=shown is None,
            offered_columns=_offered(kind, names),
            matched=matched,
            q=q,
            given=given,
            chips=page_data.chips(kind, here, omit=("status", "q")),
            without_q=address_of(kind, given),
            order=order or usual,
            orders=_orders(kind),
            ordered=address_of(kind, [*(p for p in here if p[0] != "order"), ("order", "")]),
            after=after,
            next=address_of(kind, [*here, ("after", page.next)]) if page.next else None,
            first=address_of(kind, here),
            exports=[
                (form, address_of(kind, [p for p in here if p[0] != "order"], "export", form))
                for form in FORMATS
            ],
            saved=[
                (each.name, saved_address(kind, each))
                for each in await read_model.saved_filters(table)
            ],
            here_query=render.query(here),
            usual_query=render.query([p for p in here if p[0] != "columns"]),
            suggested=first_suggestions(kind),
            fields=offered_fields(kind),
            refused=refused,
            targets=[
                to
                for to in life.states
                if not refused and any(refusals.of(frm) is None for frm in life.sources(to))
            ],
            pipeline_actions=pipeline_actions.actions_of(console, kind, refused=bool(refused)),
            retryable=not refused
            and any(refusals.of(frm) is None for frm in read_model.retry_targets(kind)),
            repairable=[n for n, _v in here] == ["status"]
            and page_data.is_repairable(kind, states[0]),
        )


def _exports(api: APIRouter, console: ConsoleContext) -> None:
    @api.get("/console/records/{table}/export/{form}")
    async def export(
        request: Request,
        table: str,
        form: Format,
        q: str = "",
        columns: str = "",
        archived: bool = False,
    ) -> Response:
        kind = console.read_model.lookup(table)
        items = filter_items(request.query_params.multi_items(), "after", "order")
        where = filters.filter_from_query(kind, items, archived=archived, any_state=True)
        if q := q.strip():
            where = {**where, "id": beginning(q)}
        found = console.read_model.each(table, where, archived=archived)
        chosen = filters.chosen_columns(columns)
        if chosen:
            chosen = tuple(dict.fromkeys(("id", "status", *chosen)))
        shown, rows = record_rows(kind, found, masked=True, chosen=chosen)
        return await export_response(request, table, shown, rows, form)


def _offered(kind: Kind, shown: Sequence[str]) -> list[tuple[str, bool]]:
    """The columns that the list may have, and whether it has them; values inside JSON stay."""
    tracked = ("attempts", "due_at", "created_at", "updated_at")
    own = [f.name for f in kind.fields if f.type != "bytes" and not redact.secret_name(f.name)]
    errors = ["last_error.type", "last_error.message"] if "last_error" in kind.types else []
    names = dict.fromkeys([*own, *(n for n in tracked if n in kind.types), *errors, *shown])
    return [(name, name in shown) for name in names]


def _orders(kind: Kind) -> list[str]:
    """Orders that an index serves."""
    return list(
        dict.fromkeys(i[0] for i in kind.indexes if not (i[0].startswith("-") and len(i) > 1))
    )


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
        refusal = Refusals(console, request, kind).of(record.status)
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
            refusal=refusal,
            pipeline_actions=[]
            if archived
            else pipeline_actions.actions_for(console, record, refused=refusal is not None),
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
    return [(_("Repair…"), address_of(record.kind, [("status", record.status)]))]


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

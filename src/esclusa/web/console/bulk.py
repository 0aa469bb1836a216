"""Bulk actions on records: a preview, and the confirmation."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from esclusa.engine.audited import Acted
from esclusa.engine.operations import Operations
from esclusa.model.kind import Kind
from esclusa.model.query import beginning, one_of
from esclusa.web.api import filters
from esclusa.web.console import page_data, render, translate
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.catalog import ngettext
from esclusa.web.console.context import ConsoleContext
from esclusa.web.console.forms import FormRefused
from esclusa.web.console.list_address import Params, filter_items, list_address
from esclusa.web.console.refusals import Refusals

# Records that a preview lists.
SAMPLE = 10


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""

    async def act(
        request: Request, kind: Kind, items: Params, **options: Any
    ) -> tuple[Acted, dict[str, Any]]:
        """Perform the action that the form names, or only count (``dry_run=True``)."""
        form = dict(items)
        ids = [v for n, v in items if n == "ids"]
        conditions = filter_items(items, "after", "order")
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
        roles, columns = console.read_model.roles(kind), page_data.columns(kind, sample.items)[:3]
        refusals = Refusals(console, request, kind)
        rows = [
            page_data.row(record, roles, columns) | {"skipped": refusals.of(record.status)}
            for record in sample.items
        ]
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
            rows=rows,
            refused=refusals.of_sample(rows, where, acted.matched),
            columns=columns,
            items=[i for i in fields if i[0] != "reason"],
            reason=dict(items).get("reason", ""),
            return_to=f"{render.path('console', 'records', kind.table, 'act')}?{urlencode(fields)}",
            back=list_address(kind, items),
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
            list_address(kind, form.items),
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

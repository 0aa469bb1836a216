"""The actions of pipelines: a list, and for each a preview, its parameters and a confirmation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from esclusa.engine.pipeline_actions import ActionDone
from esclusa.model.action import Action, both
from esclusa.model.kind import Kind
from esclusa.model.query import beginning, conditions, matches, one_of
from esclusa.model.record import Record
from esclusa.web.api import filters
from esclusa.web.console import catalog, page_data, render, translate
from esclusa.web.console.catalog import ngettext
from esclusa.web.console.context import ConsoleContext
from esclusa.web.console.list_address import Params, filter_items, list_address
from esclusa.web.console.refusals import Refusals

# Records that a preview lists.
SAMPLE = 10
# How the parameters of an action are called in its form.
PREFIX = "param."


def title_of(action: Action) -> str:
    """The title of an action in the language of the page."""
    return action.title.get(catalog.current.get().language, action.title["en"])


def about_of(action: Action) -> str:
    """What an action does, in the language of the page."""
    return action.about.get(catalog.current.get().language, action.about.get("en", ""))


def address_of(action: Action, **params: Any) -> str:
    """The preview of an action."""
    return render.url("console", "actions", *action.name.split(".", 1), **params)


def actions_of(
    console: ConsoleContext, kind: Kind, *, refused: bool = False
) -> list[dict[str, str]]:
    """The actions for the records of a list, each with the address of its preview.

    refused: the visitor may move none of the records. Then only a preview can show whether an
    action leaves them in their state, and one whose parameters nobody has entered has none.
    """
    return [
        {"title": title_of(action), "about": about_of(action), "href": address_of(action)}
        for action in console.read_model.registry.actions.values()
        if action.kind == kind and not (refused and action.required)
    ]


def actions_for(
    console: ConsoleContext, record: Record, *, refused: bool = False
) -> list[dict[str, str]]:
    """The actions that are for this record as it is, see ``actions_of``."""
    kind = record.kind
    values = {name: getattr(record, name, None) for name in kind.types}
    return [
        {
            "title": title_of(action),
            "about": about_of(action),
            "href": address_of(action, ids=record.id),
        }
        for action in console.read_model.registry.actions.values()
        if action.kind == kind
        and not (refused and action.required)
        and matches(values, conditions(kind, action.where))
    ]


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""

    @api.get("/console/actions")
    async def actions(request: Request) -> Response:
        return await console.page(
            request,
            "actions.html",
            here="actions",
            pipelines=[
                (plan.name, [_row(action) for action in plan.actions])
                for plan in console.read_model.pipelines()
                if plan.actions
            ],
        )

    @api.get("/console/actions/{pipeline}/{name}")
    async def preview(request: Request, pipeline: str, name: str) -> Response:
        action = console.read_model.registry.action(f"{pipeline}.{name}")
        return await _preview(console, request, action, request.query_params.multi_items())

    @api.post("/console/actions/{pipeline}/{name}")
    async def confirm(request: Request, pipeline: str, name: str) -> Response:
        form = await console.form(request)
        action = console.read_model.registry.action(f"{pipeline}.{name}")
        options: dict[str, Any] = {"reason": form.reason}
        if action.kind is not None:
            options["seen"] = form.matched
        acted = await _apply(console, request, action, form.items, **options)
        if acted.dry_run:
            return await _preview(console, request, action, form.items, changed=True)
        kind = action.kind
        message = acted.message or ngettext("{n} record moved.", "{n} records moved.", acted.moved)
        if acted.passed:
            message += " " + ngettext("{n} skipped.", "{n} skipped.", len(acted.passed))
        to = render.url("console", "actions") if kind is None else _back(kind, form.items)
        return console.redirect(
            request,
            to,
            message,
            kind="good" if acted.moved or kind is None else "warning",
            details=[f"{p['id']}: {translate.sentence(p['why'])}" for p in acted.passed],
        )


def _row(action: Action) -> dict[str, Any]:
    return {
        "name": action.name,
        "title": title_of(action),
        "about": about_of(action),
        "table": None if action.kind is None else action.kind.table,
        "href": address_of(action),
    }


def _chosen(kind: Kind, items: Params) -> dict[str, Any]:
    """The records that a form or an address names: by id, or by the filter of a list."""
    if ids := [v for n, v in items if n == "ids"]:
        return {"ids": ids}
    where = filters.filter_from_query(kind, _conditions(items), any_state=True)
    if q := dict(items).get("q", "").strip():
        where["id"] = beginning(q)
    return {"where": where}


def _conditions(items: Params) -> list[tuple[str, str]]:
    """The filter among the fields of a form."""
    others = [(n, v) for n, v in items if not n.startswith(PREFIX)]
    return filter_items(others, "after", "order", "archived")


def _given(action: Action, items: Params) -> dict[str, Any]:
    """The parameters of the action that the form has; an empty one was not given."""
    names = ((n.removeprefix(PREFIX), v) for n, v in items if n.startswith(PREFIX) and v)
    return {n: v for n, v in names if n in action.params.model_fields}


async def _apply(
    console: ConsoleContext, request: Request, action: Action, items: Params, **options: Any
) -> ActionDone:
    chosen = {} if action.kind is None else _chosen(action.kind, items)
    params: dict[str, Any] | None = _given(action, items)
    if options.get("dry_run") and not action.required <= set(params or ()):
        params = None  # nobody has entered them
    return await console.operations(request).act(action.name, **chosen, params=params, **options)


async def _preview(
    console: ConsoleContext,
    request: Request,
    action: Action,
    items: Params,
    *,
    changed: bool = False,
) -> Response:
    acted = await _apply(console, request, action, items, dry_run=True)
    fields = [(n, v) for n, v in items if n not in ("form_token", "matched", "next", "to", "verb")]
    kept = [(n, v) for n, v in fields if n != "reason" and not n.startswith(PREFIX)]
    values: dict[str, Any] = {"rows": [], "columns": [], "chips": [], "ids": [], "refused": []}
    if (kind := action.kind) is not None:
        chosen = _chosen(kind, items)
        ids = chosen.get("ids")
        where = both({"id": one_of(*ids)} if ids else chosen["where"], action.where)
        sample = await console.read_model.records(kind.table, where, limit=SAMPLE)
        roles, columns = console.read_model.roles(kind), page_data.columns(kind, sample.items)[:3]
        skipped = {p["id"]: translate.sentence(p["why"]) for p in acted.passed}
        rows = [
            page_data.row(record, roles, columns) | {"skipped": skipped.get(record.id)}
            for record in sample.items
        ]
        refusals = Refusals(console, request, kind)
        given = [(n, v) for n, v in _conditions(items) if v]
        values = {
            "rows": rows,
            "refused": refusals.of_sample(rows, where, acted.matched),
            "columns": columns,
            "chips": page_data.chips(kind, given),
            "ids": ids,
        }
    here = render.path("console", "actions", *action.name.split(".", 1))
    return await console.page(
        request,
        "action.html",
        here="actions" if kind is None else "records",
        http_status=409 if changed else 200,
        action=_row(action),
        table=None if kind is None else kind.table,
        acted=acted,
        changed=changed,
        params=_params(action, items),
        items=kept,
        reason=dict(items).get("reason", ""),
        return_to=f"{here}?{urlencode(fields)}",
        back=render.url("console", "actions") if kind is None else _back(kind, items),
        **values,
    )


def _back(kind: Kind, items: Params) -> str:
    """Where the operator came from: the record, or the list with its filter."""
    ids = [v for n, v in items if n == "ids"]
    if len(ids) == 1:
        return render.url("console", "records", kind.table, ids[0])
    return list_address(kind, [(n, v) for n, v in items if not n.startswith(PREFIX)])


def _params(action: Action, items: Params) -> list[dict[str, Any]]:
    """The fields of the form for an action's parameters."""
    given, language = _given(action, items), catalog.current.get().language
    out = []
    for name, field in action.params.model_fields.items():
        extra = field.json_schema_extra
        words: Mapping[str, Any] = extra if isinstance(extra, dict) else {}
        choices = [
            str(each)
            for part in (field.annotation, *get_args(field.annotation))
            for each in get_args(part)
            if isinstance(each, str | int)
        ]
        default = "" if field.is_required() or field.default is None else field.default
        out.append(
            {
                "name": PREFIX + name,
                "label": words.get(language) or field.title or name,
                "required": field.is_required(),
                "bool": field.annotation is bool,
                "choices": choices,
                "value": given.get(name, "" if default is False else default),
            }
        )
    return out

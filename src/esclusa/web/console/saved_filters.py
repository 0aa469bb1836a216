"""Saved filters in the console: lists of records that users share by name."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response

from esclusa.model.errors import NotFound
from esclusa.model.system_records import SavedFilter
from esclusa.web.api import filters
from esclusa.web.console import render
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.context import ConsoleContext
from esclusa.web.console.forms import FormRefused
from esclusa.web.console.list_address import filter_items, saved_address


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""
    read_model = console.read_model

    def address(saved: SavedFilter) -> str | None:
        """The list; None if no loaded pipeline has the kind any more."""
        try:
            return saved_address(read_model.lookup(saved.table_name), saved)
        except NotFound:
            return None

    @api.get("/console/filters")
    async def saved(request: Request) -> Response:
        found = [(each, address(each)) for each in await read_model.saved_filters()]
        return await console.page(request, "filters.html", here="records", filters=found)

    @api.post("/console/filters/{table}")
    async def change(request: Request, table: str) -> Response:
        form = await console.form(request)
        operations, name, was = console.operations(request), form.get("name"), form.get("was")
        back = render.url("console", "filters")
        if form.get("verb") == "save":
            kind = read_model.lookup(table)
            given = parse_qsl(form.get("list"))
            listed = dict(given)
            made = await operations.save_filter(
                table,
                name,
                filters=[
                    filters.expression(kind, n, v)
                    for n, v in filter_items(given)
                    if n not in filters.RESERVED
                ],
                begins=listed.get("q", ""),
                order=listed.get("order", ""),
                columns=filters.chosen_columns(listed.get("columns", "")),
            )
            back, message = saved_address(kind, made), _("{name} is saved.", name=made.name)
        elif form.get("verb") == "rename":
            made = await operations.rename_filter(table, was, name)
            message = _("{name} is saved.", name=made.name)
        elif form.get("verb") == "delete":
            await operations.delete_filter(table, was)
            message = _("{name} is deleted.", name=was)
        else:
            raise FormRefused(404, _("There is no such action."))
        return console.redirect(request, back, message)

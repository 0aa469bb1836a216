"""Commands for saved filters: lists of records that users share by name."""

from __future__ import annotations

from typing import Any

import click

from esclusa.cli.completion import kind_names
from esclusa.cli.options import kind_argument, where_option
from esclusa.cli.output import Screen, moment
from esclusa.cli.root import Command, Group
from esclusa.cli.session import Session
from esclusa.cli.zones import zone_name
from esclusa.model.system_records import SavedFilter

name_argument = click.argument("name", metavar="NAME")


@click.group(cls=Group, name="filters", invoke_without_command=True)
@click.pass_context
def filters(ctx: click.Context) -> None:
    """Saved filters, which users share by name: list, save, rename or delete them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_filters)


@filters.command("list", cls=Command)
@click.option(
    "--table", metavar="KIND", shell_complete=kind_names, help="Only filters of this kind."
)
@click.pass_obj
def list_filters(session: Session, table: str | None = None) -> None:
    """Saved filters. Use one with: esclusa records KIND --filter NAME."""
    if table is not None:
        session.kind(table)
    found = session.look(lambda runtime: runtime.read_model.saved_filters(table))
    session.show_list(
        [_shape(each) for each in found],
        ["=KIND", "!NAME", "+FILTERS", "ORDER", "+COLUMNS", "SAVED BY", f"AT ({zone_name()})"],
        (
            (
                each.table_name,
                each.name,
                " ".join(_filters(each)) or None,
                each.order or None,
                ",".join(each.columns) or None,
                each.saved_by,
                moment(each.saved_at),
            )
            for each in found
        ),
        "No saved filters.",
    )


@filters.command("save", cls=Command)
@kind_argument
@name_argument
@where_option
@click.option("--order", default="", metavar="FIELDS", help="Order by these fields.")
@click.option("--columns", default="", metavar="FIELDS", help="Show only these columns.")
@click.pass_obj
def save(
    session: Session, table: str, name: str, where: tuple[str, ...], order: str, columns: str
) -> None:
    """Save a filter under a name. One of that name is replaced."""
    session.kind(table)
    saved = session.look(
        lambda runtime: runtime.operations(session.who).save_filter(
            table,
            name,
            filters=where,
            order=order,
            columns=[each.strip() for each in columns.split(",") if each.strip()],
        )
    )
    _show(session, saved, f"Saved. Use it with: esclusa records {table} --filter {name!r}")


@filters.command("rename", cls=Command)
@kind_argument
@name_argument
@click.argument("new", metavar="NEW")
@click.pass_obj
def rename(session: Session, table: str, name: str, new: str) -> None:
    """Give a saved filter another name."""
    saved = session.look(
        lambda runtime: runtime.operations(session.who).rename_filter(table, name, new)
    )
    _show(session, saved, f"Renamed: {saved.name}")


@filters.command("delete", cls=Command)
@kind_argument
@name_argument
@click.pass_obj
def delete(session: Session, table: str, name: str) -> None:
    """Delete a saved filter."""
    session.look(lambda runtime: runtime.operations(session.who).delete_filter(table, name))
    session.show({"deleted": name}, lambda screen: screen.line(f"Deleted: {name}"))


def _filters(saved: SavedFilter) -> list[str]:
    return [*([f"id begins with {saved.begins}"] if saved.begins else []), *saved.filters]


def _shape(saved: SavedFilter) -> dict[str, Any]:
    names = ("name", "filters", "begins", "order", "columns", "saved_by", "saved_at")
    return {"table": saved.table_name, **{name: getattr(saved, name) for name in names}}


def _show(session: Session, saved: SavedFilter, message: str) -> None:
    def draw(screen: Screen) -> None:
        screen.line(message)

    session.show(_shape(saved), draw)

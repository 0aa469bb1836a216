"""Commands for the actions that pipelines declare: list them, apply one."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from esclusa.cli.chosen_records import Chosen, apply_to_chosen, chosen_records, fields_to_set
from esclusa.cli.options import (
    dry_option,
    ids_argument,
    reason_option,
    where_option,
    yes_option,
)
from esclusa.cli.output import Screen
from esclusa.cli.root import Command
from esclusa.cli.session import Session
from esclusa.engine.registry import Registry
from esclusa.model.errors import BadQuery
from esclusa.model.texts import text


@click.command(cls=Command)
@click.pass_obj
def actions(session: Session) -> None:
    """The actions that the pipelines declare for operators."""
    items: list[dict[str, Any]] = [
        {
            "action": action.name,
            "table": None if action.kind is None else action.kind.table,
            "params": list(action.params.model_fields),
            "about": action.about.get("en", action.title["en"]),
        }
        for action in Registry(session.settings.plans).actions.values()
    ]
    session.show_list(
        items,
        ["!ACTION", "KIND", "PARAMETERS", "+ABOUT"],
        ((i["action"], i["table"], ", ".join(i["params"]) or "-", i["about"]) for i in items),
        "No loaded pipeline declares an action.",
    )


@click.command(cls=Command)
@click.argument("action", metavar="ACTION")
@ids_argument
@where_option
@click.option("--all", "every", is_flag=True, help="All records that the action is for.")
@click.option(
    "--param",
    "-p",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the action; see esclusa actions.",
)
@reason_option
@dry_option
@yes_option
@click.pass_obj
def act(
    session: Session,
    action: str,
    ids: tuple[str, ...],
    where: tuple[str, ...],
    every: bool,
    given: tuple[str, ...],
    reason: str,
    dry_run: bool,
    yes: bool,
) -> int:
    """Apply ACTION of a pipeline (replies.recollect) to records, by id or by filters."""
    found = Registry(session.settings.plans).action(action)
    params = fields_to_set(given, flag="--param")
    found.read_params(params)
    if found.kind is None:
        if ids or where or every:
            raise BadQuery(text("action_without_records", action=action))
        return _perform(session, action, params, reason, dry_run, yes)
    if every and (ids or where):
        raise BadQuery(text("action_records", action=action))
    chosen = Chosen(found.kind) if every else chosen_records(found.kind, ids, where)
    return apply_to_chosen(
        session,
        chosen,
        lambda o: partial(o.act, action, params=params),
        f"Apply {action} to {{}}?",
        reason,
        dry_run,
        yes,
    )


def _perform(
    session: Session, action: str, params: dict[str, Any], reason: str, dry_run: bool, yes: bool
) -> int:
    """Apply an action that is for no record."""
    if not dry_run:
        session.confirm(f"Apply {action}?", yes=yes)

    async def do(runtime: Any) -> Any:
        async with runtime.engine.running():
            return await runtime.operations(session.who).act(
                action, params=params, reason=reason, dry_run=dry_run
            )

    done = session.work(do)

    def draw(screen: Screen) -> None:
        screen.line(done.message or f"{action}: nothing was done (--dry-run)")

    session.show(done.answer(), draw)
    return 0

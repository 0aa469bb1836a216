"""Arguments and options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from esclusa.cli.completion import filters, kind_names, set_names, state_names

F = TypeVar("F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A number of seconds. NaN is refused, although it lies in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return number


# For a command with one id, which may begin with a dash: -100123.
DASHED_ID = {"ignore_unknown_options": True}

kind_argument = click.argument("table", metavar="KIND", shell_complete=kind_names)
ids_argument = click.argument("ids", nargs=-1, metavar="[ID]...")
where_option = click.option(
    "--where",
    "-w",
    "where",
    multiple=True,
    metavar="FILTER",
    shell_complete=filters,
    help="field=value, field=a,b, field>=value, field~part of a text, field=null or field!=null."
    " Repeat to narrow down.",
)
system_option = click.option("--system", is_flag=True, help="Include system records.")
after_option = click.option("--after", metavar="CURSOR", help="Show the page after this cursor.")
reason_option = click.option(
    "--reason", default="", metavar="TEXT", help="Why. Stored in the history and the audit."
)
dry_option = click.option(
    "--dry-run", is_flag=True, help="Show how many records match; change nothing."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
set_option = click.option(
    "--set",
    "fields",
    multiple=True,
    metavar="FIELD=VALUE",
    shell_complete=set_names,
    help="Also set this field.",
)
to_option = click.option(
    "--to",
    required=True,
    metavar="STATE",
    shell_complete=state_names,
    help="The state to move them to.",
)


def limit_option(default: int, most: int = 10_000) -> Callable[[F], F]:
    """``--limit``: the size of a page."""
    return click.option(
        "--limit",
        "-n",
        type=click.IntRange(1, most),
        default=default,
        show_default=True,
        help="Show at most this many.",
    )

"""The tree of commands. Modules are imported when one of their commands is called, or for help."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import click

from esclusa import __version__
from esclusa.cli.session import Session
from esclusa.model.errors import EsclusaError

COMMANDS: dict[str, str] = {
    "demo": "work:demo", "serve": "work:serve", "worker": "work:worker", "run": "work:run", "tick": "work:tick",
    "status": "inspect:status",
    "kinds": "inspect:kinds", "records": "inspect:records", "show": "inspect:show", "why": "inspect:why", "graph": "inspect:graph",
    "retry": "operate:retry", "move": "operate:move", "dead-letters": "operate:dead_letters", "pause": "operate:pause", "resume": "operate:resume",
    "budgets": "inspect:budgets", "cycles": "inspect:cycles", "runs": "inspect:runs", "alerts": "inspect:alerts", "workers": "inspect:workers",
    "rates": "stats:rates", "leases": "stats:leases", "related": "stats:related", "archives": "stats:archives", "audit": "stats:audit",
    "views": "stats:views", "search": "stats:search", "limit": "stats:limit",
    "migrate": "admin:migrate", "doctor": "admin:doctor", "completion": "admin:completion", "version": "admin:version",
    "reference": "reference:reference",
}  # fmt: skip
"""Where each command lives."""


def _session(ctx: click.Context) -> Session:
    session = ctx.find_object(Session)
    assert session is not None
    return session


def _keep_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        _session(ctx).json = True


def _keep_config(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        _session(ctx).config = value


def _keep_override(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and param.name is not None:
        _session(ctx).overrides[param.name] = value


def shared_options(*, hidden: bool) -> list[click.Option]:
    """Options that are understood before the command and after it. Eager, so that they count for ``--help`` too."""

    def text(flag: str, keep: Callable[..., None], metavar: str, help: str) -> click.Option:
        return click.Option(
            [flag],
            metavar=metavar,
            help=help,
            expose_value=False,
            callback=keep,
            is_eager=True,
            hidden=hidden,
        )

    return [
        click.Option(
            ["--json"],
            is_flag=True,
            help="Answer in JSON.",
            expose_value=False,
            callback=_keep_json,
            is_eager=True,
        ),
        text("--config", _keep_config, "FILE", "The settings file (esclusa.toml)."),
        text("--store", _keep_override, "URL", "Where records live."),
        text("--artifacts", _keep_override, "URL", "Where files live."),
        text(
            "--pipelines", _keep_override, "LIST", "Which pipelines to load, separated by commas."
        ),
        text("--log-level", _keep_override, "LEVEL", "debug, info, warning or error."),
    ]


class Seconds(click.FloatRange):
    """A number of seconds; NaN is none, though it is in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return number


class Command(click.Command):
    """A command that understands the shared options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options(hidden=True)


class Group(click.Group):
    """A group whose commands understand the shared options."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options(hidden=True)


class Root(click.Group):
    """The house's commands, and one group for each pipeline that has commands of its own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *self._pipelines(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module, _, name = COMMANDS[cmd_name].partition(":")
            found = getattr(importlib.import_module(f"esclusa.cli.{module}"), name)
            assert isinstance(found, click.Command)
            return found
        build = self._pipelines(ctx).get(cmd_name)
        return build() if build is not None else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            _session(ctx).settings  # noqa: B018 - wrong settings are told as such, not as an unknown command
        return super().resolve_command(ctx, args)

    def _pipelines(self, ctx: click.Context) -> dict[str, Callable[[], click.Command]]:
        try:
            plans = _session(ctx).settings.plans
        except EsclusaError:  # help must be had with wrong settings too
            return {}
        return {
            plan.name: plan.app.commands_
            for plan in plans
            if plan.app.commands_ and plan.name not in COMMANDS
        }


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


@click.command(cls=Root, params=list(shared_options(hidden=False)), context_settings=_CONTEXT)
@click.version_option(__version__, message="esclusa %(version)s")
def root() -> None:
    """Durable record pipelines: the record is the queue.

    \b
    esclusa demo                     see it work
    esclusa status --watch           the house at a glance
    esclusa why KIND ID              why a record is not moving
    """


def kind_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completion of KIND."""
    return _complete(lambda session: list(session.kinds()), ctx, incomplete)


def cycle_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Completion of CYCLE."""
    return _complete(
        lambda session: [c.name for plan in session.settings.plans for c in plan.cycles],
        ctx,
        incomplete,
    )


def _complete(
    names: Callable[[Session], list[str]], ctx: click.Context, incomplete: str
) -> list[str]:
    try:
        return [name for name in names(_session(ctx)) if name.startswith(incomplete)]
    except EsclusaError:
        return []

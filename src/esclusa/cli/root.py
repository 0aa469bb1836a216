"""The tree of commands. A command's module is imported when the command is called, or for help."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import click

from esclusa import __version__
from esclusa.cli import zones
from esclusa.cli.session import Session
from esclusa.cli.summaries import SUMMARIES
from esclusa.loading import BUILT_IN
from esclusa.model.errors import EsclusaError, SettingsError
from esclusa.model.names import nearest

if TYPE_CHECKING:
    from esclusa.model.kind import Kind

# The groups of `--help`: the module of each, and its commands.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Develop": ("new", ("new", "dev", "testing")),
    "Run": ("run", ("demo", "serve", "worker", "run", "tick")),
    "Inspect": (
        "inspect",
        (
            "status",
            "kinds",
            "records",
            "show",
            "why",
            "graph",
            "related",
            "search",
            "filters",
            "views",
            "cycles",
            "runs",
            "budgets",
            "workers",
            "leases",
            "alerts",
            "actions",
        ),
    ),
    "Operate": (
        "operate",
        (
            *("retry", "move", "repair", "dead-letters"),
            *("act", "pause", "resume", "limit", "alert-rules"),
        ),
    ),
    "Statistics": ("stats", ("rates", "times", "history", "archives", "audit")),
    "Administration": (
        "admin",
        ("migrate", "lifecycle", "doctor", "mcp", "completion", "version"),
    ),
}

# The module of each command.
COMMANDS = {name: module for module, names in GROUPS.values() for name in names} | {
    "dead-letters": "dead_letters",
    "dev": "dev",
    "mcp": "mcp",
    "actions": "actions",
    "act": "actions",
    "alert-rules": "alert_rules",
    "filters": "filters",
    "times": "history",
    "history": "history",
    "testing": "testing",
    "reference": "reference",
}


def _session(ctx: click.Context) -> Session:
    session = ctx.find_object(Session)
    assert session is not None
    return session


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and param.name == "utc":
        zones.utc.set(True)
    elif value and param.name in ("json", "wide", "config"):
        setattr(_session(ctx), param.name, value)
    elif isinstance(value, str) and param.name:
        _session(ctx).overrides[param.name] = value


def shared_options(*, hidden: bool) -> list[click.Option]:
    """Options that may stand before the command or after it.

    They are eager, so that ``--help`` honours them.
    """
    always: dict[str, Any] = {"expose_value": False, "callback": _keep, "is_eager": True}
    return [
        click.Option(["--json"], is_flag=True, help="Print JSON.", **always),
        click.Option(
            ["--wide"], is_flag=True, hidden=hidden, help="Cut nothing in tables.", **always
        ),
        click.Option(
            ["--utc"],
            is_flag=True,
            hidden=hidden,
            help="Print times in UTC instead of the system's time zone.",
            **always,
        ),
        *(
            click.Option([flag], metavar=metavar, help=help, hidden=hidden, **always)
            for flag, metavar, help in (
                ("--config", "FILE", "The settings file (esclusa.toml)."),
                ("--store", "URL", "The store."),
                ("--artifacts", "URL", "Where artifacts are kept."),
                ("--pipelines", "LIST", "The pipelines to load, separated by commas."),
                ("--log-level", "LEVEL", "debug, info, warning or error."),
            )
        ),
    ]


class Command(click.Command):
    """A command that understands the shared options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options(hidden=True)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            hint = next(filter(None, map(filter_hint, given)), None)
            if hint is None or not any(param.name == "where" for param in self.params):
                raise
            raise click.UsageError(f"{error.message}. {hint}", ctx) from None


_FILTER = re.compile(r"([A-Za-z_][\w.]*)(?:>=|<=|!=|=|>|<|~)")


def filter_hint(word: str, kind: Kind | None = None) -> str | None:
    """What to write instead of a filter that stands alone; None if the word is no filter.

    With a kind, only its fields make a filter: an id may contain ``=``.
    """
    match = _FILTER.match(word)
    known = kind is None or (match and kind.name_of(match[1]).split(".")[0] in kind.types)
    if match is None or not known:
        return None
    return f"A filter needs -w: -w {shlex.quote(word)}"


class Group(Command, click.Group):
    """A group whose commands understand the shared options."""

    command_class = Command


class Root(click.Group):
    """Esclusa's commands, and one group for each pipeline that has commands of its own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *self._pipelines(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module = importlib.import_module(f"esclusa.cli.{COMMANDS[cmd_name]}")
            return cast("click.Command", getattr(module, cmd_name.replace("-", "_")))
        build = self._pipelines(ctx).get(cmd_name)
        return build() if build is not None else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group; those of pipelines come last."""
        groups = {title: names for title, (_, names) in GROUPS.items()}
        for title, names in {**groups, "Pipelines": self._pipeline_names(ctx)}.items():
            rows = [(name, self._summary(ctx, name)) for name in names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _summary(self, ctx: click.Context, name: str) -> str:
        if name in SUMMARIES:
            return SUMMARIES[name]
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(90)

    def _pipeline_names(self, ctx: click.Context) -> tuple[str, ...]:
        """The pipelines with commands. The built-in ones are known without loading them."""
        named = _session(ctx).named_pipelines()
        if named is not None and set(named) <= set(BUILT_IN):
            return named or BUILT_IN
        return tuple(self._pipelines(ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            session, name = _session(ctx), args[0]
            session.implied = (name,) if name in BUILT_IN else ()
            settings = session.settings  # report wrong settings, not an unknown command
            if name in BUILT_IN and name not in (plan.name for plan in settings.plans):
                named = f"{settings.sources['pipelines']}: it names {', '.join(settings.pipelines)}"
                fault = f"{named}, not {name}; add {name}"
                raise SettingsError(f"the pipeline {name} is not loaded", [fault])
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = nearest(args[0], self.list_commands(ctx))
            if near is None:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near}?", ctx) from None

    def _pipelines(self, ctx: click.Context) -> dict[str, Callable[[], click.Command]]:
        """The own commands of the pipelines; for help, of the built-in ones if none is named."""
        session = _session(ctx)
        try:
            settings = session.settings if session.implied else session.load_settings(BUILT_IN)
        except EsclusaError:  # help works with wrong settings, too
            return {}
        return {
            plan.name: plan.app.commands_
            for plan in settings.plans
            if plan.app.commands_ and plan.name not in COMMANDS
        }


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.command(cls=Root, params=list(shared_options(hidden=False)), context_settings=_CONTEXT)
@click.version_option(__version__, message="esclusa %(version)s")
def root() -> None:
    """Durable record pipelines: the record is the queue.

    \b
    esclusa demo                     run the built-in pipelines against simulators
    esclusa status --watch           counts, backlogs, budgets and workers
    esclusa why KIND ID              why a record is not moving
    """  # noqa: D301 - click reads the control character: it keeps the lines below it

"""Commands for the rules for alerts: list them, change and reset thresholds, mute and unmute."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli.options import reason_option
from esclusa.cli.output import Screen, ago, moment
from esclusa.cli.root import Group
from esclusa.cli.session import Session
from esclusa.cli.zones import zone_name
from esclusa.engine.alert_rules import ALL, RULES, read_threshold, written_threshold
from esclusa.model import duration

if TYPE_CHECKING:
    from esclusa.runtime import Runtime

_rule_argument = click.argument("rule", type=click.Choice(sorted(RULES)), metavar="RULE")
_subject_option = click.option(
    "--subject",
    "-s",
    default=ALL,
    metavar="NAME",
    help="Only for this stage, cycle, budget or kind. Default: for all.",
)


@click.group(cls=Group, name="alert-rules", invoke_without_command=True)
@click.pass_context
def alert_rules(ctx: click.Context) -> None:
    """Rules for alerts: list them, change thresholds, mute alerts."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_rules)


@alert_rules.command("list")
@click.pass_obj
def list_rules(session: Session) -> None:
    """Every rule with the thresholds that count now, and what is muted."""
    answer, now = session.look_now(lambda runtime: runtime.read_model.alert_rules())
    session.show(answer, lambda screen: _draw(screen, answer, now))


def _draw(screen: Screen, answer: dict[str, Any], now: datetime) -> None:
    screen.table(
        ["RULE", "!SUBJECT", ">THRESHOLD", ">DECLARED", "+CHANGED"],
        (
            (
                item["rule"],
                "(all)" if item["subject"] == ALL else item["subject"],
                written_threshold(item["unit"], item["threshold"]),
                written_threshold(item["unit"], item["declared"]),
                _changed(item["changed"], now),
            )
            for item in answer["items"]
        ),
    )
    if answer["mutes"]:
        screen.line()
        screen.table(
            ["MUTED", "!SUBJECT", f"UNTIL ({zone_name()})", "BY", "+NOTE"],
            (
                (
                    mute["rule"],
                    "(all)" if mute["subject"] == ALL else mute["subject"],
                    moment(mute["until"]),
                    mute["by"],
                    mute["note"],
                )
                for mute in answer["mutes"]
            ),
        )


def _changed(changed: dict[str, Any] | None, now: datetime) -> str:
    if changed is None:
        return "-"
    return f"by {changed['by']} {ago(changed['at'], now)}: {changed['reason']}"


@alert_rules.command("set")
@_rule_argument
@click.argument("threshold", metavar="THRESHOLD")
@_subject_option
@reason_option
@click.pass_obj
def set_rule(session: Session, rule: str, threshold: str, subject: str, reason: str) -> None:
    """Change the THRESHOLD of a rule: 2h, 20%, a number, or off. It needs a reason.

    Workers follow within seconds. The value counts until it is reset, also after restarts.
    """
    given = read_threshold(threshold)
    _operate(session, lambda o: o.set_alert_rule(rule, subject, given, reason=reason))
    shown = written_threshold(RULES[rule].unit, given)
    session.show(
        {"rule": rule, "subject": subject, "threshold": given},
        lambda screen: screen.line(f"{rule} of {_of(subject)}: {shown}"),
    )


@alert_rules.command("reset")
@_rule_argument
@_subject_option
@reason_option
@click.pass_obj
def reset_rule(session: Session, rule: str, subject: str, reason: str) -> None:
    """Let the declared threshold of a rule count again."""
    _operate(session, lambda o: o.reset_alert_rule(rule, subject, reason=reason))
    session.show(
        {"rule": rule, "subject": subject, "reset": True},
        lambda screen: screen.line(f"{rule} of {_of(subject)}: as declared"),
    )


@alert_rules.command("mute")
@click.argument("name", metavar="ALERT")
@_subject_option
@click.option("--for", "lasting", required=True, metavar="TIME", help="For how long: 30m, 2h, 3d.")
@click.option("--note", required=True, metavar="TEXT", help="Why. Shown beside the alert.")
@click.pass_obj
def mute(session: Session, name: str, subject: str, lasting: str, note: str) -> None:
    """Do not post alerts called ALERT for some time. Lists and logs go on showing them."""
    try:
        seconds = duration.seconds(lasting)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--for") from None

    async def act(runtime: Runtime) -> datetime:
        until = runtime.read_model.now() + timedelta(seconds=seconds)
        await runtime.operations(session.who).mute(name, subject, until=until, note=note)
        return until

    until = session.look(act)
    session.show(
        {"name": name, "subject": subject, "until": until, "note": note},
        lambda screen: screen.line(f"{name} of {_of(subject)} is muted until {moment(until)} UTC"),
    )


@alert_rules.command("unmute")
@click.argument("name", metavar="ALERT")
@_subject_option
@reason_option
@click.pass_obj
def unmute(session: Session, name: str, subject: str, reason: str) -> None:
    """End a mute. An alert that is open and was never posted is posted then."""
    _operate(session, lambda o: o.unmute(name, subject, reason=reason))
    session.show(
        {"name": name, "subject": subject, "until": None},
        lambda screen: screen.line(f"{name} of {_of(subject)} is posted again"),
    )


def _operate(session: Session, act: Callable[[Any], Awaitable[None]]) -> None:
    session.look(lambda runtime: act(runtime.operations(session.who)))


def _of(subject: str) -> str:
    return "all" if subject == ALL else subject

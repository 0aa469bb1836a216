"""Pages of alerts and of their rules: read, change a threshold, reset it, mute and unmute."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request, Response

from esclusa.engine.alert_rules import ALL, read_threshold, written_threshold
from esclusa.model import duration
from esclusa.model.system_records import Alert
from esclusa.web.console import render
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.catalog import ngettext
from esclusa.web.console.context import ConsoleContext
from esclusa.web.console.forms import MAX_REASON, FormRefused, SubmittedForm, local
from esclusa.web.console.run_data import alert_data

PAGE = 50
# For how long an alert may be muted on a page.
MUTES = ("1h", "8h", "1d", "7d")


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""
    _pages(api, console)
    _forms(api, console)


def _pages(api: APIRouter, console: ConsoleContext) -> None:
    read_model = console.read_model

    @api.get("/console/alerts")
    async def alerts(request: Request, after: str | None = None) -> Response:
        page = await read_model.alerts(limit=PAGE, after=after)
        found = [alert for alert in page.items if isinstance(alert, Alert)]
        mutes = await read_model.mutes(found)
        return await console.page(
            request,
            "alerts.html",
            here="alerts",
            alerts=[
                alert_data(console, alert) | {"mute": mute}
                for alert, mute in zip(found, mutes, strict=True)
            ],
            mutes=MUTES,
            next=page.next,
            after=after,
        )

    @api.get("/console/alert-rules")
    async def rules(request: Request) -> Response:
        answer = await read_model.alert_rules()
        return await console.page(
            request,
            "alert-rules.html",
            here="alerts",
            rules=_grouped(answer["items"]),
            muted=answer["mutes"],
            mutes=MUTES,
        )


def _grouped(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules, each with what it is for and its subjects; the changed subjects come first."""
    about = {
        "backlog": (_("Backlog"), _("A record of the stage has been due for longer than this.")),
        "error_rate": (
            _("Error share"),
            _("A larger share of the cycle's attempts failed than this."),
        ),
        "silence": (
            _("Silence"),
            _("No record has gone through the stage for this long."),
        ),
        "budget_early": (
            _("Budget"),
            _("This share is used, and at this rate the rest will not last until the reset."),
        ),
        "no_worker": (
            _("No worker"),
            _("Work has been due for longer than this, and no worker runs."),
        ),
        "dead_letters": (
            _("Dead letters"),
            _("So many dead letters of one kind are open, or more."),
        ),
    }
    groups: dict[str, dict[str, Any]] = {}
    for item in items:
        shown = item | {
            "written": written_threshold(item["unit"], item["threshold"]),
            "declared_as": written_threshold(item["unit"], item["declared"]),
        }
        if item["subject"] == ALL:
            title, text = about[item["rule"]]
            groups[item["rule"]] = {"title": title, "text": text, "all": shown, "subjects": []}
        else:
            groups[item["rule"]]["subjects"].append(shown)
    for group in groups.values():
        group["subjects"].sort(key=lambda each: (each["changed"] is None, each["source"] != "code"))
        group["own"] = sum(
            each["changed"] is not None or each["source"] == "code" for each in group["subjects"]
        )
    return list(groups.values())


def _forms(api: APIRouter, console: ConsoleContext) -> None:
    def back(request: Request, form: SubmittedForm, message: str) -> Response:
        to = render.prefix.get() + local(form.get("next", "/console/alert-rules"))
        return console.redirect(request, to, message)

    @api.post("/console/alerts/seen")
    async def seen(request: Request) -> Response:
        form = await console.form(request)
        ids = form.all("id")
        chosen: dict[str, Any] = {"ids": ids} if ids else {"where": {"status": "raised"}}
        moved = await console.operations(request).move(
            Alert.kind.table, "seen", reason="seen", **chosen
        )
        message = ngettext("{n} alert marked as read.", "{n} alerts marked as read.", moved.moved)
        return console.redirect(request, render.url("console", "alerts"), message)

    @api.post("/console/alert-rules")
    async def change(request: Request) -> Response:
        form = await console.form(request)
        operations, rule, subject = console.operations(request), form.get("rule"), _subject(form)
        if form.get("verb") == "reset":
            await operations.reset_alert_rule(rule, subject, reason=form.get("reason")[:MAX_REASON])
            return back(request, form, _("The declared threshold counts again."))
        threshold = read_threshold(form.get("threshold"))
        await operations.set_alert_rule(rule, subject, threshold, reason=form.reason)
        return back(request, form, _("The threshold was changed. Workers follow within seconds."))

    @api.post("/console/alerts/mute")
    async def mute(request: Request) -> Response:
        form = await console.form(request)
        try:
            lasting = timedelta(seconds=duration.seconds(form.get("for")))
        except ValueError:
            raise FormRefused(422, _("Choose for how long: 30m, 2h or 3d.")) from None
        name, subject = form.get("name"), _subject(form)
        await console.operations(request).mute(
            name, subject, until=console.read_model.now() + lasting, note=form.reason
        )
        return back(request, form, _("{name} is muted.", name=name))

    @api.post("/console/alerts/unmute")
    async def unmute(request: Request) -> Response:
        form = await console.form(request)
        name, subject = form.get("name"), _subject(form)
        await console.operations(request).unmute(name, subject)
        return back(request, form, _("{name} is posted again.", name=name))


def _subject(form: SubmittedForm) -> str:
    return form.get("subject") or ALL

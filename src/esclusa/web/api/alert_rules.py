"""``/api/alert-rules`` and ``/api/alerts/mute``: thresholds at run time, and mutes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from esclusa.engine.alert_rules import ALL, read_threshold
from esclusa.model import duration
from esclusa.model.errors import BadQuery
from esclusa.runtime import Runtime
from esclusa.web.api.common import CurrentRuntime, RequestBody, Who, api_router

router = api_router("work")
RuleName = Literal["backlog", "error_rate", "silence", "budget_early", "no_worker", "dead_letters"]


class ChangeOut(BaseModel):
    """Who changed a threshold, when and why."""

    by: str | None
    at: datetime | None
    reason: str


class MuteOut(BaseModel):
    """Until when alerts are not posted, by whom and why. ``subject`` ``*``: all of this name."""

    rule: str
    subject: str
    until: datetime
    by: str | None
    at: datetime | None
    note: str


class AlertRuleOut(BaseModel):
    """The threshold of a rule for one subject, or for all (``*``).

    ``unit``: seconds, share (of attempts or of a budget) or count. ``declared``: the threshold
    without a change, from the ``source``; ``setting`` names the setting. ``threshold``: what counts
    now. null: no alert.
    """

    rule: RuleName
    subject: str
    unit: Literal["seconds", "share", "count"]
    setting: str
    declared: float | None
    source: Literal["code", "setting", "all"]
    threshold: float | None
    changed: ChangeOut | None
    mute: MuteOut | None


class AlertRulesOut(BaseModel):
    """Every rule for each of its subjects, and everything that is muted."""

    items: list[AlertRuleOut]
    mutes: list[MuteOut]
    next: None = None


class AlertRuleBody(RequestBody):
    """A new threshold: a number, or a duration as text; null: no alert. ``reset``: as declared."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"rule": "backlog", "threshold": "2h", "reason": "slow provider"}]
        }
    )

    rule: str
    subject: str = ALL
    threshold: float | str | None = None
    reset: bool = False
    reason: Annotated[str, Field(max_length=1000)] = ""

    @model_validator(mode="after")
    def _threshold_or_reset(self) -> AlertRuleBody:
        if self.reset == ("threshold" in self.model_fields_set):
            raise ValueError("give either 'threshold' or 'reset': true")
        return self


class MuteBody(RequestBody):
    """Which alerts are muted, until when or for how long, and why."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "backlog", "subject": "*", "for": "2h", "note": "maintenance"}]
        }
    )

    name: Annotated[str, Field(min_length=1, max_length=200)]
    subject: Annotated[str, Field(min_length=1, max_length=400)] = ALL
    until: datetime | None = None
    lasting: Annotated[str | float | None, Field(alias="for")] = None
    note: Annotated[str, Field(max_length=1000)] = ""

    @model_validator(mode="after")
    def _one_end(self) -> MuteBody:
        if (self.until is None) == (self.lasting is None):
            raise ValueError("give either 'until' or 'for'")
        if self.until is not None and self.until.tzinfo is None:
            raise ValueError("'until' needs a time zone: 2026-11-20T18:00:00Z")
        return self


class UnmuteBody(RequestBody):
    """Which mute ends."""

    name: str
    subject: str = ALL
    reason: Annotated[str, Field(max_length=1000)] = ""


def end_of(runtime: Runtime, lasting: str | float) -> datetime:
    """When a mute ends that lasts so long from now on. Raises BadQuery."""
    try:
        seconds = duration.seconds(lasting)
    except ValueError as error:
        raise BadQuery(str(error)) from None
    return runtime.read_model.now() + timedelta(seconds=seconds)


@router.get("/alert-rules", response_model=AlertRulesOut, summary="List the rules for alerts")
async def alert_rules(runtime: CurrentRuntime) -> Any:
    """Every rule with its thresholds: declared, changed and in force; and what is muted."""
    return await runtime.read_model.alert_rules()


@router.put("/alert-rules", response_model=AlertRuleOut, summary="Change a rule for alerts")
async def set_alert_rule(runtime: CurrentRuntime, body: AlertRuleBody, who: Who) -> Any:
    """Set or reset the threshold of a rule. All workers follow within seconds."""
    operations = runtime.operations(who)
    if body.reset:
        await operations.reset_alert_rule(body.rule, body.subject, reason=body.reason)
    else:
        await operations.set_alert_rule(
            body.rule, body.subject, read_threshold(body.threshold), reason=body.reason
        )
    found = (await runtime.read_model.alert_rules())["items"]
    wanted = (body.rule, body.subject)
    return next(item for item in found if (item["rule"], item["subject"]) == wanted)


@router.post("/alerts/mute", response_model=AlertRulesOut, summary="Mute an alert or a rule")
async def mute(runtime: CurrentRuntime, body: MuteBody, who: Who) -> Any:
    """Post no such alert to the webhook and to apprise until then; the lists go on showing it."""
    until = body.until or end_of(runtime, body.lasting or 0)
    await runtime.operations(who).mute(body.name, body.subject, until=until, note=body.note)
    return await runtime.read_model.alert_rules()


@router.post("/alerts/unmute", response_model=AlertRulesOut, summary="End a mute")
async def unmute(runtime: CurrentRuntime, body: UnmuteBody, who: Who) -> Any:
    """Post these alerts again."""
    await runtime.operations(who).unmute(body.name, body.subject, reason=body.reason)
    return await runtime.read_model.alert_rules()

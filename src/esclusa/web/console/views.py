"""What pages show: the read model, arranged for eyes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from esclusa.engine.operations import retry_targets
from esclusa.engine.why import Why
from esclusa.health import Check
from esclusa.model import stage as stages_model
from esclusa.model.columns import TRACKING
from esclusa.model.record import Kind, Record
from esclusa.model.schedule import Every, Manual
from esclusa.model.settlement import StateCount, Step
from esclusa.model.stage import Cycle, Stage
from esclusa.model.system_records import Alert
from esclusa.observability import redact
from esclusa.web.console import catalog, graph, render, translate
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.context import Desk

STUCK_AFTER = 300.0
"""Seconds after which a due record that nobody takes looks stuck, where its cycle runs all the time."""


def roles(kind: Kind, stages: Iterable[Stage]) -> dict[str, str]:
    """The role of each state, by the name that the style sheet uses."""
    return {state: _STYLE[role] for state, role in stages_model.roles(kind, stages).items()}


_STYLE: dict[str, str] = {
    "waiting": "wait",
    "working": "held",
    "failed": "failed",
    "finished": "end",
    "resting": "rest",
}


def role_words(role: str) -> str:
    return {
        "wait": _("waiting for a stage"), "held": _("being worked on"), "failed": _("ended badly"), "end": _("finished"),
        "rest": _("at rest"),
    }[role]  # fmt: skip


def cycle_of(cycles: Iterable[Cycle], stage: Stage) -> Cycle | None:
    return next((c for c in cycles if stage in c.stages), None)


def patience(cycle: Cycle | None) -> float:
    """Seconds that a due record may wait before it looks stuck."""
    if cycle is None:
        return STUCK_AFTER
    if isinstance(cycle.schedule, Every):
        return max(STUCK_AFTER, cycle.schedule.seconds * 3)
    return 86400.0 if isinstance(cycle.schedule, Manual) else STUCK_AFTER


def diagram(
    kind: Kind,
    stages: Sequence[Stage],
    counts: Mapping[str, dict[str, Any]],
    due: Mapping[str, dict[str, Any]],
    current: str = "",
) -> dict[str, Any]:
    """A lifecycle ready to be drawn: each state with its count, what it is for, and how long its oldest record is due."""
    drawing = graph.draw(kind.lifecycle, small=bool(current))
    what = roles(kind, stages)
    nodes = []
    for node in drawing.nodes:
        count = counts.get(node.state, {"count": 0, "exact": True})
        waiting = due.get(node.state)
        nodes.append({
            "state": node.state, "x": node.x, "y": node.y, "width": node.width, "height": node.height, "role": what[node.state],
            "words": role_words(what[node.state]), "count": count["count"], "exact": count["exact"], "due": waiting,
            "initial": node.state == kind.initial, "terminal": node.state in kind.lifecycle.terminal, "current": node.state == current,
            "shown": node.state if len(node.state) <= 21 else f"{node.state[:20]}…",
        })  # fmt: skip
    return {
        "table": kind.table,
        "width": drawing.width,
        "height": drawing.height,
        "nodes": nodes,
        "edges": drawing.edges,
    }


async def board(desk: Desk) -> dict[str, Any]:
    """The map: every pipeline with its lifecycles, counts and what is due."""
    engine = desk.runtime.engine
    stages = await desk.read_model.stages()
    cycles = {c["cycle"]: c for c in await desk.read_model.cycles()}
    named = await desk.kept("views", 2.0, desk.outlook.views)
    counts = await desk.counts.soon(desk.read_model.declared())
    pipelines = []
    for plan in engine.plans:
        if plan.name == "esclusa":
            continue
        kinds = [
            _kind(kind, counts[kind.table], plan.stages, stages, plan.cycles, cycles)
            for kind in plan.kinds
        ]
        kinds.sort(key=lambda k: k["single"])
        pipelines.append({
            "name": plan.name, "kinds": kinds, "cycles": [cycles[c.name] for c in plan.cycles],
            "views": [v for v in named if v["view"].startswith(f"{plan.name}.")],
            "records": sum(k["total"] for k in kinds), "exact": all(k["exact"] for k in kinds),
        })  # fmt: skip
    moved = sum(s["per_minute"] for s in stages)
    failed = sum((s["error_share"] or 0) * s["per_minute"] for s in stages)
    return {
        "pipelines": pipelines, "due": sum(s["due"] for s in stages), "due_exact": all(s["due_exact"] for s in stages),
        "per_minute": round(moved, 1), "error_share": failed / moved if moved else None,
        "oldest": max((s["oldest_due_seconds"] for s in stages if s["oldest_due_seconds"] is not None), default=None),
        "estimated": not all(k["exact"] for p in pipelines for k in p["kinds"]),
    }  # fmt: skip


def _kind(
    kind: Kind,
    tally: Sequence[StateCount],
    plans: Sequence[Stage],
    told: list[dict[str, Any]],
    cycles: Sequence[Cycle],
    cards: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    counts = {c.state: asdict(c) for c in tally}
    due: dict[str, dict[str, Any]] = {}
    for stage in plans:
        now = next((s for s in told if s["stage"] == stage.name), None)
        if stage.kind != kind or now is None or not now["due"]:
            continue
        cycle = cycle_of(cycles, stage)
        card = cards.get(cycle.name) if cycle else None
        age = now["oldest_due_seconds"]
        due[stage.take[0]] = {
            "due": now["due"], "exact": now["due_exact"], "age": age, "paused": bool(card and card["state"] == "paused"),
            "stuck": age is not None and age > patience(cycle), "stage": stage.name, "patience": patience(cycle),
        }  # fmt: skip
    odd = [c for state, c in counts.items() if state not in kind.lifecycle.states]
    return {
        "table": kind.table, "name": kind.name, "diagram": diagram(kind, plans, counts, due), "single": len(kind.lifecycle.states) == 1,
        "total": sum(c["count"] for c in counts.values()), "exact": all(c["exact"] for c in counts.values()), "odd": odd,
    }  # fmt: skip


async def kinds(desk: Desk, *, system: bool = False) -> list[dict[str, Any]]:
    """Every kind with its lifecycle and counts per state."""
    declared = desk.read_model.declared(system=system)
    counts = await desk.counts.soon(declared)
    return [desk.read_model.described(kind, counts[kind.table]) for kind in declared]


async def tables(desk: Desk) -> list[dict[str, Any]]:
    """Every table: how many rows, how many of them are finished, in no declared state, or due, and since when."""
    stages = await desk.read_model.stages(system=True)
    out = []
    for told in await kinds(desk, system=True):
        kind = desk.runtime.engine.kind(told["table"])
        counts = {c["state"]: c["count"] for c in told["counts"]}
        mine = [s for s in stages if s["table"] == kind.table]
        out.append({
            "table": kind.table, "pipeline": told["pipeline"], "rows": sum(counts.values()),
            "exact": all(c["exact"] for c in told["counts"]),
            "finished": sum(n for s, n in counts.items() if s in kind.lifecycle.terminal), "archive": kind.archive,
            "odd": sum(n for s, n in counts.items() if s not in kind.lifecycle.states), "due": sum(s["due"] for s in mine),
            "due_exact": all(s["due_exact"] for s in mine),
            "oldest": max((s["oldest_due_seconds"] for s in mine if s["oldest_due_seconds"] is not None), default=None),
        })  # fmt: skip
    return out


def said(text: str | None) -> str:
    """What the engine, a pipeline or a service outside said: secrets masked, a sentence of ours in the page's language."""
    return translate.told(redact.text(text or ""))


def fault(error: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """An error that a record ended an attempt with, as ``said``."""
    if not error:
        return None
    masked = render.masked(dict(error))
    return masked | (
        {"message": translate.told(masked["message"])}
        if isinstance(masked.get("message"), str)
        else {}
    )


def moment(text: Any) -> datetime | None:
    """The moment that a text of JSON says; None if it says none."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def check(found: Check) -> Check:
    """What was found, in the page's language where it is a sentence of ours."""
    return replace(found, text=said(found.text), do=said(found.do))


def alert(raised: Alert) -> str:
    """What happened, in the page's language where it is a sentence of ours; secrets masked."""
    taken, failed, _sep, why = (
        raised.details.get("taken"),
        raised.details.get("failed"),
        *raised.message.partition(" broke: ")[1:],
    )
    if raised.name == "error_rate" and taken and failed:
        values = {
            "failed": catalog.number(failed),
            "taken": catalog.number(taken),
            "share": render.percent(failed / taken),
        }
        return _(
            "{subject}: {failed} of {taken} records failed ({share})",
            subject=raised.subject,
            **values,
        )
    if raised.name == "cycle_broke" and why:
        return _("{subject} broke: {why}", subject=raised.subject, why=said(why))
    return said(raised.message)


# records


def columns(kind: Kind) -> list[str]:
    """The fields that a list shows: short ones first declared, without those that the id is made of."""
    named = [
        f.name
        for f in kind.fields
        if f.type not in ("json", "bytes")
        and f.name not in kind.key
        and not redact.secret_name(f.name)
    ]
    return named[:4]


def row(
    kind: Kind, record: Record, what: Mapping[str, str], names: Sequence[str]
) -> dict[str, Any]:
    raw = {name: getattr(record, name, None) for name in names}
    values = render.masked(raw) | {
        name: value for name, value in raw.items() if isinstance(value, datetime)
    }
    error = record.last_error or {}
    return {
        "id": record.id, "status": record.status, "role": what.get(record.status, "failed"), "attempts": record.attempts,
        "due_at": record.due_at, "updated_at": record.updated_at or record.created_at, "error": error.get("type"),
        "values": [(name, values[name]) for name in names],
    }  # fmt: skip


def fields(kind: Kind, record: Record, desk: Desk) -> list[dict[str, Any]]:
    """The business fields of a record, secrets masked, with what can be followed as a link."""
    shown = record.model_dump(mode="json")
    masked = render.masked({f.name: shown.get(f.name) for f in kind.fields})
    references = dict(kind.refs)
    known = {k.table for k in desk.runtime.engine.all_kinds}
    out = []
    for field in kind.fields:
        value = masked[field.name]
        link = _link(desk, value)
        if field.name in references and value and references[field.name] in known:
            link = {
                "href": render.url("console", "records", references[field.name], str(value)),
                "away": False,
            }
        long = isinstance(value, dict | list) and bool(value)
        out.append({
            "name": field.name, "type": field.type, "value": value, "link": link, "key": field.name in kind.key, "long": long,
            "hidden": value == "***" and shown.get(field.name) != "***",
        })  # fmt: skip
    return out


def _link(desk: Desk, value: Any) -> dict[str, Any] | None:
    if not isinstance(value, str):
        return None
    path = artifact_path(desk, value)
    if path is not None:
        return {
            "href": f"{render.place.get()}/api/artifacts/{render.url(*path.split('/')).removeprefix(render.place.get() + '/')}",
            "away": False,
        }
    return (
        {"href": value, "away": True}
        if value.startswith(("https://", "http://")) and " " not in value
        else None
    )


def artifact_path(desk: Desk, value: str) -> str | None:
    """The path in the artifact store, if this is the address of a file in it."""
    base = desk.runtime.artifacts.public_url("x").removesuffix("x")
    return value.removeprefix(base) if value.startswith(base) and len(value) > len(base) else None


def editable(kind: Kind, record: Record | None) -> list[dict[str, Any]]:
    """The fields that an operator may change on the way, as a form shows them; secrets are not shown, and stay as they are."""
    values = record.model_dump(mode="json") if record is not None else {}
    masked = render.masked(values)
    out = []
    for field in kind.fields:
        if field.name in kind.key or field.type == "bytes":
            continue
        value = values.get(field.name)
        if masked.get(field.name) != value:
            continue
        text = (
            ""
            if value is None
            else render.pretty(value)
            if field.type == "json"
            else str(value).lower()
            if field.type == "bool"
            else str(value)
        )
        out.append(
            {
                "name": field.name,
                "type": field.type,
                "text": text,
                "nullable": field.nullable,
                "long": field.type == "json" or len(text) > 60,
            }
        )
    return out


def timeline(steps: Sequence[Step], what: Mapping[str, str]) -> list[dict[str, Any]]:
    """The moves of a record, the newest first, each with how long the record had been where it left."""
    out = []
    for before, step in zip([None, *steps], steps, strict=False):
        out.append({
            "step": step, "moved": step.frm != step.to, "frm_role": what.get(step.frm, "failed"), "to_role": what.get(step.to, "failed"),
            "after": (step.at - before.at).total_seconds() if before else None, "error": fault(step.error), "reason": said(step.reason),
            "named": step.error is not None and step.reason == step.error.get("type"),
        })  # fmt: skip
    return out[::-1]


def reasons(answer: Why) -> list[dict[str, Any]]:
    """Why it is not moving, in the page's language."""
    out = []
    for reason in answer.reasons:
        values = {name: _worded(name, value) for name, value in reason.values.items()}
        text = _(reason.said, **values) if values else _(reason.said)
        out.append(
            {"code": reason.code, "text": text[:1].upper() + text[1:], "until": reason.until}
        )
    return out


def _worded(name: str, value: Any) -> Any:
    """What a reason names, as the page says it."""
    if isinstance(value, datetime):
        return render.full(value)
    if name == "schedule":
        return render.schedule(str(value))
    return said(value) if isinstance(value, str) else value


def ways(kind: Kind, record: Record, stages: Sequence[Stage]) -> dict[str, Any]:
    """The moves that an operator can make: declared ones only, and which of them is a new try."""
    back = retry_targets(kind, stages).get(record.status)
    what = roles(kind, stages)
    return {"retry": back, "targets": [(t, what[t]) for t in kind.lifecycle.targets(record.status)]}


def chips(
    kind: Kind, params: Sequence[tuple[str, str]], *, but: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The conditions of a filter, each with the address of the list without it; not those that the page shows elsewhere (``but``)."""
    out = []
    for place, (name, value) in enumerate(params):
        if name in ("order", "after", "limit", "archived", *but) or not value:
            continue
        rest = [p for i, p in enumerate(params) if i != place and p[0] != "after"]
        field, _sep, operator = (
            name.rpartition("__") if name not in kind.types and "__" in name else (name, "", "eq")
        )
        sign = {
            "eq": "=",
            "in": "∈",
            "lt": "<",
            "lte": "≤",
            "le": "≤",
            "gt": ">",
            "gte": "≥",
            "ge": "≥",
        }.get(operator, operator)
        test = (
            (_("is empty") if value == "true" else _("is not empty"))
            if operator == "null"
            else f"{sign} {value}"
        )
        out.append(
            {
                "field": field,
                "said": test,
                "without": f"{render.url('console', 'records', kind.table)}?{urlencode(rest)}",
            }
        )
    return out


def run_role(status: str) -> str:
    return {
        "running": "held",
        "ok": "end",
        "partial": "failed",
        "error": "failed",
        "blocked": "rest",
    }.get(status, "rest")


TRACKED = tuple(TRACKING)

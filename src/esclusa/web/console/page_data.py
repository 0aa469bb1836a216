"""The values that pages show: answers of the read model, arranged and put into words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from esclusa.engine.why import Why
from esclusa.exports import record_row
from esclusa.health import Check
from esclusa.model.columns import Column
from esclusa.model.kind import Kind
from esclusa.model.plan import Plan
from esclusa.model.record import Record
from esclusa.model.schedule import Every, Manual
from esclusa.model.settlement import StateCount, Step
from esclusa.model.stage import Cycle, Stage
from esclusa.model.texts import error_text
from esclusa.observability import redact
from esclusa.web.console import graph, render, translate
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.catalog import ngettext
from esclusa.web.console.overview import ROLES, card

if TYPE_CHECKING:
    from esclusa.web.console.context import ConsoleContext

# Seconds after which a due record counts as stuck, where its cycle runs all the time.
STUCK_AFTER = 300.0
# The most business fields in a list of records.
COLUMNS = 4
# Characters from which a form edits a text in several lines.
LONG_TEXT = 60

# A field with a text of more characters, or of more lines, is folded on the record page.
FOLD_TEXT, FOLD_LINES = 300, 8


# states and lifecycles


def role_name(role: str, records: int = 1) -> str:
    """The role of so many records in the language of the page."""
    return {
        "waiting": _("waiting"),
        "working": _("in progress"),
        "finished": ngettext("finished", "finished", records),
        "failed": ngettext("failed", "failed", records),
        "resting": _("resting"),
    }[role]


def cycle_of(cycles: Iterable[Cycle], stage: Stage) -> Cycle | None:
    """The cycle that runs a stage."""
    return next((c for c in cycles if stage in c.stages), None)


def stuck_after(cycle: Cycle | None) -> float:
    """Seconds that a record may be due before it counts as stuck."""
    if cycle is not None and isinstance(cycle.schedule, Manual):
        return 86400.0
    interval = cycle.schedule.seconds if cycle and isinstance(cycle.schedule, Every) else 0
    return max(STUCK_AFTER, interval * 3)


def diagram(
    console: ConsoleContext,
    kind: Kind,
    counts: Mapping[str, dict[str, Any]],
    due: Mapping[str, dict[str, Any]],
    current: str = "",
) -> dict[str, Any]:
    """A lifecycle to draw: each state with its count, its role and what is due in it.

    ``current`` is the state of one record; the drawing is then small.
    """
    drawing = graph.draw(kind.lifecycle, small=bool(current))
    of_state = console.read_model.roles(kind)
    return {
        "table": kind.table,
        "width": drawing.width,
        "height": drawing.height,
        "nodes": [
            {
                **counts.get(node.state, {"count": 0, "exact": True}),
                "state": node.state,
                "x": node.x,
                "y": node.y,
                "width": node.width,
                "height": node.height,
                "role": of_state[node.state],
                "role_name": role_name(of_state[node.state]),
                "due": due.get(node.state),
                "initial": node.state == kind.initial,
                "terminal": node.state in kind.lifecycle.terminal,
                "current": node.state == current,
                "label": node.state if len(node.state) <= 21 else f"{node.state[:20]}…",
            }
            for node in drawing.nodes
        ],
        "edges": drawing.edges,
    }


async def overview(console: ConsoleContext, pipeline: str | None = None) -> dict[str, Any]:
    """The map: every pipeline, or one, with its lifecycles, counts and what is due."""
    read_model = console.read_model
    stages = {s["stage"]: s for s in await read_model.stages()}
    cycles = {c["cycle"]: c for c in await read_model.cycles()}
    views = await console.cache.get("views", 2.0, read_model.views)
    counts = await console.counts.quick(read_model.declared())
    plans = [plan for plan in read_model.pipelines() if pipeline in (None, plan.name)]
    names = {role: (role_name(role), role_name(role, 2)) for role in ROLES}
    pipelines: list[dict[str, Any]] = []
    for plan in plans:
        kinds = sorted(
            (_kind(console, plan, k, counts[k.table], stages, cycles) for k in plan.kinds),
            key=lambda shown: shown["single"],
        )
        pipelines.append(
            {
                "name": plan.name,
                "card": card(plan, kinds, stages, names),
                "kinds": kinds,
                "cycles": [cycles[c.name] for c in plan.cycles],
                "views": [v for v in views if v["view"].startswith(f"{plan.name}.")],
            }
        )
    stages = {s.name: stages[s.name] for plan in plans for s in plan.stages if s.name in stages}
    processed = sum(s["per_minute"] for s in stages.values())
    failed = sum((s["error_share"] or 0) * s["per_minute"] for s in stages.values())
    return {
        "pipelines": pipelines,
        "due": sum(s["due"] for s in stages.values()),
        "due_exact": all(s["due_exact"] for s in stages.values()),
        "per_minute": round(processed, 1),
        "error_share": failed / processed if processed else None,
        "oldest": _oldest(stages.values()),
        "estimated": not all(k["exact"] for p in pipelines for k in p["kinds"]),
    }


def _kind(
    console: ConsoleContext,
    plan: Plan,
    kind: Kind,
    tally: Sequence[StateCount],
    stages: Mapping[str, dict[str, Any]],
    cycles: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:
    """One lifecycle of the map; ``stages`` and ``cycles`` are answers of the read model."""
    counts = {c.state: asdict(c) for c in tally}
    due: dict[str, dict[str, Any]] = {}
    for stage in plan.stages:
        backlog = stages.get(stage.name)
        if stage.kind != kind or backlog is None or not backlog["due"]:
            continue
        cycle = cycle_of(plan.cycles, stage)
        age, limit = backlog["oldest_due_seconds"], stuck_after(cycle)
        due[stage.take[0]] = {
            "due": backlog["due"],
            "exact": backlog["due_exact"],
            "age": age,
            "paused": backlog["pause"] is not None
            or (cycle is not None and cycles[cycle.name]["state"] == "paused"),
            "stuck": age is not None and age > limit,
            "stuck_after": limit,
        }
    return {
        "table": kind.table,
        "diagram": diagram(console, kind, counts, due),
        "single": len(kind.lifecycle.states) == 1,
        "total": sum(c["count"] for c in counts.values()),
        "exact": all(c["exact"] for c in counts.values()),
        "undeclared": [c for state, c in counts.items() if state not in kind.lifecycle.states],
    }


def _oldest(stages: Iterable[Mapping[str, Any]]) -> float | None:
    return max(
        (s["oldest_due_seconds"] for s in stages if s["oldest_due_seconds"] is not None),
        default=None,
    )


async def kinds(console: ConsoleContext, *, system: bool = False) -> list[dict[str, Any]]:
    """Every kind with its lifecycle and counts per state."""
    declared = console.read_model.declared(system=system)
    counts = await console.counts.quick(declared)
    return [console.read_model.described(kind, counts[kind.table]) for kind in declared]


async def tables(console: ConsoleContext) -> list[dict[str, Any]]:
    """Every table: its rows, how many are finished, due or in no declared state."""
    stages = await console.read_model.stages(system=True)
    declared = {k.table: k for k in console.read_model.declared(system=True)}
    out = []
    for described in await kinds(console, system=True):
        kind = declared[described["table"]]
        role = console.read_model.roles(kind)
        counts = {c["state"]: c["count"] for c in described["counts"]}
        own = [s for s in stages if s["table"] == described["table"]]
        out.append(
            {
                "table": described["table"],
                "pipeline": described["pipeline"],
                "archive": kind.archive,
                "rows": sum(counts.values()),
                "exact": all(c["exact"] for c in described["counts"]),
                "finished": sum(n for s, n in counts.items() if role.get(s) == "finished"),
                "undeclared": sum(n for s, n in counts.items() if s not in role),
                "due": sum(s["due"] for s in own),
                "due_exact": all(s["due_exact"] for s in own),
                "oldest": _oldest(own),
            }
        )
    return out


# words


def error(stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The stored error of an attempt, with its message in words and secrets masked."""
    if not stored:
        return None
    masked = render.masked(stored)
    if isinstance(masked.get("message"), str):
        masked["message"] = translate.stored(error_text(masked))
    return masked


def error_time(stored: Mapping[str, Any] | None) -> datetime | None:
    """When the attempt failed; None if the error does not say."""
    try:
        moment = datetime.fromisoformat((stored or {}).get("timestamp"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def check(found: Check) -> Check:
    """A health check in words."""
    return replace(found, text=translate.sentence(found.text), do=translate.sentence(found.do))


def reasons(answer: Why) -> list[dict[str, Any]]:
    """Why a record is not moving, in words."""
    worded = [(translate.sentence(reason.text), reason.until) for reason in answer.reasons]
    return [{"text": text[:1].upper() + text[1:], "until": until} for text, until in worded]


# records


def columns(kind: Kind, records: Iterable[Record]) -> list[str]:
    """The business fields that a list shows: the first short ones that the id does not contain.

    Those that are empty in all these records come last.
    """
    names = [
        f.name
        for f in kind.fields
        if f.type not in ("json", "bytes")
        and f.name not in kind.key
        and not redact.secret_name(f.name)
    ]
    used = {name for record in records for name in names if getattr(record, name, None) is not None}
    return sorted(names, key=lambda name: name not in used)[:COLUMNS]


def row(record: Record, of_state: Mapping[str, str], names: Sequence[str]) -> dict[str, Any]:
    """One row of a list of records."""
    raw = record_row(record, [Column(name) for name in names])
    times = {name: value for name, value in raw.items() if isinstance(value, datetime)}
    return {
        "id": record.id,
        "status": record.status,
        "role": of_state.get(record.status, "failed"),
        "attempts": record.attempts,
        "due_at": record.due_at,
        "updated_at": record.updated_at or record.created_at,
        "error": (record.last_error or {}).get("type"),
        "values": list((render.masked(raw) | times).items()),
    }


def fields(console: ConsoleContext, record: Record) -> list[dict[str, Any]]:
    """The business fields of a record, secrets masked; addresses and references are links."""
    kind, plain = record.kind, record.model_dump(mode="json")
    masked = render.masked({f.name: plain.get(f.name) for f in kind.fields})
    tables = {k.table for k in console.read_model.declared(system=True)}
    references = {field: table for field, table in kind.refs if table in tables}
    out = []
    for field in kind.fields:
        value = masked[field.name]
        link = _link(console, value)
        if field.name in references and value:
            link = {
                "href": render.url("console", "records", references[field.name], str(value)),
                "external": False,
            }
        out.append(
            {
                "name": field.name,
                "type": field.type,
                "value": value,
                "link": link,
                "key": field.name in kind.key,
                "long": isinstance(value, dict | list) and bool(value),
                "folded": _is_long_text(value) and link is None,
                "secret": value == "***" and plain.get(field.name) != "***",
            }
        )
    return out


def _is_long_text(value: Any) -> bool:
    """Whether a text would push the other fields off the page."""
    return isinstance(value, str) and (len(value) > FOLD_TEXT or value.count("\n") > FOLD_LINES)


def _link(console: ConsoleContext, value: Any) -> dict[str, Any] | None:
    if not isinstance(value, str):
        return None
    path = value.removeprefix(console.runtime.artifacts.public_url("x").removesuffix("x"))
    if path and path != value:
        return {
            "href": render.url("api", "artifacts", *unquote(path).split("/")),
            "external": False,
        }
    if value.startswith(("https://", "http://")) and " " not in value:
        return {"href": value, "external": True}
    return None


def editable(record: Record) -> list[dict[str, Any]]:
    """The fields that an operator may edit, as a form shows them.

    The key cannot change; secrets are not shown, so they stay as they are.
    """
    values = record.model_dump(mode="json")
    masked = render.masked(values)
    out = []
    for field in record.kind.fields:
        value = values.get(field.name)
        if (
            field.name in record.kind.key
            or field.type == "bytes"
            or masked.get(field.name) != value
        ):
            continue
        written = render.pretty if field.type in ("json", "bool") else str
        text = "" if value is None else written(value)
        out.append(
            {
                "name": field.name,
                "type": field.type,
                "text": text,
                "long": field.type == "json" or len(text) > LONG_TEXT,
            }
        )
    return out


def timeline(steps: Sequence[Step], of_state: Mapping[str, str]) -> list[dict[str, Any]]:
    """The steps of a record, newest first, each with the time since the step before."""
    out = []
    for before, step in zip([None, *steps], steps, strict=False):
        failed = error(step.error)
        named = failed is not None and step.reason == failed.get("type")
        out.append(
            {
                "step": step,
                "moved": step.frm != step.to,
                "from_role": of_state.get(step.frm, "failed"),
                "to_role": of_state.get(step.to, "failed"),
                "after": (step.at - before.at).total_seconds() if before else None,
                "error": failed,
                "reason": "" if named else translate.stored(step.reason),
                "log": log_lines(step.log),
            }
        )
    return out[::-1]


def log_lines(stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What a handler logged in an attempt, with its times and without secrets."""
    if not stored:
        return None
    lines = [
        {"fields": {}} | line | {"time": datetime.fromisoformat(line["at"])}
        for line in render.masked(stored)["lines"]
    ]
    return {"lines": lines, "omitted": stored["omitted"]}


def is_repairable(kind: Kind, state: str) -> bool:
    """Whether records in this state need a repair: no version declares it."""
    life = kind.lifecycle
    return state not in life.states and state not in life.renamed and state not in life.foreign


def possible_moves(
    console: ConsoleContext, record: Record, of_state: Mapping[str, str]
) -> dict[str, Any]:
    """The declared moves of a record, and where a retry would take it."""
    return {
        "retry": console.read_model.retry_targets(record.kind).get(record.status),
        "targets": [(to, of_state[to]) for to in record.kind.lifecycle.targets(record.status)],
    }


SIGNS = {"eq": "=", "in": "∈", "lt": "<", "lte": "≤", "le": "≤", "gt": ">", "gte": "≥", "ge": "≥"}
PAGE_PARAMETERS = ("order", "after", "limit", "archived", "columns")


def chips(
    kind: Kind, params: Sequence[tuple[str, str]], *, omit: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The conditions of a filter, each with the address of the list without it."""
    out = []
    for index, (name, value) in enumerate(params):
        if name in (*PAGE_PARAMETERS, *omit) or not value:
            continue
        others = [p for i, p in enumerate(params) if i != index and p[0] != "after"]
        field, operator = name, "eq"
        if name not in kind.types and "__" in name:
            field, _sep, operator = name.rpartition("__")
        condition = f"{SIGNS.get(operator, operator)} {value}"
        if operator == "contains":
            condition = _("contains {text}", text=value)
        if operator == "null":
            condition = _("is empty") if value == "true" else _("is not empty")
        out.append(
            {
                "field": field,
                "condition": condition,
                "without": f"{render.url('console', 'records', kind.table)}?{render.query(others)}",
            }
        )
    return out

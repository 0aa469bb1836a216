"""Writes tests for a pipeline: one for each declared move, which a team can start from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from esclusa.model.errors import DeclarationError
from esclusa.model.kind import Kind
from esclusa.model.pipeline import App
from esclusa.model.plan import Plan
from esclusa.model.query import Cond, matches
from esclusa.model.stage import Stage

# Columns of a line, as formatters count them.
WIDTH = 88

# A value for a field of each type, as it is written in Python.
_SAMPLES: dict[Any, Any] = {
    str: "1",
    int: 1,
    float: 1.0,
    bool: True,
    bytes: b"1",
    Decimal: Decimal(1),
    datetime: datetime(2026, 1, 1, tzinfo=UTC),
    date: date(2026, 1, 1),
    dict: {},
    list: [],
    NoneType: None,
    Any: {},
}


def arrow_tests(name: str, app: App) -> str:
    """The source of a test module for the pipeline with this name, as in ESCLUSA_PIPELINES.

    Raises DeclarationError for settings or fields for which there is no value to begin with.
    """
    plan = app.bind(app.settings())
    kinds = [kind for kind in plan.kinds if kind.lifecycle.moves and kind.track.complete]
    tests = [line for kind in kinds for line in _kind_tests(kind, plan)]
    body = "\n".join(tests)
    harness = "Harness(app, context=object())" if app.lifespan_ is not None else "Harness(app)"
    body = body.replace("Harness(app)", harness)
    head = [
        f'"""One test for each declared move of the pipeline {plan.name}."""',
        "",
        *_imports(name, app, kinds, body),
        "",
    ]
    return "\n".join([*head, body]).rstrip("\n") + "\n"


def _imports(name: str, app: App, kinds: list[Kind], body: str) -> Iterator[str]:
    where, _, attribute = name.partition(":")
    own = where.rpartition("/")[2].removesuffix(".py")
    own = own if ":" in name or where.endswith(".py") else f"esclusa.pipelines.{where}"
    found: dict[str, list[str]] = {own: [_as(attribute or "app")]}
    for kind in kinds:
        module = kind.model.__module__
        module = own if module.startswith("esclusa_file_") else module
        found.setdefault(module, []).append(kind.model.__name__)
    used = [each for each in ("Permanent", "Retry", "To", "Wait") if f"{each}(" in body]
    times = {"UTC, datetime": "datetime(", "date": "date(", "Decimal": "Decimal("}
    needed = [name for name, call in times.items() if re.search(rf"[=]{re.escape(call)}", body)]
    for each in needed:
        yield f"from {'decimal' if each == 'Decimal' else 'datetime'} import {each}"
    if needed:
        yield ""
    lines = {"esclusa.testing": ["Harness"], **found}
    if used:
        lines["esclusa"] = [*lines.get("esclusa", []), *used]
    for module in sorted(lines):
        yield f"from {module} import {', '.join(sorted(lines[module], key=_isort_key))}"


def _as(attribute: str) -> str:
    return attribute if attribute == "app" else f"{attribute} as app"


def _isort_key(name: str) -> tuple[bool, str]:
    return (not name[0].isupper(), name)


def _kind_tests(kind: Kind, plan: Plan) -> Iterator[str]:
    stages = [stage for stage in plan.stages if stage.kind == kind]
    model, slug = kind.model.__name__, _slug(kind.model.__name__)
    fields = [f"{name}={_written(value)}" for name, value in _fields(kind, stages).items()]
    call = f"    return {model}({', '.join([*fields, 'status=status'])})"
    if len(call) > WIDTH:
        lines = [f"        {each}," for each in (*fields, "status=status")]
        call = "\n".join([f"    return {model}(", *lines, "    )"])
    yield ""
    yield f"def new_{slug}(status: str) -> {model}:"
    yield call
    yield ""
    life = kind.lifecycle
    for frm in life.states:
        for to in life.targets(frm):
            begin, lines = _arrow(frm, to, stages)
            yield ""
            yield f"async def test_{slug}_{_slug(frm)}_to_{_slug(to)}() -> None:"
            yield "    async with Harness(app) as h:"
            yield f'        record = await h.insert(new_{slug}("{begin}"))'
            yield from (f"        {line}" for line in lines)
            yield ""


def _arrow(frm: str, to: str, stages: list[Stage]) -> tuple[str, list[str]]:
    """The state in which the record begins, and what makes it go this way."""
    for stage in stages:
        name = stage.name.partition(".")[2]
        run = f'await h.run_stage("{name}")'
        begin = frm if frm in stage.take else stage.take[0]
        if stage.deadline is not None:
            if (frm, to) == (stage.take[0], stage.deadline.to):
                skip = f"await h.skip(seconds={stage.deadline.seconds + 1:g})"
                return frm, [skip, run, _state(to)]
        elif to == stage.hold and frm in stage.take:
            answer = f'h.answer(Wait("1h", "not yet"), stage="{name}")'
            return frm, [answer, run, f'assert (await h.path(record))[:2] == ["{frm}", "{to}"]']
        elif frm == (stage.hold or begin) and frm in stage.states:
            lines = [_answer(stage, name, to), run, _state(to)]
            if stage.hold is not None:
                lines.append(f'assert "{frm}" in await h.path(record)')
            if to == stage.exhausted:
                lines.append("assert len(await h.dead_letters()) == 1")
            return begin, lines
    return frm, [f'await h.move(record, "{to}")', _state(to)]


def _answer(stage: Stage, name: str, to: str) -> str:
    if to == stage.exhausted:
        return f'h.fail(Permanent("refused"), stage="{name}")'
    if to != stage.retry_to:
        return f'h.answer(To("{to}"), stage="{name}")'
    if stage.retry.tries == 1:
        return f'h.answer(Wait("1h", "not yet"), stage="{name}")'
    return f'h.answer(Retry("once more", after="1h"), stage="{name}")'


def _state(to: str) -> str:
    return f'await h.assert_state(record, "{to}")'


def _written(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, datetime):
        return "datetime(2026, 1, 1, tzinfo=UTC)"
    return repr(value).removeprefix("datetime.")


def _slug(name: str) -> str:
    return re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower()


# values


def _fields(kind: Kind, stages: list[Stage]) -> dict[str, Any]:
    """Values for the fields that need one, so that every stage takes the record."""
    fields = kind.model.model_fields
    tracked = {"id", "status", "attempts", "due_at", "fence", "leased_by", "last_error"}
    where: Mapping[str, list[Cond]] = _conditions(stages)
    made = {}
    for name, field in fields.items():
        conds = tuple((name, cond) for cond in where.get(name, ()))
        wanted = not matches({name: field.get_default(call_default_factory=True)}, conds)
        if name in kind.by_name and name not in tracked and (field.is_required() or wanted):
            made[name] = _sample(kind, name, field.annotation, conds)
    return made


def _conditions(stages: list[Stage]) -> dict[str, list[Cond]]:
    found: dict[str, list[Cond]] = {}
    for stage in stages:
        for name, cond in stage.where:
            found.setdefault(name, []).append(cond)
    return found


def _sample(kind: Kind, name: str, annotation: Any, conds: tuple[tuple[str, Cond], ...]) -> Any:
    candidates = list(_samples(annotation))
    for _, cond in conds:
        candidates += cond.value if isinstance(cond.value, tuple) else [cond.value]
    for value in candidates:
        if matches({name: value}, conds):
            return value
    fault = f"there is no value to begin with for {name}; give it a default, or write the test"
    raise DeclarationError(f"tests of {kind.table}", [fault])


def _samples(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if annotation in _SAMPLES:
        yield _SAMPLES[annotation]
    elif origin is Literal:
        yield from get_args(annotation)
    elif origin in _SAMPLES:
        yield _SAMPLES[origin]
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (each.value for each in annotation)
    else:
        for part in get_args(annotation):
            yield from _samples(part)

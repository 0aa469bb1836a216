"""Writes tests for a pipeline: one for each declared move, which a team can start from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from esclusa.model.errors import DeclarationError
from esclusa.model.kind import Kind
from esclusa.model.pipeline import App
from esclusa.model.plan import Plan
from esclusa.model.query import Cond, matches
from esclusa.model.stage import Stage

# Columns of a line, as formatters count them.
WIDTH = 88

# Values for fields of each type: the first that the field accepts is taken.
_TEXTS = ("1", "one", "ONE", "a@example.com", "https://example.com/1", "2026-01-01", "1" * 8)
_NUMBERS = (1, 0, 10, 100, 1000, 10_000, 1_000_000, -1)
_SAMPLES: dict[Any, tuple[Any, ...]] = {
    str: (*_TEXTS, "1" * 20, "1" * 40, ""),
    int: _NUMBERS,
    float: (*map(float, _NUMBERS), 0.5),
    bool: (True, False),
    bytes: (b"1",),
    Decimal: (*map(Decimal, _NUMBERS), Decimal("0.5")),
    datetime: (datetime(2026, 1, 1, tzinfo=UTC),),
    date: (date(2026, 1, 1),),
    UUID: (UUID(int=1),),
    dict: ({},),
    list: ([],),
    NoneType: (None,),
    Any: ({},),
}
# What a test imports for values of these types.
_IMPORTS = {
    datetime: "from datetime import UTC, datetime",
    date: "from datetime import date",
    Decimal: "from decimal import Decimal",
    UUID: "from uuid import UUID",
}


def arrow_tests(name: str, app: App) -> str:
    """The source of a test module for the pipeline with this name, as in ESCLUSA_PIPELINES.

    Raises DeclarationError for settings or fields for which there is no value to begin with.
    """
    plan = app.bind(app.settings())
    kinds = [kind for kind in plan.kinds if kind.lifecycle.moves and kind.track.complete]
    tests = [line for kind in kinds for line in _kind_tests(kind, plan)]
    body = "\n".join(tests)
    if app.lifespan_ is not None:
        body = body.replace("SyncHarness(app)", "SyncHarness(app, context=object())")
    head = [
        f'"""One test for each declared move of the pipeline {plan.name}."""',
        "",
        *_imports(name, app, kinds, plan, body),
        "",
    ]
    return "\n".join([*head, body]).rstrip("\n") + "\n"


def _imports(name: str, app: App, kinds: list[Kind], plan: Plan, body: str) -> Iterator[str]:
    where, _, attribute = name.partition(":")
    own = where.rpartition("/")[2].removesuffix(".py")
    own = own if ":" in name or where.endswith(".py") else f"esclusa.pipelines.{where}"
    found: dict[str, list[str]] = {own: [_as(attribute or "app")]}
    values = [v for k in kinds for v in _fields(k, _stages_of(k, plan)).values()]
    types = {type(value) for each in values for value in _inside(each)}
    models: list[type] = [kind.model for kind in kinds]
    models += [each for each in types if issubclass(each, BaseModel | Enum)]
    for each in models:
        module = own if each.__module__.startswith("esclusa_file_") else each.__module__
        if each.__name__ not in found.setdefault(module, []):
            found[module].append(each.__name__)
    used = [each for each in ("Permanent", "Retry", "To", "Wait") if f"{each}(" in body]
    needed: dict[str, set[str]] = {}
    for line in (_IMPORTS[each] for each in types & _IMPORTS.keys()):
        source, _, names = line.partition(" import ")
        needed.setdefault(source, set()).update(names.split(", "))
    for source in sorted(needed):
        yield f"{source} import {', '.join(sorted(needed[source], key=_isort_key))}"
    if needed:
        yield ""
    lines = {"esclusa.testing": ["SyncHarness"], **found}
    if used:
        lines["esclusa"] = [*lines.get("esclusa", []), *used]
    for module in sorted(lines):
        yield f"from {module} import {', '.join(sorted(lines[module], key=_isort_key))}"


def _as(attribute: str) -> str:
    return attribute if attribute == "app" else f"{attribute} as app"


def _isort_key(name: str) -> tuple[bool, str]:
    return (not name[0].isupper(), name)


def _kind_tests(kind: Kind, plan: Plan) -> Iterator[str]:
    stages = _stages_of(kind, plan)
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
            yield f"def test_{slug}_{_slug(frm)}_to_{_slug(to)}() -> None:"
            yield "    with SyncHarness(app) as h:"
            yield f'        record = h.insert(new_{slug}("{begin}"))'
            yield from (f"        {line}" for line in lines)
            yield ""


def _arrow(frm: str, to: str, stages: list[Stage]) -> tuple[str, list[str]]:
    """The state in which the record begins, and what makes it go this way."""
    for stage in stages:
        name = stage.name.partition(".")[2]
        run = f'h.run_stage("{name}")'
        begin = frm if frm in stage.take else stage.take[0]
        if stage.deadline is not None:
            if (frm, to) == (stage.take[0], stage.deadline.to):
                skip = f"h.skip(seconds={stage.deadline.seconds + 1:g})"
                return frm, [skip, run, _state(to)]
        elif to == stage.hold and frm in stage.take:
            answer = f'h.answer(Wait("1h", "not yet"), stage="{name}")'
            return frm, [answer, run, f'assert h.path(record)[:2] == ["{frm}", "{to}"]']
        elif frm == (stage.hold or begin) and frm in stage.states:
            lines = [_answer(stage, name, to), run, _state(to)]
            if stage.hold is not None:
                lines.append(f'assert "{frm}" in h.path(record)')
            if to == stage.exhausted:
                lines.append("assert len(h.dead_letters()) == 1")
            return begin, lines
    return frm, [f'h.move(record, "{to}")', _state(to)]


def _answer(stage: Stage, name: str, to: str) -> str:
    if to == stage.exhausted:
        return f'h.fail(Permanent("refused"), stage="{name}")'
    if to != stage.retry_to:
        return f'h.answer(To("{to}"), stage="{name}")'
    if stage.retry.tries == 1:
        return f'h.answer(Wait("1h", "not yet"), stage="{name}")'
    return f'h.answer(Retry("once more", after="1h"), stage="{name}")'


def _state(to: str) -> str:
    return f'h.assert_state(record, "{to}")'


def _stages_of(kind: Kind, plan: Plan) -> list[Stage]:
    return [stage for stage in plan.stages if stage.kind == kind]


def _written(value: Any) -> str:
    match value:
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case BaseModel():
            given = (f"{name}={_written(each)}" for name, each in _given(value).items())
            return f"{type(value).__name__}({', '.join(given)})"
        case list():
            return f"[{', '.join(map(_written, value))}]"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case Decimal():
            return f'Decimal("{value}")'
        case UUID():
            return f'UUID("{value}")'
        case datetime():
            return "datetime(2026, 1, 1, tzinfo=UTC)"
        case _:
            return repr(value).removeprefix("datetime.")


def _given(model: BaseModel) -> dict[str, Any]:
    return {name: getattr(model, name) for name in sorted(model.model_fields_set)}


def _inside(value: Any) -> Iterator[Any]:
    """The value, and those that it is made of."""
    yield value
    parts = value if isinstance(value, list) else ()
    for part in _given(value).values() if isinstance(value, BaseModel) else parts:
        yield from _inside(part)


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
            made[name] = _sample(kind, name, field, conds)
    return made


def _conditions(stages: list[Stage]) -> dict[str, list[Cond]]:
    found: dict[str, list[Cond]] = {}
    for stage in stages:
        for name, cond in stage.where:
            found.setdefault(name, []).append(cond)
    return found


def _sample(kind: Kind, name: str, field: FieldInfo, conds: tuple[tuple[str, Cond], ...]) -> Any:
    candidates = list(_samples(field.annotation))
    for _, cond in conds:
        candidates += cond.value if isinstance(cond.value, tuple) else [cond.value]
    for value in _accepted(field, candidates):
        if matches({name: value}, conds):
            return value
    fault = f"there is no value to begin with for {name}; give it a default, or write the test"
    raise DeclarationError(f"tests of {kind.table}", [fault])


def _accepted(field: FieldInfo, candidates: list[Any]) -> Iterator[Any]:
    """Those that the field's type and constraints allow."""
    constrained: Any = Annotated[field.annotation, field]
    adapter = TypeAdapter[Any](constrained)
    for value in candidates:
        try:
            adapter.validate_python(value)
        except ValidationError:
            continue
        yield value


def _samples(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if annotation in _SAMPLES:
        yield from _SAMPLES[annotation]
    elif origin is Literal:
        yield from get_args(annotation)
    elif origin in _SAMPLES:
        yield from _SAMPLES[origin]
        if origin is list:
            yield from ([value] for part in get_args(annotation) for value in _samples(part))
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from annotation
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _models(annotation)
    else:
        for part in get_args(annotation):
            yield from _samples(part)


def _models(model: type[BaseModel]) -> Iterator[BaseModel]:
    """One made of what its required fields accept, if they all accept something."""
    required = {n: field for n, field in model.model_fields.items() if field.is_required()}
    made = {n: [*_accepted(f, list(_samples(f.annotation)))][:1] for n, f in required.items()}
    if all(made.values()):
        try:
            yield model(**{name: value for name, [value] in made.items()})
        except ValidationError:  # what its own validators refuse
            return

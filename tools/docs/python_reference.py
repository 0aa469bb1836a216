"""The Python reference, docs/python.md, made from signatures and docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from esclusa.model import stage_options
from tools.docs.constants import NOTES
from tools.docs.stage_examples import CONTEXT, EXAMPLES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"

# The public modules, and what a reader finds there.
MODULES: dict[str, str] = {
    "esclusa": "Declarations, outcomes, effects, filters, errors.",
    "esclusa.testing": "Tests of pipelines, see [Test your pipeline](howto/test.md).",
    "esclusa.waiting": "Children and remote operations, see "
    "[Wait, join, approve](howto/wait-join-approve.md).",
    "esclusa.http": "HTTP sessions, and downloads of addresses that others chose.",
    "esclusa.imports": "Rows from CSV, JSON and NDJSON.",
    "esclusa.exports": "Rows to CSV, NDJSON, Parquet and XLSX.",
    "esclusa.cli": "What the commands of a pipeline use.",
    "esclusa.integrations.fastapi": "Esclusa inside a FastAPI application.",
    "esclusa.integrations.sqlalchemy": "Records from mapped classes, inserts in a session.",
    "esclusa.integrations.alembic": "What Alembic leaves alone.",
    "esclusa.integrations.psycopg": "Inserts on a connection of psycopg.",
    "esclusa.integrations.asyncpg": "Inserts on a connection of asyncpg.",
    "esclusa.web": "What the routes and console pages of a pipeline use.",
}
_WIDTH = 88
# Options of the decorator itself, which `App.stage` documents.
_OWN = {
    "batch": "The handler takes a list of up to so many records and answers a list with one "
    "outcome for each.",
    "cycle": "Whether the stage has a cycle of its own. Otherwise another cycle drains it.",
    "name": "The name of the stage. By default that of the handler, with hyphens.",
}


def page() -> str:
    """The whole page."""
    return "\n".join([*_head(), *_options(), *(line for m in MODULES for line in _module(m))])


def _head() -> Iterator[str]:
    yield "# Python reference"
    yield ""
    yield "<!-- made by `python -m tools.docs reference`; change the docstrings instead -->"
    yield ""
    yield "Every public name, from its signature and docstring. A pipeline imports only these"
    yield "modules. Settings and commands are in the [reference](reference.md)."
    yield ""
    yield "- [Options of a stage](#options-of-a-stage)"
    for module, about in MODULES.items():
        yield from _item(f"[`{module}`](#{_anchor(module)}): {about}")
    yield ""


def _item(text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text, 100, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


# options of stages


def options() -> dict[str, tuple[str, str]]:
    """Each option of ``@app.stage``: its type as it is written, and what the comment above says."""
    source = inspect.getsource(stage_options)
    lines = source.splitlines()
    found: dict[str, tuple[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name in ("StageOptions", "CycleOptions"):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    written = ast.unparse(field.annotation)
                    written = re.sub(r"Required\[(.*)\]", r"\1", written)
                    found[field.target.id] = written, _comment_above(lines, field.lineno - 1)
    stage = inspect.get_annotations(stage_options.StageOptions)
    return {name: found[name] for name in sorted(found, key=lambda n: (n not in stage, n))}


def _comment_above(lines: list[str], index: int) -> str:
    comment: list[str] = []
    while lines[index - 1].strip().startswith("#"):
        index -= 1
        comment.insert(0, lines[index].strip().removeprefix("#").strip())
    paragraphs = "\n".join(comment).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _options() -> Iterator[str]:
    yield "## Options of a stage"
    yield ""
    yield "`take` is required. Most options may be a function of the pipeline's settings instead"
    yield "(`FromSettings`). `every`, `eager`, `alert_rate`, `alert_min` and `counters` are also"
    yield "options of `@app.cycle`."
    yield ""
    own = {name: ("int" if name == "batch" else "bool" if name == "cycle" else "str", about)
           for name, about in _OWN.items()}  # fmt: skip
    for name, (written, about) in (options() | own).items():
        yield f"### `{name}`"
        yield ""
        yield from _wrapped(f"{about} Type: `{written}`.")
        yield ""
        yield "```python"
        yield from _decorator(example(name))
        yield "```"
        yield ""


def _decorator(arguments: list[str]) -> Iterator[str]:
    line = f"@app.stage({', '.join(arguments)})"
    if len(line) <= _WIDTH:
        yield line
    else:
        yield from ("@app.stage(", *(f"    {each}," for each in arguments), ")")


def example(name: str) -> list[str]:
    """The arguments of a stage that has this option."""
    if name not in EXAMPLES:
        raise LookupError(f"add an example of the option {name} to tools/docs/stage_examples.py")
    others = CONTEXT.get(name, ('take="new"', 'exhausted="refused"'))
    return ["Order", *others, EXAMPLES[name]]


# modules


def _module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield f"## `{name}`"
    yield ""
    yield from _docstring(module)
    for public in public_names(module):
        yield from _member(name, public, getattr(module, public))


def public_names(module: ModuleType) -> list[str]:
    """The names that it offers: those of ``__all__``, or the functions and classes in it."""
    found = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    ]
    return sorted((n for n in found if not n.startswith("__")), key=lambda n: (n.lower(), n))


def _member(module: str, name: str, found: Any) -> Iterator[str]:
    yield f"### `{name}`"
    yield ""
    if (note := NOTES.get(f"{module}.{name}")) is not None:
        yield note
        yield ""
    elif inspect.isclass(found):
        yield from _class(name, found)
    else:
        yield from _code(_signature(name, found))
        yield from _docstring(found)


def _class(name: str, found: type) -> Iterator[str]:
    definition = _definition(found)
    if issubclass(found, BaseException) and "__init__" not in vars(found):
        yield from _code(f"class {name}({found.__mro__[1].__name__})")
    else:
        yield from _code(_constructor(name, found, definition))
    yield from _docstring(found)
    if "__init_subclass__" in vars(found):
        yield "Arguments of a subclass:"
        yield ""
        function = vars(found)["__init_subclass__"].__func__
        yield from _code(_signature(f"class Example({name}, …)", function, method=True))
        yield from _docstring(function)
    for method, value in _methods(found):
        if isinstance(value, property):
            yield f"**`{method}`** (property)"
            yield ""
            yield from _docstring(value)
        else:
            bound = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            bare = not isinstance(value, staticmethod)
            yield from _code(_signature(f"{name}.{method}", bound, method=bare))
            yield from _docstring(bound)


def _definition(found: Any) -> Any:
    """The statement that defines a class or a function; None if there is no source."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(found)))
        [definition] = ast.parse(source).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    return definition


def _constructor(name: str, found: type, definition: ast.ClassDef | None) -> str:
    """How an instance is made: as ``__init__`` says, or by the fields of the class."""
    if getattr(found, "_is_protocol", False):
        return f"class {name}"
    constructor = vars(found).get("__init__")
    if inspect.isfunction(constructor):
        own = _definition(constructor)
        if isinstance(own, ast.FunctionDef):
            return _call(name, _parameters(own.args)[1:], "")
    if definition is None:
        return f"class {name}"
    fields = [
        ast.unparse(each)
        for each in definition.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and not each.target.id.startswith("_")
        and not each.target.id.endswith("_")
        and "ClassVar" not in ast.unparse(each.annotation)
    ]
    return _call(name, [_default(field) for field in fields], "")


def _default(field: str) -> str:
    """A field whose default is made for each instance, as its type shows it."""
    made = re.sub(r"field\(default_factory=(.*)\)$", r"\1()", field)
    return made.replace("= list()", "= []").replace("= dict()", "= {}")


def _methods(found: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that it defines itself."""
    for name, value in vars(found).items():
        if name.startswith("_") or not inspect.getdoc(value):
            continue
        if isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value):
            yield name, value


def _signature(name: str, found: Any, *, method: bool = False) -> str:
    """How a function is called, as its source says it."""
    definition = _definition(found)
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return name
    parameters = _parameters(definition.args)[1 if method else 0 :]
    answer = "" if definition.returns is None else ast.unparse(definition.returns)
    result = f" -> {_bare(answer)}" if answer not in ("", "None") else ""
    prefix = "async " if isinstance(definition, ast.AsyncFunctionDef) else ""
    return _call(f"{prefix}{name}", parameters, result)


def _call(name: str, parameters: list[str], result: str) -> str:
    line = f"{name}({', '.join(parameters)}){result}"
    if len(line) <= _WIDTH:
        return line
    body = "".join(f"    {p},\n" for p in parameters)
    return f"{name}(\n{body}){result}"


def _parameters(given: ast.arguments) -> list[str]:
    """The parameters as they are written, one text for each."""
    found: list[str] = []
    named = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(named) - len(given.defaults)) + list(given.defaults)
    for index, (argument, default) in enumerate(zip(named, defaults, strict=True), start=1):
        found.append(_parameter(argument, default))
        if index == len(given.posonlyargs):
            found.append("/")
    if given.vararg is not None:
        found.append(f"*{_parameter(given.vararg, None)}")
    elif given.kwonlyargs:
        found.append("*")
    for argument, keyword in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(_parameter(argument, keyword))
    if given.kwarg is not None:
        found.append(f"**{_parameter(given.kwarg, None)}")
    return found


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    written = ast.unparse(argument)
    if default is None:
        return _bare(written)
    equals = " = " if argument.annotation is not None else "="
    return f"{_bare(written)}{equals}{ast.unparse(default)}"


def _bare(written: str) -> str:
    """A type without the quotes of a forward reference."""
    return re.sub(r"'([\w\[\], .|]+)'", r"\1", written)


def _code(line: str) -> Iterator[str]:
    yield "```python"
    yield line
    yield "```"
    yield ""


def _docstring(found: Any) -> Iterator[str]:
    text = inspect.getdoc(found) if _has_own(found) else None
    if not text:
        return
    for paragraph in text.replace("``", "`").split("\n\n"):
        if paragraph.rstrip().endswith("::"):
            yield from _wrapped(paragraph.rstrip()[:-1])
        elif paragraph.startswith("    "):
            yield "```python"
            yield from textwrap.dedent(paragraph).splitlines()
            yield "```"
        else:
            yield from _wrapped(paragraph)
        yield ""


def _has_own(found: Any) -> bool:
    """Whether it has a docstring that was written for it, not inherited from Python."""
    if inspect.isclass(found):
        text = found.__dict__.get("__doc__") or ""
        return bool(text) and not text.startswith(f"{found.__name__}(")
    return True


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        " ".join(text.split()), 100, break_long_words=False, break_on_hyphens=False
    )

"""Every text that the console may say: read from its templates and code, so that no catalogue misses one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import esclusa
from esclusa.web import problems
from esclusa.web.console import render, translate

HOUSE = Path(esclusa.__file__).parent
SAID_BY_DATA = (
    "idle", "running", "paused", "stopped", "lost", "raised", "seen", "always", "manual", "per second", "per minute", "per hour",
    "per day", "per month",
)  # fmt: skip
"""Words that come from records and are translated where they are shown."""
TITLES = (
    "Not Found", "Method Not Allowed", "Only this machine is served", "Another site's page may not act", "Something went wrong inside",
    "The request does not fit",
)  # fmt: skip


def messages() -> dict[str, str | None]:
    """Each message with its plural form, if it has one."""
    found: dict[str, str | None] = dict.fromkeys((*SAID_BY_DATA, *TITLES, *translate.PHRASES))
    found |= dict.fromkeys(title for _, _, title in problems._MEANING.values())
    for file in (render.HERE / "templates").glob("*.html"):
        source = file.read_text()
        for _, name, said in _extracted(source):
            if name == "ngettext":
                found[said[0]] = said[1]
            else:
                found.setdefault(said[0], None)
    for file in (render.HERE).glob("*.py"):
        found |= _of_code(ast.parse(file.read_text()))
    why = (HOUSE / "engine" / "why.py").read_text()
    for node in ast.walk(ast.parse(why)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.search(r"^[a-z{][^:]* .*( \w+){2}", node.value)
        ):
            found.setdefault(node.value, None)
    return found


def _extracted(source: str) -> list[tuple[int, str, tuple[str, ...]]]:
    from jinja2.ext import extract_from_ast

    tree = render._ENVIRONMENT.parse(source)
    out = []
    for line, name, said in extract_from_ast(tree, ["_", "ngettext"]):
        texts = tuple(
            s for s in ((said,) if isinstance(said, str) else said or ()) if s is not None
        )
        if texts:
            out.append((line, name, texts))
    return out


def _of_code(tree: ast.AST) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            texts = [
                a.value
                for a in node.args
                if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ]
            if name in ("_", "gettext") and texts:
                found.setdefault(texts[0], None)
            elif name == "ngettext" and len(texts) > 1:
                found[texts[0]] = texts[1]
    return found


def sentences() -> set[str]:
    """Every text that the source makes, with ``{}`` for its values."""
    found: set[str] = set()
    for file in HOUSE.rglob("*.py"):
        for node in (
            ast.walk(ast.parse(file.read_text())) if not file.is_relative_to(render.HERE) else ()
        ):
            if isinstance(node, ast.JoinedStr):
                found.add(
                    holes(
                        "".join(
                            str(v.value) if isinstance(v, ast.Constant) else "{}"
                            for v in node.values
                        )
                    )
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def holes(text: str) -> str:
    """The text with one ``{}`` for values that follow each other."""
    return re.sub(r"(\{\w*\})+", "{}", text)

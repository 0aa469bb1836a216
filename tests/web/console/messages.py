"""Every text that the console can show, read from its templates and code."""

from __future__ import annotations

import ast
from pathlib import Path

import esclusa
from esclusa.model.texts import TEXTS
from esclusa.web import problems
from esclusa.web.console import render

SOURCE = Path(esclusa.__file__).parent
DATA = (
    *("idle", "running", "paused", "stopped", "lost", "always", "manual"),
    *("per second", "per minute", "per hour", "per day", "per month"),
)
"""Values of records that are translated where they are shown."""

Messages = dict[str, str | None]
"""Each message with its plural form, or None."""


def messages() -> Messages:
    """The messages that the console's own catalog must translate."""
    found: Messages = dict.fromkeys((*DATA, *TEXTS.values(), problems._INTERNAL))
    found |= _titles()
    found |= messages_of(render.FOLDER)
    for file in (SOURCE / "pipelines").rglob("*.py"):
        found |= _of_pipeline(ast.parse(file.read_text()))
    return found


def messages_of(folder: Path) -> Messages:
    """The messages in the templates and the code of a folder."""
    found: Messages = {}
    for file in folder.glob("templates/*.html"):
        found |= _of_template(file.read_text())
    for file in folder.glob("*.py"):
        found |= _of_code(ast.parse(file.read_text()))
    return found


def _titles() -> Messages:
    """The titles of problems, and the phrases of HTTP statuses that have none."""
    titles = [title for _, _, title in problems._PROBLEMS.values()]
    for node in ast.walk(ast.parse((SOURCE / "web" / "problems.py").read_text())):
        if isinstance(node, ast.keyword) and node.arg == "title":
            titles += [c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant)]
    return dict.fromkeys([*filter(None, titles), "Not Found", "Method Not Allowed"])


def _of_template(source: str) -> Messages:
    from jinja2.ext import extract_from_ast

    found: Messages = {}
    tree = render.environment().parse(source)
    for _, name, given in extract_from_ast(tree, ["_", "ngettext"]):
        texts = [t for t in ((given,) if isinstance(given, str) else given or ()) if t is not None]
        if texts:
            found[texts[0]] = texts[1] if name == "ngettext" else None
    return found


def _of_pipeline(tree: ast.AST) -> Messages:
    """The sentences of ``Text("…")``."""
    return {
        node.args[0].value: None
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Text"
        and isinstance(node.args[0], ast.Constant)
    }


def _of_code(tree: ast.AST) -> Messages:
    found: Messages = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if name in ("_", "gettext") and texts:
                found[texts[0]] = None
            elif name == "ngettext":
                found[texts[0]] = texts[1]
            elif name == "button" and texts:
                found[texts[-1]] = None
    return found

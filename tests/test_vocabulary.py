"""The vocabulary of docs/glossary.md holds in every file: no banned name, no class name twice."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "bench", "examples", "deploy", "docs", "tools")
PAGES = ("*.py", "*.md", "*.html", "*.js", "*.css", "*.po", "*.sql", "*.sh", "*.yaml")

BANNED_NAMES = frozenset(
    [
        "house",
        "door",
        "desk",
        "office",
        "errand",
        "books",
        "insight",
        "outlook",
        "told",
        "said",
        "tell",
        "heard",
        "meant",
        "sure",
        "firm",
        "gone",
        "porter",
        "border",
        "vitals",
        "patience",
        "workshop",
        "calm",
        "upkeep",
        "glance",
        "yard",
        "outsiders",
        "strangers",
        "unseen",
        "endings",
        "unended",
        "spread",
        "family",
        "asking",
        "keeping",
    ]
)
"""Words that no identifier contains: `_told_of` and `DeskForm` are refused, too."""

BANNED_WORD = re.compile("|".join(sorted(BANNED_NAMES)), re.IGNORECASE)

BANNED_PHRASES = re.compile(
    r"\bthe house('s)?\b|\b(is|are|be|been|was|were) told\b|\btell(s|ing)?\b|\btold\b|\bwhoever\b"
    r"|\bmend(s|ed|ing)?\b|\bof ours\b|\bwhat is no\b|\berrand|\bdesks?\b|\bthe books\b|\bdoors?\b"
    r"|\bheard\b|\bstrangers?\b|\bla casa\b|\bcartas? muertas?\b|\barriendos?\b",
    re.IGNORECASE,
)
"""Turns of phrase that no comment, docstring, message or page contains."""

BUILTIN_NAMES = frozenset({"tell"})
"""Methods of Python's own objects that code has to call: `file.tell()`."""

EARLIER_STATES = frozenset({'"told"', '"heard"'})
"""States that earlier versions stored: a lifecycle names them in ``renamed``."""


def identifiers(source: str) -> Iterator[tuple[int, str]]:
    """Every name that the module binds: classes, functions, arguments, variables, attributes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.alias(name=name, asname=alias):
                yield node.lineno, alias or name.rsplit(".", 1)[-1]


def prose(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """The text that people read: comments and strings of Python, every line of other files."""
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def faults(path: Path) -> Iterator[str]:
    """What the vocabulary refuses in this file, one text for each place."""
    source = path.read_text("utf-8")
    where = path.relative_to(ROOT)
    # Parsing takes long, so only files with such a word are parsed.
    if path.suffix == ".py" and BANNED_WORD.search(source):
        for line, name in identifiers(source):
            words = re.findall(r"[a-z]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower())
            for word in BANNED_NAMES.intersection(words) - BUILTIN_NAMES.intersection([name]):
                yield f"{where}:{line}: the name {name} contains {word!r}"
    if BANNED_NAMES.intersection(path.stem.split("_")):
        yield f"{where}: the file's name"
    if not BANNED_PHRASES.search(source):
        return
    for line, text in prose(path, source):
        if text not in EARLIER_STATES and (found := BANNED_PHRASES.search(text)):
            yield f"{where}:{line}: {found[0]!r} in: {text.strip()[:100]}"


def pages(*folders: str) -> list[Path]:
    """Every file of these folders that people read or write by hand, and the root's own pages.

    Not migrations: their checksums are stored, so their text never changes.
    """
    found = [p for f in folders for pattern in PAGES for p in sorted((ROOT / f).rglob(pattern))]
    return [
        p for p in found if p != Path(__file__) and not {"__pycache__", "migrations"} & {*p.parts}
    ]


def test_no_banned_word() -> None:
    root = list(ROOT.glob("*.md"))
    assert [fault for path in [*pages(*FOLDERS), *root] for fault in faults(path)] == []


def test_no_public_class_name_twice() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def wide_lines(path: Path) -> Iterator[str]:
    """Every line over 100 columns, except rows of tables and lines with links in Markdown."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        free = path.suffix == ".md" and (line.lstrip().startswith("|") or "http" in line)
        if len(line) > 100 and not free:
            yield f"{path.relative_to(ROOT)}:{number}"


def test_no_line_is_wider_than_100_columns() -> None:
    """Prose, templates, catalogs, styles and scripts. Ruff checks the lines of Python."""
    sources = [p for p in pages("src") if p.suffix in (".html", ".po", ".css", ".js")]
    prose = [p for p in pages(*FOLDERS) if p.suffix == ".md"]
    paths = [*sources, *prose, *ROOT.glob("*.md")]
    assert [line for path in paths for line in wide_lines(path)] == []


if __name__ == "__main__":  # python tests/test_vocabulary.py src/esclusa/engine: the faults there
    found = [fault for path in pages(*sys.argv[1:]) for fault in faults(path)]
    print("\n".join([*found, f"{len(found)} faults"]))

"""Changes of fields: which words of a text, or which values inside JSON, became others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from markupsafe import Markup, escape

# Texts with more words are shown whole, before and after: a comparison would take too long.
MOST_WORDS = 2000
# Unchanged words that stay on each side of a change.
_AROUND = 6


def rows(changes: Mapping[str, Any]) -> list[tuple[str, Markup]]:
    """Each change: the field, or the path inside it, and how its value changed.

    A change is the value before and after; only the value after, if records had different ones.
    """
    out = []
    for name, change in changes.items():
        if len(change) == 1:
            out.append((name, _pair(None, change[0], several=True)))
            continue
        for path, old, new in _inside(name, *change):
            both = isinstance(old, str) and isinstance(new, str)
            out.append((path, _words(old, new) if both else _pair(old, new)))
    return out


def _inside(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """The values that differ, as deep as both are objects."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        yield path, old, new
        return
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key) or (key in old) != (key in new):
            yield from _inside(f"{path}.{key}", old.get(key), new.get(key))


def _words(old: str, new: str) -> Markup:
    """The text with the words that left and the words that came; unchanged parts are shortened."""
    before, after = re.findall(r"\s+|\w+|[^\w\s]", old), re.findall(r"\s+|\w+|[^\w\s]", new)
    if max(len(before), len(after)) > MOST_WORDS:
        return _pair(old, new)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.quick_ratio() < 0.4 or matcher.ratio() < 0.4:
        return _pair(old, new)
    out = []
    for what, i, j, k, end in matcher.get_opcodes():
        if what == "equal":
            out.append(escape(_shortened(before[i:j], first=i == 0, last=j == len(before))))
            continue
        if j > i:
            out.append(Markup("<del>{}</del>").format("".join(before[i:j])))
        if end > k:
            out.append(Markup("<ins>{}</ins>").format("".join(after[k:end])))
    return Markup("").join(out)


def _shortened(words: list[str], *, first: bool, last: bool) -> str:
    room = 2 * _AROUND
    if len(words) <= room * 2:
        return "".join(words)
    head = "" if first else "".join(words[:room])
    tail = "" if last else "".join(words[-room:])
    return f"{head}…{tail}"


def _pair(old: Any, new: Any, *, several: bool = False) -> Markup:
    given = Markup("…") if several else Markup("<del>{}</del>").format(_text(old))
    arrow = Markup(' <span aria-hidden="true">→</span> ')
    return given + arrow + Markup("<ins>{}</ins>").format(_text(new))


def _text(value: Any) -> str:
    if value is None:
        return "—"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""Languages: gettext's catalogues (.po), read by a small loader; English is the language of the source."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

LANGUAGES = {"en": "English", "es": "Español"}
FOLDER = Path(__file__).parent / "languages"

language: ContextVar[str] = ContextVar("language", default="en")
"""The language of the page that is being made."""


def parse(text: str) -> dict[str, tuple[str, ...]]:
    """The messages of a .po file: each msgid with its translation, or its translations in the order of the plural forms."""
    found: dict[str, tuple[str, ...]] = {}
    entry: dict[str, str] = {}
    where = ""
    for line in [*text.splitlines(), ""]:
        line = line.strip()  # noqa: PLW2901
        if line.startswith("#"):
            continue
        if line.startswith('"'):
            entry[where] += ast.literal_eval(line)
            continue
        word, _, rest = line.partition(" ")
        if word in ("", "msgid"):
            _keep(entry, found)
            entry = (
                {}
                if entry.get("msgstr") is not None or entry.get("msgstr[0]") is not None or not word
                else entry
            )
        if word:
            where = word
            entry[where] = ast.literal_eval(rest)
    _keep(entry, found)
    return found


def _keep(entry: dict[str, str], found: dict[str, tuple[str, ...]]) -> None:
    if entry.get("msgid"):
        forms = [entry[name] for name in ("msgstr", "msgstr[0]", "msgstr[1]") if entry.get(name)]
        if forms:
            found[entry["msgid"]] = tuple(forms)


@lru_cache(maxsize=8)
def catalogue(name: str) -> dict[str, tuple[str, ...]]:
    file = FOLDER / f"{name}.po"
    return parse(file.read_text("utf-8")) if name in LANGUAGES and file.is_file() else {}


def gettext(text: str, /, **values: Any) -> str:
    """The text in the page's language, its values filled in: ``gettext("{n} records", n=3)``."""
    said = catalogue(language.get()).get(text, (text,))[0]
    return said.format(**values) if values else said


def ngettext(one: str, many: str, n: int, /, **values: Any) -> str:
    """The same with a number: one form for 1, the other for the rest (in English and in Spanish)."""
    said = catalogue(language.get()).get(one, (one, many))
    return said[0 if n == 1 else -1].format(n=number(n), **values)


def own(said: Mapping[str, str]) -> str:
    """A text that its owner says in languages of its own."""
    return said.get(language.get(), said["en"])


def number(value: float) -> str:
    """A number as the language writes it."""
    said = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}".removesuffix(".0")
    return said if language.get() == "en" else said.translate(str.maketrans(",.", ".,"))


def preferred(header: str) -> str:
    """The best of our languages for an Accept-Language header."""
    wanted: list[tuple[float, int, str]] = []
    for place, part in enumerate(header.split(",")):
        name, _, quality = part.strip().partition(";")
        try:
            weight = float(quality.strip().removeprefix("q=") or 1)
        except ValueError:
            weight = 0.0
        if (short := name.split("-")[0].lower()) in LANGUAGES and weight > 0:
            wanted.append((-weight, place, short))
    return min(wanted)[2] if wanted else "en"

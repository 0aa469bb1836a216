"""Translations: gettext catalogs (.po files) and numbers in the language of the page.

English is the language of the source, so it has no catalog file.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from esclusa.model.value import value

LANGUAGES: Final = {"en": "English", "es": "Español"}
FOLDER: Final = Path(__file__).parent / "languages"

# Each English text with its translation, or with its translations by plural form.
Messages = Mapping[str, tuple[str, ...]]


@value
class Catalog:
    """One language and its translations."""

    language: str
    messages: Messages


ENGLISH: Final = Catalog("en", {})
# The catalog of the page that is being made.
current: ContextVar[Catalog] = ContextVar("catalog", default=ENGLISH)


def load(language: str, folders: Sequence[Path] = (FOLDER,)) -> Catalog:
    """The catalog of a language: the messages of ``{language}.po`` in each folder that has it."""
    files = [_read(folder / f"{language}.po") for folder in folders]
    return Catalog(language, {text: forms for file in files for text, forms in file.items()})


@lru_cache(maxsize=32)
def _read(file: Path) -> Messages:
    return parse(file.read_text("utf-8")) if file.is_file() else {}


def parse(text: str) -> dict[str, tuple[str, ...]]:
    """The messages of a .po file. A message with plural forms has one translation for each."""
    messages: dict[str, tuple[str, ...]] = {}
    entry: dict[str, str] = {}
    keyword = ""

    def add() -> None:
        forms = [entry[name] for name in ("msgstr", "msgstr[0]", "msgstr[1]") if entry.get(name)]
        if entry.get("msgid") and forms:
            messages[entry["msgid"]] = tuple(forms)
        entry.clear()

    for line in map(str.strip, text.splitlines()):
        first, _, rest = line.partition(" ")
        if first in ("", "msgid"):
            add()
        if line.startswith('"'):
            entry[keyword] += ast.literal_eval(line)
        elif line.startswith("msg"):
            keyword = first
            entry[keyword] = ast.literal_eval(rest)
    add()
    return messages


def gettext(text: str, /, **values: Any) -> str:
    """The text in the language of the page, with its values: ``gettext("{n} records", n=3)``."""
    translated = current.get().messages.get(text, (text,))[0]
    return translated.format(**values) if values else translated


def ngettext(one: str, many: str, n: int, /, **values: Any) -> str:
    """As ``gettext``, with one form for 1 and another for every other number."""
    forms = current.get().messages.get(one, (one, many))
    return forms[0 if n == 1 else -1].format(n=number(n), **values)


def in_language(texts: Mapping[str, str]) -> str:
    """The text in the language of the page, of texts given by language; else the English text."""
    return texts.get(current.get().language, texts["en"])


def number(value: float) -> str:
    """A number with the separators of the language."""
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}".removesuffix(".0")
    return text if current.get().language == "en" else text.translate(str.maketrans(",.", ".,"))


def preferred(header: str) -> str:
    """The language to use for an Accept-Language header; English if it names none that we have."""
    ranked: list[tuple[float, int, str]] = []
    for position, part in enumerate(header.split(",")):
        name, _, quality = part.strip().partition(";")
        try:
            weight = float(quality.strip().removeprefix("q=") or 1)
        except ValueError:
            weight = 0.0
        if (language := name.split("-")[0].lower()) in LANGUAGES and weight > 0:
            ranked.append((-weight, position, language))
    return min(ranked)[2] if ranked else "en"

"""Puts codes with values into words, in the language of the page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from esclusa.model.texts import TEXTS, Text, load
from esclusa.observability import redact
from esclusa.web.console import render
from esclusa.web.console.catalog import gettext


def sentence(text: Text | str) -> str:
    """The sentence in the language of the page, with secrets masked.

    Words of a person, a handler or an outside service stay as they are.
    """
    return filled(TEXTS[text.code], text.values) if isinstance(text, Text) else redact.text(text)


def stored(text: str | None) -> str:
    """The sentence of a stored reason or message; empty if there is none."""
    return sentence(load(text or ""))


def filled(template: str, values: Mapping[str, Any]) -> str:
    """The translated template with its values: texts translated, times and schedules in words."""
    words = {name: _word(name, value) for name, value in values.items()}
    return redact.text(gettext(template).format(**words))


def _word(name: str, value: Any) -> Any:
    if isinstance(value, Text):
        return sentence(value)
    if name == "schedule":
        return render.schedule(str(value))
    moment = value if isinstance(value, datetime) else render.parsed_time(value)
    return value if moment is None else render.full(moment)

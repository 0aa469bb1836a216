"""Puts codes with values into words, in the language of the page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fastapi.exceptions import RequestValidationError

from esclusa.model.texts import Text, load
from esclusa.observability import redact
from esclusa.web.console import render
from esclusa.web.console.catalog import gettext


def sentence(text: Text | str) -> str:
    """The sentence in the language of the page, with secrets masked.

    Words of a person, a handler or an outside service stay as they are.
    """
    if isinstance(text, Text):
        words = {name: _word(name, value) for name, value in text.values.items()}
        text = gettext(text.template).format(**words)
    return redact.text(text)


def stored(text: str | None) -> str:
    """The sentence of a stored reason or message; empty if there is none."""
    return sentence(load(text or ""))


def problem(error: Exception, body: Mapping[str, Any]) -> str:
    """What the problem of an error says; ``body`` is what the API would answer."""
    if (refusal := getattr(error, "text", None)) is not None:
        return sentence(refusal)
    if isinstance(error, RequestValidationError) and body.get("faults"):
        names = dict.fromkeys(fault["where"].rpartition(".")[2] for fault in body["faults"])
        return gettext("The value of {names} is not valid.", names=", ".join(names))
    return gettext(body["detail"])


def _word(name: str, value: Any) -> Any:
    """A value of a text: texts are translated; times, schedules and periods are put into words."""
    if isinstance(value, Text):
        return sentence(value)
    if name == "schedule":
        return render.schedule(str(value))
    if name == "per":
        return gettext(f"per {value}").partition(" ")[2]
    moment = value if isinstance(value, datetime) else render.parsed_time(value)
    return value if moment is None else render.full(moment)

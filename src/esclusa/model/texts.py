"""Texts as codes with values. The engine stores what happened; a reader puts it into words.

``TEXTS`` holds the English sentence of every code. The console translates the same sentence with its
catalog and fills in the same values, so no reader takes a sentence apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

TEXTS: Final[Mapping[str, str]] = {
    # Why a record moved or stayed: `reason` in the history and in dead letters.
    "retrying": "attempt {attempt}, will retry",
    "retrying_of": "attempt {attempt}/{tries}, will retry",
    "permanent": "permanent error",
    "exhausted": "reached the maximum of attempts ({tries})",
    "exhaustion_failed": "exhaustion failed, will retry: {why}",
    "worker_stopped": "given back: the worker stopped",
    "run_stopped": "given back: {why}",
    "batch_lost": "given back: the lease of another record in its batch was lost",
    "lease_expired": "the lease of {worker} expired",
    # Errors that no handler raised: `last_error`.
    "crash": "the worker stopped without settling this record",
    "rejected": "the settlement was rejected: {why}",
    # How a run ended: `message` of a run.
    "budget_empty": "budget {budget} is empty until {until}",
    "records_exhausted": "records ended in {state}",
    "run_cancelled": "stopped before the end",
    "run_abandoned": "worker {worker} stopped without finishing this run",
}
"""The English sentence of each code, with its values in braces."""


class Text(str):
    """An English sentence that keeps its code of ``TEXTS`` and its values.

    Readers that know no other language use it as a string; the console translates ``code``.
    """

    __slots__ = ("code", "values")
    code: str
    values: Mapping[str, Any]

    def dump(self) -> str:
        """The form in which it is stored: a JSON object with ``code`` and the values."""
        return json.dumps({"code": self.code, **self.values}, default=str, ensure_ascii=False)


def text(code: str, **values: Any) -> Text:
    """The text of this code. Raises KeyError for a code that ``TEXTS`` lacks or a missing value."""
    made = Text(fill(TEXTS[code], values))
    made.code, made.values = code, values
    return made


def dump(sentence: str) -> str:
    """The form in which a sentence is stored: its code and values, or the words of a person."""
    return sentence.dump() if isinstance(sentence, Text) else sentence


def load(stored: str) -> str:
    """A stored sentence: a ``Text`` if Esclusa wrote it, otherwise the words of a person."""
    if stored.startswith('{"code"'):
        try:
            values = json.loads(stored)
            return text(values.pop("code"), **values)
        except (ValueError, KeyError, TypeError):
            return stored
    return stored


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The template with its values; times are written to the second."""
    return template.format(**{name: _plain(each) for name, each in values.items()})


def _plain(each: Any) -> Any:
    return each.isoformat(sep=" ", timespec="seconds") if isinstance(each, datetime) else each

"""Names that people type: the refusal of an unknown one, with the nearest that exists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from esclusa.model.texts import Text, text


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None if none is near."""
    by_lower = {each.lower(): each for each in known}
    given = name.strip().lower()
    found = get_close_matches(given, by_lower, 1, 0.6)
    if not found and given:
        # `process-jobs` for `replies.process-jobs`, `post` for `posts`
        found = [each for each in by_lower if given in each.split(".") or each.startswith(given)]
    return by_lower[found[0]] if len(found) == 1 else None


def suggest(refusal: Text, name: str, known: Iterable[str]) -> Text:
    """The refusal of an unknown name, with the known one that was probably meant."""
    near = nearest(name, known)
    return refusal if near is None else text("did_you_mean", refusal=refusal, name=near)


def no_state(table: str, state: str, states: Sequence[str]) -> Text:
    """The refusal of a state that the lifecycle of a table does not have."""
    refusal = text("no_state", table=table, state=state, states=", ".join(states))
    return suggest(refusal, state, states)


def no_field(code: str, table: str, field: str, fields: Iterable[str]) -> Text:
    """The refusal of a field that a table does not have, or not for this use."""
    known = list(fields)
    values = {"table": table, "name": field, "field": field, "fields": ", ".join(known)}
    return suggest(text(code, **values), field, known)


def unknown(code: str, name: str, known: Iterable[str], /, **values: Any) -> Text:
    """The text of ``code``, which lists the names as ``known``, with a suggestion."""
    names = sorted(known)
    return suggest(text(code, known=", ".join(names) or "-", **values), name, names)

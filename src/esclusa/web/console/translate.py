"""Sentences that the engine wrote into its books, told in the page's language. What is stored stays as it was written."""

from __future__ import annotations

import re
from typing import Final

from esclusa.web.console import catalog
from esclusa.web.console.catalog import gettext

PHRASES: Final = (
    # Why a record moved, or stayed.
    "attempt {attempt}, will retry",
    "permanent error",
    "reached the maximum of attempts ({tries})",
    "it cannot end, will be tried again: {why}",
    "given back: {why}",
    "the worker stopped",
    "another record of its batch was lost",
    "lease of {worker} ran out",
    " of {tries}",
    # Errors that no handler raised.
    "the worker that held it stopped without answering",
    "the settlement was rejected: {why}",
    # How a run ended.
    "budget {budget} is empty until {until}",
    "records ended in {state}",
    "stopped before it ended",
    "its worker {worker} stopped without finishing it",
    # Why a record is passed over by an act.
    "it is {state} already",
    "it changed meanwhile",
    "there is no record {id} in {table} any more; discard the letter",
    "{record} is {state}: it was sent back or moved meanwhile; discard the letter",
    "{record} is {state}: no stage takes it again",
    # What is wrong with a question.
    "there is no record {id} in {table}",
    "there is no kind {table}; there are: {known}",
    "there is no cycle {name}; there are: {known}",
    "there is no view {name}; there are: {known}",
    "there is no budget {budget} per {per}",
    "{cycle} is running now in this process; wait for it to end",
    "{cycle} is running now; it runs alone",
    "{cycle} is paused; resume it first",
    "{table} is a book of the house, which only the engine moves",
    "{table} has no exhausted state from which a stage could take a record again",
    "{where}: the move {frm} -> {to} is not declared; from {frm} it can go to {targets}",
    "nothing: it is terminal",
    "{table} has no field {name}; it has {fields}",
    "{table} keeps no archive",
    "{table} cannot be ordered by {field}; it can by {fields}",
    "{table}.{field} holds {type} and cannot be compared",
    "{filter} is not a filter; write field=value, field=a,b, field>=value, field=null or field!=null",
    "{filter}: != is for null only (field!=null); name the values that are wanted instead",
    "{field} is compared with a value of type {type}, not {value}",
    "{field}: there is no operator {operator}; there are {known}",
    "Something went wrong inside; nothing is known to be wrong with the request. The server's log has the cause under this path and time.",
    "{store} does not answer: {why}",
    "{store}: another process has kept the database locked for {seconds} s",
    # What was found of the house's health.
    "it answers",
    "they answer",
    "it does not answer ({error})",
    "no answer within {seconds} s",
    "the server's log says more",
    "up to date",
    "{n} statements behind",
    "run 'esclusa migrate'",
    "run, worker and serve bring it up to date",
    "see docs/operations.md, Stores",
    "none is listed",
    "set ESCLUSA_PIPELINES, for example to examples/hello.py:app",
    "a check broke ({error})",
    "kinds {kinds}, stages {stages}, cycles {cycles}",
)
"""As the engine says them, its values in braces; a test holds each against the source. A pipeline's own words are left alone."""

_HOLE = re.compile(r"{(\w+)}")
_DEEPEST = 4


def _pattern(phrase: str) -> tuple[str, str, re.Pattern[str]]:
    """A phrase, the longest text that it never lacks, and how it is recognised."""
    pattern, known = "", set[str]()
    for n, part in enumerate(_HOLE.split(phrase)):
        if n % 2 == 0:
            pattern += re.escape(part)
        else:
            pattern += f"(?P={part})" if part in known else f"(?P<{part}>.+?)"
            known.add(part)
    return phrase, max(_HOLE.sub("\0", phrase).split("\0"), key=len), re.compile(pattern, re.DOTALL)


_KNOWN = tuple(_pattern(phrase) for phrase in PHRASES)


def told(text: str, depth: int = 0) -> str:
    """The text in the page's language, as far as it is ours: as a whole, or what stands before and after its first colon."""
    if catalog.language.get() == "en" or depth > _DEEPEST:
        return text
    for phrase, needle, pattern in _KNOWN:
        if needle in text and (found := pattern.fullmatch(text)) is not None:
            values = {name: told(value, depth + 1) for name, value in found.groupdict().items()}
            return gettext(phrase, **values) if values else gettext(phrase)
    before, colon, after = text.partition(": ")
    return f"{told(before, depth + 1)}{colon}{told(after, depth + 1)}" if colon else text

"""Statements of ten made-up origins, by an author who did not know the rules.

No rule was written or changed with these in view, and none may be: they measure how well unknown
layouts are read. To learn from a miss here, write a new case elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from pipelines.documents.corpus_c import drawn_statements as drawn
from pipelines.documents.corpus_c import printed_statements as printed
from pipelines.documents.corpus_c.chromium import Unclear, press
from pipelines.documents.drawing import Statement

DRAWN = [drawn.erp, drawn.form, drawn.insurer, drawn.quarterly, drawn.other]
PRINTED = [printed.auditor, printed.charity, printed.board, printed.annual, printed.sheet]
ORIGINS: dict[str, Callable[[Random], Statement]] = {
    make.__name__: make for pair in zip(DRAWN, PRINTED, strict=True) for make in pair
}


def make_document(origin: str, number: int, rng: Random) -> Statement:
    """Return a document of an origin, drawn again until each of its numbers is unambiguous."""
    try:
        return replace(ORIGINS[origin](rng), name=f"{origin}-{number}")
    except Unclear:
        return make_document(origin, number, rng)


def documents(count: int, seed: int = 1) -> list[Statement]:
    """Return ``count`` documents of the origins in turn."""
    names = [(origin, number + 1) for number in range(count) for origin in ORIGINS][:count]
    with press():
        return [
            make_document(origin, number, Random(f"{seed}-{origin}-{number}"))
            for origin, number in names
        ]

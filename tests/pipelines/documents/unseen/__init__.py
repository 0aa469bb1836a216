"""Financial statements of ten made-up origins, by an author who did not know the rules that read them.

No rule has been made or mended with these in sight, and none may be: they say how well layouts are read that nobody has seen. Who
wants to learn from a miss here writes it anew, elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from pipelines.documents.paper import Statement
from pipelines.documents.unseen import drawn, printed
from pipelines.documents.unseen.chromium import Unclear, press

DRAWN = [drawn.erp, drawn.form, drawn.insurer, drawn.quarterly, drawn.other]
PRINTED = [printed.auditor, printed.charity, printed.board, printed.annual, printed.sheet]
FAMILIES: dict[str, Callable[[Random], Statement]] = {
    make.__name__: make for pair in zip(DRAWN, PRINTED, strict=True) for make in pair
}


def one(family: str, number: int, rng: Random) -> Statement:
    """The document of a family with that number, drawn again until each of its numbers can be told from the others."""
    try:
        return replace(FAMILIES[family](rng), name=f"{family}-{number}")
    except Unclear:
        return one(family, number, rng)


def unseen(count: int, seed: int = 1) -> list[Statement]:
    """So many documents, of the families in turn."""
    names = [(family, number + 1) for number in range(count) for family in FAMILIES][:count]
    with press():
        return [
            one(family, number, Random(f"{seed}-{family}-{number}")) for family, number in names
        ]

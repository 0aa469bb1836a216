"""Statements of many origins, by another author than the rules that read them: accounting systems, spreadsheets, holdings, municipalities,
co-operatives, foundations, registry forms, interim reports, auditors, board packs; and papers that are no statements. The rules
were mended with it in sight: it holds what is read now, and says little of layouts that nobody has seen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from random import Random

from pipelines.documents.paper import Statement
from pipelines.documents.strangers.drawn import cooperativa, erp, held
from pipelines.documents.strangers.forms import auditor, formulario
from pipelines.documents.strangers.others import otros
from pipelines.documents.strangers.printed import (
    boardpack,
    fundacion,
    interim,
    municipio,
    planilla,
    press,
)
from playwright.sync_api import Page

DRAWN: dict[str, Callable[[Random], Statement]] = {
    "erp": erp, "holding": held, "cooperativa": cooperativa, "formulario": formulario, "auditor": auditor,
}  # fmt: skip
PRINTED: dict[str, Callable[[Random, Page], Statement]] = {
    "planilla": planilla, "municipio": municipio, "fundacion": fundacion, "interim": interim, "boardpack": boardpack, "otros": otros,
}  # fmt: skip


def strangers(count: int, seed: int = 1) -> list[Statement]:
    """That many documents, of the families in turn, printed by one browser."""
    made: list[Statement] = []
    with press() as page:
        for number, family in enumerate(islice(cycle([*DRAWN, *PRINTED]), count)):
            rng = Random(f"{seed}/{family}/{number}")
            made.append(DRAWN[family](rng) if family in DRAWN else PRINTED[family](rng, page))
            made[-1].name = f"strangers-{family}-{number}"
    return made

"""Statements of eleven origins by another author than that of the rules, and other documents.

The origins include accounting systems, spreadsheets, holdings, municipalities, co-operatives,
foundations, registry forms, interim reports, auditors and board packs. The rules were changed with
this corpus in view: it guards what is read now, and does not measure unknown layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from random import Random

from pipelines.documents.corpus_b.drawn_statements import cooperativa, erp, held
from pipelines.documents.corpus_b.other_documents import otros
from pipelines.documents.corpus_b.printed_statements import (
    boardpack,
    fundacion,
    interim,
    municipio,
    planilla,
    press,
)
from pipelines.documents.corpus_b.registry_forms import auditor, formulario
from pipelines.documents.drawing import Statement
from playwright.sync_api import Page

DRAWN: dict[str, Callable[[Random], Statement]] = {
    "erp": erp,
    "holding": held,
    "cooperativa": cooperativa,
    "formulario": formulario,
    "auditor": auditor,
}
PRINTED: dict[str, Callable[[Random, Page], Statement]] = {
    "planilla": planilla,
    "municipio": municipio,
    "fundacion": fundacion,
    "interim": interim,
    "boardpack": boardpack,
    "otros": otros,
}


def documents(count: int, seed: int = 1) -> list[Statement]:
    """Return that many documents of the origins in turn, printed by one browser."""
    made: list[Statement] = []
    with press() as page:
        for number, origin in enumerate(islice(cycle([*DRAWN, *PRINTED]), count)):
            rng = Random(f"{seed}/{origin}/{number}")
            made.append(DRAWN[origin](rng) if origin in DRAWN else PRINTED[origin](rng, page))
            made[-1].name = f"corpus_b-{origin}-{number}"
    return made

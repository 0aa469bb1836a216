"""Recall, precision and boxes of the values that the local processor reads.

``python tests/pipelines/documents/corpus_score.py [tuned|held_out|corpus_a|corpus_b|corpus_c|
corpus_d|corpus_e] [COUNT] [--seeds=A,B] [--misses] [--scanned]`` measures COUNT documents of each
seed; ``--scanned`` as scans, read by Tesseract.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipelines.documents import corpus_a, corpus_b, corpus_c, corpus_d, corpus_e
from pipelines.documents.drawing import Statement
from pipelines.documents.scanning import scanned
from pipelines.documents.statements import held_out, tuned

from esclusa.pipelines.documents.local.statement import read_document
from esclusa.pipelines.documents.local.tesseract import recogniser
from esclusa.pipelines.documents.local.words import Recogniser


@dataclass
class Score:
    """Counts over documents."""

    printed: int = 0
    read: int = 0
    right: int = 0
    boxed: int = 0
    documents: int = 0
    classes: int = 0
    fields: Counter[str] = field(default_factory=Counter)
    by_origin: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    misses: list[str] = field(default_factory=list)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.printed)

    @property
    def precision(self) -> float:
        return self.right / max(1, self.read)

    @property
    def boxes(self) -> float:
        return self.boxed / max(1, self.right)

    def report(self) -> str:
        lines = [
            f"documents {self.documents}, printed values {self.printed}, read {self.read}",
            (
                f"recall {self.recall:.4f}  precision {self.precision:.4f}  boxes "
                f"{self.boxes:.4f}  class {self.classes / max(1, self.documents):.4f}"
            ),
            "  ".join(
                f"{name} {count / max(1, self.right):.4f}"
                for name, count in sorted(self.fields.items())
            ),
        ]
        for origin, counts in sorted(self.by_origin.items()):
            r, p = (
                counts["right"] / max(1, counts["printed"]),
                counts["right"] / max(1, counts["read"]),
            )
            lines.append(
                f"  {origin:16s} recall {r:.4f}  precision {p:.4f}  class "
                f"{counts['class']}/{counts['documents']}"
            )
        return "\n".join(lines)


def plain(text: str | None) -> str:
    flat = unicodedata.normalize("NFKD", (text or "").lower())
    return re.sub(
        r"[^a-z0-9]+", " ", "".join(c for c in flat if not unicodedata.combining(c))
    ).strip()


def key(
    label: str | None, period: str | None, value: str | None
) -> tuple[str, str | None, Decimal | None]:
    return plain(label), period, None if value is None else Decimal(value)


def measure(statements: Iterable[Statement], recognise: Recogniser | None = None) -> Score:
    score = Score()
    for statement in statements:
        origin = re.sub(r"-\d+$", "", statement.name)
        counts = score.by_origin[origin]
        answer = read_document(statement.content, recognise=recognise)
        score.documents += 1
        counts["documents"] += 1
        right_class = answer.get("doc_type") == statement.doc_type
        score.classes += right_class
        counts["class"] += right_class
        if not right_class:
            score.misses.append(
                f"{statement.name}: class {answer.get('doc_type')} {answer.get('message')}, "
                f"not {statement.doc_type}"
            )
        found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        items = [i for i in answer.get("items", []) if i["type"] == "LINE_ITEM_VALUE"]
        for item in items:
            found[key(item["LINE_ITEM_NAME"], item["REPORTING_PERIOD"], item["value"])].append(item)
        score.printed += len(statement.values)
        score.read += len(items)
        counts["printed"] += len(statement.values)
        counts["read"] += len(items)
        for truth in statement.values:
            hits = found.get(key(truth.label, truth.period, truth.value))
            if not hits:
                score.misses.append(
                    f"{statement.name}: missed p{truth.page} {truth.label!r} {truth.period} "
                    f"{truth.printed}"
                )
                continue
            hit = hits.pop(0)
            score.right += 1
            counts["right"] += 1
            score.boxed += overlap(hit, truth.page, truth.box) > 0.6
            score.fields["year"] += hit["COLUMN_YEAR"] == (str(truth.year) if truth.year else None)
            score.fields["section"] += plain(hit["SECTION_HEADER"]) == plain(truth.section)
            score.fields["total"] += (hit["TOTAL_LABEL"] is not None) == truth.total
            score.fields["currency"] += hit["CURRENCY"] == statement.currency
            per_share = re.search(r"por accion|per (ordinary |common )?share", plain(truth.label))
            scale = 1 if per_share else truth.scale or statement.scale
            score.fields["scale"] += hit["UNITS_SCALE"] == scale
            score.fields["org"] += plain(hit["ORG_NAME"]) == plain(statement.org)
            score.fields["title"] += plain(hit["STATEMENT_TITLE"]) == plain(statement.title)
            score.fields["printed"] += "".join(hit["LINE_ITEM_VALUE"].split()) == truth.printed
        for hits in found.values():
            for extra in hits:
                score.misses.append(
                    f"{statement.name}: extra p{extra['page_refs'][0]['page']} "
                    f"{extra['LINE_ITEM_NAME']!r} {extra['REPORTING_PERIOD']} "
                    f"{extra['LINE_ITEM_VALUE']}"
                )
    return score


def overlap(item: dict[str, Any], page: int, box: tuple[float, float, float, float]) -> float:
    """Return intersection over union of the value's box and the printed one."""
    place = item["page_refs"][0]
    if place["page"] != page:
        return 0.0
    x0, y0, x1, y1 = place["boxes"][0].values()
    wide, high = min(x1, box[2]) - max(x0, box[0]), min(y1, box[3]) - max(y0, box[1])
    if wide <= 0 or high <= 0:
        return 0.0
    both = wide * high
    return both / ((x1 - x0) * (y1 - y0) + (box[2] - box[0]) * (box[3] - box[1]) - both)


if __name__ == "__main__":
    sets = {
        "tuned": tuned,
        "held_out": held_out,
        "corpus_a": corpus_a.documents,
        "corpus_b": corpus_b.documents,
        "corpus_c": corpus_c.documents,
        "corpus_d": corpus_d.documents,
        "corpus_e": corpus_e.documents,
    }
    which = next((sets[a] for a in sys.argv[1:] if a in sets), tuned)
    number = next((int(a) for a in sys.argv[1:] if a.isdigit()), 64)
    seeds = next(
        (a.removeprefix("--seeds=").split(",") for a in sys.argv[1:] if a.startswith("--seeds=")),
        [],
    )
    chosen = [s for seed in seeds or ["1"] for s in which(number, seed=int(seed))]
    score = (
        measure(map(scanned, chosen), recogniser("spa+eng"))
        if "--scanned" in sys.argv
        else measure(chosen)
    )
    print(score.report())
    if "--misses" in sys.argv:
        print("\n".join(score.misses))

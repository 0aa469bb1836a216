"""Skewed pages: values are read as on straight pages, and boxes stay where they are displayed."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from random import Random

import pypdfium2 as pdfium
import pytest
from pipelines.documents import corpus_score, statement_words, statements
from pipelines.documents.drawing import Statement
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen import canvas

from esclusa.pipelines.documents.local.statement import read_document

ANGLES = [-3.0, -1.0, 0.4, 1.0, 2.0, 3.0, 6.0]


def turned(content: bytes, degrees: float) -> bytes:
    """Return the same pages with their content rotated about the middle."""
    document = pdfium.PdfDocument(content)
    for page in document:
        x, y = (side / 2 for side in page.get_size())
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        matrix = pdfium.PdfMatrix(cos, sin, -sin, cos, x - cos * x + sin * y, y - sin * x - cos * y)
        for thing in page.get_objects(max_depth=1):
            thing.transform(matrix)
        page.gen_content()
    out = io.BytesIO()
    document.save(out)
    document.close()
    return out.getvalue()


def made(**style: object) -> Statement:
    return statements.make(
        "s", statements.Style(rows=22, **style), Random(3), statement_words.TUNED
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("degrees", ANGLES)
@pytest.mark.parametrize(
    "style",
    [
        {},
        {"rotate": 90},
        {"rotate": 180},
        {"rotate": 270},
        {"sideways": True},
        {"page": (792.0, 612.0)},
    ],
)
def test_values_keep_their_labels_and_periods(style: dict[str, object], degrees: float) -> None:
    statement = made(**style)
    result = corpus_score.measure([replace(statement, content=turned(statement.content, degrees))])
    assert (result.recall, result.precision) == (1.0, 1.0)


def test_boxes_match_the_displayed_values() -> None:
    statement = made()
    straight = [
        i for i in read_document(statement.content)["items"] if i["type"] == "LINE_ITEM_VALUE"
    ]
    askew = [
        i
        for i in read_document(turned(statement.content, 2.0))["items"]
        if i["type"] == "LINE_ITEM_VALUE"
    ]
    cos, sin = math.cos(math.radians(2)), math.sin(math.radians(2))
    assert len(straight) == len(askew)
    for before, after in zip(straight, askew, strict=True):
        (x0, y0, x1, y1), (left, top, right, bottom) = (
            before["page_refs"][0]["boxes"][0].values(),
            after["page_refs"][0]["boxes"][0].values(),
        )
        x, y = ((x0 + x1) / 2 - 0.5) * 612, (0.5 - (y0 + y1) / 2) * 792
        assert (left + right) / 2 == pytest.approx(0.5 + (x * cos - y * sin) / 612, abs=0.002)
        assert (top + bottom) / 2 == pytest.approx(0.5 - (x * sin + y * cos) / 792, abs=0.002)


@pytest.mark.parametrize("degrees", [-2.0, -1.0, 0.0, 1.0, 2.0])
def test_upright_words_on_lines_that_are_not_level(degrees: float) -> None:
    rng, out, angle = Random(5), io.BytesIO(), math.radians(degrees)
    page = canvas.Canvas(out, pagesize=(612, 792))
    page.setFont("Helvetica", 9)

    def write(x: float, y: float, text: str) -> None:
        for word in text.split():
            px, py = x - 306, y - 396
            up = rng.uniform(-0.3, 0.3)
            page.drawString(
                306 + px * math.cos(angle) - py * math.sin(angle),
                396 + px * math.sin(angle) + py * math.cos(angle) + up,
                word,
            )
            x += stringWidth(f"{word} ", "Helvetica", 9)

    labels = [
        f"{a} {b}"
        for a in ("Cash at", "Trade", "Other")
        for b in ("bank", "debtors", "assets held")
    ]
    rows = [(label, 1000 + 137 * n, 900 + 91 * n) for n, label in enumerate(labels)]
    for n, line in enumerate(
        ["Kestrel Trading plc", "Balance sheet", "As of December 31, 2024 and 2023"]
    ):
        write(60, 740 - 14 * n, line)
    write(440, 690, "2024")
    write(530, 690, "2023")
    for n, (label, this, last) in enumerate(rows):
        for x, text in ((60, label), (440, f"{this:,}"), (530, f"{last:,}")):
            write(x, 670 - 14 * n, text)
    page.save()
    found = [i for i in read_document(out.getvalue())["items"] if i["type"] == "LINE_ITEM_VALUE"]
    want = [
        (label, year, str(value))
        for label, *both in rows
        for year, value in zip(("2024", "2023"), both, strict=True)
    ]
    assert [(i["LINE_ITEM_NAME"], i["COLUMN_YEAR"], i["value"]) for i in found] == want

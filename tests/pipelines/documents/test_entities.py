"""Answers of Document AI as extractions."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud import documentai
from pipelines.documents.conftest import DocumentsService

from esclusa.pipelines.documents.entities import AnswerPart, items_of


def entity(
    type: str, text: str = "", normal: str = "", confidence: float = 0.9, **children: str
) -> Any:
    made = documentai.Document.Entity(type_=type, mention_text=text, confidence=confidence)
    made.properties = [
        documentai.Document.Entity(type_=f"{type}/{name}", mention_text=text)
        for name, text in children.items()
    ]
    if normal:
        made.normalized_value = documentai.Document.Entity.NormalizedValue(text=normal)
    return made


def values(*answers: list[Any]) -> list[dict[str, Any]]:
    """Return the values of a document that took several calls."""
    items = items_of(
        [
            AnswerPart(documentai.Document(entities=entities), [number], 0)
            for number, entities in enumerate(answers)
        ]
    )
    return [item for item in items if item["type"] == "LINE_ITEM_VALUE"]


def test_shared_fields_of_the_first_call_apply_to_the_others() -> None:
    row = {"LINE_ITEM_NAME": "Caja", "LINE_ITEM_VALUE": "1.234"}
    first = [
        entity("CURRENCY", "pesos chilenos"),
        entity("UNITS_SCALE", "miles de pesos"),
        entity("STATEMENT_TITLE", "Balance"),
        entity("row", **row),
    ]
    found = values(
        first, [entity("row", **row)], [entity("STATEMENT_TITLE", "Flujos"), entity("row", **row)]
    )
    assert [(i["CURRENCY"], i["UNITS_SCALE"], i["STATEMENT_TITLE"]) for i in found] == [
        ("CLP", 1000, "Balance"),
        ("CLP", 1000, "Balance"),
        ("CLP", 1000, "Flujos"),
    ]


def test_number_convention_of_the_whole_document_applies() -> None:
    found = values(
        [entity("row", LINE_ITEM_VALUE="1.234.567")],
        [entity("row", LINE_ITEM_VALUE="1.234"), entity("row", LINE_ITEM_VALUE="0,5")],
    )
    assert [i["value"] for i in found] == ["1234567", "1234", "0.5"]


@pytest.mark.parametrize("dash", ["-", "–", "—"])
def test_dash_is_zero(dash: str) -> None:
    assert [
        i["value"] for i in values([entity("row", LINE_ITEM_NAME="Caja", LINE_ITEM_VALUE=dash)])
    ] == ["0"]


@pytest.mark.parametrize(
    ("reported", "normal", "row", "year", "ends"),
    [
        ("Al 31 de marzo de 2024 y 2023", "", {"COLUMN_YEAR": "2023"}, "2023", "2023-03-31"),
        ("31 de diciembre de 2024", "", {"TABLE_COLUMN_HEADER": "2023 M$"}, "2023", "2023-12-31"),
        ("31 de diciembre de 2024", "", {"TABLE_COLUMN_HEADER": "M$"}, "2024", "2024-12-31"),
        ("Year-end", "2024-06-30", {"COLUMN_YEAR": "2024"}, "2024", "2024-06-30"),
        ("June 30, 2024", "", {"COLUMN_YEAR": "Variation"}, None, None),
        ("the year", "", {"COLUMN_YEAR": "2024"}, "2024", None),
        ("June 30, 2024", "", {"COLUMN_YEAR": "Dic-23"}, "2023", "2023-12-31"),
    ],
)
def test_end_of_a_column(
    reported: str, normal: str, row: dict[str, str], year: str | None, ends: str | None
) -> None:
    (item,) = values(
        [entity("REPORTING_PERIOD", reported, normal), entity("row", LINE_ITEM_VALUE="12", **row)]
    )
    assert (item["COLUMN_YEAR"], item["REPORTING_PERIOD"]) == (year, ends)


def test_confidence_that_is_no_number_is_zero() -> None:
    assert [
        i["confidence"] for i in values([entity("LINE_ITEM_VALUE", "12", confidence=float("nan"))])
    ] == [0.0]


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "body", [{}, [], {"error": {"code": 13}}, {"document": None}, {"document": {}}]
)
@pytest.mark.parametrize("processor", ["classifier", "ext"])
async def test_answer_without_a_document_is_retried(
    service: DocumentsService, body: Any, processor: str
) -> None:
    service.fill("a", 1)
    service.simulator.order("/v1", times=1, match=f"processors/{processor}", status=200, body=body)
    await service.process("gs://bkt/a")
    (doc,) = await service.docs()
    assert (doc.status, doc.attempts, len(await service.extractions())) == ("DONE", 2, 2)
    assert [
        line["error_type"] for line in service.lines.parsed if line.get("stage") == "DOC_ERROR"
    ] == ["bad_answer"]

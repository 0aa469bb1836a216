"""Answers of Document AI as extractions."""

from __future__ import annotations

from typing import Any

import pytest
from google.cloud import documentai
from pipelines.documents.conftest import Office

from esclusa.pipelines.documents.entities import Part, items_of


def entity(
    type: str, text: str = "", normal: str = "", confidence: float = 0.9, **children: str
) -> Any:
    made = documentai.Document.Entity(type_=type, mention_text=text, confidence=confidence)
    made.properties = [
        documentai.Document.Entity(type_=f"{type}/{name}", mention_text=said)
        for name, said in children.items()
    ]
    if normal:
        made.normalized_value = documentai.Document.Entity.NormalizedValue(text=normal)
    return made


def values(*answers: list[Any]) -> list[dict[str, Any]]:
    """The values of a document that took so many calls."""
    items = items_of(
        [
            Part(documentai.Document(entities=entities), [number], 0)
            for number, entities in enumerate(answers)
        ]
    )
    return [item for item in items if item["type"] == "LINE_ITEM_VALUE"]


def test_what_the_first_call_says_once_holds_for_the_others_unless_they_say_it_too() -> None:
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
        ("CLP", 1000, "Balance"), ("CLP", 1000, "Balance"), ("CLP", 1000, "Flujos"),
    ]  # fmt: skip


def test_numbers_are_read_as_the_whole_document_writes_them() -> None:
    found = values(
        [entity("row", LINE_ITEM_VALUE="1.234.567")],
        [entity("row", LINE_ITEM_VALUE="1.234"), entity("row", LINE_ITEM_VALUE="0,5")],
    )
    assert [i["value"] for i in found] == ["1234567", "1234", "0.5"]


@pytest.mark.parametrize("dash", ["-", "–", "—"])
def test_a_dash_is_nothing(dash: str) -> None:
    assert [
        i["value"] for i in values([entity("row", LINE_ITEM_NAME="Caja", LINE_ITEM_VALUE=dash)])
    ] == ["0"]


@pytest.mark.parametrize(
    ("told", "normal", "row", "year", "ends"),
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
def test_the_day_on_which_a_column_ends(
    told: str, normal: str, row: dict[str, str], year: str | None, ends: str | None
) -> None:
    (item,) = values(
        [entity("REPORTING_PERIOD", told, normal), entity("row", LINE_ITEM_VALUE="12", **row)]
    )
    assert (item["COLUMN_YEAR"], item["REPORTING_PERIOD"]) == (year, ends)


def test_a_confidence_that_is_no_number_is_none() -> None:
    assert [
        i["confidence"] for i in values([entity("LINE_ITEM_VALUE", "12", confidence=float("nan"))])
    ] == [0.0]


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "body", [{}, [], {"error": {"code": 13}}, {"document": None}, {"document": {}}]
)
@pytest.mark.parametrize("processor", ["classifier", "ext"])
async def test_an_answer_without_a_document_is_tried_again_and_never_taken_for_an_empty_one(
    office: Office, body: Any, processor: str
) -> None:
    office.fill("a", 1)
    office.simulator.order("/v1", times=1, match=f"processors/{processor}", status=200, body=body)
    await office.process("gs://bkt/a")
    (doc,) = await office.docs()
    assert (doc.status, doc.attempts, len(await office.extractions())) == ("DONE", 2, 2)
    assert [
        line["error_type"] for line in office.lines.parsed if line.get("stage") == "DOC_ERROR"
    ] == ["bad_answer"]

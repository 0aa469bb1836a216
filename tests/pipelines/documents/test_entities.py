"""Answers of Document AI as extractions: every shape, right or empty, never wrong."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from google.cloud import documentai
from google.protobuf import json_format
from pipelines.documents.conftest import DocumentsService

from esclusa.pipelines.documents.answers.entity_tree import AnswerPart
from esclusa.pipelines.documents.answers.mapping import MappedAnswer, map_answers
from esclusa.pipelines.documents.answers.page_frames import ShownPage
from esclusa.simulators.documentai_shapes import (
    AnswerWriter,
    Shape,
    SimulatedCell,
    SimulatedPage,
    SimulatedRow,
    SimulatedStatement,
)

HEIGHT = 0.02
COLUMNS = {"2024": (0.60, 0.70), "2023": (0.80, 0.90)}
VALUES = {
    "Caja": ("1.234", "987"),
    "Otras reservas": ("(812.440)", "(5)"),
    "Total activos": ("1.000.000", "-"),
}
PARSED = {"1.234": "1234", "987": "987", "(812.440)": "-812440", "(5)": "-5", "-": "0"} | {
    "1.000.000": "1000000"
}
SHAPES: tuple[Shape, ...] = get_args(Shape)
SCHEMA = {
    "partida/glosa": "LINE_ITEM_NAME",
    "cifra": "LINE_ITEM_VALUE",
    "PARTIDA/COLUMNA_ANO": "COLUMN_YEAR",
}


def statement(**more: Any) -> SimulatedStatement:
    rows = []
    for number, (label, printed) in enumerate(VALUES.items()):
        top = 0.2 + 0.05 * number
        cells = [
            SimulatedCell(text, year, (right - 0.008 * len(text), top, right, top + HEIGHT))
            for text, (year, (_, right)) in zip(printed, COLUMNS.items(), strict=True)
        ]
        rows.append(
            SimulatedRow(label, (0.1, top, 0.3, top + HEIGHT), cells, note=f"nota {number}")
        )
    years = [(year, (left, 0.1, right, 0.12), 0) for year, (left, right) in COLUMNS.items()]
    return SimulatedStatement(rows, years, section="Patrimonio", **more)


def answer(made: dict[str, Any], shown: ShownPage | None = None, offset: int = 0) -> AnswerPart:
    """Return an answer as the client gets it: through the API's own messages."""
    document = documentai.Document()
    json_format.ParseDict(made, documentai.Document.pb(document))
    pages = [shown or ShownPage(n) for n in range(max(1, len(document.pages)))]
    return AnswerPart(
        json_format.MessageToDict(documentai.Document.pb(document)), pages, offset, "v2"
    )


def mapped(shape: Shape, given: SimulatedStatement | None = None, **schema: str) -> MappedAnswer:
    given = given or statement()
    made = AnswerWriter(given, range(len(given.pages))).document(shape)
    return map_answers([answer(made)], SCHEMA if shape == "custom" else None)


def values(found: MappedAnswer) -> list[dict[str, Any]]:
    return [item for item in found.items if item["type"] == "LINE_ITEM_VALUE"]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_value_has_its_label_year_and_box(shape: Shape) -> None:
    found = values(mapped(shape))
    expected = {
        (label, year, PARSED[text], text)
        for label, printed in VALUES.items()
        for text, year in zip(printed, COLUMNS, strict=True)
    }
    assert {
        (i["LINE_ITEM_NAME"], i["COLUMN_YEAR"], i["value"], i["LINE_ITEM_VALUE"]) for i in found
    } == expected
    assert len(found) == len(expected)
    for item in found:
        [ref] = item["page_refs"]
        [box] = ref["boxes"]
        assert ref["page"] == 0
        assert box["x1"] == pytest.approx(COLUMNS[item["COLUMN_YEAR"]][1], abs=1e-5)
        assert item["confidence"] == pytest.approx(0.97)
        assert item["processor_version"] == "v2"
        assert item["text_spans"]
    assert len({i["TABLE_CELL_REF"] for i in found}) == len(found)
    assert len({i["TABLE_ROW_REF"] for i in found if i["LINE_ITEM_NAME"] == "Caja"}) in (1, 2)


def test_section_of_a_parent_applies_to_what_is_below_it() -> None:
    assert {i["SECTION_HEADER"] for i in values(mapped("deep"))} == {"Patrimonio"}


@pytest.mark.parametrize("shape", ["nested", "renamed"])
def test_unknown_children_are_kept(shape: Shape) -> None:
    found = values(mapped(shape))
    assert {(i["LINE_ITEM_NAME"], i["extra"]["NOTE"]) for i in found} == {
        (label, f"nota {number}") for number, label in enumerate(VALUES)
    }


def test_schema_that_nobody_knows_is_a_warning() -> None:
    made = AnswerWriter(statement(), [0]).document("custom")
    found = map_answers([answer(made)])
    assert values(found) == []
    assert [w["code"] for w in found.warnings] == ["no_line_items"]
    assert "PARTIDA" in found.warnings[0]["message"]
    assert found.items[0]["extra"]["GLOSA"] == "Caja"


def test_answer_without_numbers_is_no_warning() -> None:
    assert (
        map_answers([answer({"entities": [{"type": "ORG_NAME", "mentionText": "X"}]})]).warnings
        == []
    )


# what is not known


def parent(*children: tuple[str, str], **more: Any) -> dict[str, Any]:
    properties = [
        {"type": name, "mentionText": text, "confidence": 0.95} for name, text in children
    ]
    return {"type": "LINE_ITEM", "properties": properties, "confidence": 0.9} | more


@pytest.mark.parametrize(
    "children",
    [
        [("NAME", "Caja"), ("VALUE", "1"), ("VALUE", "2"), ("YEAR", "2024"), ("YEAR", "2023")],
        [("NAME", "Caja"), ("VALUE", "1"), ("VALUE", "2"), ("YEAR", "2024")],
        [("NAME", "Caja"), ("VALUE", "1"), ("YEAR", "2024"), ("YEAR", "2023"), ("VALUE", "2")],
    ],
)
def test_year_that_is_not_known_is_null_with_low_confidence(
    children: list[tuple[str, str]],
) -> None:
    found = values(map_answers([answer({"entities": [parent(*children)]})]))
    assert [(i["LINE_ITEM_NAME"], i["COLUMN_YEAR"], i["value"]) for i in found] == [
        ("Caja", None, "1"),
        ("Caja", None, "2"),
    ]
    assert all(i["confidence"] <= 0.5 for i in found)


def test_year_is_not_taken_from_elsewhere_in_the_document() -> None:
    entities = [
        {"type": "REPORTING_PERIOD", "mentionText": "Al 31 de diciembre de 2024 y 2023"},
        {"type": "COLUMN_YEAR", "mentionText": "2024"},
        parent(("NAME", "Caja"), ("VALUE", "12")),
        {"type": "LINE_ITEM_VALUE", "mentionText": "13"},
    ]
    found = values(map_answers([answer({"entities": entities})]))
    assert [(i["LINE_ITEM_NAME"], i["COLUMN_YEAR"], i["REPORTING_PERIOD"]) for i in found] == [
        ("Caja", None, None),
        (None, None, None),
    ]
    assert found[1]["confidence"] <= 0.5


def test_flat_value_outside_every_column_has_no_year() -> None:
    given = statement()
    stray = SimulatedRow(
        "Nota", (0.1, 0.5, 0.3, 0.52), [SimulatedCell("77", "", (0.45, 0.5, 0.48, 0.52))]
    )
    made = AnswerWriter(SimulatedStatement([*given.rows, stray], given.years), [0]).document("flat")
    item = next(i for i in values(map_answers([answer(made)])) if i["value"] == "77")
    assert (item["LINE_ITEM_NAME"], item["COLUMN_YEAR"]) == ("Nota", None)
    assert item["confidence"] <= 0.5


def test_flat_values_of_two_tables_side_by_side_take_the_nearest_label() -> None:
    rows = [
        SimulatedRow(
            "Activos", (0.05, 0.2, 0.2, 0.22), [SimulatedCell("10", "2024", (0.4, 0.2, 0.45, 0.22))]
        ),
        SimulatedRow(
            "Pasivos", (0.5, 0.2, 0.65, 0.22), [SimulatedCell("20", "2023", (0.9, 0.2, 0.95, 0.22))]
        ),
    ]
    years: list[Any] = [("2024", (0.4, 0.1, 0.45, 0.12), 0), ("2023", (0.9, 0.1, 0.95, 0.12), 0)]
    made = AnswerWriter(SimulatedStatement(rows, years), [0]).document("flat")
    assert [
        (i["LINE_ITEM_NAME"], i["value"], i["COLUMN_YEAR"])
        for i in values(map_answers([answer(made)]))
    ] == [("Activos", "10", "2024"), ("Pasivos", "20", "2023")]


def test_name_of_a_value_can_have_its_year() -> None:
    entity = parent(("NAME", "Caja"), ("AMOUNT_2024", "1"), ("AMOUNT_2023", "2"))
    found = values(map_answers([answer({"entities": [entity]})]))
    assert [(i["value"], i["COLUMN_YEAR"]) for i in found] == [("1", "2024"), ("2", "2023")]


# normalized values, confidences, texts


@pytest.mark.parametrize(
    ("printed", "normal", "value", "currency"),
    [
        (
            "$ 1.234,50",
            {"moneyValue": {"currencyCode": "USD", "units": "1234", "nanos": 500000000}},
            "1234.5",
            "USD",
        ),
        ("1,234", {"integerValue": 1234}, "1234", "MXN"),
        ("1.234", {"floatValue": 1.234}, "1.2339999675750732", "MXN"),
        ("about 12", {"text": "12.00"}, "12", "MXN"),
        ("(56)", {"moneyValue": {"currencyCode": "USD", "units": "-56"}}, "-56", "USD"),
        ("(56)", {"integerValue": 56}, "-56", "MXN"),
        ("(1.234,50)", {"moneyValue": {"units": "1234", "nanos": 500000000}}, "-1234.5", "MXN"),
        ("1.234.567,89", {"floatValue": 1234567.89}, "1234567.89", "MXN"),
        ("USD 10", None, "10", "USD"),
        ("10", None, "10", "MXN"),
    ],
)
def test_normalized_value_counts_before_the_text(
    printed: str, normal: dict[str, Any] | None, value: str, currency: str
) -> None:
    child: dict[str, Any] = {"type": "VALUE", "mentionText": printed}
    entity = {
        "type": "row",
        "properties": [child | ({"normalizedValue": normal} if normal else {})],
    }
    shared = {"type": "CURRENCY", "mentionText": "pesos mexicanos"}
    [item] = values(map_answers([answer({"entities": [shared, entity]})]))
    assert (item["LINE_ITEM_VALUE"], item["CURRENCY"]) == (printed, currency)
    assert float(item["value"]) == pytest.approx(float(value), abs=1e-6)


def entity(type: str, text: str | None, *properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": type, "confidence": 0.9, "properties": list(properties)} | (
        {"mentionText": text} if text else {}
    )


@pytest.mark.parametrize(
    "row",
    [
        entity("LINE_ITEM_NAME", "Caja", entity("VALUE", "1.234"), entity("YEAR", "2024")),
        entity(
            "LINE_ITEM",
            "Caja 1.234 2024",
            entity("NAME", "Caja"),
            entity("VALUE", "1.234", entity("YEAR", "2024")),
        ),
        entity("CUENTA", "Caja 1.234", entity("NOMBRE", "Caja"), entity("IMPORTE_2024", "1.234")),
    ],
)
def test_entity_with_children_can_state_a_field_itself(row: dict[str, Any]) -> None:
    found = map_answers([answer({"entities": [entity("table", None, row)]})])
    [item] = values(found)
    assert (item["LINE_ITEM_NAME"], item["value"], item["COLUMN_YEAR"]) == ("Caja", "1234", "2024")
    assert item["confidence"] == 0.9


def test_values_of_a_label_printed_in_one_place_are_in_one_row() -> None:
    for shape in SHAPES:
        if shape != "custom":
            rows = {(i["LINE_ITEM_NAME"], i["TABLE_ROW_REF"]) for i in values(mapped(shape))}
            assert len(rows) == len(VALUES), shape


def test_values_named_by_their_period_are_values_without_a_year() -> None:
    row = entity(
        "line_item",
        None,
        entity("name", "Caja"),
        entity("current_year_value", "2"),
        entity("importe_anterior", "1"),
    )
    found = values(map_answers([answer({"entities": [row]})]))
    assert [(i["LINE_ITEM_NAME"], i["value"], i["COLUMN_YEAR"]) for i in found] == [
        ("Caja", "2", None),
        ("Caja", "1", None),
    ]
    assert all(i["confidence"] <= 0.5 for i in found)
    assert [i["extra"] for i in found] == [{"CURRENT_YEAR_VALUE": "2"}, {"IMPORTE_ANTERIOR": "1"}]


def test_unknown_numbers_beside_a_known_name_are_kept_and_a_warning() -> None:
    row = entity("line_item", None, entity("name", "Caja"), entity("cifra", "1.234"))
    found = map_answers([answer({"entities": [row]})])
    assert {"CIFRA": "1.234"}.items() <= found.items[-1]["extra"].items()
    assert [w["code"] for w in found.warnings] == ["no_line_items"]


@pytest.mark.parametrize(
    ("child", "year", "ends"),
    [
        (
            {
                "type": "YEAR",
                "mentionText": "FY24",
                "normalizedValue": {"dateValue": {"year": 2024}},
            },
            "2024",
            None,
        ),
        (
            {
                "type": "PERIOD",
                "mentionText": "cierre",
                "normalizedValue": {"dateValue": {"year": 2024, "month": 6, "day": 30}},
            },
            "2024",
            "2024-06-30",
        ),
        (
            {"type": "PERIOD", "mentionText": "cierre", "normalizedValue": {"text": "2023-12-31"}},
            "2023",
            "2023-12-31",
        ),
        ({"type": "YEAR", "mentionText": "Dic-23"}, "2023", "2023-12-31"),
        ({"type": "YEAR", "mentionText": "Variación"}, None, None),
    ],
)
def test_dates_of_a_column(child: dict[str, Any], year: str | None, ends: str | None) -> None:
    entity = {"type": "row", "properties": [{"type": "VALUE", "mentionText": "12"}, child]}
    [item] = values(map_answers([answer({"entities": [entity]})]))
    assert (item["COLUMN_YEAR"], item["REPORTING_PERIOD"]) == (year, ends)


@pytest.mark.parametrize(
    ("reported", "ends"),
    [
        ("Al 31 de marzo de 2024 y 2023", "2023-03-31"),
        ("31 de diciembre de 2024", None),
        ("31 de diciembre de 2023", "2023-12-31"),
    ],
)
def test_reporting_period_gives_the_day_of_years_that_it_names(
    reported: str, ends: str | None
) -> None:
    entities = [
        {"type": "REPORTING_PERIOD", "mentionText": reported},
        parent(("NAME", "Caja"), ("VALUE", "12"), ("YEAR", "2023")),
    ]
    [item] = values(map_answers([answer({"entities": entities})]))
    assert (item["COLUMN_YEAR"], item["REPORTING_PERIOD"]) == ("2023", ends)


def test_missing_confidence_is_null_and_a_parents_counts() -> None:
    row = {
        "type": "row",
        "properties": [
            {"type": "NAME", "mentionText": "x"},
            {"type": "VALUE", "mentionText": "12"},
        ],
    }
    [item] = values(map_answers([answer({"entities": [row]})]))
    assert item["confidence"] is None
    [item] = values(map_answers([answer({"entities": [row | {"confidence": 0.75}]})]))
    assert item["confidence"] == 0.75


def test_segments_are_joined_with_a_space() -> None:
    segments = [{"endIndex": "5"}, {"startIndex": "10", "endIndex": "17"}]
    name = {"type": "NAME", "textAnchor": {"textSegments": segments}}
    row = {"type": "row", "properties": [name, {"type": "VALUE", "mentionText": "12"}]}
    document = {"text": "Otras\n1.0\nreservas", "entities": [row]}
    [item] = values(map_answers([answer(document)]))
    assert item["LINE_ITEM_NAME"] == "Otras reserva"


# pages


@pytest.mark.parametrize(
    ("turned", "matrices"),
    [(0, True), (90, True), (180, True), (270, True), (0, False), (90, False), (270, False)],
)
def test_boxes_of_turned_pages_are_those_of_the_page_as_shown(turned: int, matrices: bool) -> None:
    orientation = {0: "PAGE_UP", 90: "PAGE_LEFT", 180: "PAGE_DOWN", 270: "PAGE_RIGHT"}[turned]
    page = SimulatedPage(1700, 2200, turned, matrices, "PAGE_UP" if matrices else orientation)
    made = AnswerWriter(statement(pages=[page]), [0]).document("nested")
    found = values(map_answers([answer(made, ShownPage(0, 612, 792))]))
    for item in found:
        [box] = item["page_refs"][0]["boxes"]
        assert box["x1"] == pytest.approx(COLUMNS[item["COLUMN_YEAR"]][1], abs=1e-4)
        assert box["y1"] - box["y0"] == pytest.approx(HEIGHT, abs=1e-4)


@pytest.mark.parametrize("rotation", [90, 270])
def test_boxes_that_ignore_the_rotation_of_the_pdf_are_turned(rotation: int) -> None:
    """The page is shown as landscape; the service read it as portrait, as it is without /Rotate."""
    page = SimulatedPage(2200, 1700, {90: 270, 270: 90}[rotation], matrices=False)
    made = AnswerWriter(statement(pages=[page]), [0]).document("nested")
    found = values(map_answers([answer(made, ShownPage(0, 792, 612, rotation))]))
    for item in found:
        [box] = item["page_refs"][0]["boxes"]
        assert box["x1"] == pytest.approx(COLUMNS[item["COLUMN_YEAR"]][1], abs=1e-4)


@pytest.mark.parametrize(
    ("turned", "orientation"), [(180, "PAGE_DOWN"), (0, "PAGE_UP"), (0, "ORIENTATION_UNSPECIFIED")]
)
def test_boxes_of_a_page_that_the_pdf_turns_by_180_degrees(turned: int, orientation: str) -> None:
    """Upside down, the service ignored the rotation; without an orientation it is unknown."""
    page = SimulatedPage(1700, 2200, turned, matrices=False, orientation=orientation)
    made = AnswerWriter(statement(pages=[page]), [0]).document("nested")
    found = values(map_answers([answer(made, ShownPage(0, 612, 792, 180))]))
    assert found
    for item in found:
        boxes = item["page_refs"][0]["boxes"]
        assert len(boxes) == (orientation != "ORIENTATION_UNSPECIFIED")
        for box in boxes:
            assert box["x1"] == pytest.approx(COLUMNS[item["COLUMN_YEAR"]][1], abs=1e-4)


def test_page_turned_in_a_way_that_is_unknown_has_no_boxes() -> None:
    page = SimulatedPage(1700, 2200, 90, matrices=False)
    made = AnswerWriter(statement(pages=[page]), [0]).document("nested")
    found = values(map_answers([answer(made, ShownPage(0, 612, 792))]))
    assert {str(item["page_refs"]) for item in found} == {str([{"page": 0, "boxes": []}])}


# several parts


def test_shared_fields_of_the_first_call_apply_to_the_others() -> None:
    row = parent(("LINE_ITEM_NAME", "Caja"), ("LINE_ITEM_VALUE", "1.234"))
    first = [
        {"type": "CURRENCY", "mentionText": "pesos chilenos"},
        {"type": "UNITS_SCALE", "mentionText": "miles de pesos"},
        {"type": "STATEMENT_TITLE", "mentionText": "Balance"},
        row,
    ]
    third = [{"type": "STATEMENT_TITLE", "mentionText": "Flujos"}, row]
    parts = [answer({"entities": each}) for each in (first, [row], third)]
    found = values(map_answers(parts))
    assert [(i["CURRENCY"], i["UNITS_SCALE"], i["STATEMENT_TITLE"]) for i in found] == [
        ("CLP", 1000, "Balance"),
        ("CLP", 1000, "Balance"),
        ("CLP", 1000, "Flujos"),
    ]


def test_number_convention_of_the_whole_document_applies() -> None:
    parts = [
        answer({"entities": [parent(("VALUE", "1.234.567"))]}),
        answer({"entities": [parent(("VALUE", "1.234")), parent(("VALUE", "0,5"))]}),
    ]
    assert [i["value"] for i in values(map_answers(parts))] == ["1234567", "1234", "0.5"]


def test_page_of_two_parts_is_counted_once_by_the_part_that_states_more() -> None:
    given = statement()
    poor = AnswerWriter(SimulatedStatement(given.rows), [0]).document("flat")
    rich = AnswerWriter(given, [0]).document("nested")
    found = values(map_answers([answer(poor), answer(rich)]))
    assert len(found) == 6
    assert {i["COLUMN_YEAR"] for i in found} == set(COLUMNS)


# the pipeline


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

"""Printed forms of numbers and units: ledger sides, magnitudes, signs in columns of their own."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from pipelines.documents.test_columns import page
from reportlab.pdfgen import canvas

from esclusa.pipelines.documents.answers.entity_tree import AnswerPart
from esclusa.pipelines.documents.answers.mapping import map_answers
from esclusa.pipelines.documents.local.numbers import Convention, is_amount, value_of
from esclusa.pipelines.documents.local.page_image import render
from esclusa.pipelines.documents.local.statement import read_document

ENGLISH = ["Kestrel plc", "Balance sheet", "As of December 31, 2024"]
SPANISH = [
    "Comercial de los Andes S.A.",
    "Estado de situación financiera",
    "Al 31 de diciembre de 2024",
]


def values(*cells: str, above: list[str] = ENGLISH, head: str = "2024") -> list[dict[str, Any]]:
    labels = (
        ["Caja", "Deudores", "Inventarios", "Otros activos", "Total activos"]
        if above[0] == SPANISH[0]
        else ["Cash", "Debtors", "Stock"]
    )
    answer = page(
        above,
        [["", head]],
        [[label, cell] for label, cell in zip(labels, cells, strict=False)],
        [500.0],
    )
    return [item for item in answer["items"] if item["type"] == "LINE_ITEM_VALUE"]


@pytest.mark.parametrize("mark", ["'", "’", "‘", "ʼ", "′", "`", "´"])
def test_apostrophes_between_thousands(mark: str) -> None:
    assert value_of(f"({1}{mark}234{mark}567.50)", Convention(",", ".")) == "-1234567.50"


@pytest.mark.parametrize(
    "text", ["1,234—", "1,234 —", "—1,234", "1,234–", "(1,234)", "1,234CR", "1,234 Cr.", "1,234 cr"]
)
def test_negative_numbers(text: str) -> None:
    assert value_of(text, Convention(",", ".")) == "-1234"


@pytest.mark.parametrize(
    "text", ["12M", "10K", "5 k", "2024 M$", "2024 M USD", "12 mm", "1,234 M USD M"]
)
def test_texts_with_a_magnitude_that_are_no_amounts(text: str) -> None:
    assert not is_amount(text)


def test_small_number_in_parentheses_is_no_footnote_mark() -> None:
    found = values("(34)", "1,234(1)", "$(5)")
    assert [(i["LINE_ITEM_VALUE"], i["value"]) for i in found] == [
        ("(34)", "-34"),
        ("1,234", "1234"),
        ("(5)", "-5"),
    ]
    assert all(
        place["x1"] - place["x0"] > 0.01 for i in found for place in i["page_refs"][0]["boxes"]
    )
    assert all(i["text_spans"][0]["end"] > i["text_spans"][0]["start"] for i in found)


def test_credits_are_negative_and_debits_positive() -> None:
    found = values("1,234 DR", "12,345 CR", "3,210Dr.")
    assert [(i["LINE_ITEM_VALUE"], i["value"]) for i in found] == [
        ("1,234 DR", "1234"),
        ("12,345 CR", "-12345"),
        ("3,210Dr.", "3210"),
    ]


def test_debit_among_unmarked_numbers_has_an_unknown_sign() -> None:
    found = values("1,234", "12,345 DR", "3,210")
    assert [i["value"] for i in found] == ["1234", None, "3210"]
    assert found[1]["LINE_ITEM_VALUE"] == "12,345 DR"
    assert found[1]["confidence"] < 0.6 < found[0]["confidence"]


def test_magnitude_of_an_amount_overrides_the_heading() -> None:
    found = values(
        "$1,234k", "USD 16.8 M", "$ 3 mn", above=[*ENGLISH, "(in thousands of US dollars)"]
    )
    assert [(i["LINE_ITEM_VALUE"], i["value"], i["UNITS_SCALE"]) for i in found] == [
        ("1,234k", "1234", 1000),
        ("16.8 M", "16.8", 1_000_000),
        ("3 mn", "3", 1_000_000),
    ]


def test_single_m_in_spanish_is_ambiguous_without_a_fraction() -> None:
    found = values("1,2 M USD", "US$ 1.234 M", "3,5 k USD", "2 k USD", above=SPANISH)
    assert [(i["value"], i["UNITS_SCALE"]) for i in found] == [
        ("1.2", 1_000_000),
        ("1234", None),
        ("3.5", 1000),
        ("2", 1000),
    ]
    assert found[1]["confidence"] < 0.6 < found[0]["confidence"]


@pytest.mark.parametrize(
    ("unit", "currency", "scale"),
    [
        ("(Cifras en MM USD)", "USD", 1_000_000),
        ("(Cifras en MMUSD)", "USD", 1_000_000),
        ("(Cifras en M USD)", "USD", None),
        ("(MUSD)", "USD", None),
        ("(en M USD; resumen en MM USD)", "USD", 1_000_000),
        ("(en miles, M USD)", "USD", 1000),
        ("(M CLP)", "CLP", 1000),
        ("(en M$)", "CLP", 1000),
        ("(M EUR)", "EUR", 1_000_000),
        ("(k USD)", "USD", 1000),
        ("(cifras en mdp)", "MXN", 1_000_000),
        ("(cifras en mdd)", "USD", 1_000_000),
    ],
)
def test_units_of_a_spanish_statement(unit: str, currency: str, scale: int | None) -> None:
    found = values("1.234", "12.345", "3.210", above=[*SPANISH, unit])
    assert {(i["CURRENCY"], i["UNITS_SCALE"]) for i in found} == {(currency, scale)}
    assert {i["confidence"] for i in found} == {0.99 if scale else 0.59}


@pytest.mark.parametrize(
    ("more", "scale"),
    [
        ([], None),
        (["Deuda en MM USD: véase la nota 4"], 1000),
        (["Deuda de la matriz en MUS$"], 1000),
    ],
)
def test_other_units_decide_the_single_m(more: list[str], scale: int | None) -> None:
    found = values("1.234", "12.345", "3.210", above=[*SPANISH, *more], head="2024 M USD")
    assert {i["UNITS_SCALE"] for i in found} == {scale}


def test_single_m_in_english_is_millions() -> None:
    assert {
        i["UNITS_SCALE"] for i in values("1,234", "12,345", "3,210", above=[*ENGLISH, "(in M USD)"])
    } == {1_000_000}


@pytest.mark.parametrize(
    "form",
    [
        ("$", "(", "", ")"),
        ("", "$(", "", ")"),
        ("$", "", "(", ")"),
        ("€", "(", "", ")"),
        ("US$", "", "(", ")"),
    ],
)
def test_parentheses_and_signs_in_columns_of_their_own(form: tuple[str, str, str, str]) -> None:
    sign, edge, glued, close = form
    out = io.BytesIO()
    made = canvas.Canvas(out)
    made.setFont("Helvetica", 9)
    for n, text in enumerate(ENGLISH):
        made.drawString(60, 770 - 14 * n, text)
    for x, year in ((400, "2024"), (520, "2023")):
        made.drawRightString(x, 710, year)
        for n, (label, number) in enumerate(
            [("Cash", 1234), ("Debtors", -12345), ("Stock", 3210), ("Provisions", -860)]
        ):
            y = 690 - 14 * n
            if x == 400:
                made.drawString(60, y, label)
            made.drawString(x - 70, y, sign)
            made.drawRightString(x, y, f"{glued if number < 0 else ''}{abs(number):,}")
            if number < 0:
                made.drawString(x - 50, y, edge)
                made.drawString(x + 8, y, close)
    made.save()
    found = [i for i in read_document(out.getvalue())["items"] if i["type"] == "LINE_ITEM_VALUE"]
    assert [(i["LINE_ITEM_NAME"], i["COLUMN_YEAR"], i["value"]) for i in found] == [
        (label, year, value)
        for label, value in (
            ("Cash", "1234"),
            ("Debtors", "-12345"),
            ("Stock", "3210"),
            ("Provisions", "-860"),
        )
        for year in ("2024", "2023")
    ]
    assert all("$" not in i["LINE_ITEM_VALUE"] and "€" not in i["LINE_ITEM_VALUE"] for i in found)


@pytest.mark.parametrize(
    ("printed", "unit", "value", "scale"),
    [
        ("1,2 M", "", "1.2", None),
        ("1.234 CR", "1000", "-1234", 1000),
        ("1.234", "M USD", "1234", None),
        ("3 k", "1", "3", 1000),
        ("$ 3 MM", "1", "3", 1_000_000),
    ],
)
def test_forms_in_a_document_ai_answer(
    printed: str, unit: str, value: str | None, scale: int | None
) -> None:
    names = (
        {"line_item_value": printed, "units_scale": unit} if unit else {"line_item_value": printed}
    )
    children = [{"type": name, "mentionText": text} for name, text in names.items()]
    convention = {"type": "line_item_value", "mentionText": "1.234.567,5"}
    entities = [{"type": "line_item", "properties": children}, convention]
    item = map_answers([AnswerPart({"entities": entities}, [])]).items[0]
    assert (item["value"], item.get("UNITS_SCALE")) == (value, scale)


@pytest.mark.parametrize("looks", [True, False])
def test_filled_form_fields_are_read_and_rendered(looks: bool) -> None:
    """Return a form; ``looks``: its fields have an appearance of their own."""
    out = io.BytesIO()
    made = canvas.Canvas(out)
    made.setFont("Helvetica", 9)
    for n, text in enumerate(ENGLISH):
        made.drawString(60, 770 - 14 * n, text)
    made.drawRightString(400, 720, "2024")
    rows = [("Cash", "1,234"), ("Debtors", "3,222"), ("Total assets", "4,456")]
    for n, (label, text) in enumerate(rows):
        made.drawString(60, 700 - 18 * n, label)
        made.acroForm.textfield(
            name=label,
            value=text,
            x=340,
            y=697 - 18 * n,
            width=60,
            height=14,
            fontSize=9,
            borderWidth=0,
        )
    made.save()
    content = (
        out.getvalue()
        if looks
        else re.sub(
            rb"/AP <<\s*/N \d+ 0 R\s*>>", lambda found: b" " * len(found[0]), out.getvalue()
        )
    )
    empty = re.sub(rb"/(D?V) \(\d,\d{3}\)", lambda found: b"/%s (     )" % found[1], content)
    found = [i for i in read_document(content)["items"] if i["type"] == "LINE_ITEM_VALUE"]
    assert [(i["LINE_ITEM_NAME"], i["LINE_ITEM_VALUE"]) for i in found] == rows
    assert all(
        0.5 < place["x0"] < place["x1"] < 0.7 for i in found for place in i["page_refs"][0]["boxes"]
    )
    assert looks or render(content, 0, 600) != render(empty, 0, 600)

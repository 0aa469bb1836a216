"""Layouts in statements of real companies, one by one."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import pypdfium2 as pdfium
import pytest
from pipelines.documents import corpus_e
from pipelines.documents.corpus_score import measure
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen import canvas

from esclusa.pipelines.documents.local.pdf_words import read_pdf
from esclusa.pipelines.documents.local.statement import read_document
from esclusa.pipelines.documents.sample_statements import pdf


def read_table(
    rows: list[tuple[str, str, str]],
    *above: str,
    heads: tuple[str, str, str] = ("", "2024", "2023"),
) -> dict[str, Any]:
    """Return what is read of lines above a table of two columns."""
    drawn = [(72, 760 - 14 * n, 10, text) for n, text in enumerate(above)]
    top = 740 - 14 * len(above)
    for number, row in enumerate([heads, *rows]):
        drawn += [
            (x, top - 16 * number, 10, text)
            for x, text in zip((72, 380, 480), row, strict=True)
            if text
        ]
    return read_document(pdf(drawn))


def labels(answer: dict[str, Any]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for item in answer["items"]:
        if item["type"] == "LINE_ITEM_VALUE":
            out.setdefault(item["LINE_ITEM_NAME"], []).append(item["value"])
    return out


ROWS = [
    ("Revenue", "5,410", "4,970"),
    ("Cost of sales", "(3,122)", "(2,905)"),
    ("Gross profit", "2,288", "2,065"),
]


def test_header_that_could_continue_is_not_part_of_the_row_below() -> None:
    rows = [
        *ROWS,
        ("Attributable to", "", ""),
        ("Owners of the parent", "2,000", "1,900"),
        ("Ajustes por:", "", ""),
        ("Amortización", "12", "14"),
    ]
    answer = read_table(rows, "Kestrel plc", "Income statement", "For the year ended 31 March 2024")
    assert list(labels(answer)) == [
        "Revenue",
        "Cost of sales",
        "Gross profit",
        "Owners of the parent",
        "Amortización",
    ]
    assert [
        i["SECTION_HEADER"]
        for i in answer["items"]
        if i.get("LINE_ITEM_NAME") == "Owners of the parent"
    ] == ["Attributable to"] * 2


def test_wrapped_capitals_are_one_label() -> None:
    rows = [
        *ROWS,
        ("FLUJO NETO UTILIZADO EN LAS ACTIVIDADES DE", "", ""),
        ("FINANCIACIÓN", "(700)", "(650)"),
    ]
    answer = read_table(
        rows, "Molinos S.A.", "Estado de flujo de efectivo", "Al 31 de diciembre de 2024"
    )
    assert labels(answer)["FLUJO NETO UTILIZADO EN LAS ACTIVIDADES DE FINANCIACIÓN"] == [
        "-700",
        "-650",
    ]


def test_item_without_numbers_is_not_part_of_the_one_above() -> None:
    rows = [
        *ROWS,
        ("a) Ventas", "900", "800"),
        ("b) Prestaciones de servicios", "", ""),
        ("2. Aprovisionamientos", "(70)", "(60)"),
    ]
    assert "a) Ventas" in labels(
        read_table(
            rows, "Aceites, S.A.", "Cuenta de pérdidas y ganancias", "31 de diciembre de 2024"
        )
    )


def test_unit_in_the_corner_of_the_headings_is_no_number() -> None:
    answer = read_table(
        ROWS,
        "Kestrel plc",
        "Income statement",
        "Financial years ended 30 June",
        heads=("€ 000", "FY24", "FY23"),
    )
    values = [i for i in answer["items"] if i["type"] == "LINE_ITEM_VALUE"]
    assert {(i["REPORTING_PERIOD"], i["UNITS_SCALE"], i["CURRENCY"]) for i in values} == {
        ("2024-06-30", 1000, "EUR"),
        ("2023-06-30", 1000, "EUR"),
    }


def test_heading_of_percentages_does_not_head_the_next_column() -> None:
    drawn = [
        (72, 760, 10, "Kestrel plc"),
        (72, 745, 10, "Income statement"),
        (72, 715, 10, ""),
        (380, 715, 10, "2024"),
        (440, 715, 10, "2023"),
        (490, 715, 10, "Var %"),
    ]
    for number, (label, first, second) in enumerate(ROWS):
        drawn += [
            (x, 700 - 15 * number, 10, text)
            for x, text in ((72, label), (380, first), (440, second), (490, "5.4%"))
        ]
    assert labels(read_document(pdf([one for one in drawn if one[3]])))["Revenue"] == [
        "5410",
        "4970",
    ]


def test_few_notes_are_not_part_of_the_label() -> None:
    drawn = [
        (72, 760, 10, "Kestrel S.A."),
        (72, 745, 10, "Estado de resultados"),
        (250, 715, 10, "Nota"),
        (380, 715, 10, "2024"),
        (440, 715, 10, "2023"),
    ]
    for number, (label, first, second) in enumerate(ROWS):
        row = ((72, label), (250, "25 y 26" if number == 1 else ""), (380, first), (440, second))
        drawn += [(x, 700 - 15 * number, 10, text) for x, text in row if text]
    assert list(labels(read_document(pdf(drawn)))) == [label for label, _, _ in ROWS]


def test_months_ended_over_two_years_apply_to_both() -> None:
    drawn = [
        (72, 760, 10, "Kestrel, Inc."),
        (72, 745, 10, "Statements of operations"),
        (250, 715, 8, "Three Months Ended June 30,"),
        (400, 715, 8, "Six Months Ended June 30,"),
    ]
    for number, row in enumerate(
        [
            ("", "2025", "2024", "2025", "2024"),
            ("Products", "66", "57", "69", "32"),
            ("Services", "8", "7", "9", "4"),
            ("Total", "74", "64", "78", "36"),
        ]
    ):
        drawn += [
            (x, 700 - 15 * number, 8, text)
            for x, text in zip((72, 295, 360, 430, 510), row, strict=True)
            if text
        ]
    items = [i for i in read_document(pdf(drawn))["items"] if i.get("LINE_ITEM_NAME") == "Products"]
    assert [i["REPORTING_PERIOD"] for i in items] == ["2025-06-30", "2024-06-30"] * 2


def test_prose_is_neither_title_nor_unit() -> None:
    opinion = (
        (
            "We have audited the financial statements, which comprise the balance sheet, the "
            "income statement, the"
        ),
        (
            "statement of cash flows and the notes, and which show investments of more than 40 "
            "millions in the year,"
        ),
        (
            "and in our opinion they present fairly the financial position and the cash flows "
            "of the period."
        ),
    )
    answer = read_table(
        ROWS,
        *opinion,
        "",
        "Kestrel plc",
        "Consolidated income statement",
        "For the year ended 31 March 2024",
    )
    values = [i for i in answer["items"] if i["type"] == "LINE_ITEM_VALUE"]
    assert answer["doc_type"] == "income_statement"
    assert {(i["STATEMENT_TITLE"], i["UNITS_SCALE"], i["ORG_NAME"]) for i in values} == {
        ("Consolidated income statement", 1, "Kestrel plc")
    }


def test_table_continues_below_a_continued_title() -> None:
    parts = [
        [(72, 760, 10, f"Balance sheet{more}"), (380, 730, 10, "2024"), (480, 730, 10, "2023")]
        for more in ("", " (continued)")
    ]
    parts[0].append((72, 715, 10, "Current assets"))
    for number, (label, first, second) in enumerate(ROWS):
        for part in parts:
            part += [
                (72, 700 - 15 * number, 10, label),
                (380, 700 - 15 * number, 10, first),
                (480, 700 - 15 * number, 10, second),
            ]
    items = [
        i
        for i in read_document(_bound(*map(pdf, parts)))["items"]
        if i["type"] == "LINE_ITEM_VALUE"
    ]
    assert {(i["STATEMENT_TITLE"], i["SECTION_HEADER"]) for i in items} == {
        ("Balance sheet", "Current assets")
    }
    assert {i["page_refs"][0]["page"] for i in items} == {0, 1}


def periods_of(answer: dict[str, Any]) -> list[str | None]:
    """Return the ends of the columns of the first row."""
    values = [i for i in answer["items"] if i["type"] == "LINE_ITEM_VALUE"]
    return [
        i["REPORTING_PERIOD"] for i in values if i["TABLE_ROW_REF"] == values[0]["TABLE_ROW_REF"]
    ]


@pytest.mark.parametrize(
    ("dated", "first", "second", "expected"),
    [
        ("", "12/31/2024", "12/31/2023", ["2024-12-31", "2023-12-31"]),
        ("", "Q1 FY24", "Q2 FY24", ["2024-03-31", "2024-06-30"]),
        ("", "2023/24", "2022/23", ["2024-12-31", "2023-12-31"]),
        ("", "2024", "2024 vs 2023", ["2024-12-31", None]),
        ("", "31DIC2024", "Variación", ["2024-12-31", None]),
        ("Year 2024", "Jan", "Feb", ["2024-01-31", "2024-02-29"]),
        ("Year 2024", "Q1", "Total", ["2024-03-31", "2024-12-31"]),
        ("For the month ended June 30, 2024", "Actual", "Budget", ["2024-06-30", "2024-06-30"]),
        ("For the month ended June 30, 2024", "Actual", "Variance", ["2024-06-30", None]),
        (
            "Ejercicio cerrado el 30 de junio de 2024",
            "Ejercicio actual",
            "Ejercicio anterior",
            ["2024-06-30", "2023-06-30"],
        ),
        ("Al 30 de junio de 2024", "Matriz", "Consolidado", ["2024-06-30", "2024-06-30"]),
        (
            "For the years ended December 28, 2024 and December 30, 2023",
            "2024",
            "2023",
            ["2024-12-28", "2023-12-30"],
        ),
        ("Board meeting, 14 February 2025", "FY24", "FY23", ["2024-12-31", "2023-12-31"]),
    ],
)
def test_periods_of_headings(
    dated: str, first: str, second: str, expected: list[str | None]
) -> None:
    assert (
        periods_of(
            read_table(
                ROWS, "Kestrel plc", "Income statement", dated or " ", heads=("", first, second)
            )
        )
        == expected
    )


def test_impossible_day_is_ignored() -> None:
    answer = read_table(
        ROWS, "Kestrel plc", "Income statement", "0 June,", heads=("", "2024", "2023")
    )
    assert periods_of(answer) == ["2024-12-31", "2023-12-31"]


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("<1,234>", "-1234"),
        ("Q1,234.50", "1234.50"),
        ("12,34,567.00", "1234567.00"),
        ("1,234 €", "1234"),
        ("(1,234 )", "-1234"),
        ("- 1,234", "-1234"),
        ("-$ 1,234", "-1234"),
        ("1,234 -", "-1234"),
        ("1 234 -", "-1234"),
        ("1,234(1)", "1234"),
        ("1,234 (a)", "1234"),
        ("1,234 kr", "1234"),
        ("Ch$ 1,234", "1234"),
        ("1,234.-", "1234"),
        (".45", "0.45"),
    ],
)
def test_forms_of_a_number(printed: str, value: str) -> None:
    rows = [(label, printed, second) for label, _, second in ROWS]
    assert (
        labels(read_table(rows, "Kestrel plc", "Income statement", "Year ended 31 March 2024"))[
            "Revenue"
        ][0]
        == value
    )


def test_minus_with_currency_sign_belongs_to_its_number() -> None:
    rows = [
        ("Ventas", "$ 5.410", "$ 4.970"),
        ("Costo de ventas", "-$ 3.122", "-$ 2.905"),
        ("Otros", "$ -", "-$ 12"),
    ]
    drawn = [
        (72, 760, 10, "Molinos SpA"),
        (72, 745, 10, "Estado de resultados"),
        (380, 715, 10, "2024"),
        (480, 715, 10, "2023"),
    ]
    for number, (label, *cells) in enumerate(rows):
        drawn.append((72, 700 - 15 * number, 10, label))
        for x, (sign, value) in zip((380, 480), map(str.split, cells), strict=True):
            drawn += [(x - 50, 700 - 15 * number, 10, sign), (x, 700 - 15 * number, 10, value)]
    assert labels(read_document(pdf(drawn))) == {
        "Ventas": ["5410", "4970"],
        "Costo de ventas": ["-3122", "-2905"],
        "Otros": ["-12"],
    }


@pytest.mark.parametrize("mark", ["1", "(2)", "a", "1,2", "*"])
def test_raised_footnote_mark_is_ignored(mark: str) -> None:
    drawn = [(72, 760, 10, "Kestrel plc"), (72, 745, 10, "Income statement")]
    for number, row in enumerate([("Item", "2024", "2023"), *ROWS]):
        for x, text in zip((72, 380, 480), row, strict=True):
            drawn += [
                (x, 715 - 15 * number, 10, text),
                (x + stringWidth(text, "Helvetica", 10), 718.5 - 15 * number, 6, mark),
            ]
    content = pdf(drawn)
    answer, text = read_document(content), read_pdf(content).text
    assert labels(answer) == {
        "Revenue": ["5410", "4970"],
        "Cost of sales": ["-3122", "-2905"],
        "Gross profit": ["2288", "2065"],
    }
    assert periods_of(answer) == ["2024-12-31", "2023-12-31"]
    for item in answer["items"]:
        if item["type"] == "LINE_ITEM_VALUE":
            (span,) = item["text_spans"]
            assert text[span["start"] : span["end"]] == item["LINE_ITEM_VALUE"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2024*", "2023**"),
        ("2024(1)", "2023(2)"),
        ("2024 (a)", "2023 (b)"),
        ("31-12-2024 (a)", "31-12-2023 (b)"),
        ("Dec 2024", "Dec 2023*"),
    ],
)
def test_headings_with_footnote_marks(first: str, second: str) -> None:
    answer = read_table(ROWS, "Kestrel plc", "Income statement", heads=("", first, second))
    assert periods_of(answer) == ["2024-12-31", "2023-12-31"]


@pytest.mark.parametrize("unit", ["(EUR 1,000)", "EUR 1,000", "(€ 1,000)", "in EUR 1,000"])
def test_thousand_in_the_corner_of_the_headings_is_a_unit(unit: str) -> None:
    answer = read_table(ROWS, "Kestrel plc", "Income statement", heads=(unit, "2024", "2023"))
    assert labels(answer)["Revenue"] == ["5410", "4970"]
    assert periods_of(answer) == ["2024-12-31", "2023-12-31"]
    assert {
        (i["UNITS_SCALE"], i["CURRENCY"]) for i in answer["items"] if i["type"] == "LINE_ITEM_VALUE"
    } == {(1000, "EUR")}


@pytest.mark.parametrize(
    ("above", "rows"),
    [
        (
            ("Invoice", "No 1234", "Date: 31/12/2024"),
            [
                ("Review of expenses", "2", "200.00"),
                ("Income tax advice", "1", "50.00"),
                ("Net profit share", "", "250.00"),
            ],
        ),
        (
            ("Payslip", "March 2024"),
            [("Income", "1,200", ""), ("Expenses", "100", ""), ("Net income", "1,100", "")],
        ),
        (
            ("Account statement", "1 to 31 March 2024"),
            [
                ("Opening balance", "", "1,000"),
                ("Salary income", "500", "1,500"),
                ("Bank costs", "20", "1,480"),
            ],
        ),
        (
            ("Lista de precios 2024",),
            [("Tuerca", "1.200", "1.100"), ("Perno", "800", "700"), ("Clavo", "90", "80")],
        ),
        (
            ("Liquidación de sueldo", "Marzo de 2024"),
            [("Total ingresos", "700", ""), ("Gastos", "90", ""), ("Resultado", "610", "")],
        ),
        (
            ("Weekly sales",),
            [("Leeds", "100", "200"), ("York", "10", "20"), ("Total sales", "110", "220")],
        ),
    ],
)
def test_other_documents_have_no_line_items(
    above: tuple[str, ...], rows: list[tuple[str, str, str]]
) -> None:
    answer = read_table(rows, "Kestrel Ltd", *above, heads=("Description", "Amount", "Total"))
    assert (answer["doc_type"], answer["items"]) == ("other", [])


def test_statement_without_a_title_is_recognized_by_its_parts() -> None:
    rows = [
        ("Total activos", "1.000", "900"),
        ("Total pasivos", "600", "500"),
        ("Capital social", "400", "400"),
    ]
    assert read_table(rows, "Molinos S.A.")["doc_type"] == "balance_sheet"


def test_text_around_a_statement_is_ignored() -> None:
    drawn = [
        (72, 770, 10, "Molinos S.A."),
        (400, 770, 10, "Hoja: 1"),
        (400, 756, 10, "Fecha: 18/01/2025"),
        (72, 740, 10, "Estado de resultados"),
    ]
    drawn += [
        (72, 726, 10, "-" * 70),
        (380, 712, 10, "2024"),
        (480, 712, 10, "2023"),
        (72, 60, 10, "Las notas adjuntas forman parte de esto"),
        (480, 60, 10, "4"),
    ]
    for number, (label, first, second) in enumerate(ROWS):
        drawn += [
            (x, 696 - 16 * number, 10, text)
            for x, text in ((72, label), (380, first), (480, second))
        ]
    answer = read_document(pdf(drawn))
    assert list(labels(answer)) == [label for label, _, _ in ROWS]
    assert periods_of(answer) == ["2024-12-31", "2023-12-31"]
    assert answer["items"][0]["ORG_NAME"] == "Molinos S.A."


def test_codes_beside_labels_are_no_amounts() -> None:
    drawn = [
        (72, 760, 10, "Molinos S.A."),
        (72, 745, 10, "Estado de resultados"),
        (300, 715, 10, "Código"),
        (380, 715, 10, "2024"),
        (480, 715, 10, "2023"),
    ]
    for number, (label, first, second) in enumerate(ROWS):
        row = ((72, label), (300, str(40100 + number)), (380, first), (480, second))
        drawn += [(x, 700 - 15 * number, 10, text) for x, text in row]
    assert labels(read_document(pdf(drawn))) == {
        "Revenue": ["5410", "4970"],
        "Cost of sales": ["-3122", "-2905"],
        "Gross profit": ["2288", "2065"],
    }


def test_title_with_spaced_letters() -> None:
    answer = read_table(
        ROWS,
        "Molinos S.A.",
        "E S T A D O   D E   R E S U L T A D O S",
        "Al 31 de diciembre de 2024",
    )
    assert {i["STATEMENT_TITLE"] for i in answer["items"] if i["type"] == "LINE_ITEM_VALUE"} == {
        "ESTADO DE RESULTADOS"
    }


def test_first_statement_on_a_page_is_the_class() -> None:
    first = [
        ("Assets", "1,200", "1,100"),
        ("Liabilities", "(700)", "(650)"),
        ("Equity", "500", "450"),
    ]
    second = [
        (f"{name} activities", "125", "110") for name in ("Operating", "Investing", "Financing")
    ]
    rows = [
        *first,
        ("Cash flow statement", "", ""),
        ("", "2024", "2023"),
        *second,
        ("Net change in cash", "34", "60"),
    ]
    answer = read_table(rows, "Kestrel plc", "Balance sheet", "At 30 June 2024")
    assert answer["doc_type"] == "balance_sheet"
    assert {i["STATEMENT_TITLE"] for i in answer["items"] if i["type"] == "LINE_ITEM_VALUE"} == {
        "Balance sheet",
        "Cash flow statement",
    }


def test_slanted_letters_keep_the_space_between_words() -> None:
    out = io.BytesIO()
    paper = canvas.Canvas(out, pagesize=(612, 792))
    paper.setFont("Times-Italic", 10)
    for number, text in enumerate(
        ("Kestrel plc", "Income statement", "For the year ended 31 March 2024")
    ):
        paper.drawString(72, 760 - 14 * number, text)
    for number, row in enumerate([("", "2024", "2023"), *ROWS]):
        for x, text in zip((72, 380, 480), row, strict=True):
            paper.drawString(x, 700 - 16 * number, text)
    paper.save()
    assert list(labels(read_document(out.getvalue()))) == [label for label, _, _ in ROWS]


def _bound(*pages: bytes) -> bytes:
    """Return several documents as one."""
    whole, out = pdfium.PdfDocument.new(), io.BytesIO()
    for page in pages:
        whole.import_pages(pdfium.PdfDocument(page))
    whole.save(out)
    return out.getvalue()


@pytest.mark.parametrize(("name", "number"), [("bank", 1), ("municipality", 5)])
def test_further_issuers_are_read_whole(name: str, number: int) -> None:
    """Rows of two tables at other heights, and a public body whose name begins with Sistema."""
    score = measure([corpus_e.ORIGINS[name](Random(f"1-{name}-{number}"))])
    assert (score.recall, score.precision) == (1, 1), score.report()
    assert score.fields["org"] == score.fields["total"] == score.right

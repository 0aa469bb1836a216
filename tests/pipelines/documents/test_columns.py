"""Layouts of headings, columns and their surroundings, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from esclusa.pipelines.documents.local.statement import read_document
from esclusa.pipelines.documents.sample_statements import pdf, right_aligned

ORG = "Kestrel plc"
ROWS = [
    ("Revenue", 5410),
    ("Cost of sales", -3122),
    ("Gross profit", 2288),
    ("Administrative expenses", -901),
    ("Operating profit", 1387),
]
FIRST = 690.0
"""The position of the first row."""
Texts = list[tuple[float, float, float, str]]


def printed(number: int) -> str:
    return f"({-number:,})" if number < 0 else f"{number:,}"


def page(
    above: list[str],
    heads: list[list[str]],
    rows: list[list[str]],
    edges: list[float],
    *more: tuple[float, float, float, str],
) -> Any:
    """Return what is read of a table whose columns end at these edges, below some lines.

    Each heading and row begins with its label.
    """
    texts: Texts = [(60, 770 - 14 * n, 9, text) for n, text in enumerate(above)]
    y = FIRST + 11 * len(heads)
    for number, (label, *cells) in enumerate([*heads, *rows]):
        texts += [(60, y, 8, label)] if label else []
        texts += [
            (right_aligned(edge, text, 8), y, 8, text)
            for edge, text in zip(edges, cells, strict=True)
            if text
        ]
        y -= 11 if number < len(heads) else 14
    return read_document(pdf([*texts, *more]))


def values(answer: Any) -> list[dict[str, Any]]:
    return [item for item in answer["items"] if item["type"] == "LINE_ITEM_VALUE"]


def by_label(answer: Any) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for item in values(answer):
        out.setdefault(item["LINE_ITEM_NAME"], []).append(item["value"])
    return out


@pytest.mark.parametrize(
    ("title", "heads", "periods"),
    [
        (
            "Year ended 30 June 2024",
            ["Actual", "Budget", "Variance"],
            ["2024-06-30", "2024-06-30", None],
        ),
        ("Year ended 30 June 2024", ["Retail", "Wholesale", "Total 2024"], ["2024-06-30"] * 3),
        (
            "Year ended 30 June 2024",
            ["2024", "Budget", "Movement"],
            ["2024-06-30", "2024-06-30", None],
        ),
        (
            "Board meeting, June 2024",
            ["Q1 2024", "Q2 2024", "FY 2024"],
            ["2024-03-31", "2024-06-30", "2024-06-30"],
        ),
        (
            "Board meeting, March 2024",
            ["Q3 2024", "Q4 2024", "FY 2024"],
            ["2024-09-30", "2024-12-31", "2024-12-31"],
        ),
        (
            "Half-year ended 30 June 2024",
            ["H1 2024", "H1 2023", "FY 2023"],
            ["2024-06-30", "2023-06-30", "2023-12-31"],
        ),
        (
            "Half-year ended 30 June 2024",
            ["H1 2024", "H1 2023", "YTD 2023"],
            ["2024-06-30", "2023-06-30", "2023-06-30"],
        ),
        (
            "Unaudited",
            ["Q3 2024", "Q3 2023", "FY 2024"],
            ["2024-09-30", "2023-09-30", "2024-12-31"],
        ),
        ("Unaudited", ["Jan-24", "Feb-24", "Total"], ["2024-01-31", "2024-02-29", "2024-02-29"]),
        (
            "Unaudited",
            ["June 30, 2024", "December 31, 2023", "Change"],
            ["2024-06-30", "2023-12-31", None],
        ),
    ],
)
def test_columns_without_a_period_take_their_neighbours(
    title: str, heads: list[str], periods: list[str | None]
) -> None:
    rows = [[label, *(printed(number * k) for k in (4, 5, 9))] for label, number in ROWS]
    answer = page([ORG, "Income statement", title], [["", *heads]], rows, [380, 460, 540])
    assert [item["REPORTING_PERIOD"] for item in values(answer)] == periods * len(ROWS)


def test_title_over_a_column_applies_to_all_columns() -> None:
    rows = [[label, printed(number), printed(2 * number)] for label, number in ROWS]
    title = (240.0, 716.0, 8.0, "FOR THE YEAR ENDED 30 JUNE 2024")
    answer = page([ORG, "Income statement"], [["", "2024", "2023"]], rows, [290, 380], title)
    assert [item["REPORTING_PERIOD"] for item in values(answer)] == [
        "2024-06-30",
        "2023-06-30",
    ] * len(ROWS)


def test_line_below_the_years_may_name_columns() -> None:
    rows = [[label, *(printed(number * k) for k in (4, 5, 9))] for label, number in ROWS]
    heads = [["", "2024", "2023", ""], ["Conceptos", "AR$", "AR$", "Var. absoluta"]]
    answer = page(["Kestrel S.A.", "Estado de resultados"], heads, rows, [360, 440, 530])
    assert [item["REPORTING_PERIOD"] for item in values(answer)] == [
        "2024-12-31",
        "2023-12-31",
        None,
    ] * len(ROWS)
    assert {item["CURRENCY"] for item in values(answer)} == {"ARS"}


def test_codes_with_letters_are_not_part_of_labels() -> None:
    rows = [["", printed(number), printed(2 * number)] for _, number in ROWS]
    more: Texts = []
    for number, (label, _) in enumerate(ROWS):
        more += [
            (60, FIRST - 14 * number, 8, f"1D0{number}09"),
            (100 if number else 94, FIRST - 14 * number, 8, label),
        ]
    answer = page([ORG, "Income statement"], [["", "2024", "2023"]], rows, [460, 540], *more)
    assert list(by_label(answer)) == [label for label, _ in ROWS]


def test_header_with_room_for_the_next_word_has_not_wrapped() -> None:
    rows = [
        ["Income and endowments from", "", ""],
        ["Donations", "5,410", "4,970"],
        ["Costs Charged to Funds of", "", ""],
        ["Others, as the trustees decided in their meeting", "(122)", "(905)"],
        ["Losses of the Schools and of the Homes of", "", ""],
        ["Northumberland", "(22)", "(95)"],
    ]
    answer = page(
        [ORG, "Statement of financial activities"], [["", "2024", "2023"]], rows, [460, 540]
    )
    assert list(by_label(answer)) == [
        "Donations",
        "Others, as the trustees decided in their meeting",
        "Losses of the Schools and of the Homes of Northumberland",
    ]
    assert [item["SECTION_HEADER"] for item in values(answer)][:2] == [
        "Income and endowments from"
    ] * 2


def test_numbers_between_the_lines_of_a_label_in_capitals() -> None:
    rows = [[label, printed(number), printed(2 * number)] for label, number in ROWS]
    low = FIRST - 14 * len(ROWS)
    more: Texts = [
        (60, low - 4, 8, "TOTAL COSTOS DE"),
        (60, low - 14, 8, "ADMINISTRACIÓN"),
        (447, low - 9, 8, "812"),
        (527, low - 9, 8, "790"),
    ]
    answer = page(
        ["Kestrel S.A.", "Estado de resultados"], [["", "2024", "2023"]], rows, [460, 540], *more
    )
    assert by_label(answer)["TOTAL COSTOS DE ADMINISTRACIÓN"] == ["812", "790"]


def test_counters_in_the_margins_are_no_rows() -> None:
    rows = [[label, printed(number), printed(2 * number)] for label, number in ROWS]
    foot = (60.0, 24.0, 7.0, "Annual accounts, confidential"), (536.0, 24.0, 7.0, "1")
    head = (60.0, 820.0, 7.0, "Estados financieros"), (524.0, 820.0, 7.0, "2024")
    answer = page([ORG, "Income statement"], [["", "2024", "2023"]], rows, [460, 540], *foot, *head)
    assert list(by_label(answer)) == [label for label, _ in ROWS]


def test_digits_that_a_font_separates_are_one_number() -> None:
    rows = [[label, "", printed(2 * number)] for label, number in ROWS]
    more: Texts = []
    for number in range(len(ROWS)):
        more += [
            (440 + 4.6 * place, FIRST - 14 * number, 8, digit)
            for place, digit in enumerate(f"58{number}")
        ]
    answer = page([ORG, "Income statement"], [["", "2024", "2023"]], rows, [460, 540], *more)
    assert [item["LINE_ITEM_VALUE"] for item in values(answer)][::2] == [
        f"58{number}" for number in range(len(ROWS))
    ]


def test_typed_thousands_have_a_gap_as_wide_as_a_digit() -> None:
    rows = [[label, "", printed(2 * number)] for label, number in ROWS]
    more: Texts = []
    for number in range(len(ROWS)):
        more += [
            (430 + (0, 13.7, 31.8)[place], FIRST - 14 * number, 8, part)
            for place, part in enumerate(("1{0}", "05{0}", "34{0}"))
        ]
    more = [(x, y, size, text.format(n // 3)) for n, (x, y, size, text) in enumerate(more)]
    answer = page([ORG, "Income statement"], [["", "2024", "2023"]], rows, [480, 560], *more)
    assert [item["value"] for item in values(answer)][::2] == [
        f"1{n}05{n}34{n}" for n in range(len(ROWS))
    ]


def test_signs_far_from_their_numbers_are_not_part_of_labels() -> None:
    rows = [[label, f"{abs(number) // 100}", f"{abs(number) // 90}"] for label, number in ROWS]
    more: Texts = [(380, FIRST, 8, "C$"), (480, FIRST, 8, "C$")]
    answer = page(
        [ORG, "Income statement", "For the year, and all of the amounts"],
        [["", "2024", "2023"]],
        rows,
        [460, 540],
        *more,
    )
    assert list(by_label(answer)) == [label for label, _ in ROWS]
    assert {item["CURRENCY"] for item in values(answer)} == {"CAD"}


def test_unit_with_a_number_is_no_value() -> None:
    rows = [[label, printed(number), printed(2 * number)] for label, number in ROWS]
    heads = [["", "2024", "2023"], ["", "in CHF 1 000", "in CHF 1 000"]]
    answer = page([ORG, "Income statement"], heads, rows, [440, 540])
    assert list(by_label(answer)) == [label for label, _ in ROWS]
    assert {(item["CURRENCY"], item["UNITS_SCALE"]) for item in values(answer)} == {("CHF", 1000)}


def test_comments_beside_a_table_are_ignored() -> None:
    rows = [[label, printed(number), printed(2 * number)] for label, number in ROWS]
    title = (
        "Pipeline healthy going",
        "into next quarter,",
        "hiring paused outside",
        "engineering, runway",
        "extended",
    )
    more: Texts = [(430, FIRST - 11 * number, 8, text) for number, text in enumerate(title)]
    answer = page([ORG, "Income statement"], [["", "2024", "2023"]], rows, [300, 380], *more)
    assert list(by_label(answer)) == [label for label, _ in ROWS]


def test_totals_of_the_right_half_may_begin_further_left() -> None:
    drawn: Texts = [(60, 770, 9, "Kestrel S.A."), (60, 756, 9, "Balance general")]
    drawn += [
        (x, 730, 8, text)
        for x, text in ((210, "2024"), (250, "2023"), (480, "2024"), (520, "2023"))
    ]
    for number, label in enumerate(("Caja", "Deudores", "Inventarios", "Equipos", "Total activo")):
        right = ("Proveedores", "Préstamos", "Impuestos", "Capital", "Total pasivo y capital")[
            number
        ]
        cells = (
            (60, label),
            (200, f"{number}.410"),
            (240, f"{number}.970"),
            (300 - 9 * (number == 4), right),
            (470, f"{number}.122"),
            (510, f"{number}.905"),
        )
        drawn += [(x, 710 - 14 * number, 8, text) for x, text in cells]
    assert "Total pasivo y capital" in by_label(read_document(pdf(drawn)))


@pytest.mark.parametrize(
    ("above", "more", "name"),
    [
        (
            [
                "Charity registered number 1187379",
                "Rivers for Life",
                "Statement of financial activities",
            ],
            [],
            "Rivers for Life",
        ),
        (
            ["Consolidated income statement"],
            [(60.0, 24.0, 7.0, "Tern Offshore AG Annual Report 2024")],
            "Tern Offshore AG",
        ),
        (
            ["Kestrel Building", "Products Limited", "Consolidated income statement"],
            [],
            "Kestrel Building Products Limited",
        ),
    ],
)
def test_name_of_the_organisation(above: list[str], more: Texts, name: str) -> None:
    rows = [[label, printed(number), printed(2 * number)] for label, number in ROWS]
    answer = page(above, [["", "2024", "2023"]], rows, [460, 540], *more)
    assert {item["ORG_NAME"] for item in values(answer)} == {name}


def test_date_above_years_applies_to_all_columns() -> None:
    rows = [
        [label, printed(1000 * number), "", printed(2000 * number), ""]
        for label, number in ROWS[:2]
    ]
    rows += [
        [label, "", printed(1000 * number), "", printed(2000 * number)]
        for label, number in ROWS[2:]
    ]
    date = (242.0, 730.0, 8.0, "as at 30 June 2024")
    more = (320.0, 716.0, 8.0, "2024"), (460.0, 716.0, 8.0, "2023")
    answer = page(
        [ORG, "Balance sheet"], [["", "£", "£", "£", "£"]], rows, [300, 370, 440, 510], date, *more
    )
    assert [item["REPORTING_PERIOD"] for item in values(answer)] == [
        "2024-06-30",
        "2023-06-30",
    ] * len(ROWS)


def test_codes_and_notes_between_labels_and_amounts() -> None:
    rows = [
        [
            label,
            f"1{n}300",
            str(4 + n) if n % 2 else "",
            printed(1000 * number),
            printed(2000 * number),
        ]
        for n, (label, number) in enumerate(ROWS)
    ]
    form = (400.0, 756.0, 8.0, "Euros:"), (440.0, 756.0, 8.0, "09001"), (480.0, 756.0, 8.0, "X")
    heads = [["", "", "", "2024", "2023"], ["", "", "", "(1)", "(2)"]]
    answer = page([ORG, "Income statement"], heads, rows, [300, 350, 460, 540], *form)
    assert by_label(answer) == {
        label: [str(1000 * number), str(2000 * number)] for label, number in ROWS
    }


def test_code_between_the_lines_of_its_label() -> None:
    many = [
        (f"{label} {place}", number)
        for place in ("abroad", "at home", "elsewhere")
        for label, number in ROWS
    ]
    rows = [["", printed(number), printed(2 * number)] for _, number in many]
    more: Texts = []
    for number, (label, _) in enumerate(many):
        more += [
            (60, FIRST - 14 * number, 8, f"{310 + number}"),
            (100, FIRST - 14 * number, 8, label),
        ]
    low = FIRST - 14 * len(many)
    more += [
        (60, low - 9, 8, "350"),
        (100, low - 4, 8, "TOTAL COSTOS DE"),
        (100, low - 14, 8, "ADMINISTRACIÓN"),
    ]
    more += [(447, low - 9, 8, "812"), (527, low - 9, 8, "790")]
    answer = page(
        ["Kestrel S.A.", "Estado de resultados"], [["", "2024", "2023"]], rows, [460, 540], *more
    )
    assert by_label(answer)["TOTAL COSTOS DE ADMINISTRACIÓN"] == ["812", "790"]


def test_headings_with_a_hyphen_and_short_comparisons() -> None:
    rows = [[label, *(printed(number * k) for k in (4, 5, 9)), "2.1%"] for label, number in ROWS]
    heads = [["", "YTD-Actual JUN-23", "YTD-Actual JUN-22", "Desv. absoluta", "Var %"]]
    answer = page(
        [ORG, "Income statement", "Current Period: JUN-23"], heads, rows, [320, 410, 490, 550]
    )
    assert [item["REPORTING_PERIOD"] for item in values(answer)] == [
        "2023-06-30",
        "2022-06-30",
        None,
    ] * len(ROWS)


def test_paragraph_below_the_table_has_no_rows() -> None:
    rows = [[label, printed(number), printed(2 * number)] for label, number in ROWS]
    title = [
        (
            "For the year ended 30 June 2024 the company was entitled to exemption from audit "
            "under section 477 of the Act of 2006"
        ),
        (
            "relating to small companies. The members have not required the company to obtain "
            "an audit."
        ),
    ]
    more = [(60.0, 500.0 - 11 * n, 8.0, text) for n, text in enumerate(title)]
    answer = page([ORG, "Income statement"], [["", "2024", "2023"]], rows, [407, 487.4], *more)
    assert list(by_label(answer)) == [label for label, _ in ROWS]


def test_headers_in_capitals_with_codes() -> None:
    rows: list[list[str]] = []
    for n, (label, number) in enumerate(ROWS):
        rows += (
            [["A) OPERATING" if n == 0 else "B) FINANCIAL", f"2{n}100", "", ""]]
            if n in (0, 3)
            else []
        )
        rows += [["Nothing here", f"2{n}200", "", ""]] if n == 4 else []
        rows += [[label, f"2{n}300", printed(1000 * number), printed(2000 * number)]]
    answer = page([ORG, "Income statement"], [["", "", "2024", "2023"]], rows, [300, 460, 540])
    assert [item["SECTION_HEADER"] for item in values(answer)] == ["A) OPERATING"] * 6 + [
        "B) FINANCIAL"
    ] * 4


def test_headers_in_capitals_with_codes_as_long_as_those_of_rows() -> None:
    rows = [["", "", ""], *(["", printed(number), printed(2 * number)] for _, number in ROWS)]
    more: Texts = []
    for n, label in enumerate(["OPERATING", *(label for label, _ in ROWS)]):
        more += [(60, FIRST - 14 * n, 8, f"1.1.0{n}"), (100, FIRST - 14 * n, 8, label)]
    answer = page([ORG, "Income statement"], [["", "2024", "2023"]], rows, [460, 540], *more)
    assert {item["SECTION_HEADER"] for item in values(answer)} == {"OPERATING"}


@pytest.mark.parametrize(
    ("title", "scale"),
    [
        ("Miles: 09002", 1),
        ("Sociedad 1000", 1),
        ("in CHF 1000", 1000),
        ("In £'000", 1000),
        ("Cifras en miles", 1000),
    ],
)
def test_unchosen_units_are_ignored(title: str, scale: int) -> None:
    rows = [[label, printed(number), printed(2 * number)] for label, number in ROWS]
    answer = page([ORG, "Income statement", title], [["", "2024", "2023"]], rows, [460, 540])
    assert {item["UNITS_SCALE"] for item in values(answer)} == {scale}


@pytest.mark.parametrize(
    "above",
    [
        ["DENOMINACIÓN SOCIAL:", "Kestrel Norte"],
        ["Company registration number: 05775433", "Kestrel Norte"],
        ["To: Merlin Bank plc, as Lender", "From: Kestrel Norte"],
    ],
)
def test_organisation_named_by_a_form_or_letter(above: list[str]) -> None:
    rows = [[label, printed(number), printed(2 * number)] for label, number in ROWS]
    answer = page([*above, "Income statement"], [["", "2024", "2023"]], rows, [460, 540])
    assert {item["ORG_NAME"] for item in values(answer)} == {"Kestrel Norte"}


@pytest.mark.parametrize(
    "title", ["Nine Months Ended September", "Nueve meses terminados en septiembre"]
)
def test_heading_without_its_day_names_the_last_month(
    title: str,
) -> None:
    over = [(right_aligned(480, title, 8), FIRST + 36, 8, title), (430, FIRST + 25, 8, "30")]
    rows = [[label, printed(number), printed(number - 70)] for label, number in ROWS]
    answer = page([ORG, "Income statement"], [["", "2024", "2023"]], rows, [430, 520], *over)
    assert [item["REPORTING_PERIOD"] for item in values(answer)] == [
        "2024-09-30",
        "2023-09-30",
    ] * len(ROWS)


@pytest.mark.parametrize("counter", ["Pág.: 1", "Page: 1 of 3", "Hoja 1"])
def test_page_number_beside_the_company_is_no_row(counter: str) -> None:
    rows = [[label, printed(number), printed(number - 70)] for label, number in ROWS]
    top = (right_aligned(520, counter, 9), 770, 9, counter)
    answer = page([ORG, "Income statement"], [["", "2024", "2023"]], rows, [430, 520], top)
    assert list(by_label(answer)) == [label for label, _ in ROWS]

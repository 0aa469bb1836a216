"""Amounts per share, notes, changes in equity, trial balances, currencies and tight gutters."""

from __future__ import annotations

from typing import Any

import pytest
from pipelines.documents import corpus_d
from pipelines.documents.corpus_d.layouts import Form, Sheet
from pipelines.documents.corpus_score import measure
from pipelines.documents.drawing import Pen, Style

from esclusa.pipelines.documents.local.statement import read_document


def page_of(*lines: str, pages: list[tuple[str, ...]] | None = None) -> bytes:
    """Return a document; ``a|b|c`` is a label and numbers in columns."""
    pen = Pen(Style(page=(612.0, 792.0)))
    for number, page in enumerate(pages or [lines]):
        if number:
            pen.next()
        sheet = Sheet(pen, Form(), "Helvetica", 9)
        y = 50.0
        for line in page:
            label, *numbers = line.split("|")
            sheet.put(50, y, label)
            for at, text in enumerate(numbers):
                sheet.put(400 + 90 * at, y, text, 1.0)
            y += 16
    return pen.done()


def drawn(*lines: str, pages: list[tuple[str, ...]] | None = None) -> list[dict[str, Any]]:
    """Return the values of such a document."""
    items = read_document(page_of(*lines, pages=pages))["items"]
    return [i for i in items if i["type"] == "LINE_ITEM_VALUE"]


def test_unknown_layouts_are_read() -> None:
    score = measure(corpus_d.documents(45, seed=41))
    assert score.recall >= 0.95, score.report()
    assert score.precision >= 0.97, score.report()
    assert score.boxes >= 0.98, score.report()
    assert score.classes == score.documents, score.report()
    for name in ("org", "total", "currency", "scale", "year"):
        assert score.fields[name] >= 0.95 * score.right, score.report()


@pytest.mark.parametrize(
    "label",
    [
        "Ganancia por acción básica",
        "Earnings per share - basic",
        "Diluted EPS",
        "Dividendo por acción",
    ],
)
def test_amounts_per_share_have_no_scale(label: str) -> None:
    found = drawn(
        "Andes Norte S.A.",
        "Estado de Resultados",
        "Al 31 de diciembre de 2024 y 2023 (en miles de pesos)",
        "|2024|2023",
        "Ingresos de actividades ordinarias|1.250.300|1.100.200",
        "Costo de ventas|(850.300)|(790.100)",
        "Ganancia bruta|400.000|310.100",
        f"{label}|12,34|9,87",
    )
    assert {i["UNITS_SCALE"] for i in found if i["LINE_ITEM_NAME"] == label} == {1}
    assert {i["UNITS_SCALE"] for i in found if i["LINE_ITEM_NAME"] != label} == {1000}


def test_numbers_of_shares_keep_the_scale_unless_they_are_excepted() -> None:
    for units, scale in (
        ("(in thousands, except per share amounts)", 1000),
        ("(in thousands, except share and per share amounts)", 1),
    ):
        found = drawn(
            "Cedar Hollow, Inc.",
            "Consolidated Statements of Operations",
            units,
            "|2024|2023",
            "Net sales|125,300|110,200",
            "Cost of sales|(85,030)|(79,010)",
            "Net income|40,270|31,190",
            "Weighted-average number of shares outstanding|10,200|10,100",
        )
        assert {i["UNITS_SCALE"] for i in found[-2:]} == {scale}


def test_tables_of_notes_have_the_title_of_their_note() -> None:
    found = drawn(
        pages=[
            (
                "Andes Norte S.A.",
                "Estado de Situación Financiera",
                "Al 31 de diciembre de 2024 y 2023 (en miles de pesos)",
                "|2024|2023",
                "Efectivo y equivalentes al efectivo|1.250.300|1.100.200",
                "Inventarios|850.300|790.100",
                "Total activos|2.100.600|1.890.300",
                "Cuentas por pagar|900.300|800.200",
                "Patrimonio|1.200.300|1.090.100",
            ),
            (
                "Notas a los estados financieros",
                "Nota 7 - Inventarios",
                "|2024|2023",
                "Materias primas|450.300|390.100",
                "Productos terminados|400.000|400.000",
                "Nota 8 - Cuentas por pagar",
                "|2024|2023",
                "Proveedores nacionales|900.300|800.200",
            ),
        ]
    )
    titles = {i["LINE_ITEM_NAME"]: i["STATEMENT_TITLE"] for i in found}
    assert titles["Inventarios"] == "Estado de Situación Financiera"
    assert titles["Materias primas"] == titles["Productos terminados"] == "Nota 7 - Inventarios"
    assert titles["Proveedores nacionales"] == "Nota 8 - Cuentas por pagar"


@pytest.mark.parametrize("gutter", [26.0, 12.0, 8.0, 5.0])
def test_a_tight_gutter_loses_no_value(gutter: float) -> None:
    pen = Pen(Style(page=(612.0, 792.0)))
    sheet = Sheet(pen, Form(",", ".", 2), "Helvetica", 8)
    sheet.put(306, 40, "GRUPO TEXTIL ATLIXCO SA DE CV", 0.5)
    sheet.put(306, 54, "Balance General al 31/Dic/2024", 0.5)
    left = ("CAJA", "BANCOS", "CLIENTES", "INVENTARIO", "IVA ACREDITABLE", "SUMA DEL ACTIVO")
    right = ("PROVEEDORES", "ACREEDORES", "IMPUESTOS", "CAPITAL SOCIAL", "UTILIDAD", "SUMA")
    printed = set()
    for row, (first, second) in enumerate(zip(left, right, strict=True)):
        y = 90.0 + 13 * row
        for at, (label, x, stop) in enumerate(
            ((first, 30.0, 306 - gutter / 2), (second, 306 + gutter / 2, 580.0))
        ):
            text = f"{(row + 3) * 1_204_511 + at * 877:,}.{10 + row}"
            sheet.put(x, y, label)
            sheet.put(stop, y, text, 1.0)
            printed.add((label, text))
    items = read_document(pen.done())["items"]
    found = {(i["LINE_ITEM_NAME"], i["LINE_ITEM_VALUE"]) for i in items if i["type"][0] == "L"}
    assert found == printed


def test_movements_of_equity_have_the_date_of_the_balance_below_them() -> None:
    found = drawn(
        "Andes Norte S.A.",
        "Estado de Cambios en el Patrimonio",
        "Por los años terminados el 31 de diciembre de 2024 y 2023 (en miles de pesos)",
        "|Capital|Patrimonio total",
        "Saldo al 31 de diciembre de 2022|500.000|650.300",
        "Ganancia del ejercicio|120.400|120.400",
        "Saldo al 31 de diciembre de 2023|620.400|770.700",
        "Ganancia del ejercicio|99.100|99.100",
        "Saldo al 31 de diciembre de 2024|719.500|869.800",
    )
    ends = [i["REPORTING_PERIOD"] for i in found]
    assert ends == [f"{year}-12-31" for year in (2022, 2023, 2023, 2024, 2024) for _ in range(2)]
    assert {i["COLUMN_YEAR"] for i in found} == {None}
    assert {i["TABLE_COLUMN_HEADER"] for i in found} == {"Capital", "Patrimonio total"}


def test_dollars_of_a_mexican_company_stay_dollars() -> None:
    header = ("Inmobiliaria Cerro de la Silla, S.A. de C.V.",)
    page = (
        *header,
        "Estado de Situación Financiera al 31 de diciembre de 2024",
        "(Cifras en dólares)",
        "|2024",
        "Bancos|1,250,300",
        "Clientes|850,300",
        "Total activo|2,100,600",
        "Proveedores|900,300",
        "Capital social|1,200,300",
    )
    more = [(*header, f"Cuenta {n}|{n}50,300", f"Otra {n}|{n}10,200") for n in range(1, 9)]
    assert {i["CURRENCY"] for i in drawn(pages=[page, *more])} == {"USD"}

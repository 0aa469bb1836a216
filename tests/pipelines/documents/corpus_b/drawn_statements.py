"""Statements drawn with reportlab: an accounting system's print-out, a holding, a co-operative."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from pipelines.documents.corpus_b.model import (
    Column,
    Numbers,
    Row,
    Template,
    build,
    ends,
    head,
    spoken_date,
    templates,
    yearly,
)
from pipelines.documents.corpus_b.organisations import COUNTRIES, random_organisation, units
from pipelines.documents.drawing import Pen, Statement, Style, Truth
from reportlab import rl_config
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

rl_config.invariant = 1
for _name in ("Vera", "VeraBd"):
    pdfmetrics.registerFont(TTFont(_name, f"{_name}.ttf"))
BOLD = {
    "Helvetica": "Helvetica-Bold",
    "Times-Roman": "Times-Bold",
    "Courier": "Courier-Bold",
    "Vera": "VeraBd",
}


class Sheet(Pen):
    """A pen that records the numbers it prints."""

    def __init__(
        self,
        page: tuple[float, float],
        font: str,
        size: float,
        rotate: int = 0,
        sideways: bool = False,
    ) -> None:
        self.values: list[Truth] = []
        super().__init__(Style(page=page, font=font, size=size, rotate=rotate, sideways=sideways))

    def bold(self, on: bool = True) -> None:
        base = self.style.font
        self.font(BOLD[base] if on else base, self.style.size)

    def right(self, x: float, y: float, text: str) -> tuple[float, float, float, float]:
        return self.text(x - self.width(text), y, text)

    def middle(self, x: float, y: float, text: str) -> None:
        self.text(x - self.width(text) / 2, y, text)

    def rule(self, x0: float, x1: float, y: float, wide: float = 0.5) -> None:
        self.canvas.setLineWidth(wide)
        self.canvas.line(x0, self.h - y, x1, self.h - y)

    def keep(
        self, row: Row, column: Column, at: int, box: tuple[float, float, float, float]
    ) -> None:
        cell = row.cells[at]
        if cell.value is not None:
            args = (
                row.label,
                column.year,
                column.period,
                cell.value,
                cell.printed,
                self.pages,
                box,
                row.section,
                row.total,
            )
            self.values.append(Truth(*args))

    def cells(
        self, row: Row, columns: list[Column], rights: list[float], y: float, hang: bool = False
    ) -> None:
        """Draw the numbers of a row at their right edges; `hang` lets a bracket stick out."""
        for at, (column, x) in enumerate(zip(columns, rights, strict=True)):
            text = row.cells[at].text
            if text:
                out = self.width(")") if hang and text.endswith(")") else 0
                self.keep(row, column, at, self.right(x + out, y, text))

    def statement(
        self, name: str, template: Template, org: str, title: str, currency: str, scale: int
    ) -> Statement:
        return Statement(
            name, template.doc_type, self.done(), self.values, org, title, currency, scale
        )


def erp(rng: Random) -> Statement:
    """A print-out of an accounting system in a fixed-width font."""
    template = rng.choice(templates("erp"))
    org, key = random_organisation(rng, f"erp {template.doc_type}")
    country = COUNTRIES[key]
    style = rng.choice(("dmy", "mon", "year", "saldo"))
    columns = yearly("es", style, rng.randint(2019, 2025), rng.choice((1, 2, 2, 3)))
    columns = [Column(c.head.upper(), c.year, c.period) for c in columns]
    if len(columns) == 2 and rng.random() < 0.5:
        columns.append(Column("VARIACION", kind="change"))
    numbers = Numbers(
        country.thousands,
        rng.choice((2, 2, 0)),
        rng.choice(("trail", "minus", "parens")),
        rng.choice(("0", "", "-")),
    )
    rows = build(
        rng, template, columns, numbers, base=10 ** rng.uniform(3.5, 6), notes=" ", codes=True
    )
    codes, leaders = rng.random() < 0.75, rng.random() < 0.4
    wide = max(*(len(c.text) for r in rows for c in r.cells[: len(columns)]), 17) + 2
    text_wide = 8 * codes + 46
    line_wide = text_wide + wide * len(columns)
    landscape = line_wide > 95
    page = (792.0, 612.0) if landscape else (612.0, 792.0)
    size = min(9.0, (page[0] - 60) / line_wide / 0.6)
    sheet = Sheet(page, "Courier", size)
    step, char, left, y = size * 1.22, size * 0.6, 30.0, 0.0
    last = columns[0].year or 0
    unit = units(rng, country, 1).upper()
    system = rng.choice(
        ("SISTEMA CONTABLE SICOFI v8.3", "ContaMax ERP - Modulo Contabilidad", "PROGRAMA: CGR0147")
    )
    when = f"{rng.randint(5, 28):02}/{rng.choice((1, 2, 3)):02}/{last + 1}"

    def put(text: str) -> float:
        nonlocal y
        if text.strip():
            sheet.text(left, y, text)
        y += step
        return y - step

    def top() -> None:
        nonlocal y
        y = 36.0
        put(f"{org:<{line_wide - 12}}HOJA: {sheet.pages + 1:>6}")
        put(f"{country.tax.upper():<{line_wide - 18}}FECHA:  {when}")
        put(system)
        put(template.title.center(line_wide).rstrip())
        since = "AL" if template.doc_type == "balance_sheet" else "DEL 1 DE ENERO AL"
        put(f"{since} {spoken_date('es', last, 12)}".upper().center(line_wide).rstrip())
        put(unit.center(line_wide).rstrip())
        put("-" * line_wide)
        name = ("CUENTA  " if codes else "") + "DESCRIPCION"
        put(f"{name:<{text_wide}}" + "".join(f"{c.head:>{wide}}" for c in columns))
        put("-" * line_wide)

    top()
    for row in rows:
        if y + 4 * step > sheet.h - 36:
            sheet.next()
            top()
        if row.kind == "section":
            put("")
            put(" " * (8 * codes + 2 * row.level) + row.label)
            continue
        if row.kind == "total":
            put(" " * text_wide + ("  " + "-" * (wide - 2)) * len(columns))
        label = " " * (row.level if not codes else 0) + row.label
        label = f"{row.code if codes else '':<{8 * codes}}{label}"
        label += " " + "." * (text_wide - len(label) - 2) if leaders and row.kind == "line" else ""
        line = f"{label:<{text_wide}}" + "".join(f"{c.text:>{wide}}" for c in row.cells)
        at = put(line.rstrip())
        up, down = pdfmetrics.getAscentDescent("Courier", size)
        for i, cell in enumerate(row.cells):
            end = text_wide + wide * (i + 1)
            sheet.keep(
                row,
                columns[i],
                i,
                sheet.box(
                    left + (end - len(cell.text)) * char, at - up, left + end * char, at - down
                ),
            )
        if row.kind == "total" and row.level == 0:
            put(" " * text_wide + ("  " + "=" * (wide - 2)) * len(columns))
    put("")
    put("*** FIN DEL REPORTE ***")
    return sheet.statement("erp", template, org, template.title, country.currency, 1)


def held(rng: Random) -> Statement:
    """A holding's many columns on a landscape, rotated or sideways page."""
    template = rng.choice(templates("holding"))
    org, key = random_organisation(rng, "holding")
    country, year, month = COUNTRIES[key], rng.randint(2018, 2025), rng.choice((12, 12, 12, 6, 9))
    end, way = ends(year, month), rng.choice(("worksheet", "years", "grouped"))
    if way == "worksheet" and template.doc_type != "cash_flow":
        names = rng.sample(
            ("Matriz", "Agrícola", "Inmobiliaria", "Naviera", "Energía", "Retail", "Pesquera"),
            rng.randint(3, 4),
        )
        names.sort(key=lambda n: n != "Matriz")
        columns = [Column(n, year, end, factor=rng.choice((1.0, 0.4, 0.15))) for n in names]
        columns.append(Column("Eliminaciones", year, end, factor=-0.1))
        columns.append(Column("Consolidado", year, end, sum_of=tuple(range(len(columns)))))
        if template.doc_type == "income_statement":
            template = replace(template, entries=template.entries[:-2])
    elif way == "grouped" and template.doc_type != "cash_flow":
        columns = [
            Column(n, y, ends(y, month), group=head("dmy", "es", y, month))
            for y in (year, year - 1)
            for n in ("Individual", "Consolidado")
        ]
    else:
        columns = yearly(
            "es", rng.choice(("dots", "dmy", "dashes", "mon")), year, rng.choice((3, 4, 5)), month
        )
    numbers = Numbers(
        country.thousands, 0, rng.choice(("parens", "parens", "minus")), rng.choice(("-", "–", ""))
    )
    scale = rng.choice((1_000, 1_000_000))
    notes = rng.choice((" ", "", "")) if way != "worksheet" else " "
    rows = build(rng, template, columns, numbers, base=10 ** rng.uniform(2.6, 5), notes=notes)
    size = rng.choice((7.0, 7.5, 8.0))
    font = rng.choice(("Helvetica", "Times-Roman", "Vera")) if len(columns) < 6 else "Helvetica"
    turned = rng.choice(({}, {}, {"rotate": 90}, {"sideways": True}))
    sheet = Sheet((792.0, 612.0), font, size, **turned)
    unit, left, room = units(rng, country, scale), 42.0, 250.0
    step, width = size * 1.45, 86.0 if len(columns) < 6 else 76.0
    rights = [left + room + 40 + width * (i + 1) for i in range(len(columns))]
    zebra, foot = rng.random() < 0.3, rng.random() < 0.6
    short = (
        {"cl": ("M$", "MM$"), "us": ("MUS$", "MMUS$")}.get(key, ("", ""))[scale > 1_000]
        if rng.random() < 0.6
        else ""
    )
    where = "Por el período terminado el" if template.doc_type != "balance_sheet" else "Al"
    y = 0.0

    def top() -> None:
        nonlocal y
        sheet.bold()
        sheet.text(left, 40, org)
        again = " (continuación)" if sheet.pages else ""
        sheet.text(left, 40 + step, template.title + again)
        sheet.bold(False)
        sheet.text(left, 40 + 2 * step, f"{where} {spoken_date('es', year, month)}")
        sheet.text(left, 40 + 3 * step, unit)
        y = 40 + 5 * step
        if columns[0].group:
            for i in range(0, len(columns), 2):
                sheet.middle((rights[i] - width + rights[i + 1]) / 2 + 4, y, columns[i].group)
                sheet.rule(rights[i] - width + 12, rights[i + 1], y + 3)
            y += step * 1.2
        sheet.bold()
        if notes != " ":
            sheet.middle(left + room + 18, y, "Nota")
        for column, x in zip(columns, rights, strict=True):
            sheet.right(x, y, column.head)
            if short:
                sheet.right(x, y + step, short)
        y += step if short else 0
        sheet.rule(left, rights[-1], y + 4, 0.8)
        sheet.bold(False)
        y += step * 1.4

    def bottom() -> None:
        sheet.bold(False)
        if foot:
            sheet.text(
                left,
                585,
                "Las notas adjuntas forman parte integral de estos estados financieros "
                "consolidados.",
            )
        sheet.right(750, 585, f"{sheet.pages + 4}")

    top()
    for i, row in enumerate(rows):
        if y > 560:
            bottom()
            sheet.next()
            top()
        sheet.bold(row.kind != "line")
        lines = sheet.broken(row.label, room - 8 * row.level) if row.cells else [row.label]
        if zebra and row.kind == "line" and i % 2:
            sheet.canvas.setFillGray(0.93)
            sheet.canvas.rect(
                left,
                sheet.h - y - step * (len(lines) - 1) - 2.5,
                rights[-1] - left,
                step * len(lines),
                stroke=0,
                fill=1,
            )
            sheet.canvas.setFillGray(0)
        for n, line in enumerate(lines):
            sheet.text(left + 8 * row.level + (4 if n else 0), y, line)
            y += step if n + 1 < len(lines) else 0
        if row.kind == "total":
            for x in rights:
                sheet.rule(x - width + 14, x, y - size * 0.95, 0.4)
        if row.note:
            sheet.middle(left + room + 18, y, row.note)
        if row.cells:
            sheet.cells(row, columns, rights, y)
        y += step * (1.25 if row.kind == "total" else 1)
    bottom()
    return sheet.statement("holding", template, org, template.title, country.currency, scale)


def cooperativa(rng: Random) -> Statement:
    """A savings co-operative's balance, assets beside liabilities."""
    template = templates("cooperativa")[0]
    org, key = random_organisation(rng, "cooperativa")
    country, year = COUNTRIES[key], rng.randint(2019, 2025)
    month = rng.choice((12, 12, 6))
    columns = yearly(
        "es",
        rng.choice(("mon", "dmy", "year" if month == 12 else "monyear")),
        year,
        rng.choice((1, 2, 2)),
        month,
    )
    cents = 0 if country.currency == "PYG" else rng.choice((0, 2))
    numbers = Numbers(
        country.thousands, cents, rng.choice(("parens", "minus")), rng.choice(("-", "0"))
    )
    codes = rng.random() < 0.6
    rows = build(
        rng,
        template,
        columns,
        numbers,
        base=10 ** rng.uniform(3.5, 5.5),
        notes=" ",
        codes=codes,
        drop=0.05,
    )
    font = rng.choice(("Helvetica", "Times-Roman", "Vera"))
    size = 8.0 if font != "Vera" else 7.0
    sheet = Sheet((842.0, 595.0), font, size)
    cut = next(i for i, r in enumerate(rows) if r.label == "PASIVO")
    step, half, width = size * rng.choice((1.7, 1.9)), 374.0, 84.0 if len(columns) == 2 else 95.0
    unit = units(rng, country, 1)
    sheet.font(sheet.name, 12)
    sheet.middle(421, 50, org)
    sheet.bold()
    sheet.middle(421, 66, f"{template.title} AL {spoken_date('es', year, month).upper()}")
    sheet.bold(False)
    sheet.middle(421, 80, unit)
    lows = []
    for side, part in enumerate((rows[:cut], rows[cut:])):
        left = 36.0 + side * (half + 22)
        rights = [left + half - width * (len(columns) - 1 - i) for i in range(len(columns))]
        room = rights[0] - width - left - (34 if codes else 0)
        y = 110.0
        sheet.bold()
        for column, x in zip(columns, rights, strict=True):
            sheet.right(x, y, column.head)
        sheet.rule(left, left + half, y + 4)
        y += step * 1.2
        for row in part[:-1]:
            y = _side(sheet, row, columns, rights, left, y, step, room, codes)
        lows.append(y)
    for side, row in enumerate((rows[cut - 1], rows[-1])):
        left = 36.0 + side * (half + 22)
        rights = [left + half - width * (len(columns) - 1 - i) for i in range(len(columns))]
        if not side:  # the two grand totals are on one line, below the longer side
            sheet.rule(36, 36 + 2 * half + 22, max(lows) + 2)
        _side(sheet, row, columns, rights, left, max(lows) + step, step, half, codes)
    sheet.canvas.line(36 + half + 11, sheet.h - 98, 36 + half + 11, sheet.h - max(lows) - step - 6)
    for i, (who, what) in enumerate(
        (("Ing. Marcia Toapanta", "GERENTE GENERAL"), ("CPA. Luis Benítez", "CONTADOR"))
    ):
        sheet.bold(False)
        sheet.rule(180 + i * 320, 330 + i * 320, 520)
        sheet.middle(255 + i * 320, 532, who)
        sheet.middle(255 + i * 320, 543, what)
    return sheet.statement("cooperativa", template, org, template.title, country.currency, 1)


def _side(
    sheet: Sheet,
    row: Row,
    columns: list[Column],
    rights: list[float],
    left: float,
    y: float,
    step: float,
    room: float,
    codes: bool,
) -> float:
    """Draw a row of one half and return the position of the next."""
    sheet.bold(row.kind != "line")
    x = left + (34 if codes and row.kind == "line" else 0)
    if row.code:
        sheet.text(left, y, row.code)
    for n, line in enumerate(sheet.broken(row.label, room)):
        y += step * 0.75 if n else 0
        sheet.text(x, y, line)
    if row.cells:
        sheet.cells(row, columns, rights, y)
    return y + step * (1.5 if row.kind == "total" else 1)

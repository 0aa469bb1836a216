"""Statements drawn with reportlab: a registry's form, an auditor's report."""

from __future__ import annotations

from random import Random

from pipelines.documents.corpus_b.drawn_statements import Sheet
from pipelines.documents.corpus_b.model import (
    Column,
    Numbers,
    build,
    spoken_date,
    templates,
    yearly,
)
from pipelines.documents.corpus_b.organisations import COUNTRIES, random_organisation
from pipelines.documents.drawing import Statement


def formulario(rng: Random) -> Statement:
    """A form of a registry or regulator: ruled boxes with a code for each."""
    spain = rng.random() < 0.6
    origin = "formulario_es" if spain else "formulario_ec"
    template, country, year = (
        templates(origin)[0],
        COUNTRIES["es" if spain else "ec"],
        rng.randint(2018, 2024),
    )
    columns = yearly("es", "ejercicio", year, 2 if spain else rng.choice((1, 2)))
    columns = [Column(c.head.upper(), c.year, c.period) for c in columns]
    numbers = Numbers(
        country.thousands,
        2,
        rng.choice(("minus", "parens")),
        "" if spain else rng.choice(("", "0")),
    )
    notes = "" if spain else " "
    rows = build(
        rng,
        template,
        columns,
        numbers,
        base=10 ** rng.uniform(3.5, 5),
        notes=notes,
        codes=True,
        drop=0.0,
        zeros=0.25,
    )
    font, (org, _) = rng.choice(("Helvetica", "Vera")), random_organisation(rng, origin)
    sheet = Sheet((595.0, 842.0), font, 8.0 if font == "Helvetica" else 7.0)
    left, right, step = 45.0, 555.0, 16.5
    width, codes = 92.0, 44.0
    rights = [right - width * (len(columns) - 1 - i) - 5 for i in range(len(columns))]
    room = rights[0] - width - left - codes - 5 - (34 if spain else 0)
    sheet.bold()
    sheet.font(sheet.name, 12)
    sheet.text(left, 50, template.title)
    sheet.right(right, 50, "BA1" if spain else "F-02")
    sheet.bold(False)
    top = [(f"NIF: {country.tax[4:]}" if spain else country.tax), f"DENOMINACIÓN SOCIAL: {org}"]
    top.append(
        "UNIDAD: Euros" if spain else "MONEDA: Dólares de los Estados Unidos de América (US$)"
    )
    top.append(f"FECHA DE CIERRE DEL EJERCICIO: 31/12/{year}")
    for i, text in enumerate(top):
        sheet.text(left + 6, 72 + 13 * i, text)
    sheet.canvas.rect(left, sheet.h - 118, right - left, 56)
    y, edges = 138.0, [left + room + codes, rights[0] - width + 5]
    edges = ([left + room, *edges] if spain else [left + codes, *edges[1:]]) + [
        x + 5 for x in rights[:-1]
    ]
    first = y - 12

    def header() -> None:
        sheet.bold()
        sheet.middle(
            left + room / 2 + (0 if spain else codes), y, "CUENTA" if not spain else "BALANCE"
        )
        sheet.middle(left + room + codes / 2 if spain else left + codes / 2, y, "CÓDIGO")
        if spain:
            sheet.middle(edges[1] + 17, y, "NOTAS")
        for column, x in zip(columns, rights, strict=True):
            sheet.middle(x + 5 - width / 2, y, column.head)
        sheet.rule(left, right, y + 4.5)

    header()
    y += step
    breaks = next(
        (i for i, r in enumerate(rows) if r.label.startswith("PATRIMONIO NETO Y PASIVO")), None
    )
    for i, row in enumerate(rows):
        if i == breaks and rng.random() < 0.5:
            _frame(sheet, left, right, first, y - step + 4.5, edges)
            sheet.next()
            y, first = 62.0, 50.0
            header()
            y += step
        sheet.bold(row.kind != "line")
        x = left + 5 + 6 * row.level + (0 if spain else codes)
        lines = sheet.broken(row.label, room - 12 - 6 * row.level)
        for n, line in enumerate(lines):
            y += 10 if n else 0
            sheet.text(x, y, line)
        if row.code:
            sheet.middle(left + room + codes / 2 if spain else left + codes / 2, y, row.code)
        if row.note:
            sheet.middle(edges[1] + 17, y, row.note)
        if row.cells:
            sheet.cells(row, columns, rights, y)
        sheet.rule(left, right, y + 4.5, 0.3)
        y += step
    _frame(sheet, left, right, first, y - step + 4.5, edges)
    sheet.bold(False)
    sheet.font(sheet.name, 6.5)
    sheet.text(
        left,
        y + 2,
        "Los administradores firman al pie de cada hoja del presente modelo normalizado.",
    )
    return sheet.statement("formulario", template, org, template.title, country.currency, 1)


def _frame(
    sheet: Sheet, left: float, right: float, top: float, low: float, edges: list[float]
) -> None:
    sheet.canvas.setLineWidth(0.6)
    sheet.canvas.rect(left, sheet.h - low, right - left, low - top)
    for x in edges:
        sheet.canvas.line(x, sheet.h - top, x, sheet.h - low)


OPINION = (
    (
        "Opinion. We have audited the accompanying financial statements of {org}, which "
        "comprise the {title} as of {dates}, and the related "
        "notes to the financial statements. In our opinion, the financial statements "
        "present fairly, in all material respects, the financial "
        "position of {org} in accordance with accounting principles generally accepted in "
        "the United States of America."
    ),
    (
        "Basis for Opinion. We conducted our audits in accordance with auditing standards "
        "generally accepted in the United States of America. "
        "We believe that the audit evidence we have obtained is sufficient and appropriate "
        "to provide a basis for our audit opinion."
    ),
    (
        "Responsibilities of Management. Management is responsible for the preparation and "
        "fair presentation of the financial statements, and "
        "for the design, implementation, and maintenance of internal control relevant to "
        "their preparation."
    ),
)


def auditor(rng: Random) -> Statement:
    """An American auditor's typed report: perhaps a cover and an opinion, then a statement."""
    template = rng.choice(templates("auditor"))
    org, _ = random_organisation(rng, f"auditor {template.doc_type}")
    year, month = rng.randint(2017, 2025), rng.choice((12, 6, 9, 6))
    columns = yearly("en", rng.choice(("year", "year", "long")), year, rng.choice((1, 2, 2)), month)
    numbers = Numbers(",", 0, "parens", rng.choice(("-", "—", "–")))
    rows = build(rng, template, columns, numbers, base=10 ** rng.uniform(3.2, 5.3), notes=" ")
    sheet = Sheet((612.0, 792.0), "Times-Roman", rng.choice((10.0, 10.5, 11.0)))
    size, left, right = sheet.style.size, 72.0, 540.0
    dates = spoken_date("en", year, month) + (f" and {year - 1}" if len(columns) > 1 else "")
    title = (
        template.title if len(columns) > 1 else template.title.replace("STATEMENTS", "STATEMENT")
    )
    if rng.random() < 0.5:
        sheet.font("Times-Bold", 20)
        sheet.middle(306, 280, org)
        sheet.font("Times-Roman", 14)
        sheet.middle(306, 320, "Financial Statements")
        sheet.middle(306, 342, dates)
        sheet.middle(306, 372, "(With Independent Auditor’s Report Thereon)")
        sheet.next()
    if rng.random() < 0.6:
        sheet.bold()
        sheet.middle(306, 90, "INDEPENDENT AUDITOR’S REPORT")
        sheet.bold(False)
        sheet.text(left, 120, "To the Board of Directors")
        y = 150.0
        for paragraph in OPINION:
            for line in sheet.broken(
                paragraph.format(org=org, title=title.lower(), dates=dates), right - left
            ):
                sheet.text(left, y, line)
                y += size * 1.25
            y += size
        sheet.text(
            left, y + 20, f"Hartwell & Osei, CPAs, {rng.choice(('Dayton, Ohio', 'Boise, Idaho'))}"
        )
        sheet.next()
    step, width, dollars = (
        size * 1.36,
        96.0 if len(columns[0].head) == 4 else 112.0,
        rng.random() < 0.75,
    )
    rights = [right - width * (len(columns) - 1 - i) - 4 for i in range(len(columns))]
    leaders, room = rng.random() < 0.3, rights[0] - width - left - 4
    y = 0.0

    def top() -> None:
        nonlocal y
        sheet.bold()
        for i, text in enumerate((org.upper(), title)):
            sheet.middle(
                306, 66 + i * size * 1.3, text + (" (CONTINUED)" if i and sheet.values else "")
            )
        when = (
            dates
            if template.doc_type == "balance_sheet"
            else f"{'Years' if len(columns) > 1 else 'Year'} Ended {dates}"
        )
        sheet.middle(306, 66 + 2 * size * 1.3, when)
        if not dollars:
            sheet.middle(306, 66 + 3 * size * 1.3, "(In U.S. Dollars)")
        y = 66 + 4.8 * size * 1.3
        for column, x in zip(columns, rights, strict=True):
            sheet.middle(x - width / 2 + 8, y, column.head)
            sheet.rule(x - width + 14, x + 3, y + 3)
        sheet.bold(False)
        y += step * 1.3

    def bottom() -> None:
        sheet.font("Times-Italic", size - 1)
        sheet.middle(
            306, 742, "The accompanying notes are an integral part of these financial statements."
        )
        sheet.font("Times-Roman", size - 1)
        sheet.middle(306, 758, f"- {sheet.pages + 3} -")

    top()
    fresh = True
    for row in rows:
        if y > 705:
            bottom()
            sheet.next()
            top()
        sheet.bold(row.kind == "section")
        if row.kind == "section":
            sheet.text(left + 12 * row.level, y + 2, row.label)
            y += step * 1.1
            continue
        x = left + 12 * row.level + (12 if row.kind == "total" else 0)
        lines = sheet.broken(row.label, room - (x - left))
        for n, line in enumerate(lines):
            y += step * 0.9 if n else 0
            sheet.text(x + (10 if n else 0), y, line)
        if leaders and row.kind == "line":
            start = x + (10 if len(lines) > 1 else 0) + sheet.width(lines[-1]) + 4
            dots = int((rights[0] - width + 4 - start) / sheet.width(". "))
            sheet.text(start, y, (". " * max(0, dots)).strip() or ".")
        grand = row.kind == "total" and row.label.isupper()
        for edge in rights:
            if row.kind == "total":
                sheet.rule(edge - width + 14, edge + 3, y - size * 0.92)
            if grand:
                sheet.rule(edge - width + 14, edge + 3, y + 3)
                sheet.rule(edge - width + 14, edge + 3, y + 5)
            if dollars and (fresh or grand):
                sheet.text(edge - width + 16, y, "$")
        sheet.cells(row, columns, rights, y, hang=True)
        fresh = False
        y += step * (1.5 if row.kind == "total" else 1)
    bottom()
    return sheet.statement("auditor", template, org, title, "USD", 1)

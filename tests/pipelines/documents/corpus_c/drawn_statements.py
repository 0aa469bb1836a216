"""Statements drawn with reportlab: ERP print-out, regulator's form, insurer, quarterly, others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random

from pipelines.documents.corpus_c.figures import (
    MONTHS,
    Box,
    Column,
    Numerals,
    Row,
    end,
    rows,
    spoken,
    stamped,
    truth,
    words,
)
from pipelines.documents.drawing import Pen, Statement, Style, Truth

LETTER, A4 = (612.0, 792.0), (595.0, 842.0)


def put(
    pen: Pen, x: float, y: float, text: str, font: str = "", size: float = 0, share: float = 0.0
) -> Box:
    """Draw the lines of the text with that share of their width to the left of x.

    0: they begin there; 1: they end there.
    """
    if font:
        pen.font(font, size)
    return [
        pen.text(x - share * pen.width(line), y + 9 * i, line)
        for i, line in enumerate(text.split("|"))
    ][-1]


def rule(pen: Pen, x0: float, x1: float, y: float, width: float = 0.5) -> None:
    """Draw a horizontal line."""
    pen.canvas.setLineWidth(width)
    pen.canvas.line(x0, pen.h - y, x1, pen.h - y)


@dataclass
class Ledger:
    """Rows with their numbers ending at the stops; records the values."""

    pen: Pen
    columns: list[Column]
    numerals: Numerals
    stops: list[float]
    left: float
    room: float
    faces: tuple[str, str]
    size: float
    pitch: float
    rules: float = 0
    leaders: bool = False
    sign: str = ""
    steps: float = 0
    extra: dict[str, float] = field(default_factory=dict)
    values: list[Truth] = field(default_factory=list)

    def draw(self, row: Row, y: float, indent: float) -> float:
        """Draw the row from that line on and return the line of the next."""
        pen = self.pen
        pen.font(self.faces[row.kind != "item"], self.size)
        lines = pen.broken(row.label, self.room)
        for name, x in self.extra.items():
            pen.text(x, y, getattr(row, name))
        put(pen, self.left + indent, y, "|".join(lines))
        y += 9 * (len(lines) - 1)
        if self.leaders and row.amounts:
            at = self.left + indent + pen.width(lines[-1]) + 4
            pen.text(at, y, "." * int((self.stops[0] - 62 - at) / pen.width(".")))
        for i, amount in enumerate(row.amounts):
            text, stop = (
                self.numerals.shown(amount, row.decimals),
                self.stops[i] + self.steps * (row.kind == "total"),
            )
            box = put(pen, stop - 3 * bool(self.sign) * (text[-1:] != ")"), y, text, share=1)
            if amount:
                self.values.append(truth(row, i, self.columns, self.numerals, pen.pages, box))
            if self.sign and (row.grand or row.decimals == 2 or len(self.values) <= i + 1):
                pen.text(stop - self.rules, y, self.sign)
            if self.rules and row.kind == "total":
                rule(pen, stop - self.rules, stop, y - self.size * 0.95)
            if self.rules and row.grand:
                rule(pen, stop - self.rules, stop, y + 3, 1)
        return y + self.pitch

    def done(self, kind: str, org: str, title: str, currency: str, scale: int) -> Statement:
        """Return the finished document, without a name."""
        return Statement(
            "", kind, stamped(self.pen.done()), self.values, org, title, currency, scale
        )


def erp(rng: Random) -> Statement:
    """A fixed-width print-out of an accounting system with a header on every page."""
    kind = rng.choice(["balance_sheet", "balance_sheet", "income_statement"])
    month, year = rng.choice([12, 12, 12, 6, 9]), rng.randint(2019, 2025)
    money, currency = rng.choice(
        [
            ("SOLES", "PEN"),
            ("SOLES", "PEN"),
            ("PESOS CHILENOS", "CLP"),
            ("DOLARES AMERICANOS", "USD"),
        ]
    )
    (group, point, places), orgs, size = (
        ((".", ",", 0), "orgs.erp_cl", 6.7)
        if currency == "CLP"
        else ((",", ".", 2), "orgs.pe", 5.4)
    )
    numerals = Numerals(
        group, point, places, rng.choice(["{}-", "({})", "-{}"]), rng.choice(["-", ""])
    )
    form = rng.choice([f"{MONTHS['es'][month - 1][:3].upper()}-{{0}}", "AL {2}/{1}/{0}"])
    ends = [end(year - back, month) for back in range(rng.choice([1, 2, 2, 3]))]
    columns = [Column(form.format(*e.split("-")), int(e[:4]), e) for e in ends]
    body = rows(rng, f"erp.{kind}", columns, size + rng.uniform(-1, 1), places)
    wide, label_wide, leaders = 18, 48, rng.random() < 0.4
    length = 6 + label_wide + wide * len(columns)
    pen = Pen(
        Style(page=rng.choice([LETTER, A4]), font="Courier", size=min(8.5, 520 / (0.6 * length)))
    )
    org, title = rng.choice(words(orgs)), words(f"erp.{kind}")[0]
    span = (
        "AL"
        if kind == "balance_sheet"
        else rng.choice(["POR EL PERIODO TERMINADO EL", "ACUMULADO AL"])
    )
    stamp, time = (
        f"{rng.randint(10, 28)}/02/{year + 1}",
        f"{rng.randint(8, 18):02}:{rng.randint(0, 59):02}",
    )
    left, per_page, at = (pen.w - 0.6 * pen.points * length) / 2, rng.choice([46, 63, 63]), 0
    ledger = Ledger(pen, columns, numerals, [], left, 0, ("", ""), 0, 0)

    def line(text: str = "") -> Box:
        nonlocal at
        at += 1
        return pen.text(left, 40 + at * pen.points * 1.25, text) if text else (0.0, 0.0, 0.0, 0.0)

    def under(char: str) -> None:
        line(" " * (6 + label_wide) + (char * (wide - 3)).rjust(wide) * len(columns))

    for row in body:
        if not at or at > per_page:
            if at:
                pen.next()
            at, right = 0, length - 20
            for text in (
                (org, f"FECHA : {stamp:>12}"),
                ("REP. CTB-0417", f"HORA  : {time:>12}"),
                ("", f"PAGINA: {pen.pages + 1:>12}"),
            ):
                line(f"{text[0]:<{right}}{text[1]}")
            for middle in (
                "",
                title,
                f"{span} {spoken(ends[0], 'es').upper()}",
                f"(EXPRESADO EN {money})",
                "=" * length,
            ):
                line(middle.center(length).rstrip())
            line(
                f"{'CTA':<6}{'DESCRIPCION':<{label_wide}}"
                + "".join(f"{c.head:>{wide}}" for c in columns)
            )
            line("=" * length)
        if row.kind == "section":
            at += row.level == 0
            line(" " * 6 + row.label)
            continue
        item = row.kind == "item"
        if not item:
            under("-")
        start = f"{row.code:<6}" + (
            f" {row.label} ".ljust(label_wide, "." if leaders else " ")
            if item
            else row.label.ljust(label_wide)
        )
        shown = [numerals.shown(a) for a in row.amounts]
        cells = [
            f"{s:>{wide}}" if re.search(r"\d[)-]$", s) else f"{s + ' ':>{wide}}" for s in shown
        ]
        box = line((start + "".join(cells)).rstrip())
        for i, cell in enumerate(shown):
            if row.amounts[i]:
                x = (
                    box[0]
                    + 0.6 * pen.points * (len(start) + wide * i + cells[i].index(cell)) / pen.w
                )
                ledger.values.append(
                    truth(
                        row,
                        i,
                        columns,
                        numerals,
                        pen.pages,
                        (x, box[1], x + pen.width(cell) / pen.w, box[3]),
                    )
                )
        if row.grand:
            under("=")
    line("*** FIN DEL REPORTE ***".center(length).rstrip())
    return ledger.done(kind, org, title, currency, 1)


def form(rng: Random) -> Statement:
    """A regulator's form for cooperatives: boxed fields, a grid, account codes, numbered sheets."""
    kind, land, year = (
        rng.choice(["balance_sheet", "income_statement"]),
        rng.choice(["co", "cl"]),
        rng.randint(2020, 2025),
    )
    head, month = (
        rng.choice(["{2}/{1}/{0}", "{0}-{1}", "Saldo al|{2}-{1}-{0}", "Período {3}|{2}.{1}.{0}"]),
        rng.choice([12, 12, 6]),
    )
    ends = [(end(year, month), "actual"), (end(year - 1, month), "anterior")][
        : rng.choice([1, 2, 2])
    ]
    columns = [Column(head.format(*e.split("-"), word), int(e[:4]), e) for e, word in ends]
    if len(columns) == 2 and rng.random() < 0.4:
        columns.append(Column("Variación", kind="change", of=(0, 1)))
    scale, places = rng.choice([(1, 2), (1, 0), (1000, 0), (1_000_000, 0)])
    numerals = Numerals(".", ",", places, rng.choice(["-{}", "({})"]), rng.choice(["-", ""]))
    body = rows(
        rng, f"form.{kind}", columns, {1: 8.0, 1000: 5.4, 1_000_000: 3.6}[scale], places, notes=0.6
    )
    pen, org, wide = (
        Pen(Style(page=LETTER, size=8)),
        rng.choice(words(f"orgs.{land}")),
        100 if places else 84,
    )
    title, money = (
        words(f"form.{kind}")[0],
        "pesos colombianos" if land == "co" else "pesos chilenos",
    )
    unit = {1: f"Cifras en {money}", 1000: f"Miles de {money}", 1_000_000: f"Millones de {money}"}[
        scale
    ]
    parts = rng.choice([["label", "code"], ["code", "label"]]) + rng.choice([["note"], []])
    widths = {
        "code": 38.0,
        "note": 30.0,
        "label": 502.0 - 30 * ("note" in parts) - wide * len(columns),
    }
    edges = list(
        accumulate([widths[p] for p in parts] + [float(wide)] * len(columns), initial=36.0)
    )
    starts = dict(zip(parts, edges, strict=False))
    extra = {name: x + 9 for name, x in starts.items() if name != "label"}
    stops, faces = [e - 5 for e in edges[len(parts) + 1 :]], ("Helvetica", "Helvetica-Bold")
    ledger = Ledger(
        pen,
        columns,
        numerals,
        stops,
        starts["label"] + 4,
        widths["label"] - 20,
        faces,
        8,
        14,
        extra=extra,
    )
    tax = (
        f"{rng.randint(800, 901)}.{rng.randint(100, 999)}."
        f"{rng.randint(100, 999)}-{rng.randint(1, 9)}"
    )
    fields = {
        "Razón social": org,
        "NIT" if land == "co" else "RUT": tax,
        "Fecha de corte": spoken(ends[0][0], "es"),
        "Moneda": unit,
    }
    full = rng.choice([24, 40, 40])
    sheets = [body[i : i + full] for i in range(0, len(body), full)]
    for number, part in enumerate(sheets, 1):
        if number > 1:
            pen.next()
        put(
            pen,
            36,
            46,
            "SUPERINTENDENCIA DE ENTIDADES COOPERATIVAS"
            if land == "co"
            else "DEPARTAMENTO DE COOPERATIVAS",
            faces[1],
            9,
        )
        put(pen, 576, 46, f"FORMULARIO EF-{'01' if kind == 'balance_sheet' else '02'}", share=1)
        put(pen, 306, 70, title, faces[1], 12, 0.5)
        for i, (name, text) in enumerate(fields.items()):
            x, y = 36.0 + 270 * (i % 2), 80.0 + 24 * (i // 2)
            pen.canvas.rect(x, pen.h - y - 24, 270, 24)
            put(pen, x + 3, y + 8, name, faces[0], 6)
            put(pen, x + 3, y + 19, text, faces[0], 9)
        pen.canvas.setFillGray(0.85)
        pen.canvas.rect(36, pen.h - 164, 540, 26, fill=1)
        pen.canvas.setFillGray(0)
        heads = [
            {"label": "Nombre de la cuenta", "code": "Código", "note": "Nota"}[p] for p in parts
        ] + [c.head for c in columns]
        for text, x0, x1 in zip(heads, edges, edges[1:], strict=False):
            put(pen, (x0 + x1) / 2, 149 + 4 * ("|" not in text), text, faces[1], 8, 0.5)
        y = 174.0
        for row in part:
            y = ledger.draw(row, y, 8 * (row.kind == "item"))
            rule(pen, 36, 576, y - 10, 0.3)
        for x in edges:
            pen.canvas.line(x, pen.h - 138, x, pen.h - y + 10)
        put(
            pen,
            36,
            770,
            "Los valores deben coincidir con los libros oficiales de la entidad.",
            faces[0],
            7,
        )
        put(pen, 576, 770, f"Hoja {number} de {len(sheets)}", share=1)
    return ledger.done(kind, org, title, {"co": "COP", "cl": "CLP"}[land], scale)


def insurer(rng: Random) -> Statement:
    """An insurer's balance: assets beside liabilities, with inner and outer columns."""
    year, both = rng.randint(2018, 2025), rng.random() < 0.4
    columns = [
        Column(str(year - back), year - back, end(year - back, 12)) for back in range(1 + both)
    ]
    scale, places = rng.choice([(1, 2), (1000, 0), (1_000_000, 1), (1_000_000, 0)])
    numerals = Numerals(",", ".", places, rng.choice(["({})", "-{}"]), rng.choice(["-", "–", ""]))
    size = {1: 7.0, 1000: 5.2, 1_000_000: 3.4}[scale]
    left = rows(rng, "insurer.left", columns, size, places)
    sides = [left, rows(rng, "insurer.right", columns, size, places, balance=left[-1].amounts)]
    pen = Pen(Style(page=(792.0, 612.0), font="Times-Roman", size=8, rotate=rng.choice([0, 0, 90])))
    org, title = rng.choice(words("orgs.mx")), words("insurer.left")[0]
    put(pen, 396, 36, org, "Times-Bold", 13, 0.5)
    put(pen, 396, 45, "Paseo de la Reforma, Ciudad de México", "Times-Italic", 7, 0.5)
    put(pen, 396, 58, title, "Times-Bold", 11, 0.5)
    put(
        pen,
        396,
        70,
        f"al {spoken(end(year, 12), 'es')}" + f" y {year - 1}" * both,
        "Times-Roman",
        10,
        0.5,
    )
    put(
        pen,
        396,
        82,
        f"(Cifras en {({1: '', 1000: 'miles de ', 1_000_000: 'millones de '})[scale]}pesos)",
        share=0.5,
    )
    ledger = Ledger(
        pen,
        columns,
        numerals,
        [],
        40,
        200,
        ("Times-Roman", "Times-Bold"),
        8,
        10.8,
        rules=62,
        steps=0 if both else 74,
    )
    for x, side in zip((40.0, 410.0), sides, strict=True):
        ledger.left, ledger.stops, y = x, [x + 264, x + 340], 106.0
        for column, stop in zip(columns * both, ledger.stops, strict=False):
            put(pen, stop, y - 9, column.head, "Times-Bold", 8, 1)
        for row in side:
            y = ledger.draw(row, y + 4 * (row.kind == "section" or row.grand), 8 * row.level)
    pen.font("Times-Italic", 7)
    put(pen, 40, 545, "|".join(pen.broken(words("legend")[0], 700)))
    for x, role in ((90, "Director General"), (340, "Auditor Interno"), (590, "Contador General")):
        put(pen, x, 575, f"{rng.choice(words('people'))}|{role}")
    return ledger.done("balance_sheet", org, title, "MXN", scale)


def quarterly(rng: Random) -> Statement:
    """A quarterly report to a stock exchange: months ended, dot leaders, detached dollar signs."""
    kind = rng.choice(["income_statement", "income_statement", "balance_sheet", "cash_flow"])
    year, month, scale = (
        rng.randint(2019, 2025),
        rng.choice([6, 9]),
        rng.choice([1000, 1000, 1_000_000]),
    )
    day, now = spoken(end(year, month), "en-us").rsplit(" ", 1)[0], end(year, month)
    groups = [f"{'Six' if month == 6 else 'Nine'} Months Ended|{day}"]
    columns = [Column(str(year), year, now), Column(str(year - 1), year - 1, end(year - 1, month))]
    if kind == "income_statement":
        groups = [f"Three Months Ended|{day}", *groups]
        columns += [Column(c.head, c.year, c.period, weight=month / 3) for c in columns]
    elif kind == "balance_sheet":
        groups = []
        columns = [
            Column(f"{day}|{year}", year, now),
            Column(f"December 31,|{year - 1}", year - 1, end(year - 1, 12)),
        ]
    numerals = Numerals(",", ".", 0, "({})", rng.choice(["—", "–", "-"]))
    body = rows(rng, f"quarterly.{kind}", columns, 5 if scale == 1000 else 3.4)
    pen, org, title = (
        Pen(Style(page=LETTER, size=9)),
        rng.choice(words("orgs.us")),
        words(f"quarterly.{kind}")[0],
    )
    if rng.random() < 0.4:
        shares = (
            f"{rng.randint(20, 90)},{rng.randint(100, 999)},114 shares of common stock "
            f"outstanding on {MONTHS['en'][month]} 28, {year}"
        )
        cover = [
            (18, 150, "QUARTERLY REPORT"),
            (11, 180, f"For the quarter ended {day} {year}"),
            (16, 260, org),
            (9, 420, shares),
        ]
        for size, top, text in cover:
            put(pen, 306, top, text, "Times-Bold" if size > 9 else "Times-Roman", size, 0.5)
        pen.next()
    except_shares = ", except per share data" * (kind == "income_statement")
    unit = f"(In {'thousands' if scale == 1000 else 'millions'}{except_shares})"
    for top, text in ((50, org), (63, title), (75, unit), (86, "(Unaudited)")):
        put(
            pen,
            306,
            top,
            text,
            "Times-Bold" if top < 70 else "Times-Roman",
            10 if top < 70 else 9,
            0.5,
        )
    stops = [560 - 66.0 * i for i in reversed(range(len(columns)))]
    for i, text in enumerate(groups):
        put(pen, stops[2 * i] + 6, 104, text, "Times-Bold", 8, 0.5)
        rule(pen, stops[2 * i] - 48, stops[2 * i] + 64, 116)
    y = 126.0 if groups else 104.0
    for stop, column in zip(stops, columns, strict=True):
        put(pen, stop - 26, y, column.head, "Times-Bold", 8, 0.5)
        rule(pen, stop - 54, stop, y + 3 + 9 * column.head.count("|"))
    faces, leaders = ("Times-Roman", "Times-Roman"), rng.random() < 0.6
    ledger = Ledger(
        pen, columns, numerals, stops, 52, stops[0] - 146, faces, 9, 13.5, 54, leaders, "$"
    )
    y += 26
    for row in body:
        y = ledger.draw(row, y, 9 * row.level) + 2 * (row.kind == "total")
    put(
        pen,
        306,
        745,
        "See accompanying notes to condensed consolidated financial statements.",
        "Times-Roman",
        8,
        0.5,
    )
    put(pen, 306, 760, str(rng.randint(3, 6)), share=0.5)
    return ledger.done(kind, org, title, "USD", scale)


def other(rng: Random) -> Statement:
    """Documents that are no statement: account movements, invoice, price list, payroll, letter."""
    year, org, pen = (
        rng.randint(2021, 2025),
        rng.choice(words("orgs.CLP")),
        Pen(Style(page=rng.choice([LETTER, A4]), size=9)),
    )
    pools = {
        "person": rng.sample(words("people"), 7),
        "good": rng.sample(words("goods"), 9),
        "year": [str(year)] * 9,
    }

    def fill(found: re.Match[str]) -> str:
        low, _, high = found[1].partition("-")
        return Numerals().shown(rng.randint(int(low), int(high))) if high else pools[low].pop()

    kind = rng.choice(["account", "invoice", "prices", "payroll", "letter"])
    title, *lines = (re.sub(r"\{(.+?)\}", fill, line) for line in words(f"other.{kind}"))
    put(pen, 60, 60, org, "Helvetica-Bold", 11)
    put(pen, pen.w / 2, 95, title, "Helvetica-Bold", 13, 0.5)
    y, head = 125.0, True
    for line in lines:
        pen.font("Helvetica-Bold" if head and line[0] == "|" else "Helvetica", 9)
        if line[0] != "|":
            y += 14 * len(
                [
                    put(pen, 60, y + 14 * i, bit)
                    for i, bit in enumerate(pen.broken(line, pen.w - 130))
                ]
            )
            continue
        first, second, *cells = (cell.strip() for cell in line[1:].split("|"))
        y += 14 * head
        put(pen, 60, y, first)
        put(pen, 115, y, second)
        for j, cell in enumerate(reversed(cells)):
            put(pen, pen.w - 60 - 85 * j, y, cell, share=1)
        rule(pen, 60, pen.w - 60, y + 4, 0.8 if head else 0.2)
        y, head = y + 16, False
    return Ledger(pen, [], Numerals(), [], 0, 0, ("", ""), 0, 0).done("other", org, title, "CLP", 1)

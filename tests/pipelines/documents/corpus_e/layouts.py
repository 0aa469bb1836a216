"""Thirteen layouts: forms with codes, budgets, boxes, staggered columns, months, bands."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from pipelines.documents.drawing import Pen, Statement, Style, Truth
from pipelines.documents.months import ENGLISH, SPANISH

Box = tuple[float, float, float, float]
Period = tuple[int | None, str | None]
_SAYS_TOTAL = re.compile(r"\btotal", re.IGNORECASE)
LETTER, A4 = (612.0, 792.0), (595.0, 842.0)


@cache
def words(name: str) -> tuple[str, ...]:
    """Return the lines of a block of the word list."""
    text = Path(__file__).with_name("items.txt").read_text(encoding="utf-8")
    return tuple(text.split(f"[{name}]\n")[1].split("\n\n")[0].strip().split("\n"))


def end_of(year: int, month: int) -> str:
    return f"{year}-{month:02}-{calendar.monthrange(year, month)[1]:02}"


@dataclass
class Line:
    """A line of a statement; `level` is 0 for headings and main totals, 1 for the rest."""

    kind: str
    label: str
    section: str | None
    amounts: list[int] = field(default_factory=list)
    level: int = 1


def plan(rng: Random, name: str, columns: int, size: float) -> list[Line]:
    """Return lines with sums that add up: `=` of a section, `==` of the sections, `>` of all."""
    out: list[Line] = []
    section: str | None = None
    part, whole = [0] * columns, [0] * columns
    for text in words(name):
        marks, label = re.match(r"([-!?#=>]*) ?(.*)", text).groups()  # type: ignore[union-attr]
        if "?" in marks and rng.random() < 0.4:
            continue
        if marks == "#":
            section, part = label, [0] * columns
            out.append(Line("head", label, label, level=0))
        elif marks == "=":
            out.append(Line("total", label, section, part))
        elif marks in ("==", ">"):
            out.append(Line("total", label, section, whole, level=0))
        else:
            sign = -1 if "-" in marks else 1
            top = size if "!" in marks else size - 0.8
            amounts = [sign * int(10 ** rng.uniform(top - 1.2, top)) for _ in range(columns)]
            if columns > 1 and rng.random() < 0.1:
                amounts[rng.randrange(columns)] = 0
            part = [a + b for a, b in zip(part, amounts, strict=True)]
            whole = [a + b for a, b in zip(whole, amounts, strict=True)]
            out.append(Line("item", label, section, amounts))
    return out


@dataclass
class Paper:
    """A pen with a manner of writing numbers, which collects the values that it prints."""

    pen: Pen
    group: str = ","
    point: str = "."
    places: int = 0
    negative: str = "({})"
    nothing: str = "-"
    face: str = "Helvetica"
    size: float = 9.0
    values: list[Truth] = field(default_factory=list)

    def put(self, x: float, y: float, text: str, share: float = 0.0, *, bold: bool = False) -> Box:
        bolds = {"Times-Roman": "Times-Bold"}
        name = bolds.get(self.face, f"{self.face}-Bold") if bold else self.face
        self.pen.font(name, self.size)
        return self.pen.text(x - share * self.pen.width(text), y, text)

    def rule(self, x0: float, y0: float, x1: float, y1: float) -> None:
        self.pen.canvas.setLineWidth(0.5)
        self.pen.canvas.line(x0, self.pen.h - y0, x1, self.pen.h - y1)

    def band(self, x0: float, y0: float, x1: float, y1: float, grey: float) -> None:
        self.pen.canvas.setFillGray(grey)
        self.pen.canvas.rect(x0, self.pen.h - y1, x1 - x0, y1 - y0, stroke=0, fill=1)
        self.pen.canvas.setFillGray(0 if grey > 0.5 else 1)

    def written(self, amount: int, places: int) -> str:
        whole, rest = divmod(abs(amount), 10**places)
        text = f"{whole:,}".replace(",", self.group)
        text += f"{self.point}{rest:0{places}}" if places else ""
        return self.negative.format(text) if amount < 0 else text if amount else self.nothing

    def number(
        self,
        line: Line,
        amount: int,
        stop: float,
        y: float,
        period: Period,
        *,
        places: int | None = None,
        sign: str = "",
        scale: int | None = None,
    ) -> None:
        """Print an amount that ends at the stop, with a currency sign that is no part of it."""
        places = self.places if places is None else places
        text = self.written(amount, places)
        box = self.put(stop, y, text, 1.0, bold=line.kind == "total")
        if sign:
            self.put(stop - self.pen.width(text) - 2, y, sign, 1.0, bold=line.kind == "total")
        if not any(char.isdigit() for char in text):
            return
        whole, rest = divmod(abs(amount), 10**places)
        plain = f"{whole}.{rest:0{places}}" if places else str(whole)
        total = line.kind == "total" and _SAYS_TOTAL.search(line.label) is not None
        self.values.append(
            Truth(
                line.label,
                *period,
                "-" * (amount < 0) + plain,
                "".join(text.split()),
                self.pen.pages,
                box,
                line.section,
                total,
                scale=scale,
            )
        )

    def made(
        self, kind: str, org: str, title: str, currency: str | None, scale: int = 1
    ) -> Statement:
        return Statement("", kind, self.pen.done(), self.values, org, title, currency, scale)


def cooperative(rng: Random) -> Statement:
    """Account codes, dot leaders, short months as headings, a variation and its percentage."""
    year, half = rng.randint(2017, 2025), rng.random() < 0.3
    month = 6 if half else 12
    org = rng.choice(words("orgs.co"))
    paper = Paper(Pen(Style(page=LETTER)), ".", ",", 0, rng.choice(["({})", "-{}"]), "-", size=8)
    title = "ESTADO DE SITUACIÓN FINANCIERA COMPARATIVO"
    paper.size = 10
    paper.put(40, 44, org.upper(), bold=True)
    paper.size = 8
    nit = f"{rng.randint(800, 901)}.{rng.randint(100, 999)}.{rng.randint(100, 999)}"
    paper.put(40, 55, f"NIT {nit}-{rng.randint(0, 9)}")
    paper.put(40, 72, title, bold=True)
    day, name = end_of(year, month)[8:], SPANISH[month - 1]
    paper.put(40, 83, f"A {day} de {name} de {year} y {year - 1}")
    paper.put(40, 94, "(Cifras expresadas en miles de pesos colombianos)")
    stops = [360.0, 440.0, 520.0, 575.0]
    short = name[:3]
    heads = [f"{short}-{year % 100:02}", f"{short}-{(year - 1) % 100:02}", "Variación $", "Var. %"]
    paper.put(40, 118, "Código", bold=True)
    paper.put(90, 118, "Cuenta", bold=True)
    for head, stop in zip(heads, stops, strict=True):
        paper.put(stop, 118, head, 1.0, bold=True)
    y, size = 136.0, rng.uniform(6.0, 8.0)
    left, right = plan(rng, "assets.es", 2, size), plan(rng, "claims.es", 2, size)
    code = 1
    for row in [*left, *right]:
        if row.kind == "head":
            y += 4
            paper.put(90, y, row.label, bold=True)
        else:
            if row.kind == "item":
                paper.put(40, y, str(1000 + 5 * code))
                code += 1
            paper.put(90, y, row.label, bold=row.kind == "total")
            if row.kind == "item":
                start = 92 + paper.pen.width(row.label)
                dots = int((285 - start) / paper.pen.width("."))
                paper.put(start, y, "." * max(0, dots))
            now, then = row.amounts
            paper.number(row, now, stops[0], y, (year, end_of(year, month)))
            paper.number(row, then, stops[1], y, (year - 1, end_of(year - 1, month)))
            paper.number(row, now - then, stops[2], y, (None, None))
            if then:
                change = f"{(now - then) / abs(then):.1%}".replace(".", ",")
                paper.put(stops[3], y, change, 1.0)
        y += 13
    return paper.made("balance_sheet", org, title, "COP", 1000)


def bank(rng: Random) -> Statement:
    """Assets beside claims on a wide page, each with two years, in thousands of soles."""
    year = rng.randint(2017, 2025)
    org = rng.choice(words("orgs.pe"))
    paper = Paper(Pen(Style(page=(842.0, 595.0))), ",", ".", 0, "({})", "-", "Times-Roman", 8.5)
    title = rng.choice(["Estado separado de situación financiera", "Balance General"])
    paper.size = 12
    paper.put(421, 50, org, 0.5, bold=True)
    paper.size = 10
    paper.put(421, 66, title, 0.5, bold=True)
    paper.put(421, 79, f"Al 31 de diciembre de {year} y de {year - 1}", 0.5)
    paper.put(421, 91, "(En miles de soles)", 0.5)
    paper.size = 8.5
    size = rng.uniform(5.0, 6.8)
    for name, x, stops in (
        ("assets.es", 40.0, (340.0, 405.0)),
        ("claims.es", 440.0, (735.0, 800.0)),
    ):
        paper.put(stops[0] - 62, 118, "Nota", 0.5, bold=True)
        for at, stop in enumerate(stops):
            paper.put(stop, 118, str(year - at), 1.0, bold=True)
            paper.put(stop, 129, "S/(000)", 1.0, bold=True)
        y = 148.0
        for row in plan(rng, name, 2, size):
            if row.kind == "head":
                y += 5
                paper.put(x, y, row.label, bold=True)
            else:
                paper.put(x + 8 * row.level, y, row.label, bold=row.kind == "total")
                if row.kind == "item" and rng.random() < 0.6:
                    paper.put(stops[0] - 62, y, str(rng.randint(3, 24)), 0.5)
                for at, stop in enumerate(stops):
                    paper.number(row, row.amounts[at], stop, y, (year - at, end_of(year - at, 12)))
            y += 14
    return paper.made("balance_sheet", org, title, "PEN", 1000)


def fund(rng: Random) -> Statement:
    """One date, dollar signs close to the numbers, a value per unit."""
    year, month = rng.randint(2017, 2025), rng.choice([3, 6, 9, 12])
    org = rng.choice(words("orgs.fund"))
    face = rng.choice(["Times-Roman", "Helvetica"])
    paper = Paper(Pen(Style(page=LETTER)), face=face, size=10)
    title = rng.choice(["Statement of Assets and Liabilities", "STATEMENT OF FINANCIAL CONDITION"])
    paper.put(72, 70, org, bold=True)
    paper.put(72, 86, title, bold=True)
    end = end_of(year, month)
    paper.put(72, 102, f"{ENGLISH[month - 1]} {int(end[8:])}, {year}")
    paper.put(72, 116, "(Expressed in United States dollars)")
    rows, y, first = plan(rng, "fund", 1, rng.uniform(6.5, 9.0)), 150.0, True
    for row in rows:
        if row.kind == "head":
            y += 8
            paper.put(72, y, row.label, bold=True)
        else:
            paper.put(72 + 12 * row.level, y, row.label, bold=row.kind == "total")
            sign = "$" if first or row.kind == "total" else ""
            if row.kind == "total":
                paper.rule(440, y - 10, 530, y - 10)
            paper.number(row, row.amounts[0], 530, y, (year, end), sign=sign)
            first = False
        y += 16
    assets, owed = (r.amounts[0] for r in rows if r.kind == "total")
    net = Line("total", "Net assets", "Liabilities", [assets - owed], 0)
    paper.put(72, y + 6, net.label, bold=True)
    paper.number(net, assets - owed, 530, y + 6, (year, end), sign="$")
    unit = Line("item", "Net asset value per unit", "Liabilities")
    paper.put(72, y + 26, unit.label)
    paper.number(
        unit, rng.randint(95_000, 2_100_000), 530, y + 26, (year, end), places=4, sign="$", scale=1
    )
    return paper.made("balance_sheet", org, title, "USD")


def hospital(rng: Random) -> Statement:
    """A fiscal year against its budget and the year before; the organisation below the title."""
    year = rng.randint(2017, 2025)
    org = rng.choice(words("orgs.health"))
    paper = Paper(Pen(Style(page=LETTER)), size=9, nothing="—")
    title = rng.choice(["Statements of Operations", "STATEMENT OF REVENUES AND EXPENSES"])
    paper.size = 13
    paper.put(306, 56, title, 0.5, bold=True)
    paper.size = 10
    paper.put(306, 72, org, 0.5)
    paper.put(306, 86, f"For the fiscal year ended June 30, {year}", 0.5)
    paper.put(306, 99, "(in thousands of dollars)", 0.5)
    paper.size = 9
    stops = [390.0, 475.0, 560.0]
    heads = [("Actual", year), ("Budget", year), ("Actual", year - 1)]
    for (word, when), stop in zip(heads, stops, strict=True):
        paper.put(stop - 22, 128, word, 0.5, bold=True)
        paper.put(stop - 22, 139, str(when), 0.5, bold=True)
    paper.rule(50, 144, 562, 144)
    y = 162.0
    for row in plan(rng, "hospital", 3, rng.uniform(4.6, 6.4)):
        if row.kind == "head":
            y += 6
            paper.put(50, y, f"{row.label}:")
        else:
            paper.put(50 + 14 * row.level, y, row.label, bold=row.kind == "total")
            for at, stop in enumerate(stops):
                when = heads[at][1]
                paper.number(row, row.amounts[at], stop, y, (when, end_of(when, 6)))
        y += 15
    return paper.made("income_statement", org, title, "USD", 1000)


def municipality(rng: Random) -> Statement:
    """A public body's activities over two pages that repeat the heading; levels by indent."""
    year = rng.randint(2017, 2025)
    org = rng.choice(words("orgs.gov"))
    paper = Paper(Pen(Style(page=LETTER)), ",", ".", 2, "-{}", "0.00", size=8)
    title = "Estado de Actividades"
    stops, rows = [470.0, 570.0], plan(rng, "municipality", 2, rng.uniform(8.0, 10.5))
    middle = next(i for i, row in enumerate(rows) if i > 1 and row.kind == "head")
    for part, page in ((rows[:middle], 1), (rows[middle:], 2)):
        paper.size = 10
        paper.put(306, 44, org, 0.5, bold=True)
        paper.put(306, 57, title, 0.5, bold=True)
        paper.size = 8
        paper.put(306, 68, f"Del 1 de enero al 31 de diciembre de {year} y {year - 1}", 0.5)
        paper.put(306, 79, "(Cifras en pesos)", 0.5)
        paper.put(50, 100, "Concepto", bold=True)
        for at, stop in enumerate(stops):
            paper.put(stop, 100, str(year - at), 1.0, bold=True)
        y = 120.0
        for row in part:
            if row.kind == "head":
                y += 6
                paper.put(50, y, row.label, bold=True)
            else:
                paper.pen.font("Helvetica", 8)
                pieces = paper.pen.broken(row.label, 250)
                for piece in pieces[:-1]:
                    paper.put(50 + 16 * row.level, y, piece, bold=row.kind == "total")
                    y += 9.5
                paper.put(50 + 16 * row.level, y, pieces[-1], bold=row.kind == "total")
                for at, stop in enumerate(stops):
                    when = (year - at, end_of(year - at, 12))
                    paper.number(row, row.amounts[at], stop, y, when)
            y += 15
        paper.size = 7
        paper.put(306, 740, f"Página {page} de 2", 0.5)
        if page == 1:
            paper.pen.next()
    return paper.made("income_statement", org, title, "MXN")


def utility(rng: Random) -> Statement:
    """A table with every cell in a box, under the name and number of the business year."""
    year, month = rng.randint(2018, 2025), rng.choice([12, 6])
    org = rng.choice(words("orgs.ar"))
    paper = Paper(Pen(Style(page=A4)), ".", ",", 2, "({})", "-", size=8.5)
    title = rng.choice(["Estado de Situación Patrimonial", "ESTADO DE SITUACIÓN PATRIMONIAL"])
    end, before = end_of(year, month), end_of(year - 1, month)
    shown = [f"{e[8:]}/{e[5:7]}/{e[:4]}" for e in (end, before)]
    paper.put(50, 44, f"Denominación: {org}", bold=True)
    paper.put(50, 57, f"Ejercicio económico N° {rng.randint(9, 60)} finalizado el {shown[0]}")
    paper.size = 11
    paper.put(297, 82, title, 0.5, bold=True)
    paper.size = 8.5
    paper.put(297, 96, f"al {shown[0]}, comparativo con el ejercicio anterior", 0.5)
    paper.put(297, 107, "(expresado en pesos argentinos, en moneda homogénea)", 0.5)
    x, stops, y = (50.0, 330.0, 440.0, 550.0), [435.0, 545.0], 122.0
    rows = [
        r for name in ("assets.es", "claims.es") for r in plan(rng, name, 2, rng.uniform(8.0, 10.0))
    ]
    for row in [Line("names", "Rubro", None), *rows]:
        paper.rule(x[0], y, x[-1], y)
        paper.put(56, y + 11, row.label, bold=row.kind != "item")
        if row.kind == "names":
            for stop, head in zip(stops, shown, strict=True):
                paper.put(stop, y + 11, head, 1.0, bold=True)
        elif row.kind != "head":
            for at, stop in enumerate(stops):
                when = (year - at, (end, before)[at])
                paper.number(row, row.amounts[at], stop, y + 11, when)
        y += 15
    paper.rule(x[0], y, x[-1], y)
    for side in x:
        paper.rule(side, 122, side, y)
    return paper.made("balance_sheet", org, title, "ARS")


def tea_estate(rng: Random) -> Statement:
    """Cash flows in shillings or euros, the unit under each year, the organisation at the foot."""
    year, month = rng.randint(2017, 2025), rng.choice([3, 12])
    org = rng.choice(words("orgs.tea"))
    unit, currency, scale = rng.choice(
        [("Shs'000", "KES", 1000), ("€'000", "EUR", 1000), ("€", "EUR", 1)]
    )
    paper = Paper(Pen(Style(page=A4)), size=9.5, face="Times-Roman")
    title = rng.choice(["STATEMENT OF CASH FLOWS", "Company statement of cash flows"])
    end = end_of(year, month)
    paper.put(60, 50, org, bold=True)
    paper.put(60, 63, f"Annual report and financial statements {year}")
    paper.rule(60, 68, 535, 68)
    paper.put(60, 90, title, bold=True)
    span = f"for the year ended {int(end[8:])} {ENGLISH[month - 1]} {year}"
    paper.put(60, 102, span, bold=True)
    stops = [455.0, 535.0]
    paper.put(370, 128, "Notes", 0.5, bold=True)
    for at, stop in enumerate(stops):
        paper.put(stop, 128, str(year - at), 1.0, bold=True)
        shown = unit if currency != "KES" else f"K{unit}"
        paper.put(stop, 140, shown, 1.0, bold=True)
    y = 162.0
    rows = plan(rng, "tea", 2, rng.uniform(4.6, 7.0))
    for row in rows:
        if row.kind == "head":
            y += 6
            paper.put(60, y, row.label, bold=True)
        else:
            paper.put(60, y, row.label, bold=row.kind == "total")
            if row.kind == "item" and rng.random() < 0.4:
                paper.put(370, y, f"{rng.randint(5, 30)}({rng.choice('abc')})", 0.5)
            for at, stop in enumerate(stops):
                when = (year - at, end_of(year - at, month))
                paper.number(row, row.amounts[at], stop + 2 * (row.amounts[at] < 0), y, when)
        y += 14
    return paper.made("cash_flow", org, title, currency, scale)


def monthly(rng: Random) -> Statement:
    """A bookkeeping program's profit and loss: a column for each month, cents, nested names."""
    year, first = rng.randint(2018, 2025), rng.choice([1, 4, 7, 10])
    org = rng.choice(words("orgs.small"))
    paper = Paper(Pen(Style(page=(792.0, 612.0))), ",", ".", 2, "-{}", "", size=8.5)
    title = rng.choice(["Profit and Loss", "Profit and Loss by Month"])
    months = [first, first + 1, first + 2]
    paper.size = 14
    paper.put(396, 44, org, 0.5, bold=True)
    paper.size = 12
    paper.put(396, 60, title, 0.5)
    paper.size = 9
    paper.put(396, 74, f"{ENGLISH[first - 1]} - {ENGLISH[first + 1]} {year}", 0.5)
    stops = [450.0, 580.0, 710.0]
    for month, stop in zip(months, stops, strict=True):
        paper.put(stop, 104, f"{ENGLISH[month - 1][:3].upper()} {year}", 1.0, bold=True)
    paper.rule(50, 110, 742, 110)
    y = 126.0
    pounds = rng.random() < 0.5
    for row in plan(rng, "month", 3, rng.uniform(5.4, 7.4)):
        paper.put(50 + 12 * row.level, y, row.label, bold=row.kind == "total")
        if row.kind != "head":
            for at, stop in enumerate(stops):
                sign = "£" if pounds and row.kind == "total" else ""
                if row.amounts[at]:
                    when = (year, end_of(year, months[at]))
                    paper.number(row, row.amounts[at], stop, y, when, sign=sign)
        y += 14
    paper.size = 7
    paper.put(396, 590, f"Accrual Basis  Tuesday, {ENGLISH[2]} 4, {year + 1} 10:12 AM GMT", 0.5)
    return paper.made("income_statement", org, title, "GBP" if pounds else None)


def ledger(rng: Random) -> Statement:
    """A trial balance with debits and credits, one of them empty in each row."""
    year, month = rng.randint(2017, 2025), rng.choice([6, 12])
    org = rng.choice(words("orgs.small"))
    paper = Paper(Pen(Style(page=A4)), ",", ".", 2, "({})", "", size=9)
    end = end_of(year, month)
    paper.size = 14
    paper.put(50, 56, "Trial Balance", bold=True)
    paper.size = 10
    paper.put(50, 72, org)
    paper.put(50, 86, f"As at {int(end[8:])} {ENGLISH[month - 1]} {year}")
    paper.size = 9
    names, stops = ("Debit", "Credit"), (440.0, 545.0)
    paper.put(50, 112, "Code", bold=True)
    paper.put(100, 112, "Account", bold=True)
    for name, stop in zip(names, stops, strict=True):
        paper.put(stop, 112, name, 1.0, bold=True)
    y, sums = 130.0, [0, 0]
    accounts = [a for a in words("ledger") if rng.random() < 0.8]
    for at, account in enumerate(accounts):
        code, _, label = account.partition(" ")
        side = int(code[0] in "3456")
        gap = sums[0] - sums[1]
        amount = int(10 ** rng.uniform(4, 7.5))
        if at == len(accounts) - 1:
            side, amount = int(gap > 0), abs(gap)
        sums[side] += amount
        paper.put(50, y, code)
        paper.put(100, y, label)
        paper.number(Line("item", label, None), amount, stops[side], y, (None, end))
        y += 15
    paper.rule(50, y - 8, 547, y - 8)
    total = Line("total", "Total", None)
    paper.put(100, y + 4, "Total", bold=True)
    for side in range(2):
        paper.number(total, sums[side], stops[side], y + 4, (None, end))
    return paper.made("trial_balance", org, "Trial Balance", None)


def owners(rng: Random) -> Statement:
    """Changes in equity in English: four components, headings in two lines."""
    year = rng.randint(2017, 2025)
    org = rng.choice(words("orgs.tea"))
    paper = Paper(Pen(Style(page=(842.0, 595.0))), size=9, face="Times-Roman")
    title = rng.choice(["Statement of changes in equity", "STATEMENT OF CHANGES IN EQUITY"])
    paper.put(60, 60, org, bold=True)
    paper.put(60, 74, title, bold=True)
    paper.put(60, 87, f"For the year ended 31 December {year}")
    heads = ["Share|capital", "Share|premium", "Revaluation|surplus", "Retained|earnings", "Total"]
    stops = [400.0, 490.0, 590.0, 690.0, 780.0]
    for head, stop in zip(heads, stops, strict=True):
        for at, piece in enumerate([*head.split("|"), "£'000"][-3:]):
            down = 118 + 11 * (at + (0 if "|" in head else 1))
            paper.put(stop, down, piece, 1.0, bold=True)
    opening = [int(10 ** rng.uniform(3.5, 6.0)) for _ in range(4)]
    moves = {
        "Profit for the year": [0, 0, 0, rng.randint(500, 90_000)],
        "Gain on revaluation of land": [0, 0, rng.randint(100, 40_000), 0],
        "Issue of shares": [rng.randint(50, 4000), rng.randint(50, 9000), 0, 0],
        "Dividends": [0, 0, 0, -rng.randint(100, 30_000)],
    }
    closing = [sum(c) for c in zip(opening, *moves.values(), strict=True)]
    rows = [
        Line("total", f"At 1 January {year}", None, opening),
        *(Line("item", label, None, amounts) for label, amounts in moves.items()),
        Line("total", f"At 31 December {year}", None, closing),
    ]
    y = 172.0
    for row in rows:
        paper.put(60, y, row.label, bold=row.kind == "total")
        for amount, stop in zip([*row.amounts, sum(row.amounts)], stops, strict=True):
            paper.number(row, amount, stop, y, (None, f"{year}-12-31"))
        y += 20
    return paper.made("changes_in_equity", org, title, "GBP", 1000)


def mine(rng: Random) -> Statement:
    """Cash flows under a dark band, every second row on grey, labels over two lines."""
    year, month = rng.randint(2017, 2025), rng.choice([9, 12])
    org = rng.choice(words("orgs.bo"))
    paper = Paper(Pen(Style(page=LETTER)), ".", ",", 0, "({})", "-", size=8.5)
    title = "Estado de Flujos de Efectivo"
    end = end_of(year, month)
    paper.size = 12
    paper.put(50, 50, org, bold=True)
    paper.size = 9
    paper.put(50, 66, f"{title} – Método directo", bold=True)
    span = f"Por los ejercicios terminados el {end[8:]} de {SPANISH[month - 1]} de"
    paper.put(50, 78, f"{span} {year} y {year - 1}")
    paper.put(50, 90, "(Expresado en bolivianos)")
    paper.size = 8.5
    stops = [470.0, 560.0]
    paper.band(44, 106, 568, 122, 0.25)
    paper.put(50, 117, "Descripción", bold=True)
    for at, stop in enumerate(stops):
        paper.put(stop, 117, str(year - at), 1.0, bold=True)
    paper.pen.canvas.setFillGray(0)
    y, grey = 138.0, False
    for row in plan(rng, "mine", 2, rng.uniform(6.0, 8.6)):
        if row.kind == "head":
            y += 4
            paper.put(50, y, row.label, bold=True)
        else:
            paper.pen.font("Helvetica", 8.5)
            pieces = paper.pen.broken(row.label, 190)
            if grey:
                paper.band(44, y - 10, 568, y + 10 * (len(pieces) - 1) + 4, 0.9)
                paper.pen.canvas.setFillGray(0)
            grey = not grey
            for at, piece in enumerate(pieces):
                paper.put(60 + 8 * (at > 0), y + 10 * at, piece, bold=row.kind == "total")
            for at, stop in enumerate(stops):
                when = (year - at, end_of(year - at, month))
                paper.number(row, row.amounts[at], stop, y + 10 * (len(pieces) - 1), when)
            y += 10 * (len(pieces) - 1)
        y += 15
    return paper.made("cash_flow", org, f"{title} – Método directo", "BOB")


def accountant(rng: Random) -> Statement:
    """One date whose items, sums of sections and main sums stand in three columns."""
    year, month = rng.randint(2017, 2025), rng.choice([9, 12])
    org = rng.choice(words("orgs.cr"))
    face = rng.choice(["Courier", "Helvetica"])
    paper = Paper(Pen(Style(page=LETTER)), ",", ".", 2, "({})", "-", face, 8)
    title = rng.choice(["Balance de Situación", "BALANCE GENERAL"])
    end = end_of(year, month)
    paper.size = 10
    paper.put(306, 46, org, 0.5, bold=True)
    paper.put(306, 59, title, 0.5, bold=True)
    paper.size = 8
    paper.put(306, 71, f"Al {int(end[8:])} de {SPANISH[month - 1]} del {year}", 0.5)
    paper.put(306, 82, "(En colones costarricenses)", 0.5)
    y = 112.0
    for name in ("assets.es", "claims.es"):
        for row in plan(rng, name, 1, rng.uniform(7.6, 9.4)):
            if row.kind == "head":
                y += 6
                paper.put(50, y, row.label, bold=True)
            else:
                indent = 20 if row.kind == "item" else 10 * row.level
                paper.put(50 + indent, y, row.label, bold=row.kind == "total")
                stop = 400 if row.kind == "item" else 480 if row.level else 560
                if row.kind == "total":
                    paper.rule(stop - 66, y - 8.5, stop, y - 8.5)
                paper.number(row, row.amounts[0], stop, y, (year, end))
            y += 13.5
    paper.put(140, 740, "CPI Marta Solano Vega", 0.5)
    paper.put(470, 740, "Representante legal", 0.5)
    return paper.made("balance_sheet", org, title, "CRC")


def paper(rng: Random) -> Statement:
    """What else lies in a folder: a bank's list of movements, minutes, a tax certificate."""
    sheet = Paper(Pen(Style(page=LETTER)), ",", ".", 2, size=9)
    kinds: Sequence[str] = ("movements", "minutes", "certificate")
    kind, org = rng.choice(kinds), rng.choice(words("orgs.small"))
    if kind == "movements":
        sheet.put(50, 50, "Estado de cuenta", bold=True)
        sheet.put(50, 64, f"Titular: {org}")
        for at, head in enumerate(("Fecha", "Descripción", "Cargo", "Abono", "Saldo")):
            sheet.put((50, 110, 380, 460, 550)[at], 90, head, float(at > 1), bold=True)
        balance = rng.randint(10_000, 900_000)
        for at in range(14):
            amount = rng.randint(100, 9_000)
            y, paid = 106.0 + 13 * at, rng.random() < 0.5
            balance += -amount if paid else amount
            sheet.put(50, y, f"{at + 2:02}/05/2024")
            sheet.put(110, y, rng.choice(["PAGO TARJETA", "TRANSFERENCIA SPEI", "COMISION"]))
            sheet.put(380 if paid else 460, y, sheet.written(amount, 2), 1.0)
            sheet.put(550, y, sheet.written(balance, 2), 1.0)
    elif kind == "minutes":
        text = (
            f"The directors of {org} met at 10.00 on 4 March 2024. The balance sheet and the "
            "income statement of the year were laid before the meeting and approved. It was "
            "resolved to pay a dividend of 0.15 per share and to appoint the auditors again."
        )
        sheet.put(306, 60, "MINUTES OF A MEETING OF DIRECTORS", 0.5, bold=True)
        sheet.pen.font("Helvetica", 9)
        for at, piece in enumerate(sheet.pen.broken(text, 470)):
            sheet.put(60, 90 + 14 * at, piece)
    else:
        sheet.put(306, 60, "CONSTANCIA DE SITUACIÓN FISCAL", 0.5, bold=True)
        for at, (name, value) in enumerate(
            (("RFC", "FQS180214AB1"), ("Denominación", org), ("Código postal", "68120"))
        ):
            sheet.put(60, 100 + 16 * at, f"{name}:")
            sheet.put(220, 100 + 16 * at, value)
    return Statement("", "other", sheet.pen.done(), [], org, "", None, 1)

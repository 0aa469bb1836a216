"""Layouts as companies, accounting programs and registries of four countries print them."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from pipelines.documents.drawing import Pen, Statement, Style, Truth
from pipelines.documents.months import ENGLISH, SPANISH

Box = tuple[float, float, float, float]
# Only rows that say so are totals, as in the other corpora: a result is none.
_SAYS_TOTAL = re.compile(r"\b(?:sub)?total(?:es)?\b|\bsumas?\b", re.IGNORECASE)


@cache
def words(name: str) -> tuple[str, ...]:
    """Return the lines of a block of the word list."""
    text = Path(__file__).with_name("items.txt").read_text(encoding="utf-8")
    return tuple(text.split(f"[{name}]\n")[1].split("\n\n")[0].strip().split("\n"))


def last_day(year: int, month: int) -> str:
    return f"{year}-{month:02}-{calendar.monthrange(year, month)[1]:02}"


@dataclass(frozen=True)
class Form:
    """How numbers are written."""

    group: str = "."
    point: str = ","
    places: int = 0
    negative: str = "({})"
    nothing: str = "-"

    def write(self, amount: int, places: int | None = None) -> str:
        places = self.places if places is None else places
        whole, rest = divmod(abs(amount), 10**places)
        text = f"{whole:,}".replace(",", self.group)
        text += f"{self.point}{rest:0{places}}" if places else ""
        return self.negative.format(text) if amount < 0 else text if amount else self.nothing

    def decimal(self, amount: int, places: int | None = None) -> str:
        places = self.places if places is None else places
        whole, rest = divmod(abs(amount), 10**places)
        return "-" * (amount < 0) + (f"{whole}.{rest:0{places}}" if places else str(whole))


@dataclass
class Line:
    """A line of a statement: a heading, an item, a total, or an amount per share."""

    kind: str
    label: str
    section: str | None
    amounts: list[int] = field(default_factory=list)
    main: bool = False


def lines(
    rng: Random, name: str, columns: int, size: float, balance: list[int] | None = None
) -> list[Line]:
    """Return lines whose totals add up, and whose second grand total equals the first."""
    out: list[Line] = []
    section: str | None = None
    block, blocks, running = [0] * columns, [[0] * columns], [0] * columns
    plug: Line | None = None
    seen: set[int] = set()
    for text in words(name):
        mark, _, label = text.partition(" ") if text[0] in "#?!-*=>$" else ("", "", text)
        if "?" in mark and rng.random() < 0.4:
            continue
        if mark == "#":
            section = label
            out.append(Line("head", label, label))
        elif mark == "=":
            out.append(Line("total", label, section, block))
            blocks.append(block)
            block = [0] * columns
        elif mark == "==":
            total = [sum(b[i] for b in [*blocks, block]) for i in range(columns)]
            if plug and balance:
                for line in out[out.index(plug) :]:
                    if line is plug or line.kind == "total":
                        gap = [b - a for a, b in zip(total, balance, strict=True)]
                        line.amounts = [a + g for a, g in zip(line.amounts, gap, strict=True)]
                        if line.kind == "total":
                            break
                total = balance
            out.append(Line("total", label, section, total, main=True))
            balance, blocks, block = total, [[0] * columns], [0] * columns
        elif mark == ">":
            out.append(Line("total", label, section, list(running), main=True))
        elif mark == "$":
            signs = [-1 if r < 0 else 1 for r in running]
            out.append(Line("share", label, section, [s * rng.randint(15, 990) for s in signs]))
        elif mark == "*":
            plug = Line("item", label, section, [0] * columns)
            out.append(plug)
        else:
            amounts: list[int] = []
            while len(amounts) < columns:
                big = size if "!" in mark else size - rng.uniform(0.2, 2.0)
                amount = int(10 ** rng.uniform(max(1.0, big - 0.5), max(1.2, big)))
                if amount not in seen and amount > 9:
                    seen.add(amount)
                    amounts.append(-amount if "-" in mark else amount)
            if columns > 1 and "!" not in mark and rng.random() < 0.08:
                amounts[-1] = 0
            block = [a + b for a, b in zip(block, amounts, strict=True)]
            running = [a + b for a, b in zip(running, amounts, strict=True)]
            out.append(Line("item", label, section, amounts))
    return out


@dataclass
class Sheet:
    """A page with lines of text and columns of numbers that end at the stops."""

    pen: Pen
    form: Form
    face: str = "Helvetica"
    size: float = 8.5
    values: list[Truth] = field(default_factory=list)

    def put(self, x: float, y: float, text: str, share: float = 0.0, *, bold: bool = False) -> Box:
        bolds = {"Times-Roman": "Times-Bold"}
        name = bolds.get(self.face, f"{self.face}-Bold") if bold else self.face
        self.pen.font(name, self.size)
        return self.pen.text(x - share * self.pen.width(text), y, text)

    def rule(self, x0: float, x1: float, y: float, width: float = 0.5) -> None:
        self.pen.canvas.setLineWidth(width)
        self.pen.canvas.line(x0, self.pen.h - y, x1, self.pen.h - y)

    def number(
        self,
        line: Line,
        at: int,
        stop: float,
        y: float,
        year: int | None,
        period: str | None,
        **more: object,
    ) -> None:
        amount = line.amounts[at]
        places = 2 if line.kind == "share" else None
        text = self.form.write(amount, places)
        if text.endswith(")"):
            stop += 2.6
        box = self.put(stop, y, text, 1.0, bold=line.kind == "total")
        if any(char.isdigit() for char in text):
            self.values.append(
                Truth(
                    line.label,
                    year,
                    period,
                    self.form.decimal(amount, places),
                    "".join(text.split()),
                    self.pen.pages,
                    box,
                    line.section,
                    line.kind == "total" and _SAYS_TOTAL.search(line.label) is not None,
                    scale=1 if line.kind == "share" else None,
                )
            )


def dates(rng: Random) -> tuple[int, int]:
    return rng.randint(2018, 2025), rng.choice([12, 12, 12, 3, 6, 9])


def chile(rng: Random) -> Statement:
    """A filing under IFRS: notes, two dates, thousands of pesos or dollars, losses in brackets."""
    kind = rng.choice(["balance_sheet", "income_statement", "cash_flow"])
    year, month = dates(rng)
    coin, currency, phrase = rng.choice(
        [
            ("M$", "CLP", "miles de pesos chilenos"),
            ("M$", "CLP", "miles de pesos"),
            ("MUS$", "USD", "miles de dólares estadounidenses"),
        ]
    )
    org = rng.choice(words("orgs.cl"))
    title, name = {
        "balance_sheet": ("Estado de Situación Financiera Clasificado", "cl.balance"),
        "income_statement": ("Estado de Resultados por Función", "cl.income"),
        "cash_flow": ("Estado de Flujos de Efectivo, Método Directo", "cl.cash"),
    }[kind]
    title = rng.choice([title, title.upper(), f"{title} Consolidado"])
    pen = Pen(Style(page=(612.0, 792.0)))
    sheet = Sheet(
        pen, Form(nothing=rng.choice(["-", "0"])), rng.choice(["Helvetica", "Times-Roman"])
    )
    rows = lines(rng, name, 2, rng.uniform(5.2, 7.6))
    ends = [last_day(year, month), last_day(year - 1, month)]
    spoken = [f"{int(e[8:])} de {SPANISH[month - 1]} de {e[:4]}" for e in ends]
    sheet.size = 11
    sheet.put(306, 60, org.upper() if rng.random() < 0.5 else org, 0.5, bold=True)
    sheet.put(306, 76, title, 0.5, bold=True)
    sheet.size = 9
    span = "Al" if kind == "balance_sheet" else "Por los períodos terminados al"
    sheet.put(306, 90, f"{span} {spoken[0]} y {spoken[1]}", 0.5)
    sheet.put(306, 102, f"(Expresado en {phrase} - {coin})", 0.5)
    stops, y = [470.0, 560.0], 130.0
    heads = [f"{e[8:]}-{e[5:7]}-{e[:4]}" for e in ends]
    sheet.size = 8.5
    sheet.put(378, y + 10, "Nota", 0.5, bold=True)
    for head, stop in zip(heads, stops, strict=True):
        sheet.put(stop, y, head, 1.0, bold=True)
        sheet.put(stop, y + 10, coin, 1.0, bold=True)
    sheet.rule(50, 562, y + 14)
    y, note = y + 30, 4
    for row in rows:
        if row.kind == "head":
            y += 5
            sheet.put(50, y, row.label, bold=True)
        else:
            pen.font(sheet.face, sheet.size)
            parts = pen.broken(row.label, 305)
            for part in parts[:-1]:
                sheet.put(56, y, part, bold=row.kind == "total")
                y += 10
            sheet.put(56, y, parts[-1], bold=row.kind == "total")
            if row.kind == "item" and rng.random() < 0.7:
                sheet.put(378, y, str(note), 0.5)
                note += 1
            for at, stop in enumerate(stops):
                if row.kind == "total":
                    sheet.rule(stop - 62, stop, y - 8.5)
                sheet.number(row, at, stop, y, int(ends[at][:4]), ends[at])
        y += 13.5
    sheet.size = 7
    sheet.put(
        306, 770, "Las notas adjuntas forman parte integral de estos estados financieros", 0.5
    )
    return Statement("", kind, pen.done(), sheet.values, org, title, currency, 1000)


def contpaq(rng: Random) -> Statement:
    """The balance of a Mexican accounting program: two halves side by side, cents, no thousands."""
    year, month = dates(rng)
    org, end = rng.choice(words("orgs.mx")), last_day(year, month)
    form = Form(",", ".", 2, "-{}", "0.00")
    gutter = rng.choice([26.0, 16.0, 10.0, 6.0])
    pen = Pen(Style(page=(612.0, 792.0)))
    sheet = Sheet(pen, form, "Helvetica", 7.6)
    left = lines(rng, "mx.assets", 1, rng.uniform(6.0, 8.5))
    right = lines(rng, "mx.claims", 1, rng.uniform(6.0, 8.0), balance=left[-1].amounts)
    month_name = SPANISH[month - 1][:3].capitalize()
    title = rng.choice(["Posición Financiera, Balance General", "Balance General"])
    sheet.size = 10
    sheet.put(306, 40, org, 0.5, bold=True)
    sheet.put(306, 54, f"{title} al {end[8:]}/{month_name}/{year}", 0.5)
    sheet.size = 7.6
    sheet.put(580, 40, "Hoja:      1", 1.0)
    sheet.put(580, 52, f"Fecha: 14/Ene/{year + 1}", 1.0)
    middle = 306.0
    sheet.put(40 + 110, 84, "A C T I V O" if rng.random() < 0.3 else "ACTIVO", 0.5, bold=True)
    sheet.put(middle + 130, 84, "PASIVO", 0.5, bold=True)
    bottom = 0.0
    for half, x, stop in (
        (left, 34.0, middle - gutter / 2),
        (right, middle + gutter / 2, 580.0),
    ):
        y = 104.0
        for row in half[:-1]:
            if row.kind == "head":
                y += 6
                sheet.put(x, y, row.label, bold=True)
            else:
                sheet.put(x + 8, y, row.label, bold=row.kind == "total")
                if row.kind == "total":
                    sheet.rule(stop - 70, stop, y - 8)
                sheet.number(row, 0, stop, y, year, end)
            y += 12
        bottom = max(bottom, y)
    for half, x, stop in (
        (left, 34.0, middle - gutter / 2),
        (right, middle + gutter / 2, 580.0),
    ):
        sheet.put(x, bottom + 14, half[-1].label, bold=True)
        sheet.number(half[-1], 0, stop, bottom + 14, year, end)
        sheet.rule(stop - 70, stop, bottom + 17, 1)
    return Statement("", "balance_sheet", pen.done(), sheet.values, org, title, "MXN", 1)


def mexico(rng: Random) -> Statement:
    """The results of the same program: month and year to date, each with a share of sales."""
    year, month = dates(rng)
    org, end = rng.choice(words("orgs.mx")), last_day(year, month)
    pen = Pen(Style(page=(612.0, 792.0)))
    sheet = Sheet(pen, Form(",", ".", 2, "-{}", "0.00"), "Helvetica", 8)
    rows = lines(rng, "mx.income", 2, rng.uniform(6.0, 8.5))
    first = f"01/{SPANISH[0][:3].capitalize()}/{year}"
    shown = f"{end[8:]}/{SPANISH[month - 1][:3].capitalize()}/{year}"
    title = "Estado de Resultados"
    sheet.size = 10
    sheet.put(306, 40, org, 0.5, bold=True)
    sheet.put(306, 54, f"{title} del {first} al {shown}", 0.5)
    sheet.size = 8
    stops, shares = [340.0, 500.0], [390.0, 550.0]
    for stop, share, head in zip(stops, shares, ("Periodo", "Acumulado"), strict=True):
        sheet.put(stop, 84, head, 1.0, bold=True)
        sheet.put(share, 84, "%", 1.0, bold=True)
    y, base = 104.0, [abs(a) or 1 for a in rows[1].amounts]
    for row in rows:
        if row.kind == "head":
            y += 6
            sheet.put(40, y, row.label, bold=True)
        else:
            sheet.put(50, y, row.label, bold=row.kind == "total")
            for at in range(2):
                sheet.number(row, at, stops[at], y, year, end)
                portion = round(10000 * row.amounts[at] / base[at])
                sheet.put(shares[at], y, sheet.form.write(portion, 2), 1.0)
        y += 13
    return Statement("", "income_statement", pen.done(), sheet.values, org, title, "MXN", 1)


def spain(rng: Random) -> Statement:
    """Annual accounts of a Spanish company: numbered items, euros, years as headings."""
    kind = rng.choice(["balance_sheet", "income_statement"])
    year, month = dates(rng)
    org = rng.choice(words("orgs.es"))
    places = rng.choice([0, 2])
    pen = Pen(Style(page=(595.0, 842.0)))
    sheet = Sheet(pen, Form(".", ",", places, rng.choice(["({})", "-{}"]), ""), "Times-Roman", 9)
    name = "es.balance" if kind == "balance_sheet" else "es.income"
    rows = lines(rng, name, 2, rng.uniform(5.0, 7.0) + places)
    ends = [last_day(year, month), last_day(year - 1, month)]
    when = f"{int(ends[0][8:])} de {SPANISH[month - 1]} de {year}"
    title = "Balance de Situación" if kind == "balance_sheet" else "Cuenta de Pérdidas y Ganancias"
    title = title.upper() if rng.random() < 0.4 else title
    sheet.size = 12
    sheet.put(60, 60, org, bold=True)
    sheet.size = 10
    phrase = "al" if kind == "balance_sheet" else "correspondiente al ejercicio terminado el"
    if rng.random() < 0.5:
        sheet.put(60, 78, f"{title} {phrase} {when}", bold=True)
    else:
        sheet.put(60, 78, title, bold=True)
        sheet.put(60, 90, f"{phrase.capitalize()} {when}")
    sheet.put(60, 103, "(Expresado en euros)")
    sheet.size = 9
    stops = [450.0, 535.0]
    form = rng.choice(["Ejercicio {0}", "{0}", "{2}/{1}/{0}"])
    sheet.put(362, 126, "Notas", 0.5, bold=True)
    for end, stop in zip(ends, stops, strict=True):
        sheet.put(stop, 126, form.format(*end.split("-")), 1.0, bold=True)
    sheet.rule(60, 536, 130)
    y = 146.0
    for row in rows:
        if row.kind == "head":
            y += 4
            sheet.put(60, y, row.label, bold=True)
        else:
            sheet.put(60 if row.main else 70, y, row.label, bold=row.kind == "total")
            if row.kind == "item" and rng.random() < 0.5:
                sheet.put(362, y, f"{rng.randint(4, 19)}.{rng.randint(1, 3)}", 0.5)
            for at, stop in enumerate(stops):
                sheet.number(row, at, stop, y, int(ends[at][:4]), ends[at])
        y += 14.5
    return Statement("", kind, pen.done(), sheet.values, org, title, "EUR", 1)


def united_kingdom(rng: Random) -> Statement:
    """A small company's accounts: registered number, inner and outer columns of each year."""
    year, month = dates(rng)
    org = rng.choice(words("orgs.uk"))
    thousands = rng.random() < 0.5
    pen = Pen(Style(page=(595.0, 842.0)))
    sheet = Sheet(
        pen, Form(",", ".", 0, "({})", "-"), rng.choice(["Times-Roman", "Helvetica"]), 9.5
    )
    rows = lines(rng, "uk.balance", 2, rng.uniform(4.8, 6.6))
    ends = [last_day(year, month), last_day(year - 1, month)]
    title = rng.choice(["Balance Sheet", "BALANCE SHEET", "Statement of Financial Position"])
    sheet.put(50, 44, f"Registered number: {rng.randint(1000000, 9999999):08}")
    sheet.size = 12
    sheet.put(50, 66, org, bold=True)
    sheet.put(50, 82, title, bold=True)
    sheet.size = 9.5
    sheet.put(50, 96, f"as at {int(ends[0][8:])} {ENGLISH[month - 1]} {year}", bold=True)
    inner, outer = [330.0, 475.0], [395.0, 545.0]
    sheet.put(262, 130, "Note", 0.5)
    for at in range(2):
        sheet.put((inner[at] + outer[at]) / 2 - 20, 118, str(year - at), 0.5, bold=True)
        for stop in (inner[at], outer[at]):
            sheet.put(stop, 130, "£'000" if thousands else "£", 1.0)
    y, note = 152.0, 3
    for row in rows:
        if row.kind == "head":
            y += 4
            sheet.put(50, y, row.label, bold=True)
        else:
            sheet.put(50, y, row.label, bold=row.kind == "total")
            if row.kind == "item" and rng.random() < 0.6:
                sheet.put(262, y, str(note), 0.5)
                note += 1
            for at in range(2):
                stop = outer[at] if row.kind == "total" else inner[at]
                if row.kind == "total":
                    sheet.rule(stop - 50, stop, y - 9)
                sheet.number(row, at, stop, y, year - at, ends[at])
        y += 14.5
    sheet.put(
        50,
        y + 20,
        "The financial statements were approved by the board and signed on its behalf by:",
    )
    return Statement(
        "", "balance_sheet", pen.done(), sheet.values, org, title, "GBP", 1000 if thousands else 1
    )


def united_states(rng: Random) -> Statement:
    """A quarterly report: thousands or millions, dollar signs, amounts per share."""
    kind = rng.choice(["balance_sheet", "income_statement"])
    year, month = rng.randint(2018, 2025), rng.choice([3, 6, 9])
    org = rng.choice(words("orgs.us"))
    scale, phrase = rng.choice([(1000, "thousands"), (1_000_000, "millions")])
    pen = Pen(Style(page=(612.0, 792.0)))
    sheet = Sheet(pen, Form(",", ".", 0, "({})", "—"), rng.choice(["Times-Roman", "Helvetica"]), 9)
    quarters = {3: "Three", 6: "Six", 9: "Nine"}
    now = last_day(year, month)
    day = f"{ENGLISH[month - 1]} {int(now[8:])}"
    columns: list[tuple[int, str]]
    if kind == "balance_sheet":
        title = rng.choice(["CONDENSED CONSOLIDATED BALANCE SHEETS", "Consolidated Balance Sheets"])
        columns = [(year, now), (year - 1, last_day(year - 1, 12))]
        groups: list[str] = []
        heads = [f"{day}, {year}", f"December 31, {year - 1}"]
    else:
        title = rng.choice(
            ["CONDENSED CONSOLIDATED STATEMENTS OF OPERATIONS", "Consolidated Statements of Income"]
        )
        back = (year - 1, last_day(year - 1, month))
        columns = [(year, now), back]
        groups = [f"Three Months Ended {day},"]
        if month != 3:
            columns += [(year, now), back]
            groups.append(f"{quarters[month]} Months Ended {day},")
        heads = [str(c[0]) for c in columns]
    rows = lines(
        rng,
        "us.balance" if kind == "balance_sheet" else "us.income",
        len(columns),
        rng.uniform(4.4, 6),
    )
    sheet.size = 11
    sheet.put(306, 60, org, 0.5, bold=True)
    sheet.put(306, 76, title, 0.5, bold=True)
    sheet.size = 9
    except_for = "" if kind == "balance_sheet" else ", except per share amounts"
    sheet.put(306, 89, f"(in {phrase}{except_for})", 0.5)
    sheet.put(306, 101, "(Unaudited)", 0.5)
    wide = 72.0
    stops = [556.0 - wide * (len(columns) - 1 - i) for i in range(len(columns))]
    for i, group in enumerate(groups):
        sheet.size = 8
        sheet.put(stops[2 * i] + 10, 122, group, 0.5, bold=True)
        sheet.rule(stops[2 * i] - 50, stops[2 * i + 1], 125)
    sheet.size = 8 if kind == "balance_sheet" else 9
    for head, stop in zip(heads, stops, strict=True):
        first, _, rest = head.partition(", ")
        if rest:
            sheet.put(stop - 4, 124, first + ",", 1.0, bold=True)
            sheet.put(stop - 4, 135, rest, 1.0, bold=True)
        else:
            sheet.put(stop - 4, 137, head, 1.0, bold=True)
    sheet.size = 9
    y, signed = 156.0, True
    for row in rows:
        if row.kind == "head":
            y += 3
            sheet.put(50, y, row.label, bold=row.kind == "head")
        else:
            sheet.put(50 if row.main else 60, y, row.label)
            for at, stop in enumerate(stops):
                if signed or row.main or row.kind == "share":
                    sheet.put(stop - 56, y, "$")
                sheet.number(row, at, stop, y, *columns[at])
            signed = False
        y += 14
    sheet.size = 7.5
    sheet.put(
        306, 740, "See accompanying notes to condensed consolidated financial statements.", 0.5
    )
    return Statement("", kind, pen.done(), sheet.values, org, title, "USD", scale)


def equity(rng: Random) -> Statement:
    """Changes in equity: components as columns, one year."""
    year, _ = dates(rng)
    org, end = rng.choice(words("orgs.cl")), last_day(year, 12)
    title = rng.choice(
        ["Estado de Cambios en el Patrimonio", "ESTADO DE CAMBIOS EN EL PATRIMONIO NETO"]
    )
    pen = Pen(Style(page=(792.0, 612.0)))
    sheet = Sheet(pen, Form(nothing="-"), "Helvetica", 8.5)
    heads = ["Capital|emitido", "Otras|reservas", "Ganancias|acumuladas", "Patrimonio|total"]
    rows = lines(rng, "equity", 3, rng.uniform(5.5, 7.2))
    sheet.size = 11
    sheet.put(396, 60, org, 0.5, bold=True)
    sheet.put(396, 76, title, 0.5, bold=True)
    sheet.size = 9
    sheet.put(396, 90, f"Por el año terminado el 31 de diciembre de {year}", 0.5)
    sheet.put(396, 102, "(En miles de pesos - M$)", 0.5)
    sheet.size = 8.5
    stops = [400.0, 510.0, 620.0, 740.0]
    for head, stop in zip(heads, stops, strict=True):
        for i, part in enumerate([*head.split("|"), "M$"]):
            sheet.put(stop, 130 + 10 * i, part, 1.0, bold=True)
    y = 176.0
    for row in rows:
        row.amounts = [*row.amounts, sum(row.amounts)]
        sheet.put(40, y, row.label, bold=row.kind == "total")
        for at, stop in enumerate(stops):
            sheet.number(row, at, stop, y, None, end)
        y += 18
    return Statement("", "changes_in_equity", pen.done(), sheet.values, org, title, "CLP", 1000)


def trial(rng: Random) -> Statement:
    """A trial balance: account codes, opening balances, movements, closing balances."""
    year, month = dates(rng)
    org, end = rng.choice(words("orgs.mx")), last_day(year, month)
    title = rng.choice(["Balanza de comprobación", "BALANZA DE COMPROBACIÓN"])
    pen = Pen(Style(page=(792.0, 612.0)))
    sheet = Sheet(pen, Form(",", ".", 2, "-{}", "0.00"), "Helvetica", 8)
    sheet.size = 10
    sheet.put(396, 40, org, 0.5, bold=True)
    shown = f"{end[8:]}/{SPANISH[month - 1][:3].capitalize()}/{year}"
    sheet.put(396, 54, f"{title} al {shown}", 0.5)
    sheet.size = 8
    heads = ["Saldo inicial", "Cargos", "Abonos", "Saldo final"]
    stops = [400.0, 510.0, 620.0, 740.0]
    sheet.put(40, 84, "Cuenta", bold=True)
    sheet.put(90, 84, "Nombre", bold=True)
    for head, stop in zip(heads, stops, strict=True):
        sheet.put(stop, 84, head, 1.0, bold=True)
    sheet.rule(40, 742, 88)
    y, totals = 104.0, [0, 0, 0, 0]
    for account in words("accounts"):
        if rng.random() < 0.25:
            continue
        code, _, label = account.partition(" ")
        amounts = [int(10 ** rng.uniform(4, 9)) for _ in range(3)]
        amounts.append(amounts[0] + amounts[1] - amounts[2])
        totals = [a + b for a, b in zip(totals, amounts, strict=True)]
        sheet.put(40, y, f"{code}-000-000")
        sheet.put(100, y, label)
        for at, stop in enumerate(stops):
            sheet.number(Line("item", label, None, amounts), at, stop, y, None, end)
        y += 13
    sheet.put(100, y + 6, "Total", bold=True)
    for at, stop in enumerate(stops):
        sheet.number(Line("total", "Total", None, totals), at, stop, y + 6, None, end)
    return Statement("", "trial_balance", pen.done(), sheet.values, org, title, "MXN", 1)


def other(rng: Random) -> Statement:
    """Papers that lie in the same folder: a power of attorney, an invoice."""
    pen = Pen(Style(page=(612.0, 792.0)))
    sheet = Sheet(pen, Form(",", ".", 2), "Helvetica", 10)
    org = rng.choice(words("orgs.mx"))
    if rng.random() < 0.5:
        sheet.put(306, 60, "FACTURA A 1042", 0.5, bold=True)
        for i, (what, price) in enumerate((("Balatas traseras", 1840), ("Aceite 15W40", 960))):
            sheet.put(60, 120 + 16 * i, what)
            sheet.put(540, 120 + 16 * i, f"{price:,}.00", 1.0)
        sheet.put(60, 170, "Total a pagar")
        sheet.put(540, 170, "2,800.00", 1.0)
    else:
        sheet.put(306, 60, "PODER GENERAL", 0.5, bold=True)
        text = (
            f"En la ciudad de Puebla comparece el representante de {org} y otorga poder general "
            "para pleitos y cobranzas, con todas las facultades generales y las especiales que "
            "requieran cláusula conforme a la ley, para presentar el balance y los estados "
            "financieros de la sociedad ante cualquier autoridad."
        )
        pen.font("Helvetica", 10)
        for i, part in enumerate(pen.broken(text, 480)):
            sheet.put(60, 100 + 14 * i, part)
    return Statement("", "other", pen.done(), [], org, "", "MXN", 1)

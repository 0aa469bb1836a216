"""Statements before layout: amounts that add up, columns with headings, formats of numbers."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from pipelines.documents.months import MONTHS


@dataclass(frozen=True)
class Numbers:
    """The format of amounts."""

    thousands: str = "."
    decimals: int = 0
    negative: str = "parens"
    zero: str = "-"

    @property
    def point(self) -> str:
        return "." if self.thousands in ",'’" else ","

    def text(self, amount: int, decimals: int | None = None) -> str:
        """Return an amount in its smallest units, as printed."""
        places = self.decimals if decimals is None else decimals
        if amount == 0 and self.zero != "0":
            return self.zero
        whole, rest = divmod(abs(amount), 10**places)
        text = f"{whole:,}".replace(",", self.thousands) + (
            f"{self.point}{rest:0{places}}" if places else ""
        )
        if amount >= 0:
            return text
        return {
            "parens": f"({text})",
            "minus": f"-{text}",
            "true": f"\u2212{text}",
            "trail": f"{text}-",
        }[self.negative]

    def value(self, amount: int, decimals: int | None = None) -> str | None:
        """Return the amount as a decimal string; None if zero is printed as a dash or nothing."""
        places = self.decimals if decimals is None else decimals
        if amount == 0 and self.zero != "0":
            return None
        whole, rest = divmod(abs(amount), 10**places)
        return f"{'-' if amount < 0 else ''}{whole}" + (f".{rest:0{places}}" if places else "")


@dataclass(frozen=True)
class Column:
    """A column of numbers.

    `kind` is value, change (absolute), percent (of change) or share (of the first amount).
    """

    head: str
    year: int | None = None
    period: str | None = None
    kind: str = "value"
    group: str = ""
    sum_of: tuple[int, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True)
class Cell:
    """Return the text of a column in a row, and its value if it has one."""

    text: str
    value: str | None = None

    @property
    def printed(self) -> str:
        return re.sub(r"\s", "", self.text)


@dataclass
class Row:
    """A row of a statement: a section header, a line or a total (with its rank)."""

    kind: str
    label: str
    level: int = 0
    code: str = ""
    note: str = ""
    section: str | None = None
    marked: bool = False
    """Whether a currency sign is printed before its numbers."""
    cells: list[Cell] = field(default_factory=list)

    @property
    def total(self) -> bool:
        """Whether its label names a total."""
        return (
            self.kind == "total"
            and re.match(r"(?:sub)?total|suma", self.label, re.IGNORECASE) is not None
        ) or self.label.lower().endswith(" total")


@dataclass(frozen=True)
class Entry:
    """A line of a template."""

    mark: str
    label: str
    code: str
    weight: float


@dataclass(frozen=True)
class Template:
    """The wording and the arithmetic of a statement."""

    origin: str
    doc_type: str
    lang: str
    title: str
    entries: tuple[Entry, ...]


@cache
def templates(origin: str) -> list[Template]:
    """Return the templates of an origin."""
    found = []
    for block in re.split(
        r"\n(?=\[)", (Path(__file__).parent / "templates.txt").read_text("utf-8")
    )[1:]:
        first, *lines = [line for line in block.splitlines() if line.strip()]
        name, doc_type, lang, title = first[1:-1].split(" ", 3)
        entries = []
        for line in lines:
            parts = re.fullmatch(r"(\S+) (?:\{(\w+)\} )?(.*?)(?: @([\d.]+))?", line)
            assert parts, line
            entries.append(Entry(parts[1], parts[3], parts[2] or "", float(parts[4] or 1)))
        if name == origin:
            found.append(Template(name, doc_type, lang, title, tuple(entries)))
    return found


def amounts(
    rng: Random, entries: list[Entry], columns: list[Column], unit: int, base: float, zeros: float
) -> list[list[int]]:
    """Return the amount of each entry in each column, with correct totals."""
    grid = [[0] * len(columns) for _ in entries]
    signs = [rng.choice((1, 1, -1)) for _ in entries]
    for at, entry in enumerate(entries):
        if entry.mark[0] not in "+-/>!":
            continue
        size = (
            base
            * entry.weight
            * (
                1.0
                if entry.mark[0] == "!"
                else rng.lognormvariate(0, 0.6 if entry.weight < 5 else 0.15)
            )
        )
        places = int(entry.mark[1:]) if entry.mark[0] == "!" else 0
        for col, column in enumerate(columns):
            amount = max(1, round(size * abs(column.factor) * rng.uniform(0.75, 1.2))) * unit
            if unit > 1:
                amount += rng.randrange(unit)
            if entry.mark[0] == "!":
                amount = max(1, round(entry.weight * 10**places * rng.uniform(0.8, 1.1)))
            elif rng.random() < (0.6 if column.factor < 0 else zeros if entry.weight <= 1 else 0):
                amount = 0
            elif entry.weight < 0.5 and rng.random() < 0.12:
                amount = rng.randint(2, 95) * unit
            sign = (
                -1
                if entry.mark == "-"
                else signs[at] * rng.choice((1, 1, 1, -1))
                if entry.mark == "/"
                else 1
            )
            grid[at][col] = sign * amount * (-1 if column.factor < 0 else 1)
    for col in reversed(range(len(columns))):
        of = columns[col].sum_of
        grand: list[int] = []
        for at, entry in enumerate(entries):
            if entry.mark[0] in "+-/" and of:
                grid[at][col] = sum(grid[at][other] for other in of)
            elif entry.mark == ">" and col + 1 < len(columns) and grand:
                last = max(i for i, e in enumerate(entries) if e.mark == "~")
                if columns[col + 1].kind == "value":
                    grid[at][col] = grid[last][col + 1] or grid[at][col]
            if entry.mark[0] in "+-/>*":
                grand.append(at)
            elif entry.mark == "~":
                grid[at][col] = sum(grid[i][col] for i in grand)
        _balance(entries, grid, col)
    return grid


def _balance(entries: list[Entry], grid: list[list[int]], col: int) -> None:
    """Compute the balancing line first, then sums by rank."""
    tops = [i for i, e in enumerate(entries) if e.mark == "==="]
    plug = next((i for i, e in enumerate(entries) if e.mark == "*"), None)
    if plug is not None:
        assets = sum(grid[i][col] for i in range(tops[0]) if entries[i].mark in ("+", "-", "/"))
        others = sum(
            grid[i][col]
            for i in range(tops[0] + 1, len(entries))
            if entries[i].mark in ("+", "-", "/")
        )
        grid[plug][col] = assets - others
    since = {1: 0, 2: 0, 3: 0}
    for at, entry in enumerate(entries):
        if set(entry.mark) == {"="}:
            rank = len(entry.mark)
            grid[at][col] = sum(
                grid[i][col]
                for i in range(since[rank], at)
                if entries[i].mark in ("+", "-", "/", "*", ">")
            )
            for lower in range(1, rank + 1):
                since[lower] = at + 1
        elif entry.mark == "~":
            since[1] = at + 1


def build(
    rng: Random,
    template: Template,
    columns: list[Column],
    numbers: Numbers,
    *,
    base: float,
    drop: float = 0.15,
    zeros: float = 0.06,
    notes: str = "",
    codes: bool = False,
) -> list[Row]:
    """Return the rows of a statement.

    Lines without weight may be left out. `notes` is a prefix such as "" or "Nota "; " " for none.
    """
    keep = [
        e
        for e in template.entries
        if e.mark not in ("+", "-", "/") or e.weight > 1 or rng.random() >= drop
    ]
    keep = [e for i, e in enumerate(keep) if not _idle(keep, i)]
    grid = amounts(rng, keep, columns, 10**numbers.decimals, base, zeros)
    rows, section, note = [], None, rng.randint(3, 6)
    deep = any(e.mark == "##" for e in keep)
    for entry, line in zip(keep, grid, strict=True):
        if entry.mark[0] == "#":
            section = entry.label
            rows.append(Row("section", entry.label, len(entry.mark) - 1))
            continue
        total = entry.mark[0] in "=~"
        places = int(entry.mark[1:]) if entry.mark[0] == "!" else numbers.decimals
        if not any(line):
            continue
        row = Row(
            "total" if total else "line",
            entry.label,
            deep + 1 if not total else int(deep and len(entry.mark) < 3),
            entry.code,
        )
        row.section = section
        if notes != " " and not total and entry.mark[0] != "!" and rng.random() < 0.7:
            row.note = f"{notes}{note}" + (
                rng.choice((".1", ".2", "", "", "")) if not notes else ""
            )
            note += rng.choice((0, 1, 1, 2))
        row.code = entry.code if codes else ""
        row.cells = [_cell(columns, col, line, numbers, places) for col in range(len(columns))]
        rows.append(row)
    return rows


def _idle(entries: list[Entry], at: int) -> bool:
    """Return whether a header has no lines below it, or a sum has nothing to add."""
    mark = entries[at].mark
    if mark == "##":
        return at + 1 == len(entries) or entries[at + 1].mark[0] in "=~"
    return mark == "=" and at > 0 and entries[at - 1].mark[0] in "#=~"


def _cell(columns: list[Column], col: int, line: list[int], numbers: Numbers, places: int) -> Cell:
    column = columns[col]
    if column.kind == "value":
        return Cell(numbers.text(line[col], places), numbers.value(line[col], places))
    if column.kind == "change":
        return Cell(
            numbers.text(line[0] - line[1], places), numbers.value(line[0] - line[1], places)
        )
    if not line[1] or abs(line[0] / line[1] - 1) > 9:
        return Cell("n/a")
    change = (line[0] - line[1]) / abs(line[1]) * 100
    return Cell(f"{change:.1f}%".replace(".", numbers.point))


def ends(year: int, month: int) -> str:
    """Return the ISO date on which a month ends."""
    return f"{year}-{month:02}-{calendar.monthrange(year, month)[1]}"


def head(style: str, lang: str, year: int, month: int) -> str:
    """Return the heading of a column."""
    last, name = calendar.monthrange(year, month)[1], MONTHS[lang][month - 1]
    return {
        "year": f"{year}",
        "dmy": f"{last}/{month:02}/{year}",
        "dots": f"{last}.{month:02}.{year}",
        "dashes": f"{last}-{month:02}-{year}",
        "mon": f"{name[:3].capitalize()}-{year % 100:02}",
        "monyear": f"{name[:3].capitalize()} {year}",
        "ejercicio": f"Ejercicio {year}",
        "anio": f"Año {year}",
        "fy": f"FY{year}",
        "long": f"{last} de {name} de {year}" if lang == "es" else f"{name} {last}, {year}",
        "saldo": f"Saldo al {last}/{month:02}/{year}",
    }[style]


def yearly(lang: str, style: str, first: int, count: int, month: int = 12) -> list[Column]:
    """Return year columns, newest first."""
    return [
        Column(head(style, lang, year, month), year, ends(year, month))
        for year in range(first, first - count, -1)
    ]


def spoken_date(lang: str, year: int, month: int) -> str:
    """Return a date in words."""
    return head("long", lang, year, month)

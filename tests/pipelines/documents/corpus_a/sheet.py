"""Draw a statement with rows and columns in the manner of annual reports, with its values."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from pipelines.documents.drawing import Pen, Statement, Style, Truth
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

BOLD = {
    "Helvetica": "Helvetica-Bold",
    "Times-Roman": "Times-Bold",
    "Courier": "Courier-Bold",
    "Vera": "VeraBd",
}
for _name in ("Vera", "VeraBd"):
    pdfmetrics.registerFont(TTFont(_name, f"{_name}.ttf"))


@cache
def words(country: str) -> dict[str, list[str]]:
    """Return the parts of a country's word file.

    The first character of a row is its kind: ``#`` a section, ``=`` a total, ``*`` a heading with
    amounts of its own, ``-`` usually negative, ``@`` per share, ``&`` a number of shares, ``~``
    without amounts. The spaces after it are its indent.
    """
    parts: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / f"{country}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            parts[line.strip("[]")] = rows = []
        elif line:
            rows.append(line)
    return parts


@dataclass
class Column:
    """A column: its heading line by line, and its period.

    Percentages are printed, but are no values.
    """

    heads: list[str]
    ends: str | None
    percent: bool = False

    @property
    def year(self) -> int | None:
        return int(self.ends[:4]) if self.ends else None


@dataclass
class Sheet:
    """A statement to be drawn."""

    country: str
    lang: str
    doc_type: str
    org: str
    title: str
    currency: str
    scale: int
    lines_above: list[str]
    """The lines above the table, including the company and the title."""
    columns: list[Column]
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    corner: str = ""
    notes: str = ""
    note_kind: str = "plain"
    thousands: str = ","
    decimals: int = 0
    negative: str = "parens"
    zero: str = "-"
    zeros: float = 0.06
    blanks: float = 0.0
    sign: str = ""
    sign_on: str = "none"
    leaders: bool = False
    codes: bool = False
    upper_totals: bool = False
    value_on: str = "last"
    tight: bool = True
    indent: float = 6.0
    hang: bool = False
    centered: bool = False
    rules: bool = True
    lanes: int = 1
    lane_cut: str = ""
    prose: int = 0
    continued: str = ""
    repeat_heads: bool = True
    per_page: int = 60
    foot: list[str] = field(default_factory=list)
    page: tuple[float, float] = (595.0, 842.0)
    rotate: int = 0
    sideways: bool = False
    font: str = "Helvetica"
    size: float = 8.5
    pitch: float = 1.5


def draw(name: str, sheet: Sheet, rng: Random) -> Statement:
    """Return the PDF and the values printed in it."""
    return _Drawing(sheet, rng).done(name)


class _Drawing:
    def __init__(self, sheet: Sheet, rng: Random) -> None:
        self.s, self.rng = sheet, rng
        self.pen = Pen(
            Style(
                page=sheet.page,
                rotate=sheet.rotate,
                sideways=sheet.sideways,
                font=sheet.font,
                size=sheet.size,
            )
        )
        self.truths: list[Truth] = []
        self.margin = 48.0

    def done(self, name: str) -> Statement:
        s = self.s
        for _ in range(s.prose):
            self._prose()
            self.pen.next()
        rows = words(s.country)[s.doc_type]
        lanes = [rows]
        if s.lanes == 2:
            cut = rows.index(s.lane_cut)
            lanes = [rows[:cut], rows[cut:]]
        top = self._above("")
        across = (self.pen.w - 2 * self.margin - 24 * (s.lanes - 1)) / s.lanes
        for number, lane in enumerate(lanes):
            left = self.margin + number * (across + 24)
            self._table(lane, left, left + across, top)
        self._foot()
        return Statement(
            name, s.doc_type, self.pen.done(), self.truths, s.org, s.title, s.currency, s.scale
        )

    def _prose(self) -> None:
        pen, y = self.pen, 70.0
        paragraphs = words_of(self.s.lang)
        self.rng.shuffle(paragraphs)
        pen.font(self.s.font, 10)
        for paragraph in paragraphs:
            for line in pen.broken(paragraph, pen.w - 2 * self.margin):
                pen.text(self.margin, y, line)
                y += 14
            y += 10
        self._foot()

    def _above(self, more: str) -> float:
        pen, s, y = self.pen, self.s, 52.0
        for line in s.lines_above:
            text = f"{line} {more}".strip() if line == s.title else line
            big = line in (s.org, s.title)
            pen.font(BOLD[s.font] if big else s.font, s.size + (2.5 if big else 0))
            pen.text((pen.w - pen.width(text)) / 2 if s.centered else self.margin, y, text)
            y += 1.7 * s.size
        return y + 1.4 * s.size

    def _foot(self) -> None:
        pen, s = self.pen, self.s
        pen.font(s.font, 7)
        for number, line in enumerate(s.foot):
            pen.text(self.margin, pen.h - 48 + 9 * number, line)
        page = str(pen.pages + 1)
        pen.text(pen.w / 2 - pen.width(page) / 2, pen.h - 22, page)
        pen.font(s.font, s.size)

    def _table(self, rows: list[str], left: float, right: float, top: float) -> None:
        pen, s = self.pen, self.s
        pen.font(BOLD[s.font], s.size)
        wide = [
            max(
                pen.width("(88.8%)" if c.percent else "(88,888,888)"),
                *(pen.width(h) for h in c.heads),
            )
            + (22 if s.sign_on != "none" else 15)
            for c in s.columns
        ]
        for text, first, last in s.spans:
            short = pen.width(text) + 16 - sum(wide[first : last + 1])
            if short > 0:
                wide[first : last + 1] = [
                    w + short / (last + 1 - first) for w in wide[first : last + 1]
                ]
        edges = [right - sum(wide[i + 1 :]) for i in range(len(wide))]
        table = edges[0] - wide[0]
        note = table - 16
        code = left + (46 if s.codes else 0)
        self.at = (left, code, (note - 20 if s.notes else table) - 8, note, edges, wide)
        y, on_page = self._heads(top), 0
        section = s.corner if s.corner.lower() == "activo" else None
        for row in rows:
            kind, label = row[0], row[1:].strip()
            if on_page >= s.per_page or y > pen.h - 75:
                self._foot()
                pen.next()
                y = self._above(s.continued) if s.continued else 60.0
                y = self._heads(y) if s.repeat_heads else y + s.size
                on_page = 0
            on_page += 1
            if kind == "#":
                section = label.rstrip(":")
                s.corner = (
                    "" if s.corner.lower() == "activo" else s.corner
                )  # repeated on the next page
                pen.font(BOLD[s.font], s.size)
                for line in pen.broken(label, self.at[2] - left):
                    pen.text(left, y, line)
                    y += s.pitch * s.size
                pen.font(s.font, s.size)
                continue
            y = self._row(kind, label, section, y, len(row) - len(row[1:].lstrip()) - 1)

    def _heads(self, y: float) -> float:
        pen, s = self.pen, self.s
        left, _, _, note, edges, wide = self.at
        pen.font(BOLD[s.font], s.size)
        step = 1.25 * s.size
        if s.spans:
            for text, first, last in s.spans:
                start, end = edges[first] - wide[first] + 8, edges[last]
                pen.text((start + end - pen.width(text)) / 2, y, text)
                if s.rules:
                    pen.canvas.line(start, pen.h - y - 3, end, pen.h - y - 3)
            y += step + 2
        deep = max(len(c.heads) for c in s.columns)
        for column, edge in zip(s.columns, edges, strict=True):
            for number, text in enumerate(column.heads):
                pen.text(
                    edge - pen.width(text), y + (number + deep - len(column.heads)) * step, text
                )
        if s.notes:
            pen.text(note - pen.width(s.notes) / 2, y + (deep - 1) * step, s.notes)
        if s.corner:
            pen.text(left, y + (deep - 1) * step, s.corner)
        y += (deep - 1) * step
        if s.rules:
            pen.canvas.setLineWidth(0.6)
            pen.canvas.line(left, pen.h - y - 3.5, edges[-1], pen.h - y - 3.5)
        pen.font(s.font, s.size)
        return y + 1.9 * s.size

    def _row(self, kind: str, label: str, section: str | None, y: float, depth: int) -> float:
        pen, s, rng = self.pen, self.s, self.rng
        left, code, label_end, note, edges, wide = self.at
        total = kind == "="
        label = label.upper() if total and s.upper_totals else label
        pen.font(BOLD[s.font] if total or kind == "*" else s.font, s.size)
        if s.codes and not total:
            pen.text(
                left,
                y,
                f"{rng.randrange(1, 6)}.{rng.randrange(1, 4):02d}.{rng.randrange(1, 30):02d}",
            )
        x = code + (0 if total else s.indent * max(depth, 1))
        parts = pen.broken(label, label_end - x)
        step = (1.15 if s.tight else s.pitch) * s.size
        base = y + (0 if s.value_on == "first" else (len(parts) - 1) * step)
        for number, part in enumerate(parts):
            text = part
            room = label_end - x - pen.width(text)
            if s.leaders and y + number * step == base and room > 5 * pen.width("."):
                text += " " + "." * int(room / pen.width(".") - 2)
            pen.text(x + (5 if number else 0), y + number * step, text)
        if kind != "~":
            if s.notes and not total and rng.random() < 0.6:
                text = _note(s.note_kind, rng)
                pen.text(note - pen.width(text) / 2, base, text)
            self._cells(kind, label, section, base)
        if total and s.rules:
            for edge, across in zip(edges, wide, strict=True):
                pen.canvas.line(
                    edge - across + 10,
                    pen.h - base + s.size * 0.95,
                    edge,
                    pen.h - base + s.size * 0.95,
                )
        pen.font(s.font, s.size)
        return y + (len(parts) - 1) * step + s.pitch * s.size

    def _cells(self, kind: str, label: str, section: str | None, base: float) -> None:
        pen, s, rng = self.pen, self.s, self.rng
        edges, wide = self.at[4], self.at[5]
        total = kind == "=" and "total" in label.lower()
        magnitude = 10 ** rng.uniform(1.5, 6.2 if s.scale < 1_000_000 else 4.6) * (
            50 if s.scale == 1 and not s.decimals else 1
        )
        for column, edge, across in zip(s.columns, edges, wide, strict=True):
            if column.percent:
                text = f"{rng.uniform(-30, 40):.1f}%"
                text = text if s.thousands == "," else text.replace(".", ",")
                pen.text(edge - pen.width(text), base, text)
                continue
            draw = rng.random()
            if kind not in "=@&" and draw < s.zeros + s.blanks:
                if draw >= s.zeros:
                    continue
                box = pen.text(edge - pen.width(s.zero), base, s.zero)
                if s.zero == "0":
                    self.truths.append(
                        Truth(
                            label,
                            column.year,
                            column.ends,
                            "0",
                            "0",
                            pen.pages,
                            box,
                            section,
                            False,
                        )
                    )
                continue
            number = magnitude * rng.uniform(0.6, 1.5)
            number = (
                -number
                if rng.random() < (0.9 if kind == "-" else 0.05) and kind not in "@&"
                else number
            )
            decimals = 2 if kind == "@" else 0 if kind == "&" else s.decimals
            printed, value = _printed(rng.uniform(0.2, 40) if kind == "@" else number, decimals, s)
            over = pen.width(")") if s.hang and printed.endswith(")") else 0.0
            if s.sign_on == "all" or (s.sign_on == "totals" and kind in "=@"):
                pen.text(edge - across + 9, base, s.sign)
            box = pen.text(edge - pen.width(printed) + over, base, printed)
            self.truths.append(
                Truth(
                    label,
                    column.year,
                    column.ends,
                    value,
                    "".join(printed.split()),
                    pen.pages,
                    box,
                    section,
                    total,
                )
            )


def _printed(number: float, decimals: int, s: Sheet) -> tuple[str, str]:
    value = f"{abs(number):.{decimals}f}"
    if float(value) == 0:
        value = f"{7:.{decimals}f}"
    whole, _, cents = f"{float(value):,.{decimals}f}".partition(".")
    text = whole.replace(",", s.thousands) + (
        (("." if s.thousands in ",'’" else ",") + cents) if cents else ""
    )
    if number >= 0:
        return text, value
    forms = {"parens": "({})", "minus": "-{}", "after": "{}-", "true": "−{}", "dash": "–{}"}
    return forms[s.negative].format(text), f"-{value}"


def _note(kind: str, rng: Random) -> str:
    first = rng.randrange(3, 32)
    if kind == "plain" or rng.random() < 0.5:
        return str(first)
    return rng.choice(
        [
            f"{first}.{rng.randrange(1, 6)}",
            f"{first}, {first + 2}",
            f"{first} y {first + 1}" if kind == "es" else f"{first}({rng.choice('abc')})",
        ]
    )


def words_of(lang: str) -> list[str]:
    """Return the paragraphs of a report's prose."""
    return (Path(__file__).parent / f"prose_{lang}.txt").read_text(encoding="utf-8").splitlines()

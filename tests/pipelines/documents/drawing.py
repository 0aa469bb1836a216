"""The style of a made-up statement, a pen that returns boxes, and the values that were printed."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import pypdfium2 as pdfium
from reportlab.pdfbase.pdfmetrics import getAscentDescent, stringWidth
from reportlab.pdfgen import canvas


@dataclass(frozen=True)
class Truth:
    """A printed number with its label, period, value and position (0..1, from the top left)."""

    label: str
    year: int | None
    period: str | None
    value: str
    printed: str
    page: int
    box: tuple[float, float, float, float]
    section: str | None
    total: bool
    scale: int | None = None
    """None: the statement's."""


@dataclass
class Statement:
    """A document and the values printed in it."""

    name: str
    doc_type: str
    content: bytes
    values: list[Truth]
    org: str
    title: str
    currency: str | None
    scale: int


@dataclass
class Style:
    """The language, wording and layout of a statement."""

    lang: str = "es"
    doc_type: str = "balance_sheet"
    years: list[int] = field(default_factory=lambda: [2024, 2023])
    month: int = 12
    heads: str = "dmy"
    units: str = "title"
    notes: str = "none"
    negative: str = "parens"
    thousands: str = "."
    decimals: int = 0
    sign: str = "none"
    zero: str = "-"
    leaders: bool = False
    align: str = "right"
    wrap: str = "none"
    wrap_tight: bool = True
    case: str = "plain"
    indent: float = 0.0
    page: tuple[float, float] = (612.0, 792.0)
    rotate: int = 0
    sideways: bool = False
    crop: float = 0.0
    font: str = "Helvetica"
    size: float = 9.0
    pitch: float = 1.55
    repeat_heads: bool = True
    rows: int = 18
    per_page: int = 40
    beside: bool = False
    variation: bool = False
    percent: bool = False
    centered: bool = True
    currency: str = "CLP"
    scale: int = 1000
    spaced: bool = False
    running: bool = False
    cents_row: bool = False
    codes: str = "none"
    percent_sign: bool = True
    mark: str = ""
    groups: tuple[str, ...] = ()
    """Names of the columns of each year; the year stands over them."""


class Pen:
    """Draws in the coordinates of the displayed page, however the page is rotated afterwards."""

    def __init__(self, style: Style) -> None:
        self.style = style
        self.out = io.BytesIO()
        self.w, self.h = style.page
        turned = style.rotate in (90, 270) or style.sideways
        self.canvas = canvas.Canvas(
            self.out,
            pagesize=(self.h, self.w) if turned and not style.sideways else (self.w, self.h),
            pageCompression=1,
        )
        self.pages = 0
        self.begin()

    def begin(self) -> None:
        s = self.style
        if (
            s.sideways
        ):  # a landscape table drawn sideways on a portrait page: W and H are those of the table
            self.canvas.setPageSize((self.h, self.w))
            self.canvas.transform(0, 1, -1, 0, self.h, 0)
        elif s.rotate == 90:
            self.canvas.transform(0, 1, -1, 0, self.h, 0)
        elif s.rotate == 270:
            self.canvas.transform(0, -1, 1, 0, 0, self.w)
        elif s.rotate == 180:
            self.canvas.transform(-1, 0, 0, -1, self.w, self.h)
        self.font(s.font, s.size)

    def font(self, name: str, size: float) -> None:
        self.name, self.points = name, size
        self.canvas.setFont(name, size)

    def width(self, text: str) -> float:
        return stringWidth(text, self.name, self.points)

    def broken(self, text: str, room: float) -> list[str]:
        """Return the text in lines that fit the width."""
        lines = [""]
        for word in text.split():
            longer = f"{lines[-1]} {word}".strip()
            if lines[-1] and self.width(longer) > room:
                lines.append(word)
            else:
                lines[-1] = longer
        return lines

    def text(self, x: float, y: float, text: str) -> tuple[float, float, float, float]:
        """Draw at x, y from the top and return the displayed box, 0..1."""
        base = self.h - y
        if self.style.spaced:
            at = x
            for char in text:
                self.canvas.drawString(at, base, char)
                at += self.width(char)
        else:
            self.canvas.drawString(x, base, text)
        up, down = getAscentDescent(self.name, self.points)
        return self.box(x, y - up, x + self.width(text), y - down)

    def box(self, x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
        s = self.style
        if s.sideways:  # the displayed page is h by w, with the table's left edge at the bottom
            return y0 / self.h, 1 - x1 / self.w, y1 / self.h, 1 - x0 / self.w
        cut = s.crop
        wide, high = self.w - 2 * cut, self.h - 2 * cut
        return (x0 - cut) / wide, (y0 - cut) / high, (x1 - cut) / wide, (y1 - cut) / high

    def next(self) -> None:
        self.canvas.showPage()
        self.pages += 1
        self.begin()

    def done(self) -> bytes:
        self.canvas.showPage()
        self.canvas.save()
        s = self.style
        if not s.rotate and not s.crop:
            return self.out.getvalue()
        document = pdfium.PdfDocument(self.out.getvalue())
        for page in document:
            if s.rotate:
                page.set_rotation(s.rotate)
            if s.crop:
                page.set_cropbox(s.crop, s.crop, self.w - s.crop, self.h - s.crop)
        out = io.BytesIO()
        document.save(out)
        document.close()
        return out.getvalue()

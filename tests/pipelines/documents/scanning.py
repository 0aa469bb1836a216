"""Statements as scans: each page a picture, skewed and slightly blurred, without any text."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pypdfium2 as pdfium
from PIL import Image, ImageFilter
from pipelines.documents.drawing import Statement, Truth

DPI = 200
DEGREES = 1.0
BLUR = 0.8


def pictures(content: bytes, *, degrees: float = DEGREES, blur: float = BLUR) -> list[Image.Image]:
    """Return the pages as a scanner would see them, lying askew by so many degrees clockwise."""
    document = pdfium.PdfDocument(content)
    out = []
    for page in document:
        picture = page.render(scale=DPI / 72).to_pil().convert("L")
        turned = picture.rotate(-degrees, resample=Image.Resampling.BICUBIC, fillcolor=255)
        out.append(turned.filter(ImageFilter.GaussianBlur(blur)) if blur else turned)
    document.close()
    return out


def as_pdf(pages: list[Image.Image]) -> bytes:
    """Return a document with a picture on each page."""
    out = io.BytesIO()
    pages[0].save(out, "PDF", resolution=DPI, save_all=True, append_images=pages[1:], quality=80)
    return out.getvalue()


def scanned(statement: Statement, *, degrees: float = DEGREES, blur: float = BLUR) -> Statement:
    """Return the statement as a scan, with the places at which its values then are."""
    pages = pictures(statement.content, degrees=degrees, blur=blur)
    values = [_turned(truth, pages[truth.page].size, degrees) for truth in statement.values]
    return replace(statement, content=as_pdf(pages), values=values)


def _turned(truth: Truth, size: tuple[int, int], degrees: float) -> Truth:
    wide, high = size
    x0, y0, x1, y1 = truth.box
    x, y = (x0 + x1) / 2 * wide - wide / 2, (y0 + y1) / 2 * high - high / 2
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = x * cos - y * sin + wide / 2, x * sin + y * cos + high / 2
    half_wide, half_high = (x1 - x0) / 2, (y1 - y0) / 2
    return replace(
        truth,
        box=(
            x / wide - half_wide,
            y / high - half_high,
            x / wide + half_wide,
            y / high + half_high,
        ),
    )

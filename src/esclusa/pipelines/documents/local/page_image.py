"""Render a page as a PNG of bounded size."""

from __future__ import annotations

import struct
import zlib

import pypdfium2 as pdfium

from esclusa import Text
from esclusa.pipelines.documents.local.pdf_words import Unreadable, open_pdf

# Limit of the longer side, in pixels.
MAX_PIXELS = 3000


def render(content: bytes, number: int, width: int) -> bytes:
    """Return page ``number`` (from 0), ``width`` pixels wide.

    Raises Unreadable, also if the document has no such page.
    """
    document = open_pdf(content)
    try:
        if not 0 <= number < len(document):
            last = len(document) - 1
            why = Text("it has pages 0 to {last}, not {number}", last=last, number=number)
            raise Unreadable("no_such_page", why)
        page = document[number]
        page_width, page_height = page.get_size()
        scale = min(width / max(page_width, 1), MAX_PIXELS / max(page_width, page_height, 1))
        return _png(page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False))
    except pdfium.PdfiumError as error:
        why = Text("page {number} cannot be drawn: {why}", number=number, why=error)
        raise Unreadable("bad_pdf", why) from None
    finally:
        document.close()


def _png(bitmap: pdfium.PdfBitmap) -> bytes:
    """Encode the bitmap as an 8-bit PNG: RGB, RGBA or grey."""
    color_type = {1: 0, 3: 2, 4: 6}[bitmap.n_channels]
    data, stride, length = bytes(bitmap.buffer), bitmap.stride, bitmap.width * bitmap.n_channels
    rows = b"".join(b"\0" + data[y * stride : y * stride + length] for y in range(bitmap.height))
    head = struct.pack(">IIBBBBB", bitmap.width, bitmap.height, 8, color_type, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", head)
        + _chunk(b"IDAT", zlib.compress(rows, 3))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

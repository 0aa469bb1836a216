"""Split a document into calls that Document AI accepts."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pypdfium2 as pdfium

from esclusa import Text
from esclusa.pipelines.documents.local.pdf_words import Unreadable


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """What one call sends.

    ``content`` is a document of ``count`` pages, from ``first_page`` on; empty for the whole
    document, of which ``pages`` are requested (from 1; none: all).
    """

    content: bytes = b""
    pages: tuple[int, ...] = ()
    first_page: int = 0
    count: int = 0


def split(
    content: bytes, max_pages: int, max_bytes: int, overlap: int = 0
) -> tuple[list[DocumentPart], list[tuple[float, float, int]]]:
    """Return the parts of a document, and width, height and rotation of its pages as shown.

    With too many pages, each call sends the whole document and requests some pages. With too many
    bytes, each call sends a document of some pages. Neighbours have ``overlap`` pages in common.
    Raises Unreadable if a page is too large. A document whose pages cannot be counted is sent
    whole.
    """
    try:
        document = pdfium.PdfDocument(content)
    except pdfium.PdfiumError:
        if len(content) > max_bytes:
            message = Text("{size:,} bytes are too many for one call", size=len(content))
            raise Unreadable("too_large", message) from None
        return [DocumentPart()], []
    try:
        count = len(document)
        shown = [_shown(document, number) for number in range(count)]
        step = max(1, max_pages - overlap)
        starts = range(0, max(1, count - overlap), step)
        ends = [(first, min(count, first + max_pages)) for first in starts]
        if len(content) > max_bytes:
            halves = (_halved(document, start, end, max_bytes) for start, end in ends)
            return [part for parts in halves for part in parts], shown
        if count <= max_pages:
            return [DocumentPart(count=count)], shown
        return [
            DocumentPart(
                pages=tuple(range(start + 1, end + 1)), first_page=start, count=end - start
            )
            for start, end in ends
        ], shown
    finally:
        document.close()


def _shown(document: Any, number: int) -> tuple[float, float, int]:
    """Return width, height and rotation of a page; zeros if it cannot be read."""
    try:
        page = document[number]
        return (*page.get_size(), page.get_rotation())
    except pdfium.PdfiumError:
        return 0.0, 0.0, 0


def _halved(document: Any, first: int, end: int, max_bytes: int) -> list[DocumentPart]:
    """Return these pages as one document, or as several if it is too large."""
    out = io.BytesIO()
    part = pdfium.PdfDocument.new()
    part.import_pages(document, list(range(first, end)))
    part.save(out)
    part.close()
    content = out.getvalue()
    if len(content) <= max_bytes:
        return [DocumentPart(content, (), first, end - first)]
    if end - first == 1:
        message = Text(
            "page {number} alone has {size:,} bytes, too many for one call",
            number=first,
            size=len(content),
        )
        raise Unreadable("too_large", message)
    middle = (first + end) // 2
    return [
        *_halved(document, first, middle, max_bytes),
        *_halved(document, middle, end, max_bytes),
    ]

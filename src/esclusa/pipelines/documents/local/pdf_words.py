"""Words with their positions, from the text of a PDF."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import unicodedata
from collections.abc import Iterator
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as c

from esclusa import Text
from esclusa.pipelines.documents.local.page_geometry import (
    Box,
    PageGeometry,
    TextRun,
    line_slope,
    text_direction,
)
from esclusa.pipelines.documents.local.picture_words import is_picture
from esclusa.pipelines.documents.local.words import (
    PdfPage,
    PdfText,
    Recogniser,
    Word,
    join_words,
    union,
)

MAX_PAGES = 2000
# pdfium is not thread-safe: hold this lock where several threads use it.
PDFIUM_LOCK = threading.RLock()
# Characters up to this share of the preceding height count as smaller.
SMALL_RATIO = 0.8
# Longest footnote mark, in characters: `(1)(2)`.
MAX_MARK_LENGTH = 6


class Unreadable(Exception):
    """A document that cannot be read.

    ``error`` is ``bad_pdf``, ``encrypted_pdf``, ``no_text_layer``, ``too_many_pages``,
    ``no_such_page`` or ``too_large``.
    """

    def __init__(self, error: str, message: Text) -> None:
        self.error, self.message = error, message
        super().__init__(message)


def read_pdf(content: bytes, recognise: Recogniser | None = None) -> PdfText:
    """Return the words of a document; raise Unreadable.

    ``recognise`` reads the pages that are pictures; without it they are unread.
    """
    document = open_pdf(content)
    try:
        pages: list[PdfPage] = []
        texts: list[str] = []
        offset = 0
        if len(document) > MAX_PAGES:
            raise Unreadable(
                "too_many_pages",
                Text(
                    "it has {count:,} pages; up to {most:,} are read",
                    count=len(document),
                    most=MAX_PAGES,
                ),
            )
        for number in range(len(document)):
            try:
                page, text = _read_page(document, number, offset, recognise)
            except pdfium.PdfiumError as error:
                why = Text("page {number} cannot be read: {why}", number=number, why=error)
                raise Unreadable("bad_pdf", why) from None
            pages.append(page)
            texts.append(text)
            offset += len(text)
    finally:
        document.close()
    if not any(page.words for page in pages):
        raise Unreadable(
            "no_text_layer",
            Text(
                "no page has text: the document is made of pictures, and OCR is off (DOCUMENTS_OCR)"
            )
            if recognise is None
            else Text("no page has text, and none was recognised in its pictures"),
        )
    return PdfText(pages, "".join(texts))


def picture_pages(content: bytes) -> list[int]:
    """Return the numbers of the pages that are pictures; raise Unreadable."""
    found: list[int] = []

    def note(page: Any, geometry: PageGeometry, number: int, offset: int) -> tuple[list[Word], str]:
        found.append(number)
        return [], "\f"

    try:
        read_pdf(content, note)
    except Unreadable as error:
        if error.error != "no_text_layer":
            raise
    return found


def open_pdf(content: bytes) -> Any:
    """Open the document; raise Unreadable."""
    try:
        document = pdfium.PdfDocument(content)
        with contextlib.suppress(pdfium.PdfiumError):  # a broken form is ignored
            document.init_forms()  # renders form fields that have no appearance of their own
        if len(document) == 0:
            raise Unreadable("bad_pdf", Text("it has no pages"))
    except pdfium.PdfiumError as error:
        if "password" in str(error).lower() or "security" in str(error).lower():
            why = Text("it is encrypted and needs a password")
            raise Unreadable("encrypted_pdf", why) from None
        why = Text("it is not a PDF that can be read: {why}", why=error)
        raise Unreadable("bad_pdf", why) from None
    return document


def _read_page(
    document: Any, number: int, offset: int, recognise: Recogniser | None
) -> tuple[PdfPage, str]:
    page = _flattened_page(document, number)
    textpage = page.get_textpage()
    try:
        width, height = page.get_size()
        geometry = PageGeometry(page, width, height)
        text = _page_text(textpage, c.FPDFText_CountChars(textpage)) + "\f"
        runs = [
            TextRun(
                start,
                end,
                _char_box(textpage, start, geometry),
                _char_box(textpage, end - 1, geometry),
            )
            for start, end in _run_spans(text)
        ]
        geometry.turn, geometry.lean = text_direction(runs, geometry)
        geometry.words_lean = geometry.lean != 0
        words = _page_words(textpage, text, runs, geometry, number, offset)
        # OCR produces upright words on lines that are not level.
        if not geometry.words_lean and (drift := line_slope(words)):
            geometry.lean = drift
            words = _page_words(textpage, text, runs, geometry, number, offset)
        in_picture = is_picture(page, words)
        if in_picture:
            words = []  # a stamp on the picture is read with it
            if recognise is not None:
                geometry = PageGeometry(page, width, height)
                words, text = recognise(page, geometry, number, offset)
        sides = (width, height) if geometry.turn % 2 == 0 else (height, width)
        return PdfPage(number, *sides, _without_watermarks(words), in_picture), text
    finally:
        textpage.close()
        page.close()


def _flattened_page(document: Any, number: int) -> Any:
    """Return the page with form fields and text annotations as part of its text."""
    page = document[number]
    if any(
        _is_text_annotation(page, index) for index in range(c.FPDFPage_GetAnnotCount(page))
    ) and c.FPDFPage_Flatten(page, c.FLAT_NORMALDISPLAY):
        page.close()
        page = document[number]
    return page


def _is_text_annotation(page: Any, index: int) -> bool:
    annotation = c.FPDFPage_GetAnnot(page, index)
    try:
        return c.FPDFAnnot_GetSubtype(annotation) in (c.FPDF_ANNOT_WIDGET, c.FPDF_ANNOT_FREETEXT)
    finally:
        c.FPDFPage_CloseAnnot(annotation)


def _page_words(
    textpage: Any, text: str, runs: list[TextRun], geometry: PageGeometry, page: int, offset: int
) -> list[Word]:
    """Return the page's words without footnote marks, joined where pdfium split them."""
    out: list[Word] = []
    for run in runs:
        for word in _words_of_run(textpage, text, run, geometry, page, offset):
            if out and _is_footnote_mark(out[-1], word):
                continue
            if (
                out
                and _continues(out[-1], word)
                and not _has_drawn_space(textpage, out[-1].end - offset, word.start - offset)
            ):
                out[-1] = join_words(out[-1], word)
            else:
                out.append(word)
    return out


def _page_text(textpage: Any, count: int) -> str:
    """Return one character for each character of the page, so that positions agree."""
    units = (ctypes.c_ushort * (count + 1))()
    if c.FPDFText_GetText(textpage, 0, count, units) == count + 1:
        text = bytes(units)[: 2 * count].decode("utf-16-le", "replace")
        # Each character must be exactly one UTF-16 unit.
        if len(text) == count and "\0" not in text and "\ufffd" not in text:
            return text
    codes = (c.FPDFText_GetUnicode(textpage, index) for index in range(count))
    return "".join(
        chr(u) if 0 < u < 0x110000 and not 0xD800 <= u < 0xE000 else "\ufffd" for u in codes
    )


def _run_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run between white space or dot leaders."""
    start = None
    index, length = 0, len(text)
    while index < length:
        char = text[index]
        stop = index
        if char in "._…·" or char.isspace() or char in "\ufffd\u00ad\ufffe\u0002":
            stop = index + 1
            if char in "._…·":
                while stop < length and text[stop] == char:
                    stop += 1
                if stop - index < (3 if char != "…" else 1):
                    stop = index  # a dot within its word
        if stop > index:
            if start is not None:
                yield start, index
                start = None
            index = stop
        else:
            if start is None:
                start = index
            index += 1
    if start is not None:
        yield start, length


_rect = c.FS_RECTF()


def _char_box(textpage: Any, index: int, geometry: PageGeometry) -> Box | None:
    if not c.FPDFText_GetLooseCharBox(textpage, index, _rect):
        return None
    left, bottom, right, top = _rect.left, _rect.bottom, _rect.right, _rect.top
    if left == right and top == bottom:
        return None
    return geometry.shown_box(left, min(bottom, top), right, max(bottom, top))


def _words_of_run(
    textpage: Any, text: str, run: TextRun, geometry: PageGeometry, page: int, offset: int
) -> Iterator[Word]:
    """Yield the run as one word, or as several words split at its gaps.

    Some programs place columns without white space between them.
    """
    start, end, first, last = run
    if first is None or last is None:
        return
    word = _make_word(text, start, end, union(first, last), geometry, page, offset)
    if word is None:
        return
    first_height = _text_height(first, geometry)
    stretched = (
        word.x1 - word.x0 > 0.75 * word.height * (end - start) or word.height > 1.8 * first_height
    )
    if end - start > 1 and (stretched or _text_height(last, geometry) < SMALL_RATIO * first_height):
        yield from _split_at_gaps(textpage, text, start, end, geometry, page, offset)
    else:
        yield word


def _split_at_gaps(
    textpage: Any, text: str, start: int, end: int, geometry: PageGeometry, page: int, offset: int
) -> Iterator[Word]:
    first, box_so_far, before = start, None, None
    for index in range(start, end):
        if (box := _char_box(textpage, index, geometry)) is None or (
            here := _make_word(text, index, index + 1, box, geometry, page, offset)
        ) is None:
            continue
        if before is not None and box_so_far is not None:
            gap, rise = here.x0 - before.x1, abs(here.middle - before.middle)
            apart = gap > 0.6 * here.height or gap < -2 * here.height or rise > 0.6 * here.height
            if apart or (here.height < SMALL_RATIO * before.height and here.middle < before.middle):
                if made := _make_word(text, first, index, box_so_far, geometry, page, offset):
                    yield made
                first, box_so_far = index, None
        box_so_far = box if box_so_far is None else union(box_so_far, box)
        before = here
    if box_so_far is not None and (
        made := _make_word(text, first, end, box_so_far, geometry, page, offset)
    ):
        yield made


def _is_footnote_mark(word: Word, following: Word) -> bool:
    """Return whether small raised characters right behind a word are a footnote mark."""
    small = following.height < SMALL_RATIO * word.height and len(following.text) <= MAX_MARK_LENGTH
    raised = (
        word.y0 - 0.5 * word.height < following.y0
        and following.y1 < word.y1 - 0.12 * word.height
        and following.middle < word.middle
    )
    return small and raised and -0.2 * word.height < following.x0 - word.x1 < 0.5 * word.height


def _continues(word: Word, following: Word) -> bool:
    """Return whether the characters are as close as within one word.

    pdfium inserts spaces in tight or loose pairs, around ligatures, and between all digits of a
    font that declares a wrong width.
    """
    size = max(word.height, following.height)
    level = following.y0 < word.middle < following.y1 or word.y0 < following.middle < word.y1
    last, first = word.text[-1], following.text[0]
    least, most = (-0.2, 0.12) if last.isalpha() and first.isalpha() else (-0.05, 0.05)
    return (
        level
        and least * size < following.x0 - word.x1 < most * size
        and not (_is_currency_sign(last) or _is_currency_sign(first))
    )


def _has_drawn_space(textpage: Any, start: int, end: int) -> bool:
    """Return whether white space is drawn there, not only inferred by pdfium."""
    return any(c.FPDFText_IsGenerated(textpage, index) == 0 for index in range(start, end))


def _is_currency_sign(char: str) -> bool:
    """Return whether it is a currency sign, which is not part of the number beside it."""
    return unicodedata.category(char) == "Sc"


def _without_watermarks(words: list[Word]) -> list[Word]:
    """Drop words that are much larger than the others and overlap several of them."""
    heights = sorted(word.height for word in words)
    large = 3 * heights[len(heights) // 2] if heights else 0.0
    return [
        word
        for word in words
        if word.height <= large or sum(_overlap(word, other) for other in words) < 4
    ]


def _overlap(a: Word, b: Word) -> bool:
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1


def _text_height(box: Box, geometry: PageGeometry) -> float:
    _, top, _, bottom = geometry.reading_box(box)
    return bottom - top


def _make_word(
    text: str, start: int, end: int, box: Box, geometry: PageGeometry, page: int, offset: int
) -> Word | None:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    if not (0 <= x <= 1 and 0 <= y <= 1):
        return None  # outside the crop box: not displayed
    inside = (max(0.0, box[0]), max(0.0, box[1]), min(1.0, box[2]), min(1.0, box[3]))
    return Word(
        text[start:end], *geometry.reading_box(box), inside, page, offset + start, offset + end
    )

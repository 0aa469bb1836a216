"""Words with their places, from a PDF's own text."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pypdfium2 as pdfium
import pypdfium2.raw as c

from esclusa.pipelines.documents.local.shown import Box, Run, Shown, drift_of, turn_of

MAX_PAGES = 2000
ALONE = threading.RLock()
"""pdfium is not made for threads: whoever uses it where there are several holds this."""
SMALL = 0.8
"""Of the characters before them, up to which height others are of a smaller size."""
MARK = 6
"""Characters that the mark of a footnote has at most: ``(1)(2)``."""


class Unreadable(Exception):
    """A document that nobody can read: ``bad_pdf``, ``encrypted_pdf``, ``no_text_layer``, ``too_many_pages``, ``no_such_page``."""

    def __init__(self, error: str, message: str) -> None:
        self.error = error
        super().__init__(message)


@dataclass(slots=True)
class Word:
    """A word as it is shown. ``x0 … y1`` are points in the direction of reading, from the top left; ``box`` is 0..1 of the page as
    shown; ``start, end`` are where it stands in the document's text."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    box: Box
    page: int
    start: int
    end: int
    height: float = field(init=False)
    middle: float = field(init=False)

    def __post_init__(self) -> None:
        self.height = self.y1 - self.y0
        self.middle = (self.y0 + self.y1) / 2


@dataclass(slots=True)
class Page:
    """A page's words, in reading direction. ``unread``: it has none, but pictures, which may be of text."""

    number: int
    width: float
    height: float
    words: list[Word] = field(default_factory=list)
    unread: bool = False


@dataclass(slots=True)
class Text:
    """A document's pages, and its text: the pages' own, one after the other, each ended by a form feed."""

    pages: list[Page]
    text: str


def read(content: bytes) -> Text:
    """The words of a document. Raises Unreadable."""
    document = opened(content)
    try:
        pages: list[Page] = []
        texts: list[str] = []
        offset = 0
        if len(document) > MAX_PAGES:
            raise Unreadable(
                "too_many_pages", f"it has {len(document):,} pages; up to {MAX_PAGES:,} are read"
            )
        for number in range(len(document)):
            try:
                page, text = _page(document, number, offset)
            except pdfium.PdfiumError as error:
                raise Unreadable("bad_pdf", f"page {number} cannot be read: {error}") from None
            pages.append(page)
            texts.append(text)
            offset += len(text)
    finally:
        document.close()
    if not any(page.words for page in pages):
        raise Unreadable(
            "no_text_layer",
            "no page has text: the document is made of pictures, and reading those needs OCR",
        )
    return Text(pages, "".join(texts))


def opened(content: bytes) -> Any:
    """The document, opened. Raises Unreadable."""
    try:
        document = pdfium.PdfDocument(content)
        with contextlib.suppress(pdfium.PdfiumError):  # a form that is broken is no form
            document.init_forms()  # fields without looks of their own are given some
        if len(document) == 0:
            raise Unreadable("bad_pdf", "it has no pages")
    except pdfium.PdfiumError as error:
        if "password" in str(error).lower() or "security" in str(error).lower():
            raise Unreadable("encrypted_pdf", "it is encrypted and needs a password") from None
        raise Unreadable("bad_pdf", f"it is not a PDF that can be read: {error}") from None
    return document


def _page(document: Any, number: int, offset: int) -> tuple[Page, str]:
    page = _with_fields(document, number)
    textpage = page.get_textpage()
    try:
        width, height = page.get_size()
        shown = Shown(page, width, height)
        count = c.FPDFText_CountChars(textpage)
        text = _text(textpage, count) + "\f"
        runs = [
            Run(start, end, _char_box(textpage, start, shown), _char_box(textpage, end - 1, shown))
            for start, end in _runs(text)
        ]
        shown.turn, shown.lean = turn_of(runs, shown)
        shown.leaning = shown.lean != 0
        words = _put_together(textpage, text, runs, shown, number, offset)
        if not shown.leaning and (
            drift := drift_of(words)
        ):  # upright words on lines that are not level, as OCR leaves them
            shown.lean = drift
            words = _put_together(textpage, text, runs, shown, number, offset)
        sides = (width, height) if shown.turn % 2 == 0 else (height, width)
        return Page(
            number, *sides, _without_watermarks(words), unread=not words and _has_pictures(page)
        ), text
    finally:
        textpage.close()
        page.close()


def _has_pictures(page: Any) -> bool:
    return any(True for _ in page.get_objects(filter=[c.FPDF_PAGEOBJ_IMAGE], max_depth=3))


def _with_fields(document: Any, number: int) -> Any:
    """The page; what was filled into a form, or written on it, is part of its text as it is part of what is shown."""
    page = document[number]
    if any(
        _is_written(page, index) for index in range(c.FPDFPage_GetAnnotCount(page))
    ) and c.FPDFPage_Flatten(page, c.FLAT_NORMALDISPLAY):
        page.close()
        page = document[number]
    return page


def _is_written(page: Any, index: int) -> bool:
    annotation = c.FPDFPage_GetAnnot(page, index)
    try:
        return c.FPDFAnnot_GetSubtype(annotation) in (c.FPDF_ANNOT_WIDGET, c.FPDF_ANNOT_FREETEXT)
    finally:
        c.FPDFPage_CloseAnnot(annotation)


def _put_together(
    textpage: Any, text: str, runs: list[Run], shown: Shown, page: int, offset: int
) -> list[Word]:
    """The page's words, without marks of footnotes, and whole where pdfium cut them."""
    out: list[Word] = []
    for run in runs:
        for word in _words(textpage, text, run, shown, page, offset):
            if out and _is_raised(out[-1], word):
                continue
            if (
                out
                and _goes_on(out[-1], word)
                and not _spaced(textpage, out[-1].end - offset, word.start - offset)
            ):
                out[-1] = joined(out[-1], word)
            else:
                out.append(word)
    return out


def _text(textpage: Any, count: int) -> str:
    """One character for each of the page's, so that places in the text are places on the page."""
    units = (ctypes.c_ushort * (count + 1))()
    if c.FPDFText_GetText(textpage, 0, count, units) == count + 1:
        text = bytes(units)[: 2 * count].decode("utf-16-le", "replace")
        if (
            len(text) == count and "\0" not in text and "\ufffd" not in text
        ):  # no half of a character, no two units of one
            return text
    codes = (c.FPDFText_GetUnicode(textpage, index) for index in range(count))
    return "".join(
        chr(u) if 0 < u < 0x110000 and not 0xD800 <= u < 0xE000 else "\ufffd" for u in codes
    )


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """Where the words stand: whatever is between white space, cut at dot leaders too."""
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
                    stop = index  # a dot that belongs to its word
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


def _char_box(textpage: Any, index: int, shown: Shown) -> Box | None:
    if not c.FPDFText_GetLooseCharBox(textpage, index, _rect):
        return None
    left, bottom, right, top = _rect.left, _rect.bottom, _rect.right, _rect.top
    if left == right and top == bottom:
        return None
    return shown.box(left, min(bottom, top), right, max(bottom, top))


def _words(
    textpage: Any, text: str, run: Run, shown: Shown, page: int, offset: int
) -> Iterator[Word]:
    """The run as a word, or as several where it has gaps: some programs place columns without any white space between."""
    start, end, first, last = run
    if first is None or last is None:
        return
    one = _word(text, start, end, _union(first, last), shown, page, offset)
    if one is None:
        return
    tall = _tall(first, shown)
    spread = one.x1 - one.x0 > 0.75 * one.height * (end - start) or one.height > 1.8 * tall
    if end - start > 1 and (spread or _tall(last, shown) < SMALL * tall):
        yield from _cut(textpage, text, start, end, shown, page, offset)
    else:
        yield one


def _cut(
    textpage: Any, text: str, start: int, end: int, shown: Shown, page: int, offset: int
) -> Iterator[Word]:
    begun, whole, before = start, None, None
    for index in range(start, end):
        box = _char_box(textpage, index, shown)
        if box is None:
            continue
        here = _word(text, index, index + 1, box, shown, page, offset)
        if here is None:
            continue
        if before is not None and whole is not None:
            gap, rise = here.x0 - before.x1, abs(here.middle - before.middle)
            apart = gap > 0.6 * here.height or gap < -2 * here.height or rise > 0.6 * here.height
            if apart or (here.height < SMALL * before.height and here.middle < before.middle):
                made = _word(text, begun, index, whole, shown, page, offset)
                if made is not None:
                    yield made
                begun, whole = index, None
        whole = box if whole is None else _union(whole, box)
        before = here
    if whole is not None:
        made = _word(text, begun, end, whole, shown, page, offset)
        if made is not None:
            yield made


def _is_raised(word: Word, following: Word) -> bool:
    """Whether small characters close behind a word, above its line, are the mark of a footnote: no digits of a number, no letters of
    a label."""
    small = following.height < SMALL * word.height and len(following.text) <= MARK
    raised = (
        word.y0 - 0.5 * word.height < following.y0
        and following.y1 < word.y1 - 0.12 * word.height
        and following.middle < word.middle
    )
    return small and raised and -0.2 * word.height < following.x0 - word.x1 < 0.5 * word.height


def _goes_on(word: Word, following: Word) -> bool:
    """Whether characters stand as close as within a word: pdfium sees a space in tight or loose pairs, around ligatures, and between
    all digits of a font that says it is wider than it is."""
    size = max(word.height, following.height)
    level = following.y0 < word.middle < following.y1 or word.y0 < following.middle < word.y1
    last, first = word.text[-1], following.text[0]
    least, most = (-0.2, 0.12) if last.isalpha() and first.isalpha() else (-0.05, 0.05)
    return (
        level
        and least * size < following.x0 - word.x1 < most * size
        and not (_is_sign(last) or _is_sign(first))
    )


def _spaced(textpage: Any, start: int, end: int) -> bool:
    """Whether white space is drawn there, and not only seen by pdfium: slanted letters lean over it."""
    return any(c.FPDFText_IsGenerated(textpage, index) == 0 for index in range(start, end))


def _is_sign(char: str) -> bool:
    """Of a currency: it is no part of the number beside it."""
    return unicodedata.category(char) == "Sc"


def joined(word: Word, following: Word) -> Word:
    """Two words as one."""
    box = _union(word.box, following.box)
    y0, y1 = min(word.y0, following.y0), max(word.y1, following.y1)
    return Word(
        word.text + following.text,
        word.x0,
        y0,
        following.x1,
        y1,
        box,
        word.page,
        word.start,
        following.end,
    )


def _without_watermarks(words: list[Word]) -> list[Word]:
    """Without words that are much larger than the others and lie on several of them."""
    heights = sorted(word.height for word in words)
    large = 3 * heights[len(heights) // 2] if heights else 0.0
    return [
        word
        for word in words
        if word.height <= large or sum(_touch(word, other) for other in words) < 4
    ]


def _touch(a: Word, b: Word) -> bool:
    return a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1


def _tall(box: Box, shown: Shown) -> float:
    _, top, _, bottom = shown.read(box)
    return bottom - top


def _union(a: tuple[float, ...], b: tuple[float, ...]) -> Box:
    return min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def _word(
    text: str, start: int, end: int, box: Box, shown: Shown, page: int, offset: int
) -> Word | None:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    if not (0 <= x <= 1 and 0 <= y <= 1):
        return None  # cropped away: nobody sees it
    inside = (max(0.0, box[0]), max(0.0, box[1]), min(1.0, box[2]), min(1.0, box[3]))
    return Word(text[start:end], *shown.read(box), inside, page, offset + start, offset + end)

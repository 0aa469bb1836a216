"""Words, pages and the text of a document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from esclusa.pipelines.documents.local.page_geometry import Box, PageGeometry


@dataclass(slots=True)
class Word:
    """A word as displayed.

    ``x0`` to ``y1`` are points in the direction of reading, from the top left. ``box`` is in
    fractions of the displayed page. ``start`` and ``end`` are positions in the document's text.
    ``confidence`` is 1 unless the word was recognised in a picture.
    """

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    box: Box
    page: int
    start: int
    end: int
    confidence: float = 1.0
    height: float = field(init=False)
    middle: float = field(init=False)

    def __post_init__(self) -> None:
        self.height = self.y1 - self.y0
        self.middle = (self.y0 + self.y1) / 2


@dataclass(slots=True)
class PdfPage:
    """The words of a page in reading direction.

    ``is_picture``: it has no text of its own, only a picture of it. Its words are those that were
    recognised; without any, the page is unread.
    """

    number: int
    width: float
    height: float
    words: list[Word] = field(default_factory=list)
    is_picture: bool = False

    @property
    def is_unread(self) -> bool:
        return self.is_picture and not self.words


@dataclass(slots=True)
class PdfText:
    """The pages of a document and their concatenated text, each page ended by a form feed."""

    pages: list[PdfPage]
    text: str


class Recogniser(Protocol):
    """Returns the words of a picture, and the text in which they count from ``offset``."""

    def __call__(
        self, page: Any, geometry: PageGeometry, number: int, offset: int
    ) -> tuple[list[Word], str]: ...


def join_words(word: Word, following: Word) -> Word:
    """Return two words as one."""
    return Word(
        word.text + following.text,
        word.x0,
        min(word.y0, following.y0),
        following.x1,
        max(word.y1, following.y1),
        union(word.box, following.box),
        word.page,
        word.start,
        following.end,
        min(word.confidence, following.confidence),
    )


def union(a: tuple[float, ...], b: tuple[float, ...]) -> Box:
    """Return the smallest box around two."""
    return min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])

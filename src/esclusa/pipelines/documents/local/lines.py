"""Lines of words, and their cells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal

from esclusa.pipelines.documents.local.numbers import (
    is_amount,
    is_code,
    is_dash,
    is_footnote_mark,
    is_minus,
    is_percent,
    is_sign,
    is_suffix,
    is_unit,
)
from esclusa.pipelines.documents.local.words import PdfPage, Word, join_words

CellKind = Literal["text", "amount", "dash", "percent", "sign"]

# Widest space between words, in line heights.
MAX_SPACE = 0.72
# Fewest letters of a line that may be words with spaced letters.
MIN_SPACED_LETTERS = 6
_DECIMALS = re.compile(r"[.,]\d{1,2}\Z")
_THOUSAND = re.compile(r"1[.,'’]?000")
_OPENING = frozenset({"(", "$(", "€(", "£("})
# Widest gap, in line heights, before a closing parenthesis in a column of its own.
MAX_CLOSING_GAP = 2.5


@dataclass(slots=True)
class Cell:
    """Words that belong together: a label, a number, a heading.

    ``is_separate``: there is a gap to the left of it.
    """

    kind: CellKind
    words: list[Word]
    is_separate: bool = True
    text: str = field(init=False)
    x0: float = field(init=False)
    x1: float = field(init=False)

    def __post_init__(self) -> None:
        words = self.words
        self.x0, self.x1, self.text = words[0].x0, words[0].x1, words[0].text
        if len(words) > 1:
            self.x1 = max([word.x1 for word in words])
            self.text = " ".join([word.text for word in words])


@dataclass
class TextLine:
    """Words side by side; complete before a cached property is read."""

    page: int
    words: list[Word]
    cells: list[Cell] = field(default_factory=list)
    # Part of a paragraph, as in an auditor's opinion: neither a title nor a row.
    is_prose: bool = False

    @cached_property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @cached_property
    def runs(self) -> list[Cell]:
        """The words grouped by gaps alone."""
        return [Cell("text", run) for run in split_at_gaps(self.words)]

    @cached_property
    def has_amount(self) -> bool:
        return any(cell.kind == "amount" and cell.is_separate for cell in self.cells)

    @cached_property
    def has_later_amount(self) -> bool:
        """Whether a cell after the first is a separate amount."""
        return any(cell.kind == "amount" and cell.is_separate for cell in self.cells[1:])

    @cached_property
    def height(self) -> float:
        return max(word.height for word in self.words)

    @cached_property
    def codes(self) -> int:
        """The number of leading cells that are account codes (1101, 1.1.01, 11-01), not values.

        They stand before a text; where the text wraps, without it.
        """
        first = next(
            (
                number
                for number, cell in enumerate(self.cells)
                if cell.kind != "amount" and not is_code(cell.text)
            ),
            len(self.cells),
        )
        if (
            first < len(self.cells)
            and self.cells[first].kind == "text"
            and sum(ch.isalpha() for ch in self.cells[first].text) > 2
        ):
            return first
        return int(
            len(self.cells) > 1 and self.cells[0].kind == "text" and is_code(self.cells[0].text)
        )

    @cached_property
    def y(self) -> float:
        """The vertical middle of its longest word."""
        return max(self.words, key=lambda word: word.x1 - word.x0).middle

    @property
    def x0(self) -> float:
        return self.words[0].x0

    @property
    def x1(self) -> float:
        return max(word.x1 for word in self.words)


def lines_of_page(page: PdfPage, words: Iterable[Word] | None = None) -> list[TextLine]:
    """Return the page's lines from the top, their words from the left.

    Words whose middles agree are in one line.
    """
    out: list[TextLine] = []
    for word in sorted(page.words if words is None else words, key=lambda w: (w.middle, w.x0)):
        found = next(
            (
                line
                for line in reversed(out[-6:])
                if _is_level(line.words[-1], word) and not _lies_on_word(line, word)
            ),
            None,
        )
        if found is None:
            out.append(TextLine(page.number, [word]))
        else:
            found.words.append(word)
    lines = (
        make_line(page.number, _join_spaced_letters(sorted(line.words, key=lambda w: w.x0)))
        for line in out
    )
    return sorted(lines, key=lambda line: line.y)


def _join_spaced_letters(words: list[Word]) -> list[Word]:
    """Join words set letter by letter: ``B A L A N C E   G E N E R A L``."""
    if len(words) < MIN_SPACED_LETTERS or sum(
        len(word.text) == 1 and word.text.isalpha() for word in words
    ) < 0.9 * len(words):
        return words
    gaps = sorted(b.x0 - a.x1 for a, b in pairwise(words))
    out = [words[0]]
    for before, word in pairwise(words):
        if word.x0 - before.x1 < 1.5 * gaps[len(gaps) // 4]:
            out[-1] = join_words(out[-1], word)
        else:
            out.append(word)
    return out


def make_line(page: int, words: list[Word]) -> TextLine:
    """Return the line of these words, given from the left, with its cells."""
    return TextLine(page, words, list(_cells_of(words)))


def mark_prose(lines: list[TextLine]) -> None:
    """Mark paragraphs: close, long lines at one left edge with a sentence that continues."""
    paragraph: list[TextLine] = []
    for line, following in pairwise([*lines, None]):
        assert line is not None
        paragraph.append(line)
        if following is None or not _same_paragraph(line, following):
            ended = line.text.endswith(".") or len(paragraph) > 3  # a wrapped title has neither
            if ended and any(part.text[0].islower() for part in paragraph[1:]):
                for part in paragraph:
                    part.is_prose = True
            paragraph = []


def _same_paragraph(line: TextLine, following: TextLine) -> bool:
    """Return whether the next line may be part of the same paragraph."""
    if (
        line.page != following.page
        or len(line.words) < 9
        or any(c.is_separate and c.kind != "text" for part in (line, following) for c in part.cells)
    ):
        return False
    size = line.height
    return (
        abs(size - following.height) < 0.15 * size
        and following.y - line.y < 2.2 * size
        and abs(line.x0 - following.x0) < 4 * size
    )


def _is_level(a: Word, b: Word) -> bool:
    return abs(b.middle - a.middle) < 0.42 * min(b.height, a.height)


def _lies_on_word(line: TextLine, word: Word) -> bool:
    """Return whether the word overlaps a word of the line, and so belongs to another line.

    A currency sign may touch its number.
    """
    x0, x1 = word.x0, word.x1
    return any(
        other.x0 < x1
        and x0 < other.x1
        and min(x1, other.x1) - max(x0, other.x0) > 0.6 * min(x1 - x0, other.x1 - other.x0)
        and is_sign(word.text) == is_sign(other.text)
        for other in line.words
    )


def _cells_of(words: list[Word]) -> Iterator[Cell]:
    """Yield the cells of a line.

    A number followed closely by text is part of that text. A number right behind text is a cell
    that is not separate.
    """
    for number, run in enumerate(split_at_gaps(words)):
        if number == 0 and is_unit(" ".join(word.text for word in run)):
            yield Cell("text", run)
            continue
        tokens = list(_tokens(run))
        last_text = max((i for i, (kind, _) in enumerate(tokens) if kind == "text"), default=-1)
        text = [word for _, token in tokens[: last_text + 1] for word in token]
        if text:
            yield Cell("text", text)
        for kind, token in tokens[last_text + 1 :]:
            yield Cell(kind, token, is_separate=not text)


def split_at_gaps(words: list[Word]) -> list[list[Word]]:
    """Group words with no more than a space between them.

    A parenthesis at the left edge of a column belongs to the number that closes it, a minus with a
    currency sign to the number that follows.
    """
    runs: list[list[Word]] = []
    for number, word in enumerate(words):
        if runs and (
            _is_adjacent(runs[-1][-1], word)
            or _belongs_to_number(runs[-1][-1], words[number : number + 2])
            or _closes_parenthesis(runs[-1], word)
        ):
            runs[-1].append(word)
        else:
            runs.append([word])
    return runs


def _is_adjacent(a: Word, b: Word) -> bool:
    return b.x0 - a.x1 < MAX_SPACE * min(b.height, a.height)


def _closes_parenthesis(run: list[Word], word: Word) -> bool:
    """Return whether it is a parenthesis in its own column that closes the number to its left."""
    return (
        word.text == ")"
        and word.x0 - run[-1].x1 < MAX_CLOSING_GAP * word.height
        and run[-1].text[-1].isdigit()
        and not _balanced("".join(part.text for part in run))
    )


def _belongs_to_number(before: Word, words: list[Word]) -> bool:
    """Return whether the word at a column's left edge belongs to the number that follows."""
    return (before.text in _OPENING and _is_closed_number(words)) or (
        _is_edge_minus(before) and is_amount(words[0].text)
    )


def _is_edge_minus(word: Word) -> bool:
    return len(word.text) > 1 and is_minus(word.text)


def _is_closed_number(words: list[Word]) -> bool:
    """Return whether the next words are a number with a closing parenthesis."""
    text = "".join(word.text for word in words[: 1 if words[0].text.endswith(")") else 2])
    return text.endswith(")") and text[0].isdigit() and is_amount(text[:-1])


def _tokens(words: list[Word]) -> Iterator[tuple[CellKind, list[Word]]]:
    """Yield single words by kind; numbers with a detached sign or parenthesis are joined."""
    index = 0
    while index < len(words):
        word = words[index]
        if unit := _unit_length(words[index:]):
            yield "text", words[index : index + unit]
            index += unit
            continue
        if (
            len(words) == index + 2
            and is_footnote_mark(words[-1].text)
            and len(word.text) > 2
            and is_amount(word.text)
        ):
            yield "amount", [word]  # the last word is a footnote mark
            return
        for length in (4, 3, 2) if _may_begin_number(word.text) else ():
            group = words[index : index + length]
            if len(group) == length and (
                _is_one_number(group)
                or _has_trailing_unit(group)
                or (length == len(words) - index and _has_trailing_minus(group))
            ):
                yield "amount", group
                index += length
                break
        else:
            yield _kind_of(word.text), [word]
            index += 1


def _unit_length(words: list[Word]) -> int:
    """Return how many of the first words name a unit with a number: ``in CHF 1 000``."""
    if words[0].text.lower() not in ("in", "en") or len(words) < 3 or not is_sign(words[1].text):
        return 0
    return next(
        (
            2 + length
            for length in (1, 2)
            if _THOUSAND.fullmatch("".join(word.text for word in words[2 : 2 + length]))
        ),
        0,
    )


def _may_begin_number(text: str) -> bool:
    """Return whether a word may be the first part of a number in several parts."""
    return text[0] in "($€£-−–—" or text[-1].isdigit() or text[-1] == ")" or is_sign(text)


def _is_one_number(group: list[Word]) -> bool:
    texts = [word.text for word in group]
    first = (
        2
        if is_sign(texts[0]) and texts[1] in _OPENING
        else int(texts[0] in _OPENING or _is_edge_minus(group[0]))
    )
    inner = group[first : -1 if texts[-1] == ")" else None]
    if any(b.x0 - a.x1 > _max_gap(inner) for a, b in pairwise(inner)):
        return False
    opened = texts[0].startswith("(") and not texts[0].endswith(")")
    if texts[0] == "$(" or is_minus(texts[0]) or texts[-1] == ")" or opened:
        if is_sign(texts[0]) and texts[0].strip("($"):
            return False
        text = "".join(texts)
        return is_amount(text) and any(ch.isdigit() for ch in text) and _balanced(text)
    digits = [
        texts[0].lstrip("-−–—$€£"),
        *texts[1:-1],
        _DECIMALS.sub("", texts[-1].rstrip("-−–—*")),
    ]
    return (  # 1 234 567
        all(t.isdigit() for t in digits)
        and 1 <= len(digits[0]) <= 3
        and all(len(t) == 3 for t in digits[1:])
        and all(b.x0 - a.x1 < _max_gap(group) for a, b in pairwise(group))
    )


def _has_trailing_minus(group: list[Word]) -> bool:
    """Return whether it is a number with a minus after a space: ``1,234 -``."""
    texts = [word.text for word in group]
    return (
        all(b.x0 - a.x1 < _max_gap([a]) for a, b in pairwise(group))
        and is_minus(texts[-1])
        and (_is_one_number(group[:-1]) if len(group) > 2 else is_amount(texts[0]))
    )


def _has_trailing_unit(group: list[Word]) -> bool:
    """Return whether it is a number with its unit or ledger side: ``1.2 M€``, ``1,234 CR``."""
    close = all(b.x0 - a.x1 < MAX_SPACE * min(a.height, b.height) for a, b in pairwise(group))
    texts = [word.text for word in group]
    behind = is_suffix(texts[-1]) or (len(texts) > 2 and is_suffix(" ".join(texts[-2:])))
    return close and behind and is_amount(" ".join(texts))


def _max_gap(group: list[Word]) -> float:
    """Return the widest gap within a number: a typed space is as wide as a digit."""
    last = group[-1]
    digits = sum(char.isdigit() for char in last.text)
    return max(
        0.5 * last.height, 1.1 * (last.x1 - last.x0) / (digits + 0.5 * (len(last.text) - digits))
    )


def _balanced(text: str) -> bool:
    return text.count("(") == text.count(")")


def _kind_of(text: str) -> CellKind:
    if is_dash(text):
        return "dash"
    if is_percent(text):
        return "percent"
    if is_amount(text) and _balanced(text):
        return "amount"
    return "sign" if is_sign(text) else "text"

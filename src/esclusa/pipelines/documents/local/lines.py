"""Lines of words, and the cells that stand in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal

from esclusa.pipelines.documents.local.numbers import (
    is_amount,
    is_behind,
    is_code,
    is_dash,
    is_mark,
    is_minus,
    is_percent,
    is_sign,
    is_unit,
)
from esclusa.pipelines.documents.local.words import Page, Word, joined

CellKind = Literal["text", "amount", "dash", "percent", "sign"]

SPACE = 0.72
"""A wider gap, in line heights, is no space between words any more."""
SPELLED = 6
"""Letters of a line from which on it is looked at whether they are words."""
_DECIMALS = re.compile(r"[.,]\d{1,2}\Z")
_THOUSAND = re.compile(r"1[.,'’]?000")
_OPEN = frozenset({"(", "$(", "€(", "£("})
CLOSING = 2.5
"""How far behind a number, in line heights, the parenthesis may stand that closes it: in a column of its own."""


@dataclass(slots=True)
class Cell:
    """Words that belong together: a label, a number, a heading. ``free``: it stands apart from what is left of it."""

    kind: CellKind
    words: list[Word]
    free: bool = True
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
class Line:
    """Words beside each other; complete before anything is asked of it."""

    page: int
    words: list[Word]
    cells: list[Cell] = field(default_factory=list)
    prose: bool = False
    """Part of a paragraph, as letters to shareholders and opinions of auditors are written: neither a title nor a row."""

    @cached_property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @cached_property
    def runs(self) -> list[Cell]:
        """Its words by gaps alone, whatever they are."""
        return [Cell("text", run) for run in runs_of(self.words)]

    @cached_property
    def height(self) -> float:
        return max(word.height for word in self.words)

    @cached_property
    def codes(self) -> int:
        """How many of its first cells are numbers before a text: codes of accounts (1101, 1.1.01, 11-01), not values. Where the text wraps
        they may stand without it."""
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
    def base(self) -> float:
        """Where it stands on the page: its longest word decides."""
        longest = max(self.words, key=lambda word: word.x1 - word.x0)
        return longest.middle

    @property
    def x0(self) -> float:
        return self.words[0].x0

    @property
    def x1(self) -> float:
        return max(word.x1 for word in self.words)


def lines_of(page: Page, words: Iterable[Word] | None = None) -> list[Line]:
    """The page's lines from the top, words from the left. Words are of one line if their middles are."""
    out: list[Line] = []
    for word in sorted(page.words if words is None else words, key=lambda w: (w.middle, w.x0)):
        home = None
        for line in reversed(out[-6:]):
            near = line.words[-1]
            if abs(word.middle - near.middle) < 0.42 * min(word.height, near.height) and not _on(
                line, word
            ):
                home = line
                break
        if home is None:
            out.append(Line(page.number, [word]))
        else:
            home.words.append(word)
    lines = (line_of(page.number, _spelled(sorted(line.words, key=lambda w: w.x0))) for line in out)
    return sorted(lines, key=lambda line: line.base)


def _spelled(words: list[Word]) -> list[Word]:
    """Words with those put together that are set letter by letter: ``B A L A N C E   G E N E R A L``."""
    if len(words) < SPELLED or sum(
        len(word.text) == 1 and word.text.isalpha() for word in words
    ) < 0.9 * len(words):
        return words
    gaps = sorted(b.x0 - a.x1 for a, b in pairwise(words))
    out = [words[0]]
    for before, word in pairwise(words):
        if word.x0 - before.x1 < 1.5 * gaps[len(gaps) // 4]:
            out[-1] = joined(out[-1], word)
        else:
            out.append(word)
    return out


def line_of(page: int, words: list[Word]) -> Line:
    """The line of these words, from the left, with its cells."""
    return Line(page, words, list(_cells(words)))


def mark_prose(lines: list[Line]) -> None:
    """Mark paragraphs: long lines close below each other from one left edge, where a sentence goes on in the next line."""
    paragraph: list[Line] = []
    for line, following in pairwise([*lines, None]):
        assert line is not None
        paragraph.append(line)
        if following is None or not _flows(line, following):
            ended = line.text.endswith(".") or len(paragraph) > 3  # a title that wraps has neither
            if ended and any(one.text[0].islower() for one in paragraph[1:]):
                for one in paragraph:
                    one.prose = True
            paragraph = []


def _flows(line: Line, following: Line) -> bool:
    """Whether the next line may be of the same paragraph."""
    if (
        line.page != following.page
        or len(line.words) < 9
        or any(c.free and c.kind != "text" for one in (line, following) for c in one.cells)
    ):
        return False
    size = line.height
    return (
        abs(size - following.height) < 0.15 * size
        and following.base - line.base < 2.2 * size
        and abs(line.x0 - following.x0) < 4 * size
    )


def _on(line: Line, word: Word) -> bool:
    """Whether a word lies on another one of the line: then it is none of it. The sign of a currency may touch its number."""
    x0, x1 = word.x0, word.x1
    for other in line.words:
        if is_sign(word.text) != is_sign(other.text):
            continue
        if (
            other.x0 < x1
            and x0 < other.x1
            and min(x1, other.x1) - max(x0, other.x0) > 0.6 * min(x1 - x0, other.x1 - other.x0)
        ):
            return True
    return False


def _cells(words: list[Word]) -> Iterator[Cell]:
    """The cells of a line. A number with a text close behind it is part of that text; one close behind a text stands alone, not free."""
    for number, run in enumerate(runs_of(words)):
        if number == 0 and is_unit(" ".join(word.text for word in run)):
            yield Cell("text", run)
            continue
        tokens = list(_tokens(run))
        last_text = max((i for i, (kind, _) in enumerate(tokens) if kind == "text"), default=-1)
        text = [word for _, token in tokens[: last_text + 1] for word in token]
        if text:
            yield Cell("text", text)
        for kind, token in tokens[last_text + 1 :]:
            yield Cell(kind, token, free=not text)


def runs_of(words: list[Word]) -> list[list[Word]]:
    """Words with no more than a space between them. A parenthesis at a column's left edge belongs to the number that closes it, a
    minus with a currency sign to the number that follows."""
    runs: list[list[Word]] = []
    for number, word in enumerate(words):
        if runs and (
            _beside(runs[-1][-1], word)
            or _signed(runs[-1][-1], words[number : number + 2])
            or _closes(runs[-1], word)
        ):
            runs[-1].append(word)
        else:
            runs.append([word])
    return runs


def _beside(a: Word, b: Word) -> bool:
    return b.x0 - a.x1 < SPACE * min(b.height, a.height)


def _closes(run: list[Word], word: Word) -> bool:
    """Whether it is a parenthesis in a column of its own, and closes the one before the number on its left."""
    near = (
        word.text == ")"
        and word.x0 - run[-1].x1 < CLOSING * word.height
        and run[-1].text[-1].isdigit()
    )
    return near and not _balanced("".join(one.text for one in run))


def _signed(before: Word, words: list[Word]) -> bool:
    """Whether what stands at a column's left edge is of the number that begins with these words."""
    return (before.text in _OPEN and _closed(words)) or (
        _is_edge_minus(before) and is_amount(words[0].text)
    )


def _is_edge_minus(word: Word) -> bool:
    return len(word.text) > 1 and is_minus(word.text)


def _closed(words: list[Word]) -> bool:
    """Whether the next words are a number with a closing parenthesis."""
    joined = "".join(word.text for word in words[: 1 if words[0].text.endswith(")") else 2])
    return joined.endswith(")") and joined[0].isdigit() and is_amount(joined[:-1])


def _tokens(words: list[Word]) -> Iterator[tuple[CellKind, list[Word]]]:
    """Single words by kind; a number whose sign or parentheses stand apart is put together."""
    index = 0
    while index < len(words):
        word = words[index]
        if unit := _unit(words[index:]):
            yield "text", words[index : index + unit]
            index += unit
            continue
        if (
            len(words) == index + 2
            and is_mark(words[-1].text)
            and len(word.text) > 2
            and is_amount(word.text)
        ):
            yield "amount", [word]  # the last word is a footnote's mark
            return
        for length in (4, 3, 2) if _may_begin(word.text) else ():
            group = words[index : index + length]
            if len(group) == length and (
                _one_number(group)
                or _ends_behind(group)
                or (length == len(words) - index and _minus_behind(group))
            ):
                yield "amount", group
                index += length
                break
        else:
            yield _kind(word.text), [word]
            index += 1


def _unit(words: list[Word]) -> int:
    """How many of the first words say in what is counted, with a number in them: ``in CHF 1 000``."""
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


def _may_begin(text: str) -> bool:
    """Whether a word may be the first part of a number whose parts stand apart."""
    return text[0] in "($€£-−–—" or text[-1].isdigit() or text[-1] == ")" or is_sign(text)


def _one_number(group: list[Word]) -> bool:
    texts = [word.text for word in group]
    first = (
        2
        if is_sign(texts[0]) and texts[1] in _OPEN
        else int(texts[0] in _OPEN or _is_edge_minus(group[0]))
    )
    inner = group[first : -1 if texts[-1] == ")" else None]
    if any(b.x0 - a.x1 > _within(inner) for a, b in pairwise(inner)):
        return False
    opened = texts[0].startswith("(") and not texts[0].endswith(")")
    if texts[0] == "$(" or is_minus(texts[0]) or texts[-1] == ")" or opened:
        if is_sign(texts[0]) and texts[0].strip("($"):
            return False
        joined = "".join(texts)
        return is_amount(joined) and any(ch.isdigit() for ch in joined) and _balanced(joined)
    digits = [
        texts[0].lstrip("-−–—$€£"),
        *texts[1:-1],
        _DECIMALS.sub("", texts[-1].rstrip("-−–—*")),
    ]
    if (
        all(t.isdigit() for t in digits)
        and 1 <= len(digits[0]) <= 3
        and all(len(t) == 3 for t in digits[1:])
    ):
        return all(b.x0 - a.x1 < _within(group) for a, b in pairwise(group))  # 1 234 567
    return False


def _minus_behind(group: list[Word]) -> bool:
    """Whether it is a number and, a space behind it, its minus: ``1,234 -``."""
    texts = [word.text for word in group]
    close = all(b.x0 - a.x1 < _within([a]) for a, b in pairwise(group))
    return (
        close
        and is_minus(texts[-1])
        and (_one_number(group[:-1]) if len(group) > 2 else is_amount(texts[0]))
    )


def _ends_behind(group: list[Word]) -> bool:
    """Whether it is a number and, a space behind it, what it counts in or its side of the ledger: ``1.2 M€``, ``1,234 CR``."""
    close = all(b.x0 - a.x1 < SPACE * min(a.height, b.height) for a, b in pairwise(group))
    texts = [word.text for word in group]
    behind = is_behind(texts[-1]) or (len(texts) > 2 and is_behind(" ".join(texts[-2:])))
    return close and behind and is_amount(" ".join(texts))


def _within(group: list[Word]) -> float:
    """The widest gap within a number: a typed one is as wide as a digit."""
    last = group[-1]
    digits = sum(char.isdigit() for char in last.text)
    return max(
        0.5 * last.height, 1.1 * (last.x1 - last.x0) / (digits + 0.5 * (len(last.text) - digits))
    )


def _balanced(text: str) -> bool:
    return text.count("(") == text.count(")")


def _kind(text: str) -> CellKind:
    if is_dash(text):
        return "dash"
    if is_percent(text):
        return "percent"
    if is_amount(text) and _balanced(text):
        return "amount"
    return "sign" if is_sign(text) else "text"


def lanes(page: Page, lines: list[Line]) -> list[list[Line]]:
    """The page's lines, or those of its left and right half where two tables stand side by side."""
    split = _divide(page, lines)
    if split is None:
        return [lines]
    left = [w for line in lines for w in line.words if w.x0 < split]
    right = [w for line in lines for w in line.words if w.x0 >= split]
    # headings that run across both halves belong to the first, whole
    across = {
        id(w)
        for line in lines
        for run in line.runs
        if run.x0 < split - 5 and run.x1 > split + 5
        for w in run.words
    }
    right_only = [w for w in right if id(w) not in across]
    left += [w for w in right if id(w) in across]
    return [lines_of(page, left), lines_of(page, right_only)]


def _divide(page: Page, lines: list[Line]) -> float | None:
    """Where labels begin right of numbers, in line after line: between two tables. Those of totals may begin before the others."""
    starts: list[float] = []
    for line in lines:
        seen_value = False
        for cell in line.cells:
            if cell.kind in ("amount", "dash") and cell.free and cell.x0 > 0.15 * page.width:
                seen_value = True
            elif (
                cell.kind == "text"
                and seen_value
                and cell.free
                and len(cell.text) > 3
                and cell.x0 > 0.35 * page.width
            ):
                starts.append(cell.x0)
                break
    middle = sorted(starts)[len(starts) // 2] if starts else page.width
    close = [x for x in starts if abs(x - middle) < 0.06 * page.width]
    usual = min(close, default=page.width)
    amounts = [
        cell
        for line in lines
        for cell in line.cells
        if cell.kind in ("amount", "percent") and cell.free
    ]
    least = (
        4 if any(cell.x0 > usual for cell in amounts) else 2
    )  # a comment beside the table has no numbers
    if len(close) < max(least, 0.6 * len(starts)):
        return None
    edge = max([cell.x1 for cell in amounts if cell.x1 < usual], default=usual)
    split = (
        min(
            [
                usual,
                *(
                    run.x0
                    for line in lines
                    for run in line.runs
                    if edge < run.x0 and usual - 2 * line.height < run.x0
                ),
            ]
        )
        - 2
    )
    return None if any(cell.x0 < split < cell.x1 for cell in amounts) else split

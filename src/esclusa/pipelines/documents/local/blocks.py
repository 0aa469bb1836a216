"""Parts of a page: tables side by side, and blocks of lines above a table, heading and rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from esclusa.pipelines.documents.local.classifier import (
    is_other_title,
    is_title_shaped,
    note_heading,
    title_class,
)
from esclusa.pipelines.documents.local.columns import NumberColumn
from esclusa.pipelines.documents.local.headings import (
    is_above_columns,
    is_name_heading,
    is_period_heading,
    is_unit_line,
)
from esclusa.pipelines.documents.local.lines import TextLine, lines_of_page
from esclusa.pipelines.documents.local.numbers import is_amount
from esclusa.pipelines.documents.local.words import PdfPage, Word

# Rows from which labels behind numbers are a second table.
MIN_TIGHT_ROWS = 4


@dataclass
class Block:
    """A part of a page, with its lines in page order."""

    above: list[TextLine] = field(default_factory=list)
    heading: list[TextLine] = field(default_factory=list)
    body: list[TextLine] = field(default_factory=list)

    @property
    def has_rows(self) -> bool:
        """Whether it has rows; if so, ``above`` is complete."""
        return any(has_value(line) for line in self.body)


def blocks_of(
    lines: list[TextLine], columns: list[NumberColumn], *, separated: bool
) -> list[Block]:
    """Return the blocks of a page; each heading begins a new block, with the title above it."""
    done: list[Block] = []
    block = Block()
    heading_above_title: list[TextLine] = []
    for line in lines:
        if is_period_heading(line, columns, separated=separated):
            if block.has_rows:
                cut = _next_title_index(block.body)
                done.append(block)
                block.body, rest = block.body[:cut], block.body[cut:]
                block = Block(above=rest)
            else:
                block.above, block.body = block.above + block.body, []
            block.heading.append(line)
        elif (
            is_title(line)
            and block.heading
            and not block.has_rows
            and not any(map(is_title, block.above))
        ):
            # A heading above a title applies to the rows below only if they have no other heading.
            heading_above_title = block.heading
            block = Block(above=[*block.above, *block.heading, *block.body, line])
        elif (
            block.heading
            and not block.body
            and (
                extends_heading(line, columns) or is_name_heading(line, columns, under_heading=True)
            )
        ):
            block.heading.append(line)
        elif block.heading and not block.has_rows and _is_footnote_row(line):
            # Headings of the labels may stand between.
            block.heading, block.body = [*block.heading, *block.body, line], []
        elif not block.heading and not block.body and not has_value(line):
            block.above.append(line)
        else:
            if not block.heading and not block.body:
                block = _with_name_heading(block.above, columns)
                block.heading = block.heading or heading_above_title
            block.body.append(line)
            heading_above_title = []
    done.append(block)
    for block in done:
        _extend_heading_up(block, columns)
    return done


def _with_name_heading(above: list[TextLine], columns: list[NumberColumn]) -> Block:
    """Return a block headed by the last line above the rows that names columns."""
    for at in range(len(above) - 1, -1, -1):
        if is_title(above[at]):
            break
        if is_name_heading(above[at], columns) or is_unit_line(above[at], columns):
            start = at
            while start > 0 and extends_heading(above[start - 1], columns):
                start -= 1
            return Block(above[:start], above[start : at + 1], above[at + 1 :])
    return Block(above)


def _extend_heading_up(block: Block, columns: list[NumberColumn]) -> None:
    """Move lines over the columns, close above the heading, into the heading."""
    up, top = block.above, block.heading
    while (
        up
        and top
        and (extends_heading(up[-1], columns) or is_above_columns(up[-1], columns))
        and top[0].y - up[-1].y < 2.2 * top[0].height
    ):
        top.insert(0, up.pop())


def extends_heading(line: TextLine, columns: list[NumberColumn]) -> bool:
    """Return whether the line belongs to the heading next to it."""
    return is_unit_line(line, columns) or is_name_heading(line, columns)


def _is_footnote_row(line: TextLine) -> bool:
    """Return whether its numbers are footnote marks counted from 1: ``(1)   (2)``."""
    numbers = [cell.text for cell in line.cells if cell.kind != "text"]
    return bool(numbers) and numbers == [f"({count})" for count in range(1, len(numbers) + 1)]


def has_value(line: TextLine) -> bool:
    """Return whether the line has a number of a table."""
    return any(c.kind in ("amount", "dash") and c.is_separate for c in line.cells[1:]) or (
        len(line.cells) == 1 and line.cells[0].kind == "amount" and len(line.cells[0].text) > 4
    )


def is_title(line: TextLine) -> bool:
    """Return whether the line is the title of a statement."""
    text = line.text
    return (
        title_class(text) is not None
        and not has_value(line)
        and len(text) < 100
        and not text[:1].islower()
        and is_title_shaped(text)
    )


def _next_title_index(body: list[TextLine]) -> int:
    """Return the index at the end of a block where the title of the next one begins."""
    cut = len(body)
    while cut > 0 and not has_value(body[cut - 1]):
        cut -= 1
    for index in range(cut, len(body)):
        if is_title(body[index]):
            return max(cut, index - 1) if index > cut else index
    return len(body)


def is_note(line: TextLine, *, in_notes: bool) -> bool:
    """Return whether the line is the heading of a note."""
    return (
        not has_value(line)
        and not line.is_prose
        and note_heading(line.text, in_notes=in_notes) is not None
    )


def split_at_titles(body: list[TextLine], *, in_notes: bool) -> list[list[TextLine]]:
    """Return the rows, split at the titles of other statements and notes among them."""
    parts: list[list[TextLine]] = [[]]
    for line in body:
        if (is_title(line) or is_note(line, in_notes=in_notes)) and any(
            has_value(b) for b in parts[-1]
        ):
            parts.append([])
        parts[-1].append(line)
    return parts


def is_table_of_contents(lines: list[TextLine]) -> bool:
    """Return whether the lines are a table of contents: titles with rising page numbers."""
    rows = [
        line
        for line in lines
        if len(line.cells) > 1 and line.cells[-1].kind == "amount" and line.cells[-1].is_separate
    ]
    pages = [line.cells[-1].text for line in rows]
    if len(rows) < 3 or not all(text.isdigit() and len(text) < 4 for text in pages):
        return False
    numbers = [int(text) for text in pages]
    titled = sum(title_class(line.text) is not None or is_other_title(line.text) for line in rows)
    return titled > 1 and numbers == sorted(numbers) and len(set(numbers)) > 1


def side_by_side(page: PdfPage, lines: list[TextLine]) -> list[list[TextLine]]:
    """Return the lines of the page, or of its left and right half if it has tables side by side."""
    split = _split_position(page, lines) or _tight_split_position(page, lines)
    if split is None:
        return [lines]
    left = [w for line in lines for w in line.words if w.x0 < split]
    right = [w for line in lines for w in line.words if w.x0 >= split]
    # a heading across both halves belongs to the first
    across = {
        id(w)
        for line in lines
        for run in line.runs
        if run.x0 < split - 5 and run.x1 > split + 5 and not any(map(_is_number, run.words))
        for w in run.words
    }
    left += [w for w in right if id(w) in across]
    return [
        lines_of_page(page, left),
        lines_of_page(page, [w for w in right if id(w) not in across]),
    ]


def _split_position(page: PdfPage, lines: list[TextLine]) -> float | None:
    """Return the position between two tables: where labels begin to the right of numbers.

    Labels of totals may begin before the others. Rows of the right table that are level with none
    of the left one begin at the same place.
    """
    starts: list[float] = []
    for line in lines:
        after_value = False
        for cell in line.cells:
            if cell.kind in ("amount", "dash") and cell.is_separate and cell.x0 > 0.15 * page.width:
                after_value = True
            elif (
                cell.kind == "text"
                and after_value
                and cell.is_separate
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
        if cell.kind in ("amount", "percent") and cell.is_separate
    ]
    # A comment beside a table has no numbers.
    least = 4 if any(cell.x0 > usual for cell in amounts) else 2
    alone = [
        line
        for line in lines
        if line.has_later_amount and abs(line.cells[0].x0 - middle) < 0.06 * page.width
    ]
    if len(close) < 0.6 * len(starts) or len(close) + min(len(alone), len(close)) < least:
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


def _tight_split_position(page: PdfPage, lines: list[TextLine]) -> float | None:
    """Return the position between two tables that are as close as words of a sentence.

    Several labels begin at one place, each right behind a number, and all numbers end before it.
    """
    starts = [
        following.x0
        for line in lines
        for word, following in pairwise(line.words)
        if following.x0 > 0.35 * page.width
        and following.x0 - word.x1 < 1.5 * word.height
        and _is_number(word)
        and following.text[0].isalpha()
    ]
    if len(starts) < MIN_TIGHT_ROWS:
        return None
    usual = min(starts, key=lambda x: sum(abs(x - other) for other in starts))
    same = [x for x in starts if abs(x - usual) < 3]
    split = min(same) - 1
    crossed = any(
        word.x0 < split < word.x1 for line in lines for word in line.words if line.has_amount
    )
    return None if len(same) < max(MIN_TIGHT_ROWS, 0.6 * len(starts)) or crossed else split


def _is_number(word: Word) -> bool:
    """Return whether a word is an amount of several digits, and no year."""
    return len(word.text) > 4 and is_amount(word.text)

"""A page cut into blocks: what stands above a table, its headings, its rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from esclusa.pipelines.documents.local.classes import is_other_title, title_class, title_shape
from esclusa.pipelines.documents.local.columns import Column
from esclusa.pipelines.documents.local.heads import is_head, is_names, is_unit_line, stands_over
from esclusa.pipelines.documents.local.lines import Line


@dataclass
class Block:
    """Lines in the order of the page."""

    above: list[Line] = field(default_factory=list)
    head: list[Line] = field(default_factory=list)
    body: list[Line] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        """Whether it has rows: then what is above them is settled."""
        return any(has_value(line) for line in self.body)


def blocks_of(lines: list[Line], columns: list[Column], *, separated: bool) -> list[Block]:
    """The blocks of a page: each heading begins a new one, with the title above it."""
    done: list[Block] = []
    now = Block()
    passed: list[Line] = []
    for line in lines:
        if is_head(line, columns, separated=separated):
            if now.begun:
                cut = _title_at(now.body)
                done.append(now)
                now.body, rest = now.body[:cut], now.body[cut:]
                now = Block(above=rest)
            else:
                now.above, now.body = now.above + now.body, []
            now.head.append(line)
        elif is_title(line) and now.head and not now.begun and not any(map(is_title, now.above)):
            passed = (
                now.head
            )  # what stood over a title heads the rows below it only if nothing else does
            now = Block(above=[*now.above, *now.head, *now.body, line])
        elif (
            now.head
            and not now.body
            and (heads_too(line, columns) or is_names(line, columns, below=True))
        ):
            now.head.append(line)
        elif now.head and not now.begun and _marks_notes(line):
            now.head, now.body = (
                [*now.head, *now.body, line],
                [],
            )  # what heads the labels may stand between
        elif not now.head and not now.body and not has_value(line):
            now.above.append(line)
        else:
            if not now.head and not now.body:
                now = _headed_by_names(now.above, columns)
                now.head = now.head or passed
            now.body.append(line)
            passed = []
    done.append(now)
    for block in done:
        _take_from_above(block, columns)
    return done


def _headed_by_names(above: list[Line], columns: list[Column]) -> Block:
    """Headings without any period: the last line above the rows that names their columns, and what is close to it."""
    for at in range(len(above) - 1, -1, -1):
        if is_title(above[at]):
            break
        if is_names(above[at], columns) or is_unit_line(above[at], columns):
            start = at
            while start > 0 and heads_too(above[start - 1], columns):
                start -= 1
            return Block(above[:start], above[start : at + 1], above[at + 1 :])
    return Block(above)


def _take_from_above(block: Block, columns: list[Column]) -> None:
    """What stands over the columns, close above the heading's first line, belongs to it."""
    up, top = block.above, block.head
    while (
        up
        and top
        and (heads_too(up[-1], columns) or stands_over(up[-1], columns))
        and top[0].base - up[-1].base < 2.2 * top[0].height
    ):
        top.insert(0, up.pop())


def heads_too(line: Line, columns: list[Column]) -> bool:
    return is_unit_line(line, columns) or is_names(line, columns)


def _marks_notes(line: Line) -> bool:
    """Whether all its numbers are marks of footnotes, counted from the first: ``(1)   (2)`` below the years."""
    numbers = [cell.text for cell in line.cells if cell.kind != "text"]
    return bool(numbers) and numbers == [f"({count})" for count in range(1, len(numbers) + 1)]


def has_value(line: Line) -> bool:
    return any(c.kind in ("amount", "dash") and c.free for c in line.cells[1:]) or (
        len(line.cells) == 1 and line.cells[0].kind == "amount" and len(line.cells[0].text) > 4
    )


def is_title(line: Line) -> bool:
    text = line.text
    return (
        title_class(text) is not None
        and not has_value(line)
        and len(text) < 100
        and not text[:1].islower()
        and title_shape(text)
    )


def _title_at(body: list[Line]) -> int:
    """Where, at the end of a block, the title of the next one begins."""
    cut = len(body)
    while cut > 0 and not has_value(body[cut - 1]):
        cut -= 1
    for index in range(cut, len(body)):
        if is_title(body[index]):
            return max(cut, index - 1) if index > cut else index
    return len(body)


def at_titles(body: list[Line]) -> list[list[Line]]:
    """The rows, cut where another statement's title stands among them."""
    parts: list[list[Line]] = [[]]
    for line in body:
        if is_title(line) and any(has_value(b) for b in parts[-1]):
            parts.append([])
        parts[-1].append(line)
    return parts


def is_index(lines: list[Line]) -> bool:
    """A table of contents: titles with page numbers that never fall."""
    rows = [
        line
        for line in lines
        if len(line.cells) > 1 and line.cells[-1].kind == "amount" and line.cells[-1].free
    ]
    pages = [line.cells[-1].text for line in rows]
    if len(rows) < 3 or not all(text.isdigit() and len(text) < 4 for text in pages):
        return False
    numbers = [int(text) for text in pages]
    titled = sum(title_class(line.text) is not None or is_other_title(line.text) for line in rows)
    return titled > 1 and numbers == sorted(numbers) and len(set(numbers)) > 1

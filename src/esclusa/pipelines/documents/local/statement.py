"""A document understood: its class, and every number with its label, period and place."""

from __future__ import annotations

import re
from functools import cached_property
from itertools import zip_longest
from typing import Any

from esclusa.pipelines.documents.local import money
from esclusa.pipelines.documents.local.blocks import (
    Block,
    at_titles,
    blocks_of,
    has_value,
    is_index,
    is_title,
)
from esclusa.pipelines.documents.local.classes import classify, first_table, title_class, title_of
from esclusa.pipelines.documents.local.columns import Column, find_columns
from esclusa.pipelines.documents.local.context import Context, closings, is_spanish, org_of
from esclusa.pipelines.documents.local.dating import read_heads
from esclusa.pipelines.documents.local.furniture import cleared, faceless, in_margins, running
from esclusa.pipelines.documents.local.heads import heads_some, is_year
from esclusa.pipelines.documents.local.lines import Cell, Line, lanes, lines_of, mark_prose
from esclusa.pipelines.documents.local.numbers import (
    convention,
    digits_span,
    is_code,
    is_unsigned,
    side_of,
    size_of,
    value_of,
)
from esclusa.pipelines.documents.local.periods import periods
from esclusa.pipelines.documents.local.rows import Row, rows_of
from esclusa.pipelines.documents.local.texts import plain
from esclusa.pipelines.documents.local.words import Page, Text, Word


def understand(text: Text, read_as: str | None = None) -> dict[str, Any]:
    """The answer for a document: class, confidence, and extractions in reading order, as plain values. What is no statement has none,
    unless it is to be read as one."""
    printed = [(page, lines_of(page)) for page in text.pages]
    by_page = [(page, cleared(page, lines)) for page, lines in printed]
    every = [line for _, lines in by_page for line in lines]
    mark_prose(every)
    doc_type, confidence, scores = classify(every)
    around = [line for page, lines in printed for line in in_margins(page, lines)]
    items = _items(every, by_page, around) if (read_as or doc_type) != "other" else []
    return {
        "doc_type": doc_type, "confidence": confidence, "pages": len(text.pages), "items": items,
        "unread_pages": [page.number for page in text.pages if page.unread],
        "classified": {"class": doc_type, "confidence": confidence, "scores": {k: round(v, 2) for k, v in scores.items()}},
    }  # fmt: skip


def _items(
    every: list[Line], by_page: list[tuple[Page, list[Line]]], around: list[Line]
) -> list[dict[str, Any]]:
    reader = _Reader(every, around)
    for page, lines in by_page:
        reader.page(page, lines)
    return reader.items


class _Reader:
    """Goes through the pages from the first to the last; what a table said goes on below and on the next page."""

    def __init__(self, every: list[Line], around: list[Line]) -> None:
        amounts = [c.text for line in every for c in line.cells if c.kind == "amount" and c.free]
        self._used = convention(amounts)
        self._separated = _separated(amounts)
        texts = [line.text for line in every]
        spanish = is_spanish(" ".join(texts[:200]))
        self._context = Context(
            currency=money.currency_by_votes(
                texts, spanish=spanish, thousands=self._used.thousands
            ),
            scale=_first_scale(every),
        )
        self._texts, self._spanish = texts, spanish
        self._running = running(every)
        self._known: dict[int, tuple[str | None, list[Column]]] = {}
        self._sections: dict[int, str | None] = {}
        self._table = 0
        self._rows = 0
        self._began = False
        self.items: list[dict[str, Any]] = []
        org = org_of(_top(every), around)
        if org is not None:
            self._context.org = org[0]
            self._entity("ORG_NAME", org[0], org[1])

    def page(self, page: Page, lines: list[Line]) -> None:
        if is_index(lines):
            return
        columns = find_columns(lines)
        last = max((line.base for line in lines if has_value(line)), default=0.0)
        kept = [line for line in lines if not self._is_running(line, columns, last)]
        for lane, own in enumerate(lanes(page, kept)):
            self._lane(lane, own, page.width)

    def _is_running(self, line: Line, columns: list[Column], last: float) -> bool:
        """A head or foot that every page has; the first page's heads are its titles."""
        if faceless(line.text) not in self._running or any(
            c.kind == "amount" and c.free for c in line.cells
        ):
            return False
        if line.base > last:
            return True
        return line.page > 0 and not (
            periods(line.text)
            or is_title(line)
            or heads_some(line, columns, separated=self._separated)
        )

    def _lane(self, lane: int, lines: list[Line], width: float) -> None:
        for block in blocks_of(lines, find_columns(lines), separated=self._separated):
            self._block(lane, block, width)

    def _block(self, lane: int, block: Block, width: float) -> None:
        above, head, body, section = block.above, block.head, block.body, None
        if above:
            self._titles(above)
            known = self._known.get(lane)
            if not head and known is not None and known[0] == self._context.title:
                body = [
                    line for line in above if not is_title(line) and not list(periods(line.text))
                ] + body  # the table goes on
            else:
                section = _section_above(above)
        parts = at_titles(body)
        for number, part in enumerate(parts):
            if number:
                self._titles(part[:2])
            columns = find_columns(part) or find_columns(head + part)
            if not columns:
                continue
            known = self._known.get(lane)
            if not head and known is not None and known[0] == self._context.title:
                columns = _carried(columns, known[1])
            else:
                read_heads(columns, head, self._context)
                if known is not None and not any(col.year for col in columns):
                    columns = _carried(columns, known[1])
            years = [col.year for col in columns if not col.is_reference]
            goes_on = (
                known is not None
                and known[0] == self._context.title
                and years == [c.year for c in known[1] if not c.is_reference]
            )
            if not goes_on:
                self._table += 1
                self._sections[lane] = None
            self._known[lane] = (self._context.title, columns)
            start = section or self._sections.get(lane)
            if head and (beside := _section_beside(head, columns)):
                start = beside
            rows, self._sections[lane] = rows_of(part, columns, width, start)
            for row in rows:
                self._row(row, columns)

    def _titles(self, lines: list[Line]) -> None:
        """Learn from lines that are no rows: title, dates, units."""
        lines = [line for line in lines if not line.prose]
        for line, following in zip_longest(lines, lines[1:]):
            text = line.text
            if title := title_of(line, following):
                self._title(title, line)
            if len(text) < 160:
                if closings(text) and (title or not self._began):
                    self._context.dates, self._context.years = {}, []
                    self._began = True
                self._context.learn_dates(text)
            scale = _scale(line)
            if scale or (scale is not None and not self._context.scale):
                self._context.scale = scale

    def _title(self, title: str, line: Line) -> None:
        if title != self._context.title:
            self._context.title = title
            self._began = False
            self._entity("STATEMENT_TITLE", title, line)

    def _entity(self, type: str, text: str, line: Line) -> None:
        self.items.append(
            _place(line.words)
            | {"type": type, type: text, "ORG_NAME": self._context.org, "confidence": 0.9}
        )

    def _row(self, row: Row, columns: list[Column]) -> None:
        self._rows += 1
        ref = f"t{self._table}.r{self._rows}"
        for index in sorted(row.values):
            col = columns[index]
            if col.is_reference or col.is_share:
                continue
            self._value(row, row.values[index], col, ref, index)

    def _value(self, row: Row, cell: Cell, col: Column, ref: str, index: int) -> None:
        printed = cell.text
        value = value_of(printed, self._used)
        if value is None and not is_unsigned(printed, self._used):
            return
        start, end = digits_span(printed)
        context = self._context
        scale = self._scale_of(printed, value, col)
        sure = (
            0.99
            - (0 if value and scale else 0.4)
            - (0.1 if side_of(printed) else 0)
            - (0.1 if col.year is None else 0)
            - (0.05 if row.joined else 0)
            - (0.05 if not cell.free else 0)
        )
        self.items.append(
            _place(*_part(cell.words, start, end))
            | {
                "type": "LINE_ITEM_VALUE", "LINE_ITEM_NAME": row.label, "LINE_ITEM_VALUE": printed[start:end], "value": value,
                "COLUMN_YEAR": str(col.year) if col.year else None, "SECTION_HEADER": row.section,
                "TOTAL_LABEL": row.label if row.total else None, "CURRENCY": col.currency or context.currency,
                "UNITS_SCALE": scale or None, "REPORTING_PERIOD": col.ends.isoformat() if col.ends else None,
                "ORG_NAME": context.org, "STATEMENT_TITLE": context.title, "TABLE_COLUMN_HEADER": col.heading, "TABLE_ROW_REF": ref,
                "TABLE_CELL_REF": f"{ref}.c{index + 1}", "confidence": round(sure, 2),
            }
        )  # fmt: skip

    @cached_property
    def _lone_m(self) -> int:
        return money.lone_m(self._texts, spanish=self._spanish)

    def _scale_of(self, printed: str, value: str | None, col: Column) -> int:
        """In what an amount counts: what it says itself, else its column, else what stands above; UNCLEAR if that is a single M and nothing
        says which. One with a fraction is of millions: nobody prints a tenth of a thousand."""
        match size_of(printed):
            case "k":
                return 1000
            case "mm":
                return 1_000_000
            case "m":
                return 1_000_000 if value and "." in value else self._lone_m
        own = (
            1000 if col.scale == money.UNCLEAR and self._lone_m == 1000 else col.scale
        )  # MM above is another unit
        said = money.clearest(own, self._context.scale)
        return 1 if said is None else said or self._lone_m


def _part(words: list[Word], start: int, end: int) -> tuple[list[Word], tuple[int, int] | None]:
    """The words of a cell that hold this part of its text, and of a single one which part."""
    if len(words) == 1:
        return words, (start, end)
    kept, at = [], 0
    for word in words:
        if at < end and start < at + len(word.text):
            kept.append(word)
        at += len(word.text) + 1
    return kept, None


def _place(words: list[Word], part: tuple[int, int] | None = None) -> dict[str, Any]:
    boxes = [w.box for w in words]
    x0, y0, x1, y1 = (
        min(b[0] for b in boxes),
        min(b[1] for b in boxes),
        max(b[2] for b in boxes),
        max(b[3] for b in boxes),
    )
    start, end = words[0].start, words[-1].end
    if part is not None:  # a sign before the number, or a mark behind it, is not part of the value
        length = len(words[0].text)
        one = (x1 - x0) / length
        x0, x1 = x0 + one * part[0], x1 - one * (length - part[1])
        if (
            length == end - start
        ):  # else it was put together: its characters stand apart in the text
            start, end = start + part[0], start + part[1]
    box = [round(v, 6) for v in (x0, y0, x1, y1)]
    return {
        "page_refs": [{"page": words[0].page, "boxes": [box]}],
        "text_spans": [{"start": start, "end": end}],
    }


def _separated(amounts: list[str]) -> bool:
    """Whether no amount is written as a year is: the document marks thousands, or has none."""
    marked = sum(bool(re.search(r"\d[.,'’ ]\d{3}", a)) for a in amounts)
    bare = sum(bool(re.search(r"(?<![\d.,])\d{4,}", a)) and not is_year(a) for a in amounts)
    return marked > bare or not bare


def _first_scale(every: list[Line]) -> int | None:
    heads = (
        line
        for line in every[:40]
        if not line.prose
        and not any(c.kind == "amount" and c.free and len(c.text) > 4 for c in line.cells)
    )
    return next((scale for line in heads if (scale := _scale(line)) is not None), None)


def _scale(line: Line) -> int | None:
    """The scale that a line says, or a text that stands apart in it."""
    texts = () if _unticked(line) else (line.text, *(run.text for run in line.runs))
    return money.clearest(*map(money.scale_of, texts))


def _unticked(line: Line) -> bool:
    """Whether it ends with a choice of a form that nobody ticked: ``Miles: 09002``, where ``Euros: 09001 X`` is chosen."""
    return (
        len(line.words) > 1
        and line.words[-2].text.endswith(":")
        and line.words[-1].text.isdigit()
        and is_code(line.words[-1].text)
    )


def _top(every: list[Line]) -> list[Line]:
    """Where the company's name stands: the first page, or that of the first table if the first one is a letter."""
    first = [line for line in every if line.page == every[0].page] if every else []
    if (
        sum(line.prose for line in first) > 0.5 * len(first)
        and (table := first_table(every)) is not None
    ):
        return [line for line in every if line.page == table]
    return first


_SECTIONS = re.compile(
    r"(activos?|pasivos?|patrimonio|assets|liabilities|equity|ingresos|revenues?|operaciones|operating activities|flujos?.*operacion)\b"
)


def _section_above(above: list[Line]) -> str | None:
    """A section that stands over the heading of its columns."""
    text = above[-1].text.strip(" :")
    return (
        text
        if _SECTIONS.match(plain(text)) and len(text) < 60 and title_class(text) is None
        else None
    )


def _section_beside(head: list[Line], columns: list[Column]) -> str | None:
    """A section in the very line of the headings: ``ACTIVOS   Nota   2024   2023``."""
    edge = min((col.x0 for col in columns), default=0.0)
    for line in head:
        first = line.cells[0]
        if first.kind == "text" and first.x1 < edge and _SECTIONS.search(plain(first.text)):
            return first.text.strip(" :")
    return None


def _carried(columns: list[Column], known: list[Column]) -> list[Column]:
    """Columns of a page without headings mean what those above them, or on the page before, mean."""
    values = [col for col in known if not col.is_reference]
    ours = [col for col in columns if not col.is_reference]
    same = len(columns) == len(known)
    for index, col in enumerate(columns):
        near = (
            known[index]
            if same
            else min(known, key=lambda other: abs(other.x1 - col.x1), default=None)
        )
        if near is None or (not same and abs(near.x1 - col.x1) > 60 and len(ours) != len(values)):
            continue
        col.heads, col.year, col.ends, col.scale, col.currency = (
            near.heads,
            near.year,
            near.ends,
            near.scale,
            near.currency,
        )
        col.over, col.is_reference, col.is_share = near.over, near.is_reference, near.is_share
    return columns

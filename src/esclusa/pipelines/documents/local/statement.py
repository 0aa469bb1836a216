"""A document understood: its class, and every number with its label, period and place."""

from __future__ import annotations

import re
from typing import Any

from esclusa.pipelines.documents.local import context as said
from esclusa.pipelines.documents.local.columns import Column, find_columns, is_head, is_heading, is_sub_head, is_unit_line, read_heads
from esclusa.pipelines.documents.local.context import Context
from esclusa.pipelines.documents.local.lines import Cell, Line, lanes, lines_of, mark_prose
from esclusa.pipelines.documents.local.numbers import convention, digits_span, value_of
from esclusa.pipelines.documents.local.periods import periods
from esclusa.pipelines.documents.local.rows import Row, rows_of
from esclusa.pipelines.documents.local.words import Page, Text


def understand(text: Text) -> dict[str, Any]:
    """The answer for a document: class, confidence, and extractions in reading order, as plain values."""
    by_page = [(page, lines_of(page)) for page in text.pages]
    every = [line for _, lines in by_page for line in lines]
    mark_prose(every)
    doc_type, confidence, scores = said.classify(every)
    reader = _Reader(every)
    for page, lines in by_page:
        reader.page(page, lines)
    return {
        "doc_type": doc_type, "confidence": confidence, "pages": len(text.pages), "items": reader.items,
        "classified": {"class": doc_type, "confidence": confidence, "scores": {k: round(v, 2) for k, v in scores.items()}},
    }  # fmt: skip


class _Reader:
    """Goes through the pages from the first to the last; what a table said goes on below and on the next page."""

    def __init__(self, every: list[Line]) -> None:
        amounts = [c.text for line in every for c in line.cells if c.kind == "amount" and c.free]
        self._used = convention(amounts)
        self._separated = _separated(amounts)
        texts = [line.text for line in every]
        self._spanish = said.is_spanish(" ".join(texts[:200]))
        self._context = Context(currency=said.currency_by_votes(texts, spanish=self._spanish), scale=_first_scale(every))
        self._repeated = _repeated(every)
        self._known: dict[int, tuple[str | None, list[Column]]] = {}
        self._sections: dict[int, str | None] = {}
        self._table = 0
        self._rows = 0
        self._began = False
        self.items: list[dict[str, Any]] = []
        org = said.org_of(_top(every))
        if org is not None:
            self._context.org = org[0]
            self._entity("ORG_NAME", org[0], org[1])

    def page(self, page: Page, lines: list[Line]) -> None:
        if _is_index(lines):
            return
        columns = find_columns(lines) if page.number else []
        kept = [line for line in lines if page.number == 0 or not self._is_repeated(line) or is_sub_head(line, columns)]
        for lane, own in enumerate(lanes(page, kept)):
            self._lane(lane, own, page.width)

    def _is_repeated(self, line: Line) -> bool:
        if _faceless(line.text) not in self._repeated or any(c.kind == "amount" and c.free for c in line.cells):
            return False
        return not periods(line.text) and not is_heading(line.text)

    def _lane(self, lane: int, lines: list[Line], width: float) -> None:
        columns = find_columns(lines)
        heads = [is_head(line, columns, separated=self._separated) for line in lines]
        blocks = self._blocks(lines, heads, columns)
        for before, head, body in blocks:
            self._block(lane, before, head, body, width)

    def _blocks(self, lines: list[Line], heads: list[bool], columns: list[Column]) -> list[tuple[list[Line], list[Line], list[Line]]]:
        """The page cut into (what is above, headings, rows): a new block begins with each heading, and with each title."""
        blocks: list[tuple[list[Line], list[Line], list[Line]]] = []
        above: list[Line] = []
        head: list[Line] = []
        body: list[Line] = []
        for number, line in enumerate(lines):
            if heads[number]:
                if body and any(_has_value(b) for b in body):
                    cut = _title_at(body)
                    blocks.append((above, head, body[:cut]))
                    above, head, body = body[cut:], [], []
                elif body:
                    above, body = above + body, []
                head.append(line)
            elif head and not body and _heads_too(line, columns):
                head.append(line)
            elif not head and not body and not _has_value(line):
                above.append(line)
            else:
                body.append(line)
        if body or head:
            blocks.append((above, head, body))
        elif above:
            self._titles(above)
        # units that stand above the heading's first line belong to it
        for index, (up, top, rows) in enumerate(blocks):
            while up and top and _heads_too(up[-1], columns) and top[0].base - up[-1].base < 2.2 * top[0].height:
                top.insert(0, up.pop())
            blocks[index] = (up, top, rows)
        return blocks

    def _block(self, lane: int, above: list[Line], head: list[Line], body: list[Line], width: float) -> None:
        section = None
        if above:
            self._titles(above)
            known = self._known.get(lane)
            if not head and known is not None and known[0] == self._context.title:
                body = [line for line in above if not _is_title(line) and not list(periods(line.text))] + body  # the table goes on
            else:
                section = _section_above(above)
        parts = _at_titles(body)
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
            years = [col.year for col in columns if not col.is_note]
            goes_on = known is not None and known[0] == self._context.title and years == [c.year for c in known[1] if not c.is_note]
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
        for number, line in enumerate(lines):
            text = line.text
            pair = f"{text} {lines[number + 1].text}" if number + 1 < len(lines) else text
            found = said.title_class(text) if _title_shape(text) else None
            joined = said.title_class(pair) if found is None and number + 1 < len(lines) and _title_shape(pair) else None
            if joined is not None and said.title_class(lines[number + 1].text) is None and len(pair) < 120:
                self._title(pair, joined, line)
            elif found is not None:
                self._title(_whole_title(lines, number), found, line)
            if len(text) < 160:
                if list(periods(text)) and (found is not None or not self._began):
                    self._context.dates, self._context.years = {}, []
                    self._began = True
                self._context.learn_dates(text)
            scale = said.scale_of(text)
            if scale is not None:
                self._context.scale = scale

    def _title(self, title: str, doc_type: str, line: Line) -> None:
        title = _CONTINUED.sub("", title)
        if title != self._context.title:
            self._context.title, self._context.doc_type = title, doc_type
            self._began = False
            self._entity("STATEMENT_TITLE", title, line)

    def _entity(self, type: str, text: str, line: Line) -> None:
        self.items.append(_place(line.words) | {"type": type, type: text, "ORG_NAME": self._context.org, "confidence": 0.9})

    def _row(self, row: Row, columns: list[Column]) -> None:
        self._rows += 1
        ref = f"t{self._table}.r{self._rows}"
        for index in sorted(row.values):
            col = columns[index]
            if col.is_note or col.is_share:
                continue
            self._value(row, row.values[index], col, ref, index)

    def _value(self, row: Row, cell: Cell, col: Column, ref: str, index: int) -> None:
        printed = cell.text
        value = value_of(printed, self._used)
        if value is None:
            return
        start, end = digits_span(printed)
        context = self._context
        sure = 0.99 - (0.1 if col.year is None else 0) - (0.05 if row.joined else 0) - (0.05 if not cell.free else 0)
        self.items.append(
            _place(cell.words, (start, end) if len(cell.words) == 1 else None)
            | {
                "type": "LINE_ITEM_VALUE", "LINE_ITEM_NAME": row.label, "LINE_ITEM_VALUE": printed[start:end], "value": value,
                "COLUMN_YEAR": str(col.year) if col.year else None, "SECTION_HEADER": row.section,
                "TOTAL_LABEL": row.label if row.total else None, "CURRENCY": col.currency or context.currency,
                "UNITS_SCALE": col.scale or context.scale or 1, "REPORTING_PERIOD": col.ends.isoformat() if col.ends else None,
                "ORG_NAME": context.org, "STATEMENT_TITLE": context.title, "TABLE_COLUMN_HEADER": col.heading, "TABLE_ROW_REF": ref,
                "TABLE_CELL_REF": f"{ref}.c{index + 1}", "confidence": round(sure, 2),
            }
        )  # fmt: skip


def _place(words: list[Any], part: tuple[int, int] | None = None) -> dict[str, Any]:
    boxes = [w.box for w in words]
    x0, y0, x1, y1 = min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)
    start, end = words[0].start, words[-1].end
    if part is not None:  # a sign before the number, or a mark behind it, is not part of the value
        one = (x1 - x0) / max(1, end - start)
        x0, x1 = x0 + one * part[0], x1 - one * (end - start - part[1])
        start, end = start + part[0], start + part[1]
    box = [round(v, 6) for v in (x0, y0, x1, y1)]
    return {"page_refs": [{"page": words[0].page, "boxes": [box]}], "text_spans": [{"start": start, "end": end}]}


def _separated(amounts: list[str]) -> bool:
    """Whether the document marks thousands, so that a bare 2024 is no amount."""
    marked = sum(bool(re.search(r"\d[.,'’ ]\d{3}", a)) for a in amounts)
    bare = sum(bool(re.search(r"(?<![\d.,])\d{5,}", a)) for a in amounts)
    return marked > bare


def _first_scale(every: list[Line]) -> int | None:
    for line in every[:40]:
        if not line.prose and not any(c.kind == "amount" and c.free and len(c.text) > 4 for c in line.cells):
            scale = said.scale_of(line.text)
            if scale is not None:
                return scale
    return None


def _top(every: list[Line]) -> list[Line]:
    """Where the company's name stands: the first page, or that of the first table if the first one is a letter."""
    first = [line for line in every if line.page == every[0].page]
    if sum(line.prose for line in first) > 0.5 * len(first) and (table := said.first_table(every)) is not None:
        return [line for line in every if line.page == table]
    return first


def _faceless(text: str) -> str:
    return re.sub(r"\d+", "#", said.plain(text))


def _repeated(every: list[Line]) -> set[str]:
    """Lines that stand on several pages at about the same height: running heads and feet."""
    seen: dict[str, dict[int, float]] = {}
    for line in every:
        seen.setdefault(_faceless(line.text), {}).setdefault(line.page, line.base)
    return {text for text, pages in seen.items() if len(pages) > 1 and max(pages.values()) - min(pages.values()) < 25}


def _is_index(lines: list[Line]) -> bool:
    """A table of contents: titles with page numbers that never fall."""
    rows = [line for line in lines if len(line.cells) > 1 and line.cells[-1].kind == "amount" and line.cells[-1].free]
    pages = [line.cells[-1].text for line in rows]
    if len(rows) < 3 or not all(text.isdigit() and len(text) < 4 for text in pages):
        return False
    numbers = [int(text) for text in pages]
    titled = sum(said.title_class(line.text) is not None or said.is_other_title(line.text) for line in rows)
    return titled > 1 and numbers == sorted(numbers) and len(set(numbers)) > 1


def _heads_too(line: Line, columns: list[Column]) -> bool:
    return is_unit_line(line, columns) or is_sub_head(line, columns)


def _has_value(line: Line) -> bool:
    return any(c.kind in ("amount", "dash") and c.free for c in line.cells[1:]) or (
        len(line.cells) == 1 and line.cells[0].kind == "amount" and len(line.cells[0].text) > 4
    )


def _is_title(line: Line) -> bool:
    text = line.text
    return said.title_class(text) is not None and not _has_value(line) and len(text) < 100 and not text[:1].islower() and _title_shape(text)


_CONTINUED = re.compile(r"\s*[-–,]?\s*\(?\b(?:continuaci[oó]n|continued|cont(?:['’]d|in\.|\.)?)\)?\s*\Z", re.IGNORECASE)


def _title_shape(text: str) -> bool:
    """A title names the statement; a section or a row that only uses its words says more."""
    return (
        re.search(
            r"\b(actividades|activities|net[oa]?|procedentes?|provided|used|utilizad\w+|from|total|supplement\w+|disclosures?|complementari\w+)\b",
            said.plain(text),
        )
        is None
    )


def _title_at(body: list[Line]) -> int:
    """Where, at the end of a block, the title of the next one begins."""
    cut = len(body)
    while cut > 0 and not _has_value(body[cut - 1]):
        cut -= 1
    for index in range(cut, len(body)):
        if _is_title(body[index]):
            return max(cut, index - 1) if index > cut and said.plain(body[index - 1].text) else index
    return len(body)


def _at_titles(body: list[Line]) -> list[list[Line]]:
    """The rows, cut where another statement's title stands among them."""
    parts: list[list[Line]] = [[]]
    for line in body:
        if _is_title(line) and any(_has_value(b) for b in parts[-1]):
            parts.append([])
        parts[-1].append(line)
    return parts


def _whole_title(lines: list[Line], number: int) -> str:
    text = lines[number].text
    following = lines[number + 1].text if number + 1 < len(lines) else ""
    if re.search(r"\b(de|del|of|and|y|consolidado|consolidated)\Z", said.plain(text)) and following:
        return f"{text} {following}"
    return text


_SECTIONS = re.compile(
    r"(activos?|pasivos?|patrimonio|assets|liabilities|equity|ingresos|revenues?|operaciones|operating activities|flujos?.*operacion)\b"
)


def _section_above(above: list[Line]) -> str | None:
    """A section that stands over the heading of its columns."""
    text = above[-1].text.strip(" :")
    return text if _SECTIONS.match(said.plain(text)) and len(text) < 60 and said.title_class(text) is None else None


def _section_beside(head: list[Line], columns: list[Column]) -> str | None:
    """A section in the very line of the headings: ``ACTIVOS   Nota   2024   2023``."""
    edge = min((col.x0 for col in columns), default=0.0)
    for line in head:
        first = line.cells[0]
        if first.kind == "text" and first.x1 < edge and _SECTIONS.search(said.plain(first.text)):
            return first.text.strip(" :")
    return None


def _carried(columns: list[Column], known: list[Column]) -> list[Column]:
    """Columns of a page without headings mean what those above them, or on the page before, mean."""
    values = [col for col in known if not col.is_note]
    ours = [col for col in columns if not col.is_note]
    same = len(columns) == len(known)
    for index, col in enumerate(columns):
        near = known[index] if same else min(known, key=lambda other: abs(other.x1 - col.x1), default=None)
        if near is None or (not same and abs(near.x1 - col.x1) > 60 and len(ours) != len(values)):
            continue
        col.heads, col.year, col.ends, col.scale, col.currency = near.heads, near.year, near.ends, near.scale, near.currency
        col.over, col.is_note, col.is_share = near.over, near.is_note, near.is_share
    return columns

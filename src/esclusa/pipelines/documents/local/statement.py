"""Read a document: its class, and every number with its label, period and position."""

from __future__ import annotations

import re
from datetime import date
from functools import cached_property
from itertools import zip_longest
from typing import Any

from esclusa.pipelines.documents.local import money
from esclusa.pipelines.documents.local.blocks import (
    Block,
    blocks_of,
    has_value,
    is_table_of_contents,
    is_title,
    side_by_side,
    split_at_titles,
)
from esclusa.pipelines.documents.local.classifier import (
    classify,
    first_table_page,
    note_heading,
    title_class,
    title_of,
)
from esclusa.pipelines.documents.local.column_periods import (
    read_column_headings,
    with_known_headings,
)
from esclusa.pipelines.documents.local.columns import NumberColumn, find_columns
from esclusa.pipelines.documents.local.context import (
    StatementContext,
    closing_periods,
    is_spanish,
    organisation_of,
)
from esclusa.pipelines.documents.local.headers_footers import (
    content_lines,
    in_margins,
    masked_digits,
    repeated_texts,
)
from esclusa.pipelines.documents.local.headings import is_any_heading, is_year
from esclusa.pipelines.documents.local.lines import (
    Cell,
    TextLine,
    lines_of_page,
    mark_prose,
)
from esclusa.pipelines.documents.local.numbers import (
    convention_of,
    digits_span,
    has_unknown_sign,
    is_code,
    ledger_side,
    magnitude_of,
    value_of,
)
from esclusa.pipelines.documents.local.pdf_words import read_pdf
from esclusa.pipelines.documents.local.periods import periods
from esclusa.pipelines.documents.local.plain_text import plain
from esclusa.pipelines.documents.local.positions import location, words_of_part
from esclusa.pipelines.documents.local.row_kinds import (
    date_rows,
    excepts_shares,
    is_number_of_shares,
    is_per_share,
    is_total,
)
from esclusa.pipelines.documents.local.rows import TableRow, table_rows
from esclusa.pipelines.documents.local.words import PdfPage, PdfText, Recogniser


def read_document(
    content: bytes, doc_type: str | None = None, recognise: Recogniser | None = None
) -> dict[str, Any]:
    """Return the answer of ``read_statement``; raise Unreadable.

    ``recognise`` reads the pages that are pictures. The answer then has the ``text`` in which the
    spans count.
    """
    text = read_pdf(content, recognise)
    answer = read_statement(text, doc_type)
    return answer | {"text": text.text} if answer["recognised_pages"] else answer


def read_statement(text: PdfText, read_as: str | None = None) -> dict[str, Any]:
    """Return class, confidence, and extractions in reading order, as plain values.

    A document that is no statement has no extractions, unless ``read_as`` names a class.
    """
    printed = [(page, lines_of_page(page)) for page in text.pages]
    by_page = [(page, content_lines(page, lines)) for page, lines in printed]
    all_lines = [line for _, lines in by_page for line in lines]
    mark_prose(all_lines)
    doc_type, confidence, scores = classify(all_lines)
    margin_lines = [line for page, lines in printed for line in in_margins(page, lines)]
    items = _items(all_lines, by_page, margin_lines) if (read_as or doc_type) != "other" else []
    return {
        "doc_type": doc_type,
        "confidence": confidence,
        "pages": len(text.pages),
        "items": items,
        "unread_pages": [page.number for page in text.pages if page.is_unread],
        "recognised_pages": [p.number for p in text.pages if p.is_picture and p.words],
        "classified": {
            "class": doc_type,
            "confidence": confidence,
            "scores": {k: round(v, 2) for k, v in scores.items()},
        },
    }


def _items(
    all_lines: list[TextLine],
    by_page: list[tuple[PdfPage, list[TextLine]]],
    margin_lines: list[TextLine],
) -> list[dict[str, Any]]:
    reader = _StatementReader(all_lines, margin_lines)
    for page, lines in by_page:
        reader.page(page, lines)
    return reader.items


class _StatementReader:
    """Reads the pages in order; headings apply below them and on the following pages."""

    def __init__(self, all_lines: list[TextLine], margin_lines: list[TextLine]) -> None:
        amounts = [
            c.text for line in all_lines for c in line.cells if c.kind == "amount" and c.is_separate
        ]
        self._convention = convention_of(amounts)
        self._marks_thousands = _marks_thousands(amounts)
        self._texts = [line.text for line in all_lines]
        self._spanish = is_spanish(" ".join(self._texts[:200]))
        self._context = StatementContext(
            currency=money.document_currency(
                self._texts, spanish=self._spanish, thousands=self._convention.thousands
            ),
            scale=_first_scale_of(all_lines),
        )
        self._repeated = repeated_texts(all_lines)
        self._known_columns: dict[int, tuple[str | None, list[NumberColumn]]] = {}
        self._sections: dict[int, str | None] = {}
        self._table_count = 0
        self._row_count = 0
        self._dates_known = False
        # Whether the last title is that of a note.
        self._in_notes = False
        self.items: list[dict[str, Any]] = []
        org = organisation_of(_first_page_lines(all_lines), margin_lines)
        if org is not None:
            self._context.org = org[0]
            self._add_entity("ORG_NAME", org[0], org[1])

    def page(self, page: PdfPage, lines: list[TextLine]) -> None:
        if is_table_of_contents(lines):
            return
        columns = find_columns(lines)
        last = max((line.y for line in lines if has_value(line)), default=0.0)
        kept = [line for line in lines if not self._is_header_or_footer(line, columns, last)]
        for lane, own in enumerate(side_by_side(page, kept)):
            for block in blocks_of(own, find_columns(own), separated=self._marks_thousands):
                self._read_block(lane, block, page.width)

    def _is_header_or_footer(
        self, line: TextLine, columns: list[NumberColumn], last: float
    ) -> bool:
        """Return whether the line is a header or footer; headers of the first page are titles."""
        if masked_digits(line.text) not in self._repeated or line.has_amount:
            return False
        if line.y > last:
            return True
        return line.page > 0 and not (
            periods(line.text)
            or is_title(line)
            or is_any_heading(line, columns, separated=self._marks_thousands)
        )

    def _read_block(self, lane: int, block: Block, width: float) -> None:
        above, heading, body, section = block.above, block.heading, block.body, None
        if above:
            self._read_titles(above)
            known = self._known_columns.get(lane)
            if not heading and known is not None and known[0] == self._context.title:
                body = [
                    line for line in above if not is_title(line) and not list(periods(line.text))
                ] + body  # the table continues
            else:
                section = _section_above(above)
        for number, part in enumerate(split_at_titles(body, in_notes=self._in_notes)):
            if number:
                self._read_titles(part[:2])
            columns = find_columns(part) or find_columns(heading + part)
            if not columns:
                continue
            known = self._known_columns.get(lane)
            if not heading and known is not None and known[0] == self._context.title:
                columns = with_known_headings(columns, known[1])
            else:
                read_column_headings(columns, heading, self._context)
                if known is not None and not any(col.year for col in columns):
                    columns = with_known_headings(columns, known[1])
            years = [col.year for col in columns if not col.is_reference]
            if not (
                known is not None
                and known[0] == self._context.title
                and years == [c.year for c in known[1] if not c.is_reference]
            ):
                self._table_count += 1
                self._sections[lane] = None
            self._known_columns[lane] = (self._context.title, columns)
            start = section or self._sections.get(lane)
            if heading and (beside := _section_beside(heading, columns)):
                start = beside
            rows, self._sections[lane] = table_rows(part, columns, width, start)
            if self._has_components:
                date_rows(rows)
            for row in rows:
                self._add_row(row, columns)

    def _read_titles(self, lines: list[TextLine]) -> None:
        """Read title, dates and units from lines that are no rows."""
        lines = [line for line in lines if not line.is_prose]
        for line, following in zip_longest(lines, lines[1:]):
            text = line.text
            title = note_heading(text, in_notes=self._in_notes)
            if title:
                self._in_notes = True
            elif title := title_of(line, following):
                self._in_notes = False
            if title and title != self._context.title:
                self._context.title = title
                self._dates_known = False
                self._add_entity("STATEMENT_TITLE", title, line)
            if len(text) < 160:
                if closing_periods(text) and (title or not self._dates_known):
                    self._context.dates, self._context.years = {}, []
                    self._dates_known = True
                self._context.learn_dates(text)
            scale = _scale(line)
            if scale or (scale is not None and not self._context.scale):
                self._context.scale = scale

    def _add_entity(self, type: str, text: str, line: TextLine) -> None:
        self.items.append(
            location(line.words)
            | {"type": type, type: text, "ORG_NAME": self._context.org, "confidence": 0.9}
        )

    def _add_row(self, row: TableRow, columns: list[NumberColumn]) -> None:
        self._row_count += 1
        ref = f"t{self._table_count}.r{self._row_count}"
        for index in sorted(row.values):
            col = columns[index]
            if not col.is_reference and not col.is_percentage:
                self._add_value(row, row.values[index], col, ref, index)

    def _add_value(
        self, row: TableRow, cell: Cell, col: NumberColumn, ref: str, index: int
    ) -> None:
        printed = cell.text
        value = value_of(printed, self._convention)
        if value is None and not has_unknown_sign(printed, self._convention):
            return
        start, end = digits_span(printed)
        scale = 1 if self._is_per_share(row) else self._scale_of(printed, value, col)
        ends = self._ends_of(row, col)
        year = None if self._has_components else col.year
        confidence = (
            0.99
            - (0 if value and scale else 0.4)
            - (0.1 if ledger_side(printed) else 0)
            - (0.1 if ends is None or (year is None and not self._has_components) else 0)
            - (0.05 if row.joined else 0)
            - (0.05 if not cell.is_separate else 0)
        )
        self.items.append(
            location(*words_of_part(cell.words, start, end))
            | {
                "type": "LINE_ITEM_VALUE",
                "LINE_ITEM_NAME": row.label,
                "LINE_ITEM_VALUE": printed[start:end],
                "value": value,
                "COLUMN_YEAR": str(year) if year else None,
                "SECTION_HEADER": row.section,
                "TOTAL_LABEL": row.label if is_total(row) else None,
                "CURRENCY": col.currency or self._context.currency,
                "UNITS_SCALE": scale or None,
                "REPORTING_PERIOD": ends.isoformat() if ends else None,
                "ORG_NAME": self._context.org,
                "STATEMENT_TITLE": self._context.title,
                "TABLE_COLUMN_HEADER": col.heading,
                "TABLE_ROW_REF": ref,
                "TABLE_CELL_REF": f"{ref}.c{index + 1}",
                "confidence": round(confidence * min(w.confidence for w in cell.words), 2),
            }
        )

    @property
    def _has_components(self) -> bool:
        """Whether columns are components of equity, or sides of an account, instead of periods."""
        return self._class in ("changes_in_equity", "trial_balance")

    @property
    def _class(self) -> str | None:
        """The class of the statement in which the rows are."""
        return title_class(self._context.title) if self._context.title is not None else None

    def _ends_of(self, row: TableRow, col: NumberColumn) -> date | None:
        """Return the end of the period of a value."""
        if not self._has_components:
            return col.ends
        return row.ends or self._context.latest or col.ends

    def _is_per_share(self, row: TableRow) -> bool:
        """Return whether an amount is per share, or a number of shares stated in units."""
        if is_number_of_shares(row):
            return self._states_shares_in_units
        return is_per_share(row)

    @cached_property
    def _states_shares_in_units(self) -> bool:
        return any(map(excepts_shares, self._texts))

    @cached_property
    def _meaning_of_m(self) -> int:
        return money.meaning_of_m(self._texts, spanish=self._spanish)

    def _scale_of(self, printed: str, value: str | None, col: NumberColumn) -> int:
        """Return the scale of an amount: its own, that of its column, or that of the context.

        AMBIGUOUS if it is a single M without other evidence. A fraction means millions: tenths of a
        thousand are not printed.
        """
        match magnitude_of(printed):
            case "k":
                return 1000
            case "mm":
                return 1_000_000
            case "m":
                return 1_000_000 if value and "." in value else self._meaning_of_m
        # MM above is another unit.
        own = 1000 if col.scale == money.AMBIGUOUS and self._meaning_of_m == 1000 else col.scale
        scale = money.first_clear(own, self._context.scale)
        return 1 if scale is None else scale or self._meaning_of_m


def _marks_thousands(amounts: list[str]) -> bool:
    """Return whether no amount looks like a year: thousands are marked, or there are none."""
    marked = sum(bool(re.search(r"\d[.,'’ ]\d{3}", a)) for a in amounts)
    bare = sum(bool(re.search(r"(?<![\d.,])\d{4,}", a)) and not is_year(a) for a in amounts)
    return marked > bare or not bare


def _first_scale_of(all_lines: list[TextLine]) -> int | None:
    heads = (
        line
        for line in all_lines[:40]
        if not line.is_prose
        and not any(c.kind == "amount" and c.is_separate and len(c.text) > 4 for c in line.cells)
    )
    return next((scale for line in heads if (scale := _scale(line)) is not None), None)


def _scale(line: TextLine) -> int | None:
    """Return the scale that a line, or a separate text in it, names."""
    texts = () if _is_unchosen_option(line) else (line.text, *(run.text for run in line.runs))
    return money.first_clear(*map(money.scale_of, texts))


def _is_unchosen_option(line: TextLine) -> bool:
    """Return whether the line ends with an option of a form that is not chosen.

    ``Miles: 09002`` is not chosen where ``Euros: 09001 X`` is.
    """
    return (
        len(line.words) > 1
        and line.words[-2].text.endswith(":")
        and line.words[-1].text.isdigit()
        and is_code(line.words[-1].text)
    )


def _first_page_lines(all_lines: list[TextLine]) -> list[TextLine]:
    """Return the lines with the company's name: the first page, or the first with a table."""
    first = [line for line in all_lines if line.page == all_lines[0].page] if all_lines else []
    if (
        sum(line.is_prose for line in first) > 0.5 * len(first)
        and (table := first_table_page(all_lines)) is not None
    ):
        return [line for line in all_lines if line.page == table]
    return first


_SECTION_WORDS = re.compile(
    r"(activos?|pasivos?|patrimonio|assets|liabilities|equity|ingresos|revenues?|"
    r"operaciones|operating activities|flujos?.*operacion)\b"
)


def _section_above(above: list[TextLine]) -> str | None:
    """Return the section above the heading of its columns."""
    text = above[-1].text.strip(" :")
    return (
        text
        if _SECTION_WORDS.match(plain(text)) and len(text) < 60 and title_class(text) is None
        else None
    )


def _section_beside(heading: list[TextLine], columns: list[NumberColumn]) -> str | None:
    """Return the section in the line of the headings: ``ACTIVOS   Nota   2024   2023``."""
    edge = min((col.x0 for col in columns), default=0.0)
    for line in heading:
        first = line.cells[0]
        if first.kind == "text" and first.x1 < edge and _SECTION_WORDS.search(plain(first.text)):
            return first.text.strip(" :")
    return None

"""Rows of a table: labels with their numbers, their sections, and wrapped lines."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise, zip_longest

from esclusa.pipelines.documents.local.columns import NumberColumn, column_at
from esclusa.pipelines.documents.local.lines import Cell, TextLine
from esclusa.pipelines.documents.local.money import currency_of, scale_of
from esclusa.pipelines.documents.local.numbers import is_code, is_note_list
from esclusa.pipelines.documents.local.plain_text import plain
from esclusa.pipelines.documents.local.words import Word

_INCOMPLETE = re.compile(
    r"(?:\b(?:de|del|la|las|los|el|y|e|o|u|en|por|para|con|sin|a|al|of|the|and|or|in|for|to|"
    r"from|by|with|on|at|than|que|sus|su|its)|[,;(/&-])\s*\Z"
)
# Ends of a header that announces rows, though a sentence could continue.
_ANNOUNCES = re.compile(
    r"\b(?:attributable to|atribuibles? al?|adjustments (?:for|to)|ajustes (?:por|a)|"
    r"changes in|cambios en)\Z"
)
TOTAL = re.compile(r"(?:sub[- ]?)?total(?:es)?\b|suma(?:s)?\b", re.IGNORECASE)
# Lines around a table that are not part of it.
_NOISE = re.compile(
    r"^pag(ina|\.)?\s*\d|^page\s*\d|\bcontinua(cion|ed)?\b|^\(?continued|^firma|^signature|"
    r"^rut\b|^folio\b|www\.|@|^c\.?p\.?c?\b"
)
# Signatures; with numbers beside them they are rows.
_SIGNERS = re.compile(
    r"contador general|gerente general|chief financial|representante legal|^auditor|"
    r"^elaborado|^prepar(?:ed|ado) (?:by|por)"
)


@dataclass
class TableRow:
    """A label and its numbers, by index of the column."""

    label: str
    values: dict[int, Cell] = field(default_factory=dict)
    line: TextLine | None = None
    x0: float = 0.0
    section: str | None = None
    dashes: int = 0
    joined: int = 0
    # The end of its period, where rows instead of columns name it.
    ends: date | None = None


@dataclass
class _TableLine:
    """A line of a table, split into its label and its values."""

    line: TextLine
    label: str
    x0: float
    values: dict[int, Cell]
    dashes: int
    colon: bool
    x1: float
    # The width of its first word and the space before it.
    first_width: float

    @property
    def y(self) -> float:
        return self.line.y

    @property
    def code(self) -> str:
        """The code of its account."""
        return " ".join(cell.text for cell in self.line.cells[: self.line.codes])


def split_line(line: TextLine, columns: list[NumberColumn], width: float) -> _TableLine:
    """Split a line into its label and the values of its columns."""
    values: dict[int, Cell] = {}
    label: list[Word] = []
    dashes = 0
    edge = min((col.x0 for col in columns if not col.is_reference), default=width)
    references = _reference_words(line, edge)
    for cell, following in zip_longest(line.cells[line.codes :], line.cells[line.codes + 1 :]):
        col = column_at(columns, cell) if cell.kind in ("amount", "dash", "text") else None
        index = columns.index(col) if col is not None else -1
        if (
            cell.kind == "amount"
            and col is not None
            and (cell.is_separate or _is_aligned(col, cell))
            and index not in values
        ):
            values[index] = cell
        elif cell.kind == "dash" and col is not None and cell.x0 > edge - 40:
            dashes += 1
        elif cell.kind in ("sign", "percent") and (
            cell.x0 > edge - 60 or _is_sign_of_next(cell, following)
        ):
            continue
        elif (
            col is not None
            and col.is_reference
            and cell.x0 >= col.x0 - max(12, 2 * cell.words[0].height)
            and len(cell.text) <= 12
        ):
            continue  # 7(a) in the column of notes
        else:
            label += [w for w in cell.words if w.x0 < edge and w not in references]
    text = " ".join(w.text for w in label)
    return _TableLine(
        line,
        _clean_label(text),
        label[0].x0 if label else line.x0,
        values,
        dashes,
        text.endswith(":"),
        label[-1].x1 if label else 0.0,
        label[0].x1 - label[0].x0 + 0.3 * label[0].height if label else 0.0,
    )


def _is_sign_of_next(cell: Cell, following: Cell | None) -> bool:
    """Return whether it is the currency sign of the number that follows, at any distance."""
    return (
        cell.kind == "sign"
        and cell.is_separate
        and following is not None
        and following.kind in ("amount", "dash")
    )


def _reference_words(line: TextLine, edge: float) -> list[Word]:
    """Return the words between a label and its numbers that only name notes or a code."""
    for label, run in pairwise(line.runs[line.codes :]):
        if (
            run.x1 < edge
            and run.x0 - label.x1 > 1.5 * line.height
            and any(ch.isalpha() for ch in label.text)
            and (is_note_list(run.text) or is_code(run.text))
        ):
            return run.words
    return []


def _is_aligned(col: NumberColumn, cell: Cell) -> bool:
    edges = [c.x1 for c in col.cells if c.kind == "amount"]
    return any(abs(cell.x1 - edge) < 0.4 * cell.words[0].height for edge in edges)


def _clean_label(label: str) -> str:
    if label[-1:] in ".·_… ":
        label = re.sub(r"(?:\s*[.·_…]){2,}\s*\Z", "", label)
        label = re.sub(r"\s+(?:[.·_…]\s*)+\Z", "", label)
    return " ".join(label.split()).strip(" \t:|")


def table_rows(
    lines: list[TextLine], columns: list[NumberColumn], width: float, section: str | None = None
) -> tuple[list[TableRow], str | None]:
    """Return the rows of a block with their sections, and the last section for the next page."""
    table_lines = [split_line(line, columns, width) for line in lines if not line.is_prose]
    table_lines = [p for p in table_lines if (p.label or p.values or p.dashes) and not _is_noise(p)]
    table_lines = [
        p
        for p in table_lines
        if not (_is_page_number(p) and (p is table_lines[0] or p is table_lines[-1]))
    ]
    table_lines = _without_empty_rows(_strip_header_values(_strip_codes(table_lines), columns))
    distance = _row_distance(table_lines)
    right_edge = max((p.x1 for p in table_lines if p.values), default=0.0)
    rows: list[TableRow] = []
    pending: list[_TableLine] = []
    completed = None
    for table_line, following in zip_longest(table_lines, table_lines[1:]):
        if table_line is completed:
            continue
        if not table_line.values and not table_line.dashes:
            if rows and not pending and _ends_label(rows[-1], table_line, distance, following):
                rows[-1].label = _join_labels(rows[-1].label, table_line.label)
                rows[-1].joined += 1
                rows[-1].line = table_line.line
            else:
                pending.append(table_line)
            continue
        label, x0 = table_line.label, table_line.x0
        below = table_line
        while pending and _begins_label(pending[-1], label, below, distance, right_edge):
            below = pending.pop()
            label, x0 = _join_labels(below.label, label), below.x0
        section = _nearest_section(pending, section)
        pending = []
        line = table_line.line
        if (
            not table_line.label
            and following is not None
            and _completes_centered(table_line, following, distance)
        ):
            label = _join_labels(label, following.label)
            line, completed = following.line, following
        if not label and table_line.values and rows:
            label = f"Total {section}" if section else "Total"
        if label:
            rows.append(TableRow(label, table_line.values, line, x0, section, table_line.dashes))
    return [row for row in rows if row.values], _nearest_section(pending, section)


def _strip_codes(table_lines: list[_TableLine]) -> list[_TableLine]:
    """Remove codes from the beginning of labels where most rows have codes in their own column."""
    coded = [table_line.line.cells[0].x0 for table_line in table_lines if table_line.line.codes]
    if 2 * len(coded) > sum(bool(table_line.values) for table_line in table_lines):
        for table_line in table_lines:
            first, _, rest = table_line.label.partition(" ")
            is_coded = first.isdigit() or is_code(first)
            if is_coded and any(abs(table_line.x0 - x0) < 3 for x0 in coded):
                table_line.label = rest
    return table_lines


def _strip_header_values(
    table_lines: list[_TableLine], columns: list[NumberColumn]
) -> list[_TableLine]:
    """Remove codes and notes beside headers: lines in capitals among rows that are not."""
    for table_line in table_lines:
        if (
            table_line.values
            and all(columns[index].is_reference for index in table_line.values)
            and _is_header(table_line, table_lines)
        ):
            table_line.values = {}
    return table_lines


def _is_header(table_line: _TableLine, table_lines: list[_TableLine]) -> bool:
    """Return whether the line is in capitals and most rows are not."""
    rows = [other for other in table_lines if other.values]
    return (
        _is_uppercase(table_line.label)
        and not table_line.dashes
        and 2 * sum(_is_uppercase(row.label) for row in rows) < len(rows)
    )


def _without_empty_rows(table_lines: list[_TableLine]) -> list[_TableLine]:
    """Drop rows without numbers: those with a code of the usual length and another code below.

    Headers have shorter codes or are in capitals.
    """
    lengths = Counter(len(p.code) for p in table_lines if p.values and p.code)
    usual = lengths.most_common(1)[0][0] if lengths else None
    return [
        table_line
        for table_line, below in zip_longest(table_lines, table_lines[1:])
        if table_line.values
        or table_line.dashes
        or len(table_line.code) != usual
        or (below is not None and not below.code)
        or _is_header(table_line, table_lines)
    ]


def _is_noise(table_line: _TableLine) -> bool:
    lowered = plain(table_line.label)
    return _NOISE.search(lowered) is not None or (
        not table_line.values and _SIGNERS.search(lowered) is not None
    )


def _is_page_number(table_line: _TableLine) -> bool:
    cells = list(table_line.values.values())
    return (
        not table_line.label
        and len(cells) == 1
        and len(table_line.line.cells) == 1
        and cells[0].text.isdigit()
        and len(cells[0].text) < 4
    )


def _row_distance(table_lines: list[_TableLine]) -> float:
    """Return the usual distance between neighbouring rows; groups are further apart."""
    gaps = sorted(
        b.y - a.y
        for a, b in pairwise(table_lines)
        if (a.values or a.dashes) and (b.values or b.dashes) and 0 < b.y - a.y < 60
    )
    return gaps[len(gaps) // 8] if gaps else 14.0


def _is_tight(a: TextLine, b: TextLine, distance: float) -> bool:
    """Return whether two lines are closer together than two rows."""
    return abs(b.y - a.y) < 0.88 * distance


def _begins_label(
    before: _TableLine, label: str, table_line: _TableLine, distance: float, right_edge: float
) -> bool:
    """Return whether a line without numbers is the first part of the label below it.

    ``right_edge`` is where labels end: a line with room for the next word has not wrapped.
    """
    if (
        abs(table_line.y - before.y) >= 1.25 * distance + 1
        or not before.label
        or (label[:1].isupper() and _announces_rows(before))
    ):
        return False
    tight = _is_tight(before.line, table_line.line, distance)
    if not label:
        wraps = not _is_uppercase(before.label) and (
            _has_open_parenthesis(before.label) or not TOTAL.match(before.label)
        )
        return wraps or tight
    hangs = (
        _INCOMPLETE.search(plain(before.label)) is not None
        and before.x1 + table_line.first_width > right_edge
        and not _starts_new_label(before.label, label)
    )
    if _is_uppercase(before.label):  # capitals continue only in capitals
        hangs = hangs or _has_open_parenthesis(before.label)
        return (_is_uppercase(label) and (hangs or tight)) or (label.startswith("(") and tight)
    return _has_open_parenthesis(before.label) or _starts_mid_sentence(label) or hangs or tight


def _starts_new_label(before: str, label: str) -> bool:
    """Return whether a label in sentence case starts anew below a line in sentence case."""
    words = before.split()
    return (
        label[:1].isupper()
        and label[1:2].islower()
        and len(words) > 2
        and words[0].istitle()
        and all(w.islower() for w in words[1:])
    )


def _announces_rows(table_line: _TableLine) -> bool:
    """Return whether a line without numbers announces rows: ``Attributable to:``."""
    return table_line.colon or _ANNOUNCES.search(plain(table_line.label)) is not None


def _ends_label(
    row: TableRow, table_line: _TableLine, distance: float, following: _TableLine | None
) -> bool:
    """Return whether a line without numbers is the last part of the label above it."""
    assert row.line is not None
    if (
        abs(table_line.y - row.line.y) > 1.25 * distance + 1
        or not table_line.label
        or table_line.line.page != row.line.page
        or row.joined >= 3
        or _NOISE.search(plain(table_line.label))
    ):
        return False
    if (_has_open_parenthesis(row.label) and ")" in table_line.label) or (
        _INCOMPLETE.search(plain(row.label)) and not _is_uppercase(table_line.label)
    ):
        return True
    if _starts_mid_sentence(table_line.label):
        return following is None or not (
            _starts_mid_sentence(following.label)
            and _is_tight(table_line.line, following.line, distance)
        )
    after = following.y - table_line.y if following is not None else distance
    return (
        _is_tight(row.line, table_line.line, distance)
        and table_line.y - row.line.y < 0.95 * after
        and not _is_uppercase(table_line.label)
    )


def _completes_centered(table_line: _TableLine, following: _TableLine, distance: float) -> bool:
    """Return whether the numbers stand between the two lines of their label."""
    return (
        bool(following.label)
        and not following.values
        and not following.dashes
        and _is_tight(table_line.line, following.line, distance)
    )


def _starts_mid_sentence(label: str) -> bool:
    """Return whether a label continues a sentence: in lower case, and not ``b)``."""
    return label[:1].islower() and label[1:2] not in (")", ".")


def _has_open_parenthesis(label: str) -> bool:
    return label.count("(") > label.count(")")


def _is_uppercase(label: str) -> bool:
    letters = [ch for ch in label if ch.isalpha()]
    return bool(letters) and len(letters) > 3 and all(ch.isupper() for ch in letters)


def _nearest_section(pending: list[_TableLine], section: str | None) -> str | None:
    """Return the nearest header among lines without numbers; wrapped headers are joined."""
    for at in range(len(pending) - 1, -1, -1):
        label = pending[at].label
        if (
            not 3 <= len(label) <= 110
            or _NOISE.search(plain(label))
            or not any(ch.isalpha() for ch in label)
            or label.startswith(("*", "(1)"))
            # units beside the headings
            or (scale_of(label) is not None and currency_of(label) is not None)
        ):
            continue
        start = at
        while (
            start > 0
            and (_starts_mid_sentence(label) or _INCOMPLETE.search(plain(pending[start - 1].label)))
            and pending[start - 1].label
        ):
            start -= 1
            label = _join_labels(pending[start].label, label)
        return label.strip(" :")
    return section


def _join_labels(first: str, second: str) -> str:
    if first.endswith("-") and len(first) > 2 and first[-2].isalpha() and second[:1].islower():
        return first[:-1] + second
    return f"{first} {second}".strip()

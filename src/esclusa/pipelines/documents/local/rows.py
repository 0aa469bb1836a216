"""Rows: labels with their numbers, sections above them, lines that wrap."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from esclusa.pipelines.documents.local.columns import Column, column_at
from esclusa.pipelines.documents.local.lines import Cell, Line
from esclusa.pipelines.documents.local.money import currency_of, scale_of
from esclusa.pipelines.documents.local.numbers import is_code, is_note_list
from esclusa.pipelines.documents.local.texts import plain
from esclusa.pipelines.documents.local.words import Word

_HANGING = re.compile(
    r"(?:\b(?:de|del|la|las|los|el|y|e|o|u|en|por|para|con|sin|a|al|of|the|and|or|in|for|to|from|by|with|on|at|than|que|sus|su|its)|[,;(/&-])\s*\Z"
)
_OPENS = re.compile(
    r"\b(?:attributable to|atribuibles? al?|adjustments (?:for|to)|ajustes (?:por|a)|changes in|cambios en)\Z"
)
"""Words that a header ends with, though a sentence would go on."""
_TOTAL = re.compile(r"(?:sub[- ]?)?total(?:es)?\b|suma(?:s)?\b", re.IGNORECASE)
_TOTAL_LAST = re.compile(r"\s(?:total|totales|totals)\Z", re.IGNORECASE)
_NOISE = re.compile(
    r"^pag(ina|\.)?\s*\d|^page\s*\d|\bcontinua(cion|ed)?\b|^\(?continued|^firma|^signature|^rut\b|^folio\b|www\.|@|^c\.?p\.?c?\b"
)
"""Lines around a table that are none of it."""
_SIGNERS = re.compile(
    r"contador general|gerente general|chief financial|representante legal|^auditor|^elaborado|^prepar(?:ed|ado) (?:by|por)"
)
"""Who signs it; with numbers beside them they are rows like others."""


@dataclass
class Row:
    """A label and its numbers, by column."""

    label: str
    values: dict[int, Cell] = field(default_factory=dict)
    line: Line | None = None
    x0: float = 0.0
    section: str | None = None
    dashes: int = 0
    joined: int = 0

    @property
    def total(self) -> bool:
        said = self.label.strip(" *-–•")
        return _TOTAL.match(said) is not None or _TOTAL_LAST.search(said) is not None


@dataclass
class _Piece:
    """A line of a table, taken apart."""

    line: Line
    label: str
    x0: float
    values: dict[int, Cell]
    dashes: int
    colon: bool = False
    x1: float = 0.0
    first: float = 0.0
    """How wide its first word is, with a space before it."""

    @property
    def base(self) -> float:
        return self.line.base

    @property
    def code(self) -> str:
        """The code of its account."""
        return " ".join(cell.text for cell in self.line.cells[: self.line.codes])


def take_apart(line: Line, columns: list[Column], width: float) -> _Piece:
    """What of a line is its label, and what stands in which column."""
    values: dict[int, Cell] = {}
    label: list[Word] = []
    dashes = 0
    edge = min((col.x0 for col in columns if not col.is_reference), default=width)
    references = _references(line, edge)
    for cell, following in zip_longest(line.cells[line.codes :], line.cells[line.codes + 1 :]):
        col = column_at(columns, cell) if cell.kind in ("amount", "dash", "text") else None
        index = columns.index(col) if col is not None else -1
        if (
            cell.kind == "amount"
            and col is not None
            and (cell.free or _aligned(col, cell))
            and index not in values
        ):
            values[index] = cell
        elif cell.kind == "dash" and col is not None and cell.x0 > edge - 40:
            dashes += 1
        elif cell.kind in ("sign", "percent") and (cell.x0 > edge - 60 or _signs(cell, following)):
            continue
        elif cell.kind in ("text", "amount", "dash", "percent", "sign"):
            if (
                col is not None
                and col.is_reference
                and cell.x0 >= col.x0 - max(12, 2 * cell.words[0].height)
                and len(cell.text) <= 12
            ):
                continue  # 7(a) in the column of notes
            label += [w for w in cell.words if w.x0 < edge and w not in references]
    text = " ".join(w.text for w in label)
    piece = _Piece(
        line, _clean(text), label[0].x0 if label else line.x0, values, dashes, text.endswith(":")
    )
    if label:
        piece.x1, piece.first = label[-1].x1, label[0].x1 - label[0].x0 + 0.3 * label[0].height
    return piece


def _signs(cell: Cell, following: Cell | None) -> bool:
    """Whether it is the sign of the number that follows, however far that is."""
    return (
        cell.kind == "sign"
        and cell.free
        and following is not None
        and following.kind in ("amount", "dash")
    )


def _references(line: Line, edge: float) -> list[Word]:
    """Words between a label and its numbers that only name notes or a code, well apart from both: they are in columns of their own."""
    for label, run in pairwise(line.runs[line.codes :]):
        apart = (
            run.x1 < edge
            and run.x0 - label.x1 > 1.5 * line.height
            and any(ch.isalpha() for ch in label.text)
        )
        if apart and (is_note_list(run.text) or is_code(run.text)):
            return run.words
    return []


def _aligned(col: Column, cell: Cell) -> bool:
    edges = [c.x1 for c in col.cells if c.kind == "amount"]
    return any(abs(cell.x1 - edge) < 0.4 * cell.words[0].height for edge in edges)


def _clean(label: str) -> str:
    if label[-1:] in ".·_… ":
        label = re.sub(r"(?:\s*[.·_…]){2,}\s*\Z", "", label)
        label = re.sub(r"\s+(?:[.·_…]\s*)+\Z", "", label)
    return " ".join(label.split()).strip(" \t:|")


def rows_of(
    lines: list[Line], columns: list[Column], width: float, section: str | None = None
) -> tuple[list[Row], str | None]:
    """The rows of a block, each with the nearest header above it; and the last header, for a table that goes on."""
    pieces = [take_apart(line, columns, width) for line in lines if not line.prose]
    pieces = [p for p in pieces if (p.label or p.values or p.dashes) and not _is_noise(p)]
    pieces = [p for p in pieces if not (_page_number(p) and (p is pieces[0] or p is pieces[-1]))]
    pieces = _without_empty(_headers_bared(_without_codes(pieces), columns))
    pitch = _pitch(pieces)
    room = max((piece.x1 for piece in pieces if piece.values), default=0.0)
    rows: list[Row] = []
    index = 0
    pending: list[_Piece] = []
    while index < len(pieces):
        piece = pieces[index]
        if not piece.values and not piece.dashes:
            if (
                rows
                and not pending
                and _goes_on(
                    rows[-1], piece, pitch, pieces[index + 1] if index + 1 < len(pieces) else None
                )
            ):
                rows[-1].label = _joined(rows[-1].label, piece.label)
                rows[-1].joined += 1
                rows[-1].line = piece.line
            else:
                pending.append(piece)
            index += 1
            continue
        label, x0 = piece.label, piece.x0
        below = piece
        while pending and _leads(pending[-1], label, below, pitch, room):
            below = pending.pop()
            label, x0 = _joined(below.label, label), below.x0
        section = _section(pending, section)
        pending = []
        following = pieces[index + 1] if index + 1 < len(pieces) else None
        line = piece.line
        if not piece.label and following is not None and _after_centered(piece, following, pitch):
            label = _joined(label, following.label)
            line = following.line
            index += 1
        if label and (piece.values or piece.dashes):
            rows.append(Row(label, piece.values, line, x0, section, piece.dashes))
        elif piece.values and rows and not label:
            rows.append(Row(_unlabelled(section), piece.values, line, x0, section, piece.dashes))
        index += 1
    return [row for row in rows if row.values], _section(pending, section)


def _without_codes(pieces: list[_Piece]) -> list[_Piece]:
    """Where most rows have codes in a column of their own, one that seems a part of its label, or all of it, is none."""
    coded = [piece.line.cells[0].x0 for piece in pieces if piece.line.codes]
    if 2 * len(coded) > sum(bool(piece.values) for piece in pieces):
        for piece in pieces:
            first, _, rest = piece.label.partition(" ")
            if (first.isdigit() or is_code(first)) and any(abs(piece.x0 - x0) < 3 for x0 in coded):
                piece.label = rest
    return pieces


def _headers_bared(pieces: list[_Piece], columns: list[Column]) -> list[_Piece]:
    """Headers without the codes or notes beside them: those in capitals, among rows that are not."""
    for piece in pieces:
        if (
            piece.values
            and all(columns[index].is_reference for index in piece.values)
            and _is_header(piece, pieces)
        ):
            piece.values = {}
    return pieces


def _is_header(piece: _Piece, pieces: list[_Piece]) -> bool:
    """Whether a line is in capitals, and most rows are not."""
    rows = [one for one in pieces if one.values]
    return (
        _header_like(piece.label)
        and not piece.dashes
        and 2 * sum(_header_like(row.label) for row in rows) < len(rows)
    )


def _without_empty(pieces: list[_Piece]) -> list[_Piece]:
    """Without rows that have no numbers: with a code as long as most rows' (headers have shorter ones, or are in
    capitals), and another code below."""
    lengths = Counter(len(piece.code) for piece in pieces if piece.values and piece.code)
    usual = lengths.most_common(1)[0][0] if lengths else None
    return [
        piece for piece, below in zip_longest(pieces, pieces[1:])
        if piece.values or piece.dashes or len(piece.code) != usual or (below is not None and not below.code) or _is_header(piece, pieces)
    ]  # fmt: skip


def _is_noise(piece: _Piece) -> bool:
    said = plain(piece.label)
    return _NOISE.search(said) is not None or (
        not piece.values and _SIGNERS.search(said) is not None
    )


def _page_number(piece: _Piece) -> bool:
    cells = list(piece.values.values())
    return (
        not piece.label
        and len(cells) == 1
        and len(piece.line.cells) == 1
        and cells[0].text.isdigit()
        and len(cells[0].text) < 4
    )


def _unlabelled(section: str | None) -> str:
    return f"Total {section}" if section else "Total"


def _pitch(pieces: list[_Piece]) -> float:
    """The usual distance between two rows that follow each other; more is between those that something divides."""
    gaps = sorted(
        b.base - a.base for a, b in pairwise(pieces)
        if (a.values or a.dashes) and (b.values or b.dashes) and 0 < b.base - a.base < 60
    )  # fmt: skip
    return gaps[len(gaps) // 8] if gaps else 14.0


def _near(a: _Piece, b: _Piece, pitch: float) -> bool:
    return abs(b.base - a.base) < 1.25 * pitch + 1


def _tight(a: Line, b: Line, pitch: float) -> bool:
    """Closer together than two rows are."""
    return abs(b.base - a.base) < 0.88 * pitch


def _leads(before: _Piece, label: str, piece: _Piece, pitch: float, room: float) -> bool:
    """Whether a line without numbers is the first part of the label below it. ``room``: up to where labels go; a line in which there was
    room for the next word has not wrapped."""
    if (
        not _near(before, piece, pitch)
        or not before.label
        or (label[:1].isupper() and _opens(before))
    ):
        return False
    if not label:
        wraps = not _header_like(before.label) and (
            _unclosed(before.label) or not _TOTAL.match(before.label)
        )
        return wraps or _tight(before.line, piece.line, pitch)
    hangs = (
        _HANGING.search(plain(before.label)) is not None
        and before.x1 + piece.first > room
        and not _begins(before.label, label)
    )
    if _header_like(before.label):  # capitals go on in capitals alone
        hangs = hangs or _unclosed(before.label)
        tight = _tight(before.line, piece.line, pitch)
        return (_header_like(label) and (hangs or tight)) or (label.startswith("(") and tight)
    if _unclosed(before.label):
        return True
    if _in_a_sentence(label) or (
        label.startswith(("(", "/", "&")) and _tight(before.line, piece.line, pitch)
    ):
        return True
    return hangs or _tight(before.line, piece.line, pitch)


def _begins(before: str, label: str) -> bool:
    """Whether a label in sentence case begins anew: with a capital, below a line that has none but its first."""
    words = before.split()
    return (
        label[:1].isupper()
        and label[1:2].islower()
        and len(words) > 2
        and words[0].istitle()
        and all(w.islower() for w in words[1:])
    )


def _opens(piece: _Piece) -> bool:
    """Whether a line without numbers says that others follow: ``Attributable to:``."""
    return piece.colon or _OPENS.search(plain(piece.label)) is not None


def _goes_on(row: Row, piece: _Piece, pitch: float, following: _Piece | None) -> bool:
    """Whether a line without numbers is the last part of the label above it."""
    assert row.line is not None
    if (
        abs(piece.base - row.line.base) > 1.25 * pitch + 1
        or not piece.label
        or piece.line.page != row.line.page
        or row.joined >= 3
    ):
        return False
    if _NOISE.search(plain(piece.label)):
        return False
    if _unclosed(row.label) and ")" in piece.label:
        return True
    if _HANGING.search(plain(row.label)) is not None and not _header_like(piece.label):
        return True
    if _in_a_sentence(piece.label):
        return following is None or not (
            _in_a_sentence(following.label) and _tight(piece.line, following.line, pitch)
        )
    after = following.base - piece.base if following is not None else pitch
    return (
        _tight(row.line, piece.line, pitch)
        and piece.base - row.line.base < 0.95 * after
        and not _header_like(piece.label)
    )


def _after_centered(piece: _Piece, following: _Piece, pitch: float) -> bool:
    """Numbers that stand between the two lines of their label."""
    return (
        bool(following.label)
        and not following.values
        and not following.dashes
        and _tight(piece.line, following.line, pitch)
    )


def _in_a_sentence(label: str) -> bool:
    """Whether a label begins in the middle of one: in lower case, and not with ``b)``."""
    return label[:1].islower() and label[1:2] not in (")", ".")


def _unclosed(label: str) -> bool:
    return label.count("(") > label.count(")")


def _header_like(label: str) -> bool:
    letters = [ch for ch in label if ch.isalpha()]
    return bool(letters) and len(letters) > 3 and all(ch.isupper() for ch in letters)


def _section(pending: list[_Piece], section: str | None) -> str | None:
    """The nearest header among lines without numbers; those that wrap are one."""
    for at in range(len(pending) - 1, -1, -1):
        label = pending[at].label
        said = plain(label)
        if (
            len(label) > 110
            or len(label) < 3
            or _NOISE.search(said)
            or not any(ch.isalpha() for ch in label)
            or label.startswith(("*", "(1)"))
            or (
                scale_of(label) is not None and currency_of(label) is not None
            )  # units beside the headings
        ):
            continue
        start = at
        while (
            start > 0
            and (_in_a_sentence(label) or _HANGING.search(plain(pending[start - 1].label)))
            and pending[start - 1].label
        ):
            start -= 1
            label = _joined(pending[start].label, label)
        return label.strip(" :")
    return section


def _joined(first: str, second: str) -> str:
    if first.endswith("-") and len(first) > 2 and first[-2].isalpha() and second[:1].islower():
        return first[:-1] + second
    return f"{first} {second}".strip()

"""What a row is: a total, an amount per share, a number of shares, a dated balance."""

from __future__ import annotations

import re

from esclusa.pipelines.documents.local.periods import is_month_end, periods
from esclusa.pipelines.documents.local.plain_text import plain
from esclusa.pipelines.documents.local.rows import TOTAL, TableRow

_TOTAL_LAST = re.compile(r"\s(?:total|totales|totals)\Z", re.IGNORECASE)
_PER_SHARE = re.compile(
    r"\bpor (?:cada )?(?:acci(?:on|ones)|participacion social|cuota)\b|\$ ?/ ?acci|"
    r"\bper (?:\w+ ){0,2}(?:share|unit|ads)\b|\beps\b"
)
_NUMBER_OF_SHARES = re.compile(
    r"\bnumero (?:medio |promedio )?(?:ponderado )?de acciones\b|\bacciones en circulacion\b|"
    r"\bpromedio ponderado\b.*\bacciones\b|\bnumber of (?:\w+ ){0,2}shares\b|"
    r"\bweighted[- ]average\b.*\bshares\b|\bshares outstanding\b"
)
_EXCEPT_SHARES = re.compile(
    r"\bexcept (?:for )?(?:number of )?shares?(?:,| and| data| amounts)|"
    r"\b(?:excepto|salvo)(?: el)?(?: numero de)? acciones\b"
)


def is_total(row: TableRow) -> bool:
    """Return whether the label says that the row is a total."""
    label = row.label.strip(" *-–•")
    return TOTAL.match(label) is not None or _TOTAL_LAST.search(label) is not None


def is_number_of_shares(row: TableRow) -> bool:
    """Return whether the row counts shares."""
    return _NUMBER_OF_SHARES.search(plain(row.label)) is not None


def is_per_share(row: TableRow) -> bool:
    """Return whether the amounts of the row are per share."""
    return _PER_SHARE.search(f"{plain(row.label)} {plain(row.section or '')}") is not None


def excepts_shares(text: str) -> bool:
    """Return whether a text about units excepts numbers of shares."""
    return _EXCEPT_SHARES.search(plain(text)) is not None


def date_rows(rows: list[TableRow]) -> None:
    """Give each row the date of the balance that it leads to: the next one below."""
    ends = None
    for row in reversed(rows):
        found = [p.ends for p in periods(row.label) if p.ends is not None and is_month_end(p)]
        ends = found[-1] if found else ends
        row.ends = ends

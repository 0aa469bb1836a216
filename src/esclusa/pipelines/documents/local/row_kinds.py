"""What a row is: a total, an amount per share, a number of shares, a dated balance."""

from __future__ import annotations

import re

from esclusa.pipelines.documents.local.periods import is_month_end, periods
from esclusa.pipelines.documents.local.plain_text import plain
from esclusa.pipelines.documents.local.rows import TableRow

_TOTAL = re.compile(r"(?:sub[- ]?)?total(?:es)?\b|suma(?:s)?\b", re.IGNORECASE)
_TOTAL_LAST = re.compile(r"\s(?:total|totales|totals)\Z", re.IGNORECASE)
# Results within a statement that are sums of the rows above them.
_RESULT = re.compile(
    r"\A(?:[a-z]\.\d\) |[ivx]+\. )?(?:(?:ganancia|utilidad|perdida|margen|resultado)s?"
    r"(?: \(?(?:o )?(?:perdida|ganancia)\)?,?)?(?:\Z| (?:brut[oa]|net[oa]|operativ[oa]|operacional|"
    r"de explotacion|de(?: las)? (?:actividades )?operacion\w*|antes|del (?:ejercicio|periodo)))|"
    r"(?:gross|operating|net) (?:profit|income|loss|margin|earnings)\b(?!.*\bper\b)|"
    r"(?:income|profit|loss|earnings) (?:\(loss\) )?(?:before|from operations|for the)\b|"
    r"flujos? (?:de (?:efectivo|caja) )?net[oa]s?\b|net cash\b|"
    r"(?:incremento|aumento|disminucion|variacion) (?:\(\w+\) )?net[oa]\b|"
    r"net (?:increase|decrease|change)\b|saldo final\b)"
)
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


def is_total(row: TableRow, of_class: str | None) -> bool:
    """Return whether the row is a total, or a result in a statement of this class."""
    lowered = row.label.strip(" *-–•")
    if _TOTAL.match(lowered) is not None or _TOTAL_LAST.search(lowered) is not None:
        return True
    return (
        of_class in ("income_statement", "cash_flow", "changes_in_equity")
        and not is_per_share(row)
        and _RESULT.match(plain(lowered)) is not None
    )


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

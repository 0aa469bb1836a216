"""Checks of the numbers of a document: totals, the balance, and last year's file.

A check has a ``code`` (total, balance, prior_year), ``passed``, the label and period of the number,
what was ``found`` and what was ``expected``. It is reported only if it could be made: a total whose
parts are not in the document is not checked.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

Item = Mapping[str, Any]
Check = dict[str, Any]

# The most checks that a document lists: the failed ones first.
MAX_CHECKS = 200
# The most parts of a total.
MAX_PARTS = 60
_EXPLICIT = re.compile(r"(?:sub)?total(?:es)?\b|suma(?:s)?\b|.*\stotal(?:es)?$")
# Results: sums of the rows above them that no label calls a total.
_RESULT = re.compile(
    r"(?:[a-z]\.\d\) |[ivx]+\. )?(?:(?:ganancia|utilidad|perdida|margen|resultado)s?"
    r"(?: \(?(?:o )?(?:perdida|ganancia)\)?,?)?(?:\Z| (?:brut[oa]|net[oa]|operativ[oa]|operacional|"
    r"de explotacion|de(?: las)? (?:actividades )?operacion\w*|antes|del (?:ejercicio|periodo)))|"
    r"(?:gross|operating|net) (?:profit|income|loss|margin|earnings)\b(?!.*\bper\b)|"
    r"(?:income|profit|loss|earnings) (?:\(loss\) )?(?:before|from operations|for the)\b|"
    r"flujos? (?:de (?:efectivo|caja) )?net[oa]s?\b|net cash\b|"
    r"(?:incremento|aumento|disminucion|variacion) (?:\(\w+\) )?net[oa]\b|"
    r"net (?:increase|decrease|change)\b|saldo final\b)"
)
_COMPREHENSIVE = re.compile(r"\bintegral(?:es)?\b|\bcomprehensive\b")
_ASSETS = re.compile(
    r"(?:total|suma)(?: de| del)?(?: los)? (?:activos?|assets)(?: \(?a ?\+ ?b\)?)?$"
)
_CLAIMS = re.compile(
    r"(?:total|suma)(?: de| del)?(?: los)? (?:(?:patrimonio(?: neto)?|capital(?: contable)?) y "
    r"pasivos?|pasivos? y (?:patrimonio(?: neto)?|capital(?: contable| social)?)|"
    r"liabilities and .*(?:equity|funds|deficit)|equity and liabilities)\b"
)
_LIABILITIES = re.compile(r"(?:total|suma)(?: de| del)?(?: los)? (?:pasivos?|liabilities)$")
_EQUITY = re.compile(
    r"(?:total|suma)(?: de| del)? (?:patrimonio(?: neto)?|capital contable|"
    r"(?:shareholders|stockholders|owners)?['’]? ?equity)$"
)


def amount_of(item: Item) -> Decimal | None:
    """Return the value of an item, as corrected, without its scale."""
    text = item.get("corrected_value") or item.get("value")
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        return None


def words_of(label: str | None) -> str:
    """Return a label in lower case, without accents and marks."""
    flat = unicodedata.normalize("NFKD", (label or "").lower())
    return " ".join("".join(c for c in flat if not unicodedata.combining(c)).split()).strip(" .:*")


def check_document(items: Iterable[Item], prior: Iterable[Item] = ()) -> list[Check]:
    """Return the checks of a document; ``prior`` are the numbers of last year's file."""
    values = [i for i in items if i.get("type") == "LINE_ITEM_VALUE" and amount_of(i) is not None]
    found = [*_totals(values), *_balances(values), *_prior_years(values, list(prior))]
    return sorted(found, key=lambda check: check["passed"])[:MAX_CHECKS]


def _check(code: str, item: Item, expected: Decimal, *, passed: bool) -> Check:
    return {
        "code": code,
        "passed": passed,
        "label": item.get("LINE_ITEM_NAME"),
        "period": item.get("REPORTING_PERIOD"),
        "cell": item.get("TABLE_CELL_REF"),
        "found": str(amount_of(item)),
        "expected": str(expected),
    }


def _totals(values: Sequence[Item]) -> Iterable[Check]:
    """Check each total and each result against the rows above it, in each column of each table."""
    columns: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in values:
        row, _, column = (item.get("TABLE_CELL_REF") or "").rpartition(".")
        if row and item.get("UNITS_SCALE") is not None:
            columns[row.partition(".")[0], column].append(item)
    for column_items in columns.values():
        yield from _column_totals(column_items)


def _column_totals(items: Sequence[Item]) -> Iterable[Check]:
    open_rows: list[tuple[Decimal, bool]] = []
    for item in items:
        amount = amount_of(item)
        assert amount is not None
        label = words_of(item["LINE_ITEM_NAME"])
        length = _length_of_parts(amount, open_rows)
        is_sum = item.get("TOTAL_LABEL") is not None or (length and _RESULT.match(label))
        if not is_sum:
            if length := _length_of_subtotal(amount, open_rows):
                del open_rows[-length:]
            open_rows.append((amount, bool(length)))
            continue
        block = _last_block(open_rows)
        if length:
            yield _check("total", item, amount, passed=True)
            del open_rows[-length:]
        elif len(block) > 1 and _is_checkable(label):
            yield _check("total", item, sum(block, Decimal(0)), passed=False)
            del open_rows[-len(block) :]
        open_rows.append((amount, True))


def _is_checkable(label: str) -> bool:
    """Return whether a total must be the sum of the rows above it.

    Comprehensive income also has parts that stand in another statement.
    """
    return _EXPLICIT.match(label) is not None and _COMPREHENSIVE.search(label) is None


def _length_of_parts(total: Decimal, rows: Sequence[tuple[Decimal, bool]]) -> int:
    """Return how many of the last rows add up to a total; 0 if none do.

    Rounding may take half a unit of each part. Costs may be printed without a sign.
    """
    sums = Decimal(0)
    unit = Decimal(1).scaleb(int(total.as_tuple().exponent))
    for length, (amount, _) in enumerate(reversed(rows[-MAX_PARTS:]), start=1):
        sums += amount
        room = unit * max(1, length // 2)
        if abs(sums - total) <= room and (length > 1 or amount == total):
            return length
        if length > 1 and abs(2 * amount - sums - total) <= room:  # the first less the others
            return length
    return 0


def _length_of_subtotal(amount: Decimal, rows: Sequence[tuple[Decimal, bool]]) -> int:
    """Return how many rows since the last total add up to a row that is not called a total."""
    block = _last_block(rows)
    sums = Decimal(0)
    for length, part in enumerate(block, start=1):
        sums += part
        if length > 1 and sums == amount:
            return length
    return 0


def _last_block(rows: Sequence[tuple[Decimal, bool]]) -> list[Decimal]:
    """Return the amounts since the last total, the last one first."""
    block: list[Decimal] = []
    for amount, is_total in reversed(rows):
        if is_total:
            break
        block.append(amount)
    return block


def _balances(values: Sequence[Item]) -> Iterable[Check]:
    """Check for each period that assets are liabilities and equity."""
    found: dict[tuple[Any, ...], dict[str, Item]] = defaultdict(dict)
    for item in values:
        label = words_of(item["LINE_ITEM_NAME"])
        for name, pattern in (
            ("claims", _CLAIMS),
            ("assets", _ASSETS),
            ("liabilities", _LIABILITIES),
            ("equity", _EQUITY),
        ):
            if pattern.match(label):
                key = (item.get("REPORTING_PERIOD"), item.get("TABLE_COLUMN_HEADER"))
                found[key if item.get("COLUMN_YEAR") else (*key, "")].setdefault(name, item)
                break
    for sides in found.values():
        if "assets" not in sides:
            continue
        if "claims" in sides:
            expected = amount_of(sides["claims"])
        elif "liabilities" in sides and "equity" in sides:
            parts = [amount_of(sides[name]) for name in ("liabilities", "equity")]
            expected = sum((p for p in parts if p is not None), Decimal(0))
        else:
            continue
        assets = amount_of(sides["assets"])
        if assets is not None and expected is not None:
            yield _check("balance", sides["assets"], expected, passed=abs(assets - expected) <= 1)


def _prior_years(values: Sequence[Item], prior: Sequence[Item]) -> Iterable[Check]:
    """Check numbers of earlier periods against the file in which they were the latest."""
    known: dict[tuple[str, str | None, str | None], Item | None] = {}
    for item in prior:
        key = _row_key(item)
        known[key] = None if key in known else item  # a label that is there twice is not compared
    seen: set[tuple[str, str | None, str | None]] = set()
    for item in values:
        key = _row_key(item)
        before = known.get(key)
        if before is None or key in seen:
            continue
        seen.add(key)
        ours, theirs = _whole_amount(item), _whole_amount(before)
        if ours is None or theirs is None:
            continue
        room = max(item["UNITS_SCALE"] or 1, before["UNITS_SCALE"] or 1)
        expected = theirs / (item["UNITS_SCALE"] or 1)
        yield _check("prior_year", item, expected, passed=abs(ours - theirs) <= room)


def _row_key(item: Item) -> tuple[str, str | None, str | None]:
    section = words_of(item.get("SECTION_HEADER"))
    return words_of(item.get("LINE_ITEM_NAME")), section, item.get("REPORTING_PERIOD")


def _whole_amount(item: Item) -> Decimal | None:
    amount, scale = amount_of(item), item.get("UNITS_SCALE")
    return None if amount is None or scale is None else amount * scale

"""Values of entities: numbers, years, periods, currencies and scales."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from esclusa.pipelines.documents.answers.entity_tree import EntityNode
from esclusa.pipelines.documents.local.money import currency_of, scale_of
from esclusa.pipelines.documents.local.numbers import (
    Convention,
    is_dash,
    magnitude_of,
    value_of,
)
from esclusa.pipelines.documents.local.periods import Period, periods

_DECIMAL = re.compile(r"-?\d+(\.\d+)?")
_FLOAT_PRECISION = Decimal(1).scaleb(-6)
_CODE = re.compile(r"(?<![A-Za-z])[A-Z]{3}(?![A-Za-z])")


def number_of(node: EntityNode, convention: Convention) -> str | None:
    """Return a number as a signed decimal; the normalized value counts before the text.

    Parentheses make it negative, also if the normalized value lost them. The digits of a float that
    was rounded are those printed.
    """
    printed = re.sub(r"\s+", "", node.text or "")
    read = None
    if printed:
        read = "0" if is_dash(printed) else value_of(printed, convention)
    normal = _normal_number(node.normal)
    if normal is None:
        return read
    lost = read is not None and read.startswith("-") and not normal.startswith("-")
    signed = f"-{normal}" if lost and Decimal(normal) else normal
    if read is not None and "floatValue" in node.normal and _is_rounded(signed, read):
        return read
    return signed


def _is_rounded(number: str, printed: str) -> bool:
    """Return whether a floating point number of 32 bits stands for the printed one."""
    exact = Decimal(printed)
    return abs(Decimal(number) - exact) <= abs(exact) * _FLOAT_PRECISION


def _normal_number(normal: Mapping[str, Any]) -> str | None:
    money = normal.get("moneyValue")
    if isinstance(money, dict) and ("units" in money or "nanos" in money):
        nanos = Decimal(int(money.get("nanos") or 0)).scaleb(-9)
        return _plain_decimal(Decimal(str(money.get("units") or 0)) + nanos)
    for name in ("integerValue", "floatValue"):
        if isinstance(given := normal.get(name), int | float | str):
            try:
                return _plain_decimal(Decimal(str(given)))
            except InvalidOperation:
                return None
    text = str(normal.get("text") or "")
    return _plain_decimal(Decimal(text)) if _DECIMAL.fullmatch(text) else None


def _plain_decimal(value: Decimal) -> str | None:
    if not value.is_finite():
        return None
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def date_of(node: EntityNode) -> tuple[int | None, date | None]:
    """Return the year and, if it is whole, the date that the normalized value states."""
    given = node.normal.get("dateValue") or node.normal.get("datetimeValue")
    if isinstance(given, dict) and given.get("year"):
        year, month, day = (int(given.get(name) or 0) for name in ("year", "month", "day"))
        try:
            return year, date(year, month, day)
        except ValueError:
            return year, None
    text = str(node.normal.get("text") or "")
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            whole = date.fromisoformat(text)
        except ValueError:
            return None, None
        return whole.year, whole
    whole_number = str(node.normal.get("integerValue") or "")
    if re.fullmatch(r"(19|20)\d\d", whole_number):
        return int(whole_number), None
    return None, None


def periods_of(node: EntityNode) -> list[Period]:
    """Return the periods that an entity names, the normalized one first."""
    year, whole = date_of(node)
    if year is not None:
        return [Period(0, 0, year, whole)]
    return list(periods(node.text or ""))


def currency_of_node(node: EntityNode) -> str | None:
    """Return the currency that an entity states, as ISO 4217 where it is known."""
    money = node.normal.get("moneyValue")
    if isinstance(money, dict) and (code := str(money.get("currencyCode") or "").strip().upper()):
        return code
    if node.field != "CURRENCY":  # a bare sign in an amount does not say which currency
        code_in = _CODE.search(node.text or "")
        found = currency_of(node.text or "") if not _is_bare_sign(node.text or "") else None
        return found or (code_in[0] if code_in and currency_of(code_in[0]) else None)
    text = (str(node.normal.get("text") or "") or node.text or "").strip()
    if re.fullmatch(r"[A-Za-z]{3}", text):
        return text.upper()
    return currency_of(text) or currency_of(node.text or "") or node.text


def _is_bare_sign(text: str) -> bool:
    return not re.search(r"[A-Za-z€£¥]", text)


def scale_of_node(node: EntityNode) -> int | None:
    """Return the scale that an entity names; None if it is ambiguous (``M USD``)."""
    for text in (str(node.normal.get("integerValue") or ""), node.text or ""):
        digits = re.sub(r"\D", "", text)
        if digits in ("1", "1000", "1000000"):
            return int(digits)
    scale = scale_of(node.text or "")
    return 1 if scale is None else scale or None


def own_scale(node: EntityNode) -> int | None:
    """Return the scale that an amount states itself (``1,2 M USD``); None if it states none."""
    size = magnitude_of(re.sub(r"\s+", "", node.text or ""))
    return {"k": 1000, "mm": 1_000_000}.get(size) if size else None

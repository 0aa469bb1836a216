"""Numbers as printed in statements: separators, parentheses for negatives, dashes for zero."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_ANY_SIGN = r"[$¢£¥฿\u20a0-\u20cf]"
_SIGNS = (
    rf"(?:MM?US\$|MM?\$|U\$[SD]|\$[bU]|[A-Z][A-Za-z]{{0,2}}\$|KShs?|RM|Rs\.?|kr\.?|Kč|zł|"
    rf"S/\.?|B/\.|Bs\.?|Gs\.?|{_ANY_SIGN}|USD|CLP|EUR|MXN|COP|PEN|ARS|BRL|GBP|CHF|UYU|BOB|"
    rf"CRC|PYG|GTQ|CAD|AUD|NZD|SGD|HKD|"
    r"INR|JPY|CNY|RMB|KRW|SEK|NOK|DKK|PLN|CZK|ZAR|KES|NGN|ILS|NIS|TRY|THB|PHP|MYR|IDR|AED|"
    r"SAR|DOP|UF)"
)
_MINUS = "-−–‐‑—"
# Separators of thousands, as the Swiss write them and as fonts draw them.
_APOSTROPHES = "'’‘ʼ′`´"
_SIZE = r"(?:[kK]|[mM]{1,2}|[mM]n\.?|[mM]io\.?)"
_SIDE = r"(?:[CD][Rr]|[cd]r|DB)\.?"
_NOTED = r"\s?[(\[](?:\d{1,2}|[a-z])[)\]]"
# Footnote marks behind a number.
_MARKS = rf"(?:[*†‡§#¹²³⁴⁵⁶⁷⁸⁹⁽⁾ᵃᵇᶜ]{{0,4}}|(?P<noted>{_NOTED}))"
_AMOUNT = re.compile(
    rf"(?P<open>[(\[<])?\s*(?:(?P<minus>[{_MINUS}])|\+)?\s*(?:(?P<sign>{_SIGNS})|"
    rf"(?P<letter>[QLR]))?\s*(?P<inner>[{_MINUS}(])?\s*"
    rf"(?P<digits>\d{{1,3}}(?:[.,{_APOSTROPHES}\u00a0 ]\d{{3}})+(?:[.,]\d{{1,6}})?|"
    rf"\d{{1,2}}(?:,\d\d)+,\d{{3}}(?:\.\d{{1,6}})?|\d+(?:[.,]\d{{1,6}})?|[.,]\d{{2,4}})"
    rf"(?:[.,][{_MINUS}])?(?:\s?(?P<size>{_SIZE})(?:\s?(?P<of>[A-Z]{{3}}))?)?\s*"
    rf"{_ANY_SIGN}?(?P<close>[)\]>])*\s*(?P<after>[{_MINUS}])?(?:\s?(?P<side>{_SIDE}))?{_MARKS}"
)
_ZERO_FIRST = re.compile(r"0\d+")
_SIGN = re.compile(rf"{_SIGNS}|[QLR]|\$\(|\(\$")
_MARK = re.compile(_NOTED)
_LAST_MARK = re.compile(rf"\s?{_MARKS}\Z")
_TAIL = re.compile(rf"\s*(?:{_ANY_SIGN}|[A-Z]{{3}})?{_MARKS}\Z")
_UNIT = re.compile(rf"\(\s?{_SIGNS}\s?1[.,'’ ]?000\s?\)|[A-Z]{{3}}\s?1[.,'’ ]?000")
_NOTE = re.compile(
    r"(?:n(?:ota|ote)?s?\.?\s*)?\(?\d{1,2}(?:\s*[.,/&y-]\s*\d{1,2})*\.?\s*(?:\(?[a-zA-Z]\)?)?\)?\Z",
    re.IGNORECASE,
)
_ONE_NOTE = (
    r"(?:n(?:ota|ote)?s?\.?\s?)?(?:[a-z]{1,4}[-.]?)?\d{1,2}(?:\.\d{1,2}){0,2}\.?(?:\s?\(?[a-z]\)?)?"
)
_NOTES = re.compile(
    rf"\(?{_ONE_NOTE}(?:\s*(?:,|/|&|-|–|\by\b|\be\b|\band\b)\s*{_ONE_NOTE})*\)?", re.IGNORECASE
)
_CODE = re.compile(
    r"\d{1,6}(?:[.\-/]\d{1,6}){1,6}\.?|"
    r"(?=[^\d]*\d[^\d]*\d)(?=\d*[A-Z])[A-Z\d]{2,10}(?:[.\-/][A-Z\d]{1,6}){0,4}"
)
_DASHES = re.compile(rf"[{_MINUS}]{{1,3}}|\(\s*[{_MINUS}]\s*\)|nil", re.IGNORECASE)
_SUFFIX = re.compile(rf"{_SIZE}\s?(?:{_ANY_SIGN}|[A-Z]{{3}})?|{_SIDE}")


@dataclass(frozen=True, slots=True)
class Convention:
    """The separator of thousands and the decimal mark of a document.

    ``debits_alone``: some numbers are marked as debits, none as credits, and others not at all, so
    that the sign of a debit is unknown.
    """

    thousands: str
    decimal: str
    debits_alone: bool = False


@lru_cache(16384)
def _amount(text: str) -> re.Match[str] | None:
    return _AMOUNT.fullmatch(text)


@lru_cache(16384)
def is_amount(text: str) -> bool:
    """Return whether the text is a printed amount."""
    found = _amount(text)
    if found is None:
        return False
    digits = found["digits"]
    return not (
        # «€ 000» is a unit, 09001 is a code.
        _ZERO_FIRST.fullmatch(digits)
        # Q1 is a quarter, Q1,250 is an amount in quetzales.
        or (found["letter"] and digits.isdigit())
        # 12M is a number of months, 10K a form, 2024 M USD a heading; 1.2m, $12M and 12M USD are
        # amounts.
        or (
            found["size"]
            and found["sign"] is None
            and digits.isdigit()
            and not (found["of"] and len(digits) < 4)
        )
        # 7(a) is a note.
        or (found["noted"] and sum(char.isdigit() for char in digits) < 3)
        or (found["open"] and not found["close"] and found["inner"])
    )


@lru_cache(16384)
def is_dash(text: str) -> bool:
    """Return whether the text is a dash in place of zero."""
    return _DASHES.fullmatch(text) is not None


@lru_cache(16384)
def is_sign(text: str) -> bool:
    """Return whether the text is a currency sign alone."""
    return _SIGN.fullmatch(text) is not None


def is_suffix(text: str) -> bool:
    """Return whether the text is a suffix of a number: ``k``, ``M€``, ``M USD``, ``CR``."""
    return _SUFFIX.fullmatch(text) is not None


def magnitude_of(text: str) -> str:
    """Return the magnitude that an amount states: ``k``, ``m``, ``mm`` (millions) or empty."""
    found = _amount(text)
    size = (found["size"] or "").lower() if found else ""
    return size if size in ("", "k", "m") else "mm"


def is_unit(text: str) -> bool:
    """Return whether the text is a thousand of a currency, a unit at the start of a line."""
    return _UNIT.fullmatch(text) is not None


def is_minus(text: str) -> bool:
    """Return whether the text is a minus, alone or with a currency sign: ``-``, ``-$``.

    The latter stands at the left edge of its column.
    """
    return text[:1] in _MINUS and (len(text) == 1 or is_sign(text[1:]))


def without_footnote_mark(text: str) -> str:
    """Return the text without a footnote mark at its end."""
    return _LAST_MARK.sub("", text)


def is_footnote_mark(text: str) -> bool:
    """Return whether the text is a footnote mark in brackets: ``(a)``, ``[1]``."""
    return _MARK.fullmatch(text) is not None


@lru_cache(16384)
def is_note(text: str) -> bool:
    """Return whether the text may stand in a column of notes: 4, 12.1, 5-6, 7(a)."""
    return _NOTE.match(text) is not None


def is_note_list(text: str) -> bool:
    """Return whether the text lists notes: ``12``, ``5 y 6``, ``7(a), 9``, ``Nota 4``."""
    return _NOTES.fullmatch(text) is not None


def is_code(text: str) -> bool:
    """Return whether the text is an account code: ``1.1.01``, ``11-01``, ``1D0109``, ``0110``.

    A code has several parts, digits and capitals, or a leading zero.
    """
    return _CODE.fullmatch(text) is not None or _ZERO_FIRST.fullmatch(text) is not None


def is_percent(text: str) -> bool:
    """Return whether the text is a percentage."""
    return text.endswith("%") and is_amount(text.rstrip("% "))


def digits_span(text: str) -> tuple[int, int]:
    """Return the span of the value in a token, without currency sign and footnote marks."""
    found = re.match(rf"([(\[]?\s*[{_MINUS}]?)\s*(?:{_SIGNS}|[QLR])\s*", text)
    start = found.end() if found and not found[1] else 0
    end = len(text) - len(_TAIL.search(text)[0])  # type: ignore[index]
    # (34) is a number, 1,250(34) has a footnote mark.
    return start, end if any(map(str.isdigit, text[start:end])) else len(text)


def convention_of(texts: Iterable[str]) -> Convention:
    """Return the convention of a document from all its amounts; unambiguous amounts decide."""
    decimal: Counter[str] = Counter()
    sides: Counter[str] = Counter()
    for text in texts:
        found = _amount(text)
        if found is None:
            continue
        sides[ledger_side(text)] += 1
        digits = found["digits"]
        marks = [m for m in digits if m in ".,"]
        if not marks:
            continue
        tail = len(digits) - 1 - max(digits.rfind("."), digits.rfind(","))
        if len(set(marks)) == 2:
            decimal[marks[-1]] += 5
        elif len(marks) > 1:
            decimal[_other_mark(marks[0])] += 5
        elif tail != 3 or digits[0] in "0.,":  # 12.5, 0.125, .125
            decimal[marks[0]] += 2
        else:
            decimal[_other_mark(marks[0])] += 1
    mark = "," if decimal[","] > decimal["."] else "."
    return Convention(
        _other_mark(mark), mark, debits_alone=sides["d"] > 0 and sides["c"] == 0 and sides[""] > 0
    )


def _other_mark(mark: str) -> str:
    return "," if mark == "." else "."


def ledger_side(text: str) -> str:
    """Return ``c`` for an amount marked as a credit, ``d`` for a debit, or empty."""
    found = _amount(text)
    return (found["side"] or "")[:1].lower() if found else ""


def has_unknown_sign(text: str, convention: Convention) -> bool:
    """Return whether it is an amount whose sign the document leaves open."""
    return convention.debits_alone and ledger_side(text) == "d"


def value_of(text: str, convention: Convention) -> str | None:
    """Return the printed number as a signed decimal; None if it is none, or its sign is unknown.

    Credits are negative and debits positive, as in a ledger.
    """
    found = _amount(text)
    if found is None or has_unknown_sign(text, convention):
        return None
    digits = re.sub(rf"[{_APOSTROPHES}\u00a0 ]", "", found["digits"])
    whole, mark, part = digits.rpartition(convention.decimal)
    if not mark:
        whole, part = digits, ""
    if convention.decimal in whole:  # several decimal marks: they separate thousands
        whole, part = digits.replace(convention.decimal, ""), ""
    whole = whole.replace(convention.thousands, "") or "0"
    if not whole.isdigit() or (part and not part.isdigit()):
        return None
    negative = bool(
        (found["open"] and found["close"]) or found["minus"] or found["inner"] or found["after"]
    ) != (ledger_side(text) == "c")
    number = (whole.lstrip("0") or "0") + (f".{part}" if part else "")
    return f"-{number}" if negative and number.strip("0.") else number

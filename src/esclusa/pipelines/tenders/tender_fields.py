"""The fields of a tender: parse single values leniently, merge what several sources say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from esclusa.pipelines.tenders.records import Licitacion
from esclusa.pipelines.tenders.settings import CHILE

# The decimals of an amount that are kept, and its limit: an export holds no more digits.
DECIMALS, MAX_AMOUNT = 10, Decimal(10) ** 27

# Fields with a value from a fixed list: a longer value is another one, not a more complete one.
CHOICES = ("estado", "region", "tipo", "moneda", "monto_label", "url")
# Fields that come from one source, and those of them that decide which.
TOGETHER: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("codigo_estado", "estado"), ("codigo_estado", "estado")),
    (("monto_estimado", "moneda"), ("monto_estimado",)),
)

# The API's code of each state, by its word in lower case.
STATE_CODES = {
    "publicada": 5,
    "cerrada": 6,
    "desierta": 7,
    "adjudicada": 8,
    "revocada": 18,
    "suspendida": 19,
}

_FRACTION = re.compile(r"\.(\d+)")


def parse_time(value: Any) -> datetime | None:
    """Return a time with 0 to 7 digits of a second, by default in Chile's zone; None if it is none.

    Years before 1901 and after 2199 are placeholders for "no date".
    """
    if not isinstance(value, str) or not value.strip():
        return None
    text = _FRACTION.sub(lambda m: f".{m[1][:6]:0<6}", value.strip())
    try:
        local = datetime.fromisoformat(text)
        time = (local if local.tzinfo else local.replace(tzinfo=ZoneInfo(CHILE))).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return time if 1900 < time.year < 2200 else None


def has_closing_time(tender: Licitacion) -> bool:
    """Whether a source gave the time of the closing, and not its day alone.

    Noon stands for a day without a time, unless the tender's detail says noon.
    """
    closing = tender.fecha_cierre
    if closing is None:
        return False
    if closing.astimezone(ZoneInfo(CHILE)).time() != time(12):
        return True
    detail = parse_object(tender.detalle)
    given = (parse_object(detail.get("Fechas")).get("FechaCierre"), detail.get("FechaCierre"))
    return closing in map(parse_time, given)


def closing_end(tender: Licitacion) -> datetime | None:
    """Return when a tender closes; without a time, the end of the day in Chile."""
    closing = tender.fecha_cierre
    if closing is None or has_closing_time(tender):
        return closing
    midnight = datetime.combine(_closing_day(closing), time(), ZoneInfo(CHILE))
    return (midnight + timedelta(days=1)).astimezone(UTC)


def is_same_closing(before: Licitacion, after: Licitacion) -> bool:
    """Whether a tender closes as before, or at a time of the same day that was not known before."""
    was, present = before.fecha_cierre, after.fecha_cierre
    if was == present or was is None or present is None or has_closing_time(before):
        return was == present
    return _closing_day(was) == _closing_day(present)


def _closing_day(closing: datetime) -> date:
    return closing.astimezone(ZoneInfo(CHILE)).date()


def parse_text(value: Any) -> str | None:
    """Return the trimmed text of a string or a number; None if it is blank or neither."""
    if value is None or isinstance(value, dict | list):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 7375.0 is the code 7375
    return str(value).replace("\0", "").strip() or None


def parse_object(value: Any) -> Mapping[str, Any]:
    """Return an object; an empty one if the value is none."""
    return value if isinstance(value, dict) else {}


def parse_integer(value: Any) -> int | None:
    """Return a whole number of up to 32 bits; None if it is none."""
    number = parse_amount(value)
    return None if number is None or number != int(number) or abs(number) >= 2**31 else int(number)


def parse_amount(value: Any) -> Decimal | None:
    """Return a number that an export can hold; None if it is none."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number) >= MAX_AMOUNT:
        return None
    rounded = Decimal(f"{number:.{DECIMALS}f}")
    return number if rounded == number else rounded


def merge_fields(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the most complete value of each field; the newest source is first.

    A value is more complete than none, and a longer text or list is more complete than a shorter;
    of equally complete values the newer counts. The state, and the amount with its currency, are
    those of the newest source that has one.
    """
    merged: dict[str, Any] = {}
    for source in sources:
        for name, value in source.items():
            rank = slice(1 if name in CHOICES else None)
            if name not in merged or _completeness(value)[rank] > _completeness(merged[name])[rank]:
                merged[name] = value
    for names, decisive in TOGETHER:
        found = next((s for s in sources if any(_is_given(s.get(n)) for n in decisive)), None)
        if found is not None:
            merged |= {name: found.get(name) for name in names if name in merged}
    return merged


def newer_fields(tender: Licitacion, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a newer detail of a stored tender changes. It takes nothing away."""
    known = {name for name in fields if name in Licitacion.model_fields} - {"codigo_externo"}
    given = {name: fields[name] for name in known if _is_given(fields[name])}
    for names, decisive in TOGETHER:
        if not any(name in given for name in decisive):
            given = {name: value for name, value in given.items() if name not in names}
    return {name: value for name, value in given.items() if value != getattr(tender, name)}


def _is_given(value: Any) -> bool:
    return _completeness(value)[0]


def _completeness(value: Any) -> tuple[bool, int]:
    if value is None:
        return (False, 0)
    if isinstance(value, str):
        return (bool(value.strip()), len(value.strip()))
    return (True, 0) if not isinstance(value, list | dict) else (bool(value), len(value))


def make_tender(merged: Mapping[str, Any], now: datetime) -> Licitacion:
    """Return the tender. Raises BadRecord if the fields do not make one.

    Without a publication date, it is the creation date, or now. Without a state's code, it is that
    of its word. An amount that is a number needs no words.
    """
    published = merged.get("fecha_publicacion") or merged.get("fecha_creacion") or now
    state = merged.get("codigo_estado") or STATE_CODES.get(str(merged.get("estado")).lower())
    label = merged.get("monto_label") if merged.get("monto_estimado") is None else None
    tender = Licitacion.kind.draft(
        {
            **merged,
            "fecha_publicacion": published,
            "codigo_estado": state,
            "monto_label": label,
        }
    )
    assert isinstance(tender, Licitacion)
    return tender

"""Which devices get a notification of a tender.

One tender is matched against all devices by a few set operations, not by a loop over devices.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, reduce
from itertools import compress
from operator import or_
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from esclusa.pipelines.tenders.records import PUBLISHED, Licitacion, NotificationPreferences
from esclusa.pipelines.tenders.settings import CHILE

V = TypeVar("V", str, Decimal)


@lru_cache(maxsize=1 << 14)
def normalize(text: str) -> str:
    """Return the text trimmed, without case or accents, with single spaces, for comparison."""
    split = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(c for c in split if not unicodedata.combining(c)).split())


@dataclass(frozen=True, slots=True)
class TenderTraits:
    """The values of a tender that are compared with preferences."""

    region: str
    buyer: str
    # The codes of its items and all their prefixes: a preference for a prefix matches.
    categories: frozenset[str]
    text: str
    amount: Decimal | None

    @classmethod
    def of(cls, tender: Licitacion) -> TenderTraits:
        codes = {normalize(code) for code in tender.categorias}
        return cls(
            region=normalize(tender.region or ""),
            buyer=normalize(tender.codigo_organismo or ""),
            categories=frozenset(code[:n] for code in codes for n in range(1, len(code) + 1)),
            text=f"{normalize(tender.nombre)}\n{normalize(tender.descripcion or '')}",
            amount=tender.monto_estimado,
        )


def is_announced(tender: Licitacion, now: datetime) -> bool:
    """Whether devices are notified of the tender: only while it is published and not closed."""
    return tender.codigo_estado == PUBLISHED and not is_closed(tender, now)


def is_closed(tender: Licitacion, now: datetime) -> bool:
    """Whether the closing time is over. Noon stands for a day without a time: it is not over."""
    closing = tender.fecha_cierre
    if closing is None or closing > now:
        return False
    local, today = closing.astimezone(ZoneInfo(CHILE)), now.astimezone(ZoneInfo(CHILE))
    return local.time() != time(12) or local.date() < today.date()


def matches(preferences: NotificationPreferences | None, tender: Licitacion) -> bool:
    """Whether one device wants the tender.

    Each kind of preference must match; within a kind, one of its values is enough.
    """
    if preferences is None:
        return True
    traits = TenderTraits.of(tender)
    amount, low, high = traits.amount, preferences.amount_min, preferences.amount_max
    return (
        preferences.enabled
        and _any(preferences.regions, lambda value: value == traits.region)
        and _any(preferences.buyers, lambda value: value == traits.buyer)
        and _any(preferences.categories, lambda value: value in traits.categories)
        and _any(preferences.keywords, lambda value: value in traits.text)
        and (amount is None or low is None or low <= amount)
        and (amount is None or high is None or amount <= high)
    )


def _any(values: Any, test: Callable[[str], bool]) -> bool:
    wanted = _wanted(values)
    return not wanted or any(test(value) for value in wanted)


def _wanted(values: Any) -> list[str]:
    """Return the normalized values of a preference.

    A row that another program wrote may have null or a single text in place of a list.
    """
    given = [values] if isinstance(values, str) else values or []
    return [name for value in given if isinstance(value, str) and (name := normalize(value))]


class DeviceIndex:
    """All active devices, indexed by their preferences.

    A set of devices is an integer with one bit for each device. A match costs a few operations on
    such integers: one for each category of the tender, each different keyword and each different
    amount, whatever the number of devices.
    """

    def __init__(self, devices: Iterable[tuple[str, NotificationPreferences | None]]) -> None:
        """``devices``: the ids of active installations, each with its preferences if it has any."""
        enabled = sorted(
            ((id, wanted) for id, wanted in devices if wanted is None or wanted.enabled),
            key=lambda pair: pair[0],
        )
        self.ids = [id for id, _ in enabled]
        self._all = (1 << len(enabled)) - 1
        wants = [wanted for _, wanted in enabled]
        self._regions = _ValueIndex([[] if w is None else _wanted(w.regions) for w in wants])
        self._buyers = _ValueIndex([[] if w is None else _wanted(w.buyers) for w in wants])
        self._categories = _ValueIndex([[] if w is None else _wanted(w.categories) for w in wants])
        self._keywords = _ValueIndex([[] if w is None else _wanted(w.keywords) for w in wants])
        self._minimums = _AmountIndex([None if w is None else w.amount_min for w in wants])
        self._maximums = _AmountIndex([None if w is None else w.amount_max for w in wants])

    def __len__(self) -> int:
        return len(self.ids)

    def matching(self, tender: Licitacion) -> list[str]:
        """Return the installations that want the tender, in order of id."""
        traits = TenderTraits.of(tender)
        found = self._all & self._regions.any_of([traits.region])
        found &= self._buyers.any_of([traits.buyer])
        found &= self._categories.any_of(traits.categories)
        if found:
            found &= self._keywords.any_of(
                word for word in self._keywords.values if word in traits.text
            )
        if traits.amount is not None and found:
            found &= self._minimums.up_to(traits.amount) & self._maximums.from_(traits.amount)
        return list(compress(self.ids, _bits(found))) if found else []


class _ValueIndex:
    """The devices that want each value, and those that want any."""

    def __init__(self, wanted: Sequence[Sequence[str]]) -> None:
        self.values, self._unlimited = _sets_by_value(wanted)

    def any_of(self, values: Iterable[str]) -> int:
        return reduce(or_, (self.values.get(value, 0) for value in values), self._unlimited)


class _AmountIndex:
    """The devices with each amount as their limit, and those without a limit."""

    def __init__(self, limits: Sequence[Decimal | None]) -> None:
        sets, self._unlimited = _sets_by_value([() if x is None else (x,) for x in limits])
        self._amounts = sorted(sets)
        self._sets = [sets[amount] for amount in self._amounts]

    def up_to(self, amount: Decimal) -> int:
        return reduce(or_, self._sets[: bisect_right(self._amounts, amount)], self._unlimited)

    def from_(self, amount: Decimal) -> int:
        return reduce(or_, self._sets[bisect_left(self._amounts, amount) :], self._unlimited)


def _sets_by_value(wanted: Sequence[Sequence[V]]) -> tuple[dict[V, int], int]:
    """Return the set of devices that want each value, and the set of those that name none."""
    positions: dict[V, list[int]] = defaultdict(list)
    for position, values in enumerate(wanted):
        for value in values:
            positions[value].append(position)
    unlimited = _bit_set((at for at, values in enumerate(wanted) if not values), len(wanted))
    return {value: _bit_set(at, len(wanted)) for value, at in positions.items()}, unlimited


def _bit_set(positions: Iterable[int], size: int) -> int:
    """Return the set of these positions.

    It is built in a bytearray: setting single bits of a long integer would be quadratic.
    """
    bits = bytearray(size // 8 + 1)
    for position in positions:
        bits[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(bits, "little")


_ONES = bytes.maketrans(b"01", b"\x00\x01")


def _bits(bit_set: int) -> bytes:
    """Return the bits of a set, lowest first, one byte each, as ``compress`` takes them."""
    return f"{bit_set:b}"[::-1].encode().translate(_ONES)


def quiet_until(hours: dict[str, str] | None, now: datetime) -> datetime | None:
    """Return the end of the quiet hours that ``now`` is in; None outside of them.

    The hours are local times, so they follow summer time. Raises LookupError, TypeError or
    ValueError if they cannot be read.
    """
    if not hours:
        return None
    zone = ZoneInfo(hours.get("timezone") or CHILE)
    start, end = time.fromisoformat(hours["start"]), time.fromisoformat(hours["end"])
    local = now.astimezone(zone)
    at = local.time().replace(tzinfo=None)
    if not (start <= at < end if start <= end else at >= start or at < end):
        return None
    day = local.date() + timedelta(days=1 if start > end and at >= start else 0)
    until = datetime.combine(day, end, zone).astimezone(UTC)
    if until <= now:  # clocks are set back and the hour repeats: it ends the second time
        until = datetime.combine(day, end, zone).replace(fold=1).astimezone(UTC)
    return until

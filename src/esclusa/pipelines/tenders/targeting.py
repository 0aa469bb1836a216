"""Which devices get a notification of a tender.

One tender is matched against all devices by a few set operations, not by a loop over devices.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from itertools import compress
from operator import or_
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from esclusa.pipelines.tenders.rates import NO_RATES, Rates, in_pesos
from esclusa.pipelines.tenders.records import (
    DIGEST,
    NEW_TENDER,
    PUBLISHED,
    Licitacion,
    NotificationPreferences,
)
from esclusa.pipelines.tenders.regions import region_key
from esclusa.pipelines.tenders.settings import CHILE
from esclusa.pipelines.tenders.tender_fields import closing_end
from esclusa.pipelines.tenders.words import begins_word, normalize

V = TypeVar("V", str, Decimal)


@dataclass(frozen=True, slots=True)
class TenderTraits:
    """The values of a tender that are compared with preferences."""

    region: str
    buyer: str
    type: str
    # The codes of its items and all their prefixes: a preference for a prefix matches.
    categories: frozenset[str]
    text: str
    # In pesos; None if it is unknown.
    amount: Decimal | None

    @classmethod
    def of(cls, tender: Licitacion, rates: Rates = NO_RATES) -> TenderTraits:
        # The team's own worker wrote one code, and no list.
        codes = {normalize(code) for code in _texts(tender.categorias, tender.rubro_code)}
        texts = [tender.nombre, tender.descripcion or "", *_item_names(tender.items)]
        return cls(
            region=region_key(tender.region or ""),
            buyer=normalize(tender.codigo_organismo or ""),
            type=normalize(tender.tipo or _type_in(tender.codigo_externo)),
            categories=frozenset(code[:n] for code in codes for n in range(1, len(code) + 1)),
            text="\n".join(map(normalize, texts)),
            amount=in_pesos(tender.monto_estimado, tender.moneda, rates),
        )


def _item_names(items: Any) -> Iterator[str]:
    for item in items or ():
        if isinstance(item, dict):
            for name in ("NombreProducto", "Categoria", "Descripcion"):
                if isinstance(item.get(name), str):
                    yield item[name]


def _type_in(code: str) -> str:
    """Return the type in a code: LP in 1057417-445-LP25."""
    return code.rpartition("-")[2][:-2]


def is_announced(tender: Licitacion, now: datetime) -> bool:
    """Whether devices are notified of the tender: only while it is published and not closed."""
    return tender.codigo_estado == PUBLISHED and not is_closed(tender, now)


def is_closed(tender: Licitacion, now: datetime) -> bool:
    """Whether the closing time is over; of a day without a time, whether the day is over."""
    end = closing_end(tender)
    return end is not None and end <= now


@dataclass(frozen=True, slots=True)
class Wants:
    """The preferences of a device as they are compared. An empty list is no limit.

    The single values that other programs write count beside the lists.
    """

    regions: list[str]
    buyers: list[str]
    types: list[str]
    categories: list[str]
    keywords: list[str]
    amount_min: Decimal | None
    amount_max: Decimal | None

    @classmethod
    def of(cls, given: NotificationPreferences) -> Wants:
        low = [x for x in (given.amount_min, given.monto_min) if x is not None]
        high = [x for x in (given.amount_max, given.monto_max) if x is not None]
        return cls(
            regions=[region_key(name) for name in _texts(given.regions, given.region)],
            buyers=[normalize(name) for name in _texts(given.buyers)],
            types=[normalize(name) for name in _texts(given.types, given.tipo)],
            categories=[category_prefix(code) for code in _texts(given.categories, given.rubro)],
            keywords=[normalize(word) for word in _texts(given.keywords)],
            amount_min=max(low, default=None),
            amount_max=min(high, default=None),
        )


def _texts(values: Any, single: str | None = None) -> list[str]:
    """Return the texts of a preference that are not blank.

    A row that another program wrote may have null or a single text in place of a list.
    """
    given = [values] if isinstance(values, str) else [*(values or ()), single]
    return [text for text in given if isinstance(text, str) and text.strip()]


def category_prefix(code: str) -> str:
    """Return the part of a category's code that its children share: 8512 of 85120000."""
    name = normalize(code)
    return (re.sub(r"(?:00)+\Z", "", name) or name) if re.fullmatch(r"\d{8}", name) else name


def matches(
    preferences: NotificationPreferences | None, tender: Licitacion, rates: Rates = NO_RATES
) -> bool:
    """Whether one device wants the tender.

    Each kind of preference must match; within a kind, one of its values is enough.
    """
    if preferences is None:
        return True
    traits, wants = TenderTraits.of(tender, rates), Wants.of(preferences)
    amount, low, high = traits.amount, wants.amount_min, wants.amount_max
    return (
        preferences.enabled
        and _any(wants.regions, lambda value: value == traits.region)
        and _any(wants.buyers, lambda value: value == traits.buyer)
        and _any(wants.types, lambda value: value == traits.type)
        and _any(wants.categories, lambda value: value in traits.categories)
        and _any(wants.keywords, lambda value: begins_word(value, traits.text))
        and (amount is None or low is None or low <= amount)
        and (amount is None or high is None or amount <= high)
    )


def wants_event(preferences: NotificationPreferences | None, event: str) -> bool:
    """Whether one device wants events of this type: new tenders, and others if it names them."""
    return event in (NEW_TENDER, DIGEST) or (
        preferences is not None and event in _texts(preferences.events)
    )


def _any(wanted: list[str], test: Callable[[str], bool]) -> bool:
    return not wanted or any(test(value) for value in wanted)


class DeviceIndex:
    """All active devices, indexed by their preferences.

    A set of devices is an integer with one bit for each device. A match costs a few operations on
    such integers: one for each category of the tender, each different keyword and each different
    amount, whatever the number of devices.
    """

    def __init__(
        self,
        devices: Iterable[tuple[str, NotificationPreferences | None]],
        rates: Rates = NO_RATES,
        *,
        digest: bool = False,
    ) -> None:
        """``devices``: the ids of active installations, each with its preferences if it has any.

        ``digest``: whether devices that want new tenders as a digest match them.
        """
        self._rates = rates
        enabled = sorted(
            ((id, wanted) for id, wanted in devices if wanted is None or wanted.enabled),
            key=lambda pair: pair[0],
        )
        self.ids = [id for id, _ in enabled]
        # The devices that get each new tender as a message.
        self._new_tenders = (1 << len(enabled)) - 1
        if not digest:
            self._new_tenders -= sum(1 << n for n, (_, p) in enumerate(enabled) if p and p.digest)
        wants = [None if wanted is None else Wants.of(wanted) for _, wanted in enabled]
        self._regions = _ValueIndex([w.regions if w else [] for w in wants])
        self._buyers = _ValueIndex([w.buyers if w else [] for w in wants])
        self._types = _ValueIndex([w.types if w else [] for w in wants])
        self._categories = _ValueIndex([w.categories if w else [] for w in wants])
        self._keywords = _ValueIndex([w.keywords if w else [] for w in wants])
        self._events = _ValueIndex([[] if p is None else _texts(p.events) for _, p in enabled])
        self._minimums = _AmountIndex([w.amount_min if w else None for w in wants])
        self._maximums = _AmountIndex([w.amount_max if w else None for w in wants])

    def __len__(self) -> int:
        return len(self.ids)

    def wants(self, event: str) -> bool:
        """Whether a device wants events of this type."""
        return event == NEW_TENDER or event in self._events.values

    def matching(self, tender: Licitacion, event: str = NEW_TENDER) -> list[str]:
        """Return the installations that want this event of the tender, in order of id."""
        found = self._new_tenders if event == NEW_TENDER else self._events.values.get(event, 0)
        if not found:
            return []
        traits = TenderTraits.of(tender, self._rates)
        found &= self._regions.any_of([traits.region])
        found &= self._buyers.any_of([traits.buyer]) & self._types.any_of([traits.type])
        found &= self._categories.any_of(traits.categories)
        if found:
            found &= self._keywords.any_of(
                word for word in self._keywords.values if begins_word(word, traits.text)
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

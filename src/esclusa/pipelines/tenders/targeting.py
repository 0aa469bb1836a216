"""Who wants to hear of a tender. One tender against all devices is a handful of set operations, not a loop over devices."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import compress
from typing import Any
from zoneinfo import ZoneInfo

from esclusa.model.value import value
from esclusa.pipelines.tenders.records import PUBLISHED, Licitacion, NotificationPreferences
from esclusa.pipelines.tenders.settings import CHILE


@lru_cache(maxsize=1 << 14)
def plain(text: str) -> str:
    """Trimmed, without case or accents, runs of space as one: how names are compared."""
    split = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(c for c in split if not unicodedata.combining(c)).split())


@value
class Traits:
    """What of a tender is compared with preferences."""

    region: str
    buyer: str
    categories: frozenset[str]
    """Its items' codes and all their beginnings: a preference for a beginning matches."""
    text: str
    amount: Decimal | None

    @classmethod
    def of(cls, tender: Licitacion) -> Traits:
        codes = {plain(code) for code in tender.categorias}
        return cls(
            region=plain(tender.region or ""), buyer=plain(tender.codigo_organismo or ""),
            categories=frozenset(code[:n] for code in codes for n in range(1, len(code) + 1)),
            text=f"{plain(tender.nombre)}\n{plain(tender.descripcion or '')}", amount=tender.monto_estimado,
        )  # fmt: skip


def notifies(tender: Licitacion) -> bool:
    """Whether it is announced at all: only while it is published."""
    return tender.codigo_estado == PUBLISHED


def matches(wanted: NotificationPreferences | None, tender: Licitacion) -> bool:
    """Whether one device wants to hear of it: within a kind any value will do, every kind must agree."""
    if wanted is None:
        return True
    traits = Traits.of(tender)
    amount = traits.amount
    return (
        wanted.enabled
        and _any(wanted.regions, lambda value: value == traits.region)
        and _any(wanted.buyers, lambda value: value == traits.buyer)
        and _any(wanted.categories, lambda value: value in traits.categories)
        and _any(wanted.keywords, lambda value: value in traits.text)
        and (amount is None or wanted.amount_min is None or wanted.amount_min <= amount)
        and (amount is None or wanted.amount_max is None or amount <= wanted.amount_max)
    )


def _any(values: Sequence[str], test: Any) -> bool:
    named = _named(values)
    return not named or any(test(value) for value in named)


def _named(values: Any) -> list[str]:
    """The names in a list of preferences. A row that another program wrote may have none in place of a list, or a name by itself."""
    said = [values] if isinstance(values, str) else values or []
    return [name for value in said if isinstance(value, str) and (name := plain(value))]


class Targets:
    """Every device that may be told, indexed by what it wants. Sets of devices are whole numbers, a bit for each.

    The answer for a tender costs a few operations on such numbers: as many as it has categories, as there are
    different keywords and different amounts, whatever the number of devices.
    """

    def __init__(self, devices: Iterable[tuple[str, NotificationPreferences | None]]) -> None:
        """``devices``: the ids of active installations, each with its preferences if it has any."""
        found = sorted(
            ((id, wanted) for id, wanted in devices if wanted is None or wanted.enabled),
            key=lambda pair: pair[0],
        )
        self.ids = [id for id, _ in found]
        self._all = (1 << len(found)) - 1
        wants = [wanted for _, wanted in found]
        self._regions = _Choice([[] if w is None else _named(w.regions) for w in wants])
        self._buyers = _Choice([[] if w is None else _named(w.buyers) for w in wants])
        self._categories = _Choice([[] if w is None else _named(w.categories) for w in wants])
        self._keywords = _Choice([[] if w is None else _named(w.keywords) for w in wants])
        self._least = _Bounds([None if w is None else w.amount_min for w in wants])
        self._most = _Bounds([None if w is None else w.amount_max for w in wants])

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, tender: Licitacion) -> list[str]:
        """The installations that want to hear of it, in order of id."""
        traits = Traits.of(tender)
        found = self._all & self._regions.of((traits.region,)) & self._buyers.of((traits.buyer,))
        found &= self._categories.of(traits.categories)
        if found:
            found &= self._keywords.of(
                word for word in self._keywords.values if word in traits.text
            )
        if traits.amount is not None and found:
            found &= self._least.up_to(traits.amount) & self._most.from_(traits.amount)
        return list(compress(self.ids, _bits(found))) if found else []


class _Choice:
    """For each value, the devices that named it; beside them those that named none, who take anything."""

    def __init__(self, named: Sequence[Sequence[str]]) -> None:
        places: dict[str, list[int]] = defaultdict(list)
        free = []
        for place, values in enumerate(named):
            if not values:
                free.append(place)
            for wanted in values:
                places[wanted].append(place)
        self._free = _set(free, len(named))
        self.values = {value: _set(at, len(named)) for value, at in places.items()}

    def of(self, values: Iterable[str]) -> int:
        found = self._free
        for given in values:
            found |= self.values.get(given, 0)
        return found


class _Bounds:
    """For each amount that is somebody's bound, the devices that have it; beside them those that have none."""

    def __init__(self, bounds: Sequence[Decimal | None]) -> None:
        places: dict[Decimal, list[int]] = defaultdict(list)
        for place, bound in enumerate(bounds):
            if bound is not None:
                places[bound].append(place)
        self._free = _set(
            [place for place, bound in enumerate(bounds) if bound is None], len(bounds)
        )
        self._amounts = sorted(places)
        self._sets = [_set(places[amount], len(bounds)) for amount in self._amounts]

    def up_to(self, amount: Decimal) -> int:
        return self._union(self._sets[: bisect_right(self._amounts, amount)])

    def from_(self, amount: Decimal) -> int:
        return self._union(self._sets[bisect_left(self._amounts, amount) :])

    def _union(self, sets: Sequence[int]) -> int:
        found = self._free
        for each in sets:
            found |= each
        return found


def _set(places: Iterable[int], size: int) -> int:
    """The set of these places, made at once: adding bit by bit to a long number would be quadratic."""
    held = bytearray(size // 8 + 1)
    for place in places:
        held[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(held, "little")


_ONES = bytes.maketrans(b"01", b"\x00\x01")


def _bits(number: int) -> bytes:
    """The bits of a set, lowest first, a byte each: what ``compress`` selects by."""
    return f"{number:b}"[::-1].encode().translate(_ONES)


def quiet_until(hours: dict[str, str] | None, now: datetime) -> datetime | None:
    """The end of the quiet hours that ``now`` lies in; None outside of them. Local times, so they keep with summer time.
    Raises LookupError, TypeError or ValueError for hours that are none."""
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
    if until <= now:  # the hour comes twice, as clocks are set back: it ends the second time
        until = datetime.combine(day, end, zone).replace(fold=1).astimezone(UTC)
    return until

"""What amounts in other currencies are in pesos, by rates that an operator keeps up.

They are in the setting TENDERS_RATES and in the table ``currency_rates``, which counts first.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from esclusa import Lifecycle, Record, untracked

# Pesos for one unit of a currency, by its code.
Rates: TypeAlias = Mapping[str, Decimal]
NO_RATES: Rates = {}

PESOS = "CLP"
# How often the table of rates is read.
READ_AGAIN = timedelta(minutes=1)
# Other names of a currency.
_NAMES = {"UF": "CLF", "US$": "USD", "DOLAR": "USD", "EURO": "EUR", "PESO": PESOS, "$": PESOS}


class CurrencyRate(
    Record,
    table="currency_rates",
    id="currency",
    key="currency",
    track=untracked(updated_at="updated_at"),
    insert=True,
):
    """Pesos for one unit of a currency, as an operator keeps them up."""

    currency: str
    pesos: Decimal

    lifecycle = Lifecycle("kept")


def currency_name(text: str | None) -> str:
    """Return the code of a currency; pesos if there is none."""
    name = (text or PESOS).strip().upper().replace("Ó", "O")
    return _NAMES.get(name, name) or PESOS


def in_pesos(amount: Decimal | None, currency: str | None, rates: Rates) -> Decimal | None:
    """Return the amount in pesos; None if it or the rate of its currency is unknown."""
    name = currency_name(currency)
    if amount is None or (name != PESOS and name not in rates):
        return None
    return amount if name == PESOS else amount * rates[name]


def parse_rates(text: str) -> dict[str, Decimal]:
    """Return the rates in ``UTM=69542, UF=39485.65``. Raises ValueError."""
    rates: dict[str, Decimal] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = part.partition("=")
        try:
            pesos = Decimal(number.strip())
        except InvalidOperation:
            pesos = Decimal(0)
        if not name.strip() or not pesos.is_finite() or pesos <= 0:
            raise ValueError(f"{part!r:.60} is not a rate such as UTM=69542 (a point for decimals)")
        rates[currency_name(name)] = pesos
    return rates


async def load_rates(records: Any, given: Rates) -> Rates:
    """Return the rates of the table ``currency_rates`` and, of other currencies, those given."""
    rows = [row async for row in records.each(CurrencyRate)]
    kept = {currency_name(row.currency): row.pesos for row in rows if row.pesos > 0}
    return {**given, **kept}


class CurrentRates:
    """The rates as they are now, for a process. The table is read again after a minute."""

    def __init__(self, given: Rates) -> None:
        self._given, self._rates = given, given
        self._until: datetime | None = None

    async def load(self, records: Any, now: datetime) -> Rates:
        if self._until is None or not self._until - READ_AGAIN <= now < self._until:
            self._rates = await load_rates(records, self._given)
            self._until = now + READ_AGAIN
        return self._rates

"""The regions of Chile, found by their code, their number or any usual name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from html import unescape
from itertools import zip_longest

from esclusa.pipelines.tenders.words import normalize


@dataclass(frozen=True, slots=True)
class Region:
    """A region: its code as ChileCompra has it, its Roman number, its name, and other names."""

    code: int
    number: str
    name: str
    others: tuple[str, ...] = ()


REGIONS = (
    Region(1, "I", "Región de Tarapacá"),
    Region(2, "II", "Región de Antofagasta"),
    Region(3, "III", "Región de Atacama"),
    Region(4, "IV", "Región de Coquimbo"),
    Region(5, "V", "Región de Valparaíso"),
    Region(
        6,
        "VI",
        "Región del Libertador General Bernardo O'Higgins",
        (
            "O'Higgins",
            "Libertador Bernardo O'Higgins",
            "Libertador B. O'Higgins",
            "Bernardo O'Higgins",
            "General O'Higgins",
            "Libertador",
        ),
    ),
    Region(7, "VII", "Región del Maule"),
    Region(8, "VIII", "Región del Biobío", ("Bío Bío",)),
    Region(9, "IX", "Región de La Araucanía"),
    Region(10, "X", "Región de Los Lagos"),
    Region(
        11,
        "XI",
        "Región de Aysén del General Carlos Ibáñez del Campo",
        ("Aysén",),
    ),
    Region(
        12,
        "XII",
        "Región de Magallanes y de la Antártica Chilena",
        ("Magallanes", "Magallanes y la Antártica", "Magallanes y Antártica Chilena"),
    ),
    Region(
        13,
        "XIII",
        "Región Metropolitana de Santiago",
        ("Metropolitana", "RM", "Santiago", "Región Metropolitana"),
    ),
    Region(14, "XIV", "Región de Los Ríos"),
    Region(15, "XV", "Región de Arica y Parinacota", ("Arica",)),
    Region(16, "XVI", "Región de Ñuble"),
)

_ORDINALS = (
    *("primera", "segunda", "tercera", "cuarta", "quinta", "sexta", "séptima", "octava", "novena"),
    *("décima", "undécima", "duodécima"),
)
# Other spellings of words, and abbreviations.
_SPELLINGS = {"aisen": "aysen", "gral": "general", "bdo": "bernardo", "lib": "libertador"}
# The number of an ordinal: 8 of 8a and 8va.
_ORDINAL = re.compile(r"(\d+)(?:a|ra|da|ta|ma|va|na)\Z")
# Words that do not distinguish regions.
_FILLERS = frozenset(("region", "de", "del", "la", "las", "los", "el", "y", "chile"))


@lru_cache(maxsize=1 << 12)
def find_region(text: str) -> Region | None:
    """Return the region of a code, a number or a name; None if it is none of Chile's.

    Case, accents, apostrophes, dots and hyphens do not matter, nor does "Región de".
    """
    return _BY_NAME.get(_essence(text))


def region_key(text: str) -> str:
    """Return what two names of one region have in common, for comparison."""
    found = find_region(text)
    return normalize(text) if found is None else f"#{found.code}"


def _essence(text: str) -> str:
    """Return the distinctive words of a name, joined: "Bío-Bío" and "Biobío" are the same."""
    words = re.findall(r"[a-z0-9]+", normalize(unescape(text)))
    words = [_SPELLINGS.get(word, _ORDINAL.sub(r"\1", word)) for word in words]
    joined = "".join(word for word in words if word not in _FILLERS)
    return str(int(joined)) if joined.isdigit() and len(joined) < 4 else joined


def _by_name() -> dict[str, Region]:
    names: dict[str, Region] = {}
    for region, ordinal in zip_longest(REGIONS, _ORDINALS):
        numbers = [str(region.code), region.number, *filter(None, [ordinal])]
        for name in (region.name, *region.others):
            names |= {_essence(f"{number} {name}"): region for number in ("", *numbers)}
        names |= {_essence(number): region for number in numbers}
    return names


_BY_NAME = _by_name()

"""The device index finds the devices whose own preferences match."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esclusa.pipelines.tenders.records import Licitacion, NotificationPreferences
from esclusa.pipelines.tenders.targeting import DeviceIndex, is_announced, matches, normalize

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def tender(**fields: Any) -> Licitacion:
    base: dict[str, Any] = {
        "codigo_externo": "1-1-L126",
        "nombre": "Mantención del Hospital Regional",
        "descripcion": "Reparación de techumbre",
        "codigo_estado": 5,
        "region": "Región del Biobío ",
        "codigo_organismo": "7375",
        "categorias": ["85122200", "72103300"],
        "monto_estimado": Decimal(500),
        "fecha_publicacion": NOW,
    }
    return Licitacion(**{**base, **fields})


def wants(**fields: Any) -> NotificationPreferences:
    return NotificationPreferences(installation_id="d", **fields)


@pytest.mark.parametrize(
    ("preferences", "matched"),
    [
        ({}, True),
        ({"enabled": False}, False),
        ({"regions": ["region del biobio"]}, True),
        ({"regions": [" REGIÓN DEL BIOBÍO "]}, True),
        ({"regions": ["Región del Maule", "Región del Biobío"]}, True),
        ({"regions": ["Biobío"]}, False),
        ({"buyers": ["7375"]}, True),
        ({"buyers": ["737"]}, False),
        ({"categories": ["8512"]}, True),
        ({"categories": ["85122200"]}, True),
        ({"categories": ["851222001"]}, False),
        ({"categories": ["9"]}, False),
        ({"keywords": ["HOSPITÁL"]}, True),
        ({"keywords": ["techumbre"]}, True),
        ({"keywords": ["regional reparacion"]}, False),
        ({"keywords": ["puente", "hospital"]}, True),
        ({"amount_min": Decimal(500)}, True),
        ({"amount_min": Decimal("500.01")}, False),
        ({"amount_max": Decimal(500)}, True),
        ({"amount_max": Decimal(499)}, False),
        ({"regions": ["Región del Biobío"], "keywords": ["puente"]}, False),
        ({"regions": [" "], "keywords": [""]}, True),
    ],
)
def test_matching(preferences: dict[str, Any], matched: bool) -> None:
    """OR within a kind, AND between kinds; without case or accents; category prefixes match."""
    assert matches(wants(**preferences), tender()) is matched
    assert DeviceIndex([("d", wants(**preferences))]).matching(tender()) == (
        ["d"] if matched else []
    )


def test_an_unknown_amount_passes_a_range_and_no_preferences_mean_no_limit() -> None:
    assert matches(wants(amount_min=Decimal(1), amount_max=Decimal(2)), tender(monto_estimado=None))
    assert DeviceIndex([("d", wants(amount_min=Decimal(1)))]).matching(
        tender(monto_estimado=None)
    ) == ["d"]
    assert matches(None, tender())
    assert DeviceIndex([("b", None), ("a", None)]).matching(tender()) == ["a", "b"]
    assert DeviceIndex([]).matching(tender()) == []


@pytest.mark.parametrize(("state", "answer"), [(5, True), (6, False), (8, False), (None, False)])
def test_only_published_tenders_are_announced(state: int | None, answer: bool) -> None:
    assert is_announced(tender(codigo_estado=state), NOW) is answer


def test_normalize() -> None:
    assert normalize("  Región   del\tÑUBLE ") == "region del nuble"


words = st.sampled_from(
    [
        "Región del Biobío",
        "region del biobio ",
        "Ñuble",
        "",
        "x",
        "hospital",
        "HOSPITAL",
        "85",
        "8512",
        "72103300",
        "7375",
    ]
)
several = st.lists(words, max_size=3)
amounts = st.none() | st.integers(0, 6).map(Decimal)
some = st.builds(
    wants,
    enabled=st.booleans() | st.just(True),
    regions=several,
    buyers=several,
    categories=several,
    keywords=several,
    amount_min=amounts,
    amount_max=amounts,
)
tenders = st.builds(
    tender,
    nombre=words,
    descripcion=st.none() | words,
    region=st.none() | words,
    codigo_organismo=st.none() | words,
    categorias=several,
    monto_estimado=amounts,
)


@given(st.lists(st.none() | some, max_size=20), tenders)
def test_the_index_agrees_with_each_device(
    preferences: list[NotificationPreferences | None], one: Licitacion
) -> None:
    devices = [(f"d{n:03}", wanted) for n, wanted in enumerate(preferences)]
    assert DeviceIndex(devices).matching(one) == [
        id for id, wanted in devices if matches(wanted, one)
    ]

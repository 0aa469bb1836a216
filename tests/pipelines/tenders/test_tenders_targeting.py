"""The device index finds the devices whose own preferences match."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esclusa.pipelines.tenders.rates import in_pesos, parse_rates
from esclusa.pipelines.tenders.records import Licitacion, NotificationPreferences
from esclusa.pipelines.tenders.regions import REGIONS, find_region
from esclusa.pipelines.tenders.targeting import DeviceIndex, is_announced, matches
from esclusa.pipelines.tenders.words import begins_word, normalize

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def tender(**fields: Any) -> Licitacion:
    base: dict[str, Any] = {
        "codigo_externo": "1-1-LP26",
        "items": [{"NombreProducto": "Tejas de zinc", "Categoria": "Otra (categoría)"}, {}],
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
        ({"regions": ["Biobío"]}, True),
        ({"regions": ["VIII"]}, True),
        ({"regions": ["8"]}, True),
        ({"regions": ["bío-bío"]}, True),
        ({"region": "Biobío"}, True),
        ({"region": "Maule"}, False),
        ({"regions": ["Maule"], "region": "Biobío"}, True),
        ({"types": ["le", "LP"]}, True),
        ({"types": ["L1"]}, False),
        ({"tipo": "LP"}, True),
        ({"tipo": "LE"}, False),
        ({"rubro": "85120000"}, True),
        ({"rubro": "45000000"}, False),
        ({"categories": ["45"], "rubro": "85122200"}, True),
        ({"monto_min": Decimal(501)}, False),
        ({"amount_min": Decimal(1), "monto_min": Decimal(501)}, False),
        ({"amount_max": Decimal(499), "monto_max": Decimal(900)}, False),
        ({"monto_max": Decimal(500)}, True),
        ({"buyers": ["7375"]}, True),
        ({"buyers": ["737"]}, False),
        ({"categories": ["8512"]}, True),
        ({"categories": ["85122200"]}, True),
        ({"categories": ["851222001"]}, False),
        ({"categories": ["9"]}, False),
        ({"keywords": ["HOSPITÁL"]}, True),
        ({"keywords": ["techumbre"]}, True),
        ({"keywords": ["hospi"]}, True),
        ({"keywords": ["pital"]}, False),
        ({"keywords": ["del hospital reg"]}, True),
        ({"keywords": ["tejas"]}, True),
        ({"keywords": ["categoría"]}, True),
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


def test_the_single_category_of_the_team_s_own_worker_counts() -> None:
    found = tender(categorias=[], rubro_code="72103300")
    assert matches(wants(rubro="72100000"), found)
    assert not matches(wants(rubro="85120000"), found)


@pytest.mark.parametrize("mark", "'’‘`´ʼ′＇")
def test_apostrophes_of_every_kind(mark: str) -> None:
    for name in (
        f"O{mark}Higgins",
        f"Región del Libertador General Bernardo O{mark}Higgins ",
        f"REGION DEL LIBERTADOR GRAL. BERNARDO O{mark}HIGGINS",
    ):
        assert (find_region(name) or REGIONS[0]).code == 6, name
        found = tender(region="Región del Libertador General Bernardo O´Higgins")
        assert matches(wants(regions=[name]), found)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Metropolitana", 13),
        ("Región Metropolitana de Santiago", 13),
        ("XIII Región Metropolitana", 13),
        ("RM", 13),
        ("13", 13),
        ("05", 5),
        ("Quinta Región", 5),
        ("V Región de Valparaíso", 5),
        ("8a Región", 8),
        ("8va", 8),
        ("Lib. Gral. Bdo. O’Higgins", 6),
        ("Aisén del Gral. Carlos Ibáñez del Campo", 11),
        ("Arica", 15),
        ("BIOBIO", 8),
        ("Región del Bío - Bío", 8),
        ("La Araucanía", 9),
        ("Region de la Araucania ", 9),
        ("Aisén", 11),
        ("Aysén del General Carlos Ibáñez del Campo", 11),
        ("Magallanes", 12),
        ("Región de Magallanes y de la Antártica", 12),
        ("Los Ríos", 14),
        ("Arica y Parinacota", 15),
        ("O&#39;Higgins", 6),
        ("ñuble", 16),
        ("Los Lagos", 10),
        ("17", None),
        ("Atlántida", None),
        ("", None),
        ("Región", None),
    ],
)
def test_regions_by_code_and_usual_names(name: str, code: int | None) -> None:
    found = find_region(name)
    assert (found and found.code) == code


def test_each_region_is_found_by_each_of_its_names() -> None:
    for region in REGIONS:
        for name in (region.name, region.number, str(region.code), *region.others):
            assert find_region(name) is region


@pytest.mark.parametrize(
    ("amount", "currency", "low", "high", "matched"),
    [
        (500, "UTM", 1_000_000, None, True),
        (500, "UTM", None, 1_000_000, False),
        (500, "CLP", 1_000_000, None, False),
        (500, None, 1_000_000, None, False),
        (100, "UF", 3_900_000, 4_000_000, True),
        (100, "clf", 3_900_000, 4_000_000, True),
        (100, "USD", 95_000, 96_000, True),
        (100, "EUR", 1_000_000, 2_000_000, True),
        (100, "GBP", 10**9, None, True),
    ],
)
def test_amounts_are_compared_in_pesos(
    amount: int, currency: str | None, low: int | None, high: int | None, matched: bool
) -> None:
    """An amount in a currency without a rate passes."""
    rates = parse_rates("UTM=69542, UF=39485.65,USD=952")
    one = tender(monto_estimado=Decimal(amount), moneda=currency)
    wanted = wants(
        amount_min=None if low is None else Decimal(low),
        amount_max=None if high is None else Decimal(high),
    )
    assert matches(wanted, one, rates) is matched
    assert DeviceIndex([("d", wanted)], rates).matching(one) == (["d"] if matched else [])


def test_rates() -> None:
    assert in_pesos(Decimal(2), " uf ", parse_rates("CLF=39485.65")) == Decimal("78971.30")
    assert in_pesos(None, "CLP", {}) is None
    assert parse_rates("") == {}
    for text in ("UTM", "UTM=", "=5", "UTM=-1", "UTM=0", "UTM=nan", "UTM=69.542,5"):
        with pytest.raises(ValueError, match="is not a rate"):
            parse_rates(text)


@pytest.mark.parametrize(
    ("part", "text", "answer"),
    [
        ("arte", "parte y artes", True),
        ("arte", "parte", False),
        ("arte", "arte", True),
        ("(arte", "x(arte", True),
        ("c++", "curso de c++", True),
        ("agua", "desagua, (agua)", True),
    ],
)
def test_words_match_from_their_beginning(part: str, text: str, answer: bool) -> None:
    assert begins_word(part, text) is answer


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
    types=several,
    tipo=st.none() | words,
    region=st.none() | words,
    rubro=st.none() | words,
    monto_min=amounts,
    monto_max=amounts,
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
    tipo=st.none() | words,
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

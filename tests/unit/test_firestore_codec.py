"""Names and values of Firestore documents, without a server."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esclusa.model.errors import BadRecord, DeclarationError, SchemaError
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.record import Record
from esclusa.stores.firestore import names, schema
from esclusa.stores.firestore.codec import decimal_order, decode, encode, encode_json


class Folio(Record, table="folios", key=("bucket", "prefix")):
    bucket: str
    prefix: str
    lifecycle = Lifecycle("a -> b")


class Documento(
    Record, table="documentos", key=("folio_id", "uri"), within="folio_id", parent=Folio
):
    folio_id: str
    uri: str
    lifecycle = Lifecycle("a -> b")


class Extraccion(Record, table="extracciones", within="documento_id", parent=Documento):
    documento_id: str
    lifecycle = Lifecycle("a -> b")


def test_nested_record_is_stored_below_its_parent() -> None:
    folio = Folio.kind.id_of("b", "f")
    documento = Documento.kind.id_of(folio, "a.pdf")
    id, path = names.identify(Extraccion.kind, Extraccion(documento_id=documento), lambda: "7")
    assert path == "folios/b:f/documentos/a.pdf/extracciones/7"
    assert names.path(Extraccion.kind, id) == path
    assert names.id_at(Extraccion.kind, path) == id
    assert names.id_at(Documento.kind, "folios/b:f/documentos/a.pdf") == documento


@pytest.mark.parametrize("id", ["singleton", "other:x", ":x", "b:f,"])
def test_id_without_the_parents_id_is_refused(id: str) -> None:
    with pytest.raises(BadRecord, match="begins with its parent's id"):
        names.identify(Documento.kind, Documento(id=id, folio_id="b:f", uri="u"), str)


def test_kinds_that_firestore_cannot_hold() -> None:
    class Wrong(Record, table="wrong", key=("uri",), within="folio_id", parent=Folio):
        folio_id: str
        uri: str
        lifecycle = Lifecycle("a -> b")

    class Orphan(Record, table="orphans", within="folio_id"):
        folio_id: str
        lifecycle = Lifecycle("a -> b")

    assert "must begin with folio_id" in schema.unfit(Wrong.kind)[0]
    assert "parent=" in schema.unfit(Orphan.kind)[0]
    assert schema.unfit(Extraccion.kind) == []
    assert issubclass(SchemaError, Exception)


def test_parent_requires_within() -> None:
    with pytest.raises(DeclarationError, match="needs within="):

        class Loose(Record, table="loose", parent=Folio):
            folio_id: str
            lifecycle = Lifecycle("a -> b")


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_segments_are_injective_and_valid(a: str, b: str) -> None:
    assert names.unsegment(names.segment(a)) == a
    assert (names.segment(a) == names.segment(b)) == (a == b)
    written = names.segment(a)
    assert "/" not in written
    assert written not in (".", "..")
    assert not (written.startswith("__") and written.endswith("__"))


@pytest.mark.parametrize("id", ["", "x" * 1500, "ñ" * 800])
def test_id_without_a_path(id: str) -> None:
    assert names.path(Folio.kind, id) is None


numbers = st.decimals(
    allow_nan=False, allow_infinity=False, min_value=Decimal("-1e30"), max_value=Decimal("1e30")
)


@given(numbers, numbers)
def test_decimals_sort_as_numbers_and_round_trip(a: Decimal, b: Decimal) -> None:
    x, y = decimal_order(a), decimal_order(b)
    assert (x < y, x == y) == (a < b, a == b)
    back = decode("decimal", encode("decimal", a))
    assert (back, str(back)) == (a, str(a))


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("Infinity"), Decimal("1e9999999")])
def test_unsortable_decimal_is_refused(value: Decimal) -> None:
    with pytest.raises(BadRecord):
        decimal_order(value)


leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(trees)
def test_json_round_trip(value: Any) -> None:
    assert decode("json", encode("json", value)) == value


@pytest.mark.parametrize(
    "value", [[[1]], {"": 1}, {"__x__": 1}, {"_json": "x"}, [2**64], {"a": [[1], [2]]}]
)
def test_json_that_firestore_cannot_hold_is_text(value: Any) -> None:
    written = encode_json(value)
    assert list(written.map_value.fields) == ["_json"]
    assert decode("json", written) == value


def test_plain_json_is_a_map() -> None:
    written = encode_json({"a": [1, {"b": [2.5]}], "ñ": None})
    assert sorted(written.map_value.fields) == ["a", "ñ"]


def test_values_that_firestore_cannot_hold_are_refused() -> None:
    with pytest.raises(BadRecord):
        encode("int", 2**63)
    with pytest.raises(BadRecord):
        encode("text", "\ud800")


# The store's URL


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("firestore://my-project", "firestore://my-project/(default)"),
        ("firestore://my-project/other", "firestore://my-project/other"),
    ],
)
def test_store_by_url(url: str, shown: str) -> None:
    from esclusa.app import store_for
    from esclusa.settings import Settings

    store = store_for(Settings(store=url, clock_offset_seconds=5.0))
    assert store.url == shown
    assert store.clock_offset == 5.0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "url",
    [
        "firestore:",
        "firestore://",
        "firestore:///db",
        "firestore://My Project",
        "firestore://p/d/e",
    ],
)
def test_wrong_url_is_refused(url: str) -> None:
    from esclusa.settings import Settings

    with pytest.raises(ValueError, match="firestore://project"):
        Settings(store=url)


def test_missing_extra_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    from esclusa.app import store_for
    from esclusa.model.errors import SettingsError
    from esclusa.settings import Settings

    monkeypatch.setitem(sys.modules, "esclusa.stores.firestore.store", None)
    with pytest.raises(SettingsError, match=r"esclusa\[google\]"):
        store_for(Settings(store="firestore://p1"))

"""Firestore: names and values, without a server."""

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


def test_a_record_within_another_lives_below_its_document() -> None:
    folio = Folio.kind.id_of("b", "f")
    documento = Documento.kind.id_of(folio, "a.pdf")
    id, where = names.identify(Extraccion.kind, Extraccion(documento_id=documento), lambda: "7")
    assert where == "folios/b:f/documentos/a.pdf/extracciones/7"
    assert names.path(Extraccion.kind, id) == where
    assert names.id_at(Extraccion.kind, where) == id
    assert names.id_at(Documento.kind, "folios/b:f/documentos/a.pdf") == documento


@pytest.mark.parametrize("id", ["singleton", "other:x", ":x", "b%3Af:"])
def test_an_id_that_does_not_begin_with_its_parents_is_refused(id: str) -> None:
    with pytest.raises(BadRecord, match="begins with its parent's id"):
        names.identify(Documento.kind, Documento(id=id, folio_id="b:f", uri="u"), str)


def test_a_key_that_does_not_begin_with_the_parent_is_a_schema_fault() -> None:
    class Wrong(Record, table="wrong", key=("uri",), within="folio_id", parent=Folio):
        folio_id: str
        uri: str
        lifecycle = Lifecycle("a -> b")

    class Orphan(Record, table="orphans", within="folio_id"):
        folio_id: str
        lifecycle = Lifecycle("a -> b")

    class Numbered(Record, table="numbered", key="uri", database_id=True):
        uri: str
        lifecycle = Lifecycle("a -> b")

    assert "must begin with folio_id" in schema.unfit(Wrong.kind)[0]
    assert "parent=" in schema.unfit(Orphan.kind)[0]
    assert "does not generate ids" in schema.unfit(Numbered.kind)[0]
    assert schema.unfit(Extraccion.kind) == []
    assert issubclass(SchemaError, Exception)


def test_a_parent_needs_the_field_that_holds_its_id() -> None:
    with pytest.raises(DeclarationError, match="needs within="):

        class Loose(Record, table="loose", parent=Folio):
            folio_id: str
            lifecycle = Lifecycle("a -> b")


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_names_are_injective_and_legal(a: str, b: str) -> None:
    assert names.unsegment(names.segment(a)) == a
    assert (names.segment(a) == names.segment(b)) == (a == b)
    written = names.segment(a)
    assert "/" not in written
    assert written not in (".", "..")
    assert not (written.startswith("__") and written.endswith("__"))


@pytest.mark.parametrize("id", ["", "x" * 1500, "ñ" * 800])
def test_an_id_that_no_document_can_have(id: str) -> None:
    assert names.path(Folio.kind, id) is None


numbers = st.decimals(
    allow_nan=False, allow_infinity=False, min_value=Decimal("-1e30"), max_value=Decimal("1e30")
)


@given(numbers, numbers)
def test_decimals_sort_as_numbers_and_come_back_exactly(a: Decimal, b: Decimal) -> None:
    x, y = decimal_order(a), decimal_order(b)
    assert (x < y, x == y) == (a < b, a == b)
    back = decode("decimal", encode("decimal", a))
    assert (back, str(back)) == (a, str(a))


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("Infinity"), Decimal("1e9999999")])
def test_a_decimal_that_cannot_be_sorted_is_refused(value: Decimal) -> None:
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
def test_json_comes_back_as_it_went_in(value: Any) -> None:
    assert decode("json", encode("json", value)) == value


@pytest.mark.parametrize(
    "value", [[[1]], {"": 1}, {"__x__": 1}, {"_json": "x"}, [2**64], {"a": [[1], [2]]}]
)
def test_json_that_firestore_cannot_hold_is_marked_text(value: Any) -> None:
    written = encode_json(value)
    assert list(written.map_value.fields) == ["_json"]
    assert decode("json", written) == value


def test_json_that_firestore_can_hold_is_a_map() -> None:
    written = encode_json({"a": [1, {"b": [2.5]}], "ñ": None})
    assert sorted(written.map_value.fields) == ["a", "ñ"]


def test_what_has_no_place_in_a_document_is_refused() -> None:
    with pytest.raises(BadRecord):
        encode("int", 2**63)
    with pytest.raises(BadRecord):
        encode("text", "\ud800")


# where the store is named


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("firestore://my-project", "firestore://my-project/(default)"),
        ("firestore://my-project/other", "firestore://my-project/other"),
    ],
)
def test_a_store_is_opened_by_its_url(url: str, shown: str) -> None:
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
def test_a_wrong_url_is_said_to_be_wrong(url: str) -> None:
    from esclusa.settings import Settings

    with pytest.raises(ValueError, match="firestore://project"):
        Settings(store=url)


def test_without_the_extra_the_settings_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    from esclusa.app import store_for
    from esclusa.model.errors import SettingsError
    from esclusa.settings import Settings

    monkeypatch.setitem(sys.modules, "esclusa.stores.firestore.store", None)
    with pytest.raises(SettingsError, match=r"esclusa\[google\]"):
        store_for(Settings(store="firestore://p1"))

"""The index file, and the rules by which Firestore covers a query. No server."""

from __future__ import annotations

from typing import Any

import pytest
from support.indexes import built_in_indexes

from esclusa.loading import BUILT_IN
from esclusa.model.errors import DeclarationError
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.outcome import To
from esclusa.model.pipeline import App
from esclusa.model.plan import DeclaredQuery, NoSettings
from esclusa.model.query import Query, above, not_null, one_of, query
from esclusa.model.record import Record
from esclusa.model.retry import Backoff
from esclusa.stores.firestore import firestore_indexes, indexes_for, uncovered
from esclusa.stores.firestore.indexes import QueryShape, _shapes

UP, DOWN = "ASCENDING", "DESCENDING"


class Item(Record, table="items", key="name"):
    name: str
    shop: str = ""
    size: int = 0
    url: str | None = None
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new
    """)


class Part(Record, table="parts", key=("item", "name"), within="item", parent=Item):
    item: str
    name: str
    lifecycle = Lifecycle("kept")


def file(*fields: tuple[str, ...], group: bool = False) -> dict[str, Any]:
    """An index file with these composite indexes of items; ``-`` means descending."""
    made = [
        [
            {"fieldPath": f.removeprefix("-"), "order": DOWN if f.startswith("-") else UP}
            for f in index
        ]
        for index in fields
    ]
    scope = "COLLECTION_GROUP" if group else "COLLECTION"
    return {
        "indexes": [{"collectionGroup": "items", "queryScope": scope, "fields": f} for f in made],
        "fieldOverrides": [],
    }


def covered(asked: Query, having: dict[str, Any], summed: str | None = None) -> bool:
    return uncovered(_shapes(DeclaredQuery(asked, summed)), having) == []


@pytest.mark.parametrize(
    ("asked", "having"),
    [
        (query(Item, {"shop": "a", "size": 1}), []),  # equality: single fields, merged
        (query(Item, {"shop": one_of("a", "b"), "size": 1}), []),
        (query(Item, {"size": above(1)}), []),
        (query(Item, order="-size"), []),
        (query(Item, {"shop": "a"}, order="size"), [("shop", "size")]),
        (query(Item, {"shop": "a"}, order="-size"), [("shop", "size")]),  # read backwards
        (query(Item, {"shop": "a", "size": above(1)}), [("shop", "size")]),
        # equality in any order
        (query(Item, {"shop": "a", "url": None}, order="size"), [("url", "shop", "size")]),
        # merged
        (
            query(Item, {"shop": "a", "url": None}, order="size"),
            [("url", "size"), ("shop", "size")],
        ),
        (query(Item, order=("shop", "-size")), [("-shop", "size")]),
        (query(Item, {"shop": one_of("a", "b")}, order="shop"), []),
    ],
)
def test_covered_queries(asked: Query, having: list[tuple[str, ...]]) -> None:
    assert covered(asked, file(*having))


@pytest.mark.parametrize(
    ("asked", "having"),
    [
        (query(Item, {"shop": "a"}, order="size"), []),
        (query(Item, {"shop": "a", "size": above(1)}), [("size", "shop")]),
        (query(Item, {"shop": "a", "url": not_null}), []),  # "not null" is a range
        # ranges are not merged
        (
            query(Item, {"shop": "a", "url": None, "size": above(1)}),
            [("url", "size"), ("shop", "size")],
        ),
        (query(Item, {"shop": "a"}, order="size"), [("shop", "url", "size")]),
        (query(Item, order=("shop", "-size")), [("shop", "size")]),
        # the name sorts in the other direction
        (query(Item, {"shop": "a"}, order=("size", "-id")), [("shop", "size")]),
        (query(Item, order="-id"), []),
    ],
)
def test_uncovered_queries(asked: Query, having: list[tuple[str, ...]]) -> None:
    assert not covered(asked, file(*having))
    made = firestore_indexes((Item.kind,), (), [asked])
    assert covered(asked, made)


def test_totals_by_state_need_the_summed_field_in_their_index() -> None:
    asked = query(Item, {"url": not_null})
    assert not covered(asked, file(("status", "url")), summed="attempts")
    assert covered(asked, file(("status", "url"), ("status", "url", "attempts")), summed="attempts")
    app = App("shop", records=[Item])
    app.declare_query(Item, {"url": not_null}, sum="attempts")
    made = indexes_for([app.bind(NoSettings())])
    fields = [
        [f["fieldPath"] for f in i["fields"]]
        for i in made["indexes"]
        if i["collectionGroup"] == "items"
    ]
    assert ["status", "url", "attempts"] in fields
    assert covered(asked, made, summed="attempts")


def test_parts_of_a_stage_are_covered() -> None:
    app = App("shop")

    @app.stage(Item, take="new", hold="busy", retry=Backoff(tries=None))
    async def work(item: Item, at: Any) -> To:
        return To("done")

    claim = QueryShape(
        "items", False, frozenset({"status", "shop"}), (("due_at", UP),), merged=False
    )
    assert uncovered([claim], indexes_for([app.bind(NoSettings())])) != []
    app.parts("work", {"shop": "any"})
    assert uncovered([claim], indexes_for([app.bind(NoSettings())])) == []
    app.parts("walk", {"shop": "any"})
    app.parts("work", {"colour": "red"})
    with pytest.raises(DeclarationError, match=r"there is no stage walk[\s\S]*no field colour"):
        app.bind(NoSettings())


def test_sub_collections_need_single_fields_declared() -> None:
    asked = query(Part, {"item": "a", "status": "kept"})
    bare = {"indexes": [], "fieldOverrides": []}
    assert not covered(asked, bare)
    assert covered(query(Item, {"name": "a", "status": "new"}), bare)
    assert covered(asked, firestore_indexes((Item.kind, Part.kind), (), [asked]))


@pytest.mark.parametrize("pipeline", BUILT_IN)
def test_index_file_of_a_pipeline_is_within_firestores_limits(pipeline: str) -> None:
    made = built_in_indexes([pipeline])
    assert len(made["indexes"]) <= 200
    assert len(made["fieldOverrides"]) <= 200
    for index in made["indexes"]:
        names = [f["fieldPath"] for f in index["fields"]]
        assert 2 <= len(names) <= 100
        assert len(set(names)) == len(names), index
    assert len({str(i) for i in made["indexes"]}) == len(made["indexes"])

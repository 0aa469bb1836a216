"""The history as OCEL 2.0: its structure, and the same events when it is read back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from esclusa import Lifecycle, Record
from esclusa.event_log import COLUMNS, Ocel, event_rows
from esclusa.exports import encode
from esclusa.model.settlement import Step

T0 = datetime(2026, 11, 18, 12, tzinfo=UTC)

# Written from the description of the format, OCEL 2.0: JSON.
_TYPED = {
    "type": "object",
    "required": ["name", "attributes"],
    "properties": {
        "name": {"type": "string"},
        "attributes": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "type"],
                "properties": {
                    "name": {"type": "string"},
                    "type": {"enum": ["string", "time", "integer", "float", "boolean"]},
                },
            },
        },
    },
}
_RELATIONS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["objectId", "qualifier"],
        "properties": {"objectId": {"type": "string"}, "qualifier": {"type": "string"}},
    },
}
_VALUE = {"type": ["string", "number", "boolean"]}


def _things(required: list[str], **properties: Any) -> dict[str, Any]:
    attribute = {
        "type": "object",
        "required": ["name", "value", *(["time"] if "time" not in required else [])],
        "properties": {"name": {"type": "string"}, "value": _VALUE, "time": {"type": "string"}},
    }
    return {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["id", "type", *required],
            "properties": {
                "id": {"type": "string"},
                "type": {"type": "string"},
                "attributes": {"type": "array", "items": attribute},
                "relationships": _RELATIONS,
                **properties,
            },
        },
    }


SCHEMA = {
    "type": "object",
    "required": ["objectTypes", "eventTypes", "objects", "events"],
    "properties": {
        "objectTypes": {"type": "array", "items": _TYPED},
        "eventTypes": {"type": "array", "items": _TYPED},
        "objects": _things([]),
        "events": _things(
            ["time", "relationships"], time={"type": "string", "format": "date-time"}
        ),
    },
}


class Customer(Record, table="customers", key="name"):
    name: str
    lifecycle = Lifecycle("new -> known")


class Order(Record, table="orders", key="code", refs={"customer": Customer}):
    code: str
    customer: str
    amount: int = 0
    price: Decimal = Decimal(0)
    paid_at: datetime | None = None
    access_token: str = ""
    options: dict[str, Any] = {}
    lifecycle = Lifecycle("placed -> paid | failed\nfailed -> placed")


def step(frm: str, to: str, minutes: int, **options: Any) -> Step:
    given = {"who": "w1", "run": "r1", "attempt": 1, "reason": None, "error": None} | options
    return Step(frm, to, T0 + timedelta(minutes=minutes), **given)


async def histories() -> AsyncIterator[tuple[Record, list[Step]]]:
    yield Customer(id="ana", name="ana", status="new", created_at=T0), []
    yield (
        Order(
            id="o1",
            code="o1",
            customer="ana",
            amount=3,
            price=Decimal("9.50"),
            paid_at=T0,
            access_token="hunter2",
            status="paid",
            created_at=T0,
            updated_at=T0 + timedelta(hours=1),
        ),
        [
            step("placed", "failed", 5, error={"type": "declined", "message": "no"}),
            step("failed", "placed", 9, who="cli:ana", reason='the "bank" is back'),
            step("placed", "paid", 11),
        ],
    )


async def read(log: Any) -> bytes:
    return b"".join([chunk async for chunk in log])


def _check(schema: Any, found: Any, path: str = "$") -> None:
    """Validate against the few keywords that ``SCHEMA`` uses."""
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float), "boolean": bool}
    if "enum" in schema:
        assert found in schema["enum"], path
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert any(isinstance(found, kinds[each]) for each in types), f"{path}: {found!r}"
    for name in schema.get("required", ()):
        assert name in found, f"{path} lacks {name}"
    for name, below in schema.get("properties", {}).items():
        if name in found:
            _check(below, found[name], f"{path}.{name}")
    if schema.get("format") == "date-time":
        assert datetime.fromisoformat(found).tzinfo is not None, path
    for number, each in enumerate(found if "items" in schema else ()):
        _check(schema["items"], each, f"{path}[{number}]")


async def test_the_file_has_the_structure_of_ocel() -> None:
    log = Ocel([Customer.kind, Order.kind], histories())
    raw = await read(log)
    found = json.loads(raw)
    _check(SCHEMA, found)
    assert b"hunter2" not in raw
    assert log.events == len(found["events"]) == 5
    ids = [each["id"] for each in (*found["objects"], *found["events"])]
    assert len(ids) == len(set(ids))
    objects = {each["id"]: each for each in found["objects"]}
    types = {each["name"]: each for each in found["objectTypes"]}
    kinds = {each["name"]: each for each in found["eventTypes"]}
    for each in found["objects"]:
        declared = {a["name"] for a in types[each["type"]]["attributes"]}
        assert {a["name"] for a in each["attributes"]} <= declared
    for event in found["events"]:
        assert all(r["objectId"] in objects for r in event["relationships"])
        declared = {a["name"] for a in kinds[event["type"]]["attributes"]}
        assert {a["name"] for a in event["attributes"]} <= declared
    assert objects["orders/o1"]["relationships"] == [
        {"objectId": "customers/ana", "qualifier": "customer"}
    ]


async def test_the_events_are_read_back_in_order() -> None:
    found = json.loads(await read(Ocel([Customer.kind, Order.kind], histories())))
    mine = [e for e in found["events"] if e["relationships"][0]["objectId"] == "orders/o1"]
    assert [(e["type"], e["time"][11:16]) for e in mine] == [
        ("orders: created", "12:00"),
        ("orders: placed → failed", "12:05"),
        ("orders: failed → placed", "12:09"),
        ("orders: placed → paid", "12:11"),
    ]
    assert {a["name"]: a["value"] for a in mine[1]["attributes"]} == {
        "who": "w1",
        "run": "r1",
        "attempt": 1,
        "error": "declined",
    }
    [order] = [each for each in found["objects"] if each["id"] == "orders/o1"]
    values = [(a["name"], a["value"]) for a in order["attributes"]]
    assert [v for name, v in values if name == "status"] == ["placed", "failed", "placed", "paid"]
    assert ("amount", 3) in values
    assert ("price", 9.5) in values
    assert ("paid_at", "2026-11-18T12:00:00.000000Z") in values


async def test_csv_has_a_row_for_each_event_within_the_time() -> None:
    since = T0 + timedelta(minutes=1)
    rows = event_rows(histories(), since)
    table = (await read(encode(list(COLUMNS), rows, "csv"))).decode().splitlines()
    assert table[0].startswith("kind,record,activity,at,from_state,to_state")
    assert len(table) == 4
    assert table[1].startswith("orders,o1,placed → failed,2026-11-18T12:05:00Z,placed,failed,w1")
    assert '"the ""bank"" is back"' in table[2]

"""Events in Pub/Sub pushes, and long listings of Cloud Storage."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from pipelines.documents.conftest import NewService, headers
from support.loopback import http_server

from esclusa import Failure
from esclusa.pipelines.documents.buckets import BadUri, Blob, parse_uri
from esclusa.pipelines.documents.cloud_storage import CloudBucket
from esclusa.pipelines.documents.events import (
    PUBLISHED,
    BadEvent,
    IgnoredEvent,
    ReadyEvent,
    read_event,
)
from esclusa.pipelines.documents.records import FolderSignal

OBJECT = {
    "kind": "storage#object",
    "bucket": "bkt",
    "name": "2026/Año ñ/is_ready",
    "generation": "17",
    "size": "0",
}
READY = ReadyEvent(
    "2070443601311540", "//storage.googleapis.com/projects/_/buckets/bkt", "bkt", "2026/Año ñ"
)
ATTRIBUTES = {
    "eventType": "OBJECT_FINALIZE",
    "payloadFormat": "JSON_API_V1",
    "bucketId": "bkt",
    "objectId": OBJECT["name"],
    "objectGeneration": "17",
    "eventTime": "2026-01-01T00:00:00Z",
    "notificationConfig": "projects/_/buckets/bkt/notificationConfigs/1",
}
CLOUD_EVENT = headers(READY.event_id)


def packed(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def push(data: Any = OBJECT, attributes: Any = ATTRIBUTES, **message: Any) -> dict[str, Any]:
    """Return the envelope of a push subscription."""
    value = {
        "data": packed(data),
        "attributes": attributes,
        "messageId": READY.event_id,
        "message_id": READY.event_id,
    }
    return {
        "message": value | {"publishTime": "2026-01-01T00:00:00Z"} | message,
        "subscription": "projects/p/subscriptions/s",
    }


def read(body: Any, **head: str) -> ReadyEvent | IgnoredEvent:
    return read_event(head, json.dumps(body).encode())


def structured(**event: Any) -> dict[str, Any]:
    return {name.removeprefix("ce-"): value for name, value in CLOUD_EVENT.items()} | event


def test_bucket_notification_in_a_push() -> None:
    assert read(push()) == READY


def test_event_in_the_attributes_of_a_push() -> None:
    assert read(push(attributes=CLOUD_EVENT)) == READY


def test_structured_event_in_the_data_of_a_push() -> None:
    assert (
        read(
            push(
                structured(data=OBJECT),
                {"content-type": "application/cloudevents+json; charset=utf-8"},
            )
        )
        == READY
    )


def test_pubsub_trigger_of_eventarc_in_both_modes() -> None:
    event = headers("other", type=PUBLISHED)
    assert read(push(), **event) == READY
    plain = {name.removeprefix("ce-"): value for name, value in event.items()}
    assert (
        read(plain | {"data": push()}, **{"Content-Type": "application/cloudevents+json"}) == READY
    )


def test_push_without_wrapping() -> None:
    assert read(OBJECT, **ATTRIBUTES, **{"x-goog-pubsub-message-id": READY.event_id}) == READY


@pytest.mark.parametrize(
    "body",
    [
        push(attributes=ATTRIBUTES | {"eventType": "OBJECT_DELETE"}),
        push(attributes={}),
        push(attributes=None, data={"hello": 1}),
        push(data=OBJECT | {"name": "2026/x.pdf"}),
        push(data=OBJECT | {"size": 3}),
        push(attributes=CLOUD_EVENT | {"ce-type": "google.cloud.storage.object.v1.deleted"}),
    ],
)
def test_other_messages_are_ignored_with_a_reason(body: Any) -> None:
    answer = read(body)
    assert isinstance(answer, IgnoredEvent)
    assert answer.reason


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ({"message": None}, "'message' of a Pub/Sub push"),
        ({"message": []}, "'message' of a Pub/Sub push"),
        (push(attributes=["x"]), "message.attributes"),
        (
            push() | {"message": push()["message"] | {"data": "not base64!"}},
            "message.data is not base64",
        ),
        (push() | {"message": push()["message"] | {"data": 7}}, "message.data is not base64"),
        (
            push() | {"message": push()["message"] | {"data": base64.b64encode(b"{").decode()}},
            "message.data is not JSON",
        ),
        (push(data=[1]), "not a JSON object"),
        (push(messageId=None, message_id=None), "no messageId"),
        (push(attributes=ATTRIBUTES | {"payloadFormat": "NONE"}), "JSON_API_V1"),
        (push(data={"name": "a/is_ready"}, attributes=ATTRIBUTES | {"bucketId": ""}), "no bucket"),
        (push(attributes={"ce-id": "1"}), "lacks specversion, type, source"),
        (push(push(), headers(type=PUBLISHED)), "within a Pub/Sub message"),
        ({"hello": "you"}, "not a CloudEvent"),
    ],
)
def test_malformed_push_names_its_fault(body: Any, value: str) -> None:
    with pytest.raises(BadEvent, match=value):
        read(body)


@pytest.mark.parametrize(
    ("changed", "value"),
    [
        ({"size": "²"}, "not a whole number"),
        ({"size": "9" * 5000}, "not a whole number"),
        ({"name": "\ud800/is_ready"}, "not a valid object name"),
        ({"name": "a\0b/is_ready"}, "not a valid object name"),
        ({"bucket": "/etc"}, "not the name of a bucket"),
        ({"bucket": "a/b"}, "not the name of a bucket"),
        ({"bucket": "b\ud800"}, "not the name of a bucket"),
    ],
)
def test_invalid_object_names_its_fault(changed: dict[str, str], value: str) -> None:
    with pytest.raises(BadEvent, match=value):
        read(OBJECT | changed, **CLOUD_EVENT)


@pytest.mark.parametrize("id", [{"a": 1}, 5, ["x"], "\ud800"])
def test_event_id_is_a_text(id: Any) -> None:
    with pytest.raises(BadEvent, match="lacks id"):
        read(structured(id=id, data=OBJECT), **{"content-type": "application/cloudevents+json"})


def test_impossible_file_uri_is_refused() -> None:
    with pytest.raises(BadUri):
        parse_uri("file:///data/a%00b")


def test_base64_data_of_a_structured_event() -> None:
    mode = {"content-type": "application/cloudevents+json"}
    assert read(structured(data_base64=packed(OBJECT)), **mode) == READY
    with pytest.raises(BadEvent, match="data_base64 is not base64"):
        read(structured(data_base64=5), **mode)
    with pytest.raises(BadEvent, match="not a JSON object"):
        read(structured(), **mode)


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_repeated_push_is_one_signal(new_service: NewService) -> None:
    service = await new_service(serve=True)
    for _ in range(2):
        status, body = await service.post("/events/storage", json=push())
        assert (status, body["eventarc_event_id"]) == (202, READY.event_id)
    signals = (await service.records.find(FolderSignal)).items
    assert [(s.bucket, s.folder_prefix) for s in signals] == [("bkt", READY.folder_prefix)]
    status, body = await service.post("/events/storage", json={"message": {"data": "%"}})
    assert (status, body["type"].endswith("bad-event")) == (400, True)


# listings in pages


@pytest.fixture
def faults() -> dict[str, int]:
    """Statuses to answer instead of a page, by its token."""
    return {}


@pytest.fixture
async def listed(
    monkeypatch: pytest.MonkeyPatch, faults: dict[str, int]
) -> AsyncIterator[list[str]]:
    """Cloud Storage with 2,500 objects and an empty page after each full one.

    Yields the page tokens that were requested.
    """
    asked: list[str] = []

    async def objects(request: web.Request) -> web.Response:
        token = request.query.get("pageToken", "0")
        asked.append(token)
        if token in faults:
            return web.json_response(
                {"error": {"code": faults[token], "message": "to order"}}, status=faults[token]
            )
        assert request.query["prefix"] == "caso/"
        start, size = int(token.rstrip("e")), int(request.query["maxResults"])
        if token.endswith("e"):
            return web.json_response({"kind": "storage#objects", "nextPageToken": str(start)})
        end = min(2500, start + size)
        items = [
            {"name": f"caso/{n:05}.pdf", "bucket": "b", "generation": "1", "size": "9"}
            for n in range(start, end)
        ]
        return web.json_response(
            {"kind": "storage#objects", "items": items}
            | ({"nextPageToken": f"{end}e"} if end < 2500 else {})
        )

    async with http_server(web.get("/storage/v1/b/b/o", objects)) as url:
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        yield asked


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_listing_continues_after_an_empty_page(
    listed: list[str],
) -> None:
    found: list[Blob] = []
    async for blob in CloudBucket("b").list("caso"):
        found.append(blob)
        assert len(listed) == 1 + 2 * (
            (len(found) - 1) // 1000
        )  # a page is requested only after the one before is used up
    assert [blob.name for blob in found] == [f"caso/{n:05}.pdf" for n in range(2500)]
    assert listed == ["0", "1000e", "1000", "2000e", "2000"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("status", "type", "permanent"),
    [
        (429, "storage_error", False),
        (503, "storage_error", False),
        (403, "storage_refused", True),
        (404, "bucket_not_found", True),
    ],
)
async def test_interrupted_listing_fails(
    listed: list[str], faults: dict[str, int], status: int, type: str, permanent: bool
) -> None:
    faults["2000"] = status
    found: list[Blob] = []

    async def take() -> None:
        async for blob in CloudBucket("b").list("caso"):
            found.append(blob)

    with pytest.raises(Failure) as caught:
        await take()
    assert (len(found), caught.value.type, caught.value.permanent) == (2000, type, permanent)
    assert listed.count("2000") == 1  # the engine counts attempts

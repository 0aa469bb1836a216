"""Events of Cloud Storage, as Eventarc and Pub/Sub send them: from a request to the folder that is ready."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from esclusa import EsclusaError
from esclusa.model.value import value
from esclusa.pipelines.documents.buckets import FLAG, is_text

FINALIZED = "google.cloud.storage.object.v1.finalized"
PUBLISHED = "google.cloud.pubsub.topic.v1.messagePublished"
_WHOLE = re.compile(r"[0-9]{1,20}")


class BadEvent(EsclusaError):
    """Not an event of Cloud Storage; the message says why."""


@value
class Ready:
    """A folder's flag was written."""

    event_id: str
    source: str
    bucket: str
    folder_prefix: str


@value
class Passed:
    """An event that is none of ours, and why."""

    reason: str


def read_event(headers: Mapping[str, str], body: bytes) -> Ready | Passed:
    """What an event says, however it comes: a CloudEvent in binary or structured mode, or a Pub/Sub push with either of them, or
    with a bucket's own notification, inside. Raises BadEvent."""
    lower = {name.lower(): value for name, value in headers.items()}
    return _envelope(lower, body) or _event(
        *(_structured(body) if _is_structured(lower) else _binary(lower, body))
    )


def _event(attributes: Mapping[str, Any], data: Any) -> Ready | Passed:
    """What a CloudEvent says."""
    missing = [
        name
        for name in ("specversion", "id", "type", "source")
        if not _is_text(attributes.get(name))
    ]
    if missing:
        raise BadEvent(
            f"the event lacks {', '.join(missing)}: a CloudEvent 1.0 has ce-specversion, ce-id, ce-type and ce-source"
        )
    if attributes["specversion"] != "1.0":
        raise BadEvent(
            f"specversion {attributes['specversion']!r:.40} is not known; this reads CloudEvents 1.0"
        )
    if attributes["type"] == PUBLISHED:
        return _message(data)
    if attributes["type"] != FINALIZED:
        return Passed(f"type {attributes['type']!r:.120} is not {FINALIZED}")
    if not isinstance(data, dict):
        raise BadEvent("the event's data is not a JSON object (the object that was finalized)")
    return _finalized(
        attributes["id"], attributes["source"], data, data.get("bucket") or attributes.get("bucket")
    )


def _finalized(id: str, source: str, data: dict[str, Any], bucket: Any) -> Ready | Passed:
    """What a finalized object means."""
    name = data.get("name")
    if not isinstance(bucket, str) or not bucket or not isinstance(name, str) or not name:
        raise BadEvent(
            "the event's data names no bucket or no object: it needs 'bucket' and 'name'"
        )
    if not _is_text(bucket) or "/" in bucket:  # a path of this machine is none either
        raise BadEvent(f"{bucket!r:.120} is no bucket's name")
    if not _is_text(name):
        raise BadEvent(f"{name!r:.120} is no name that an object can have")
    prefix, slash, last = name.rpartition("/")
    if last != FLAG or not slash or not prefix.strip("/"):
        return Passed(f"{name!r:.200} is not {{folder_prefix}}/{FLAG}")
    size = _size(data.get("size"))
    if size != 0:
        return Passed(f"{name!r:.200} has {size} bytes; a folder's flag is empty")
    return Ready(id, source, bucket, prefix)


def _is_structured(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith("application/cloudevents+json")


def _structured(body: bytes) -> tuple[dict[str, Any], Any]:
    event = _json(body, "the body")
    if not isinstance(event, dict):
        raise BadEvent("the body of a structured event is a JSON object")
    if "data" not in event and "data_base64" in event:
        return event, _json(_decoded(event["data_base64"], "data_base64"), "data_base64")
    return event, event.get("data")


def _binary(headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], Any]:
    attributes: dict[str, Any] = {
        name[3:]: value for name, value in headers.items() if name.startswith("ce-")
    }
    if not attributes:
        raise BadEvent(
            "this is no CloudEvent: it has neither ce-* headers (binary mode) nor Content-Type application/cloudevents+json, "
            "nor is it a Pub/Sub push (a JSON object with 'message')"
        )
    return attributes, _json(body, "the body")


# Pub/Sub


def _envelope(headers: Mapping[str, str], body: bytes) -> Ready | Passed | None:
    """What a push of Pub/Sub says; None if this is no push. With wrapping the body is the envelope; without it the body is the
    data, and the message's attributes are headers."""
    if _is_structured(headers) or any(name.startswith("ce-") for name in headers):
        return None
    if "eventtype" in headers:
        named = {
            name: headers.get(name.lower())
            for name in ("eventType", "payloadFormat", "bucketId", "objectId")
        }
        return _notification(headers.get("x-goog-pubsub-message-id"), named, body)
    said = _json(body, "the body")
    return _message(said) if isinstance(said, dict) and "message" in said else None


def _message(envelope: Any) -> Ready | Passed:
    """What the message in an envelope says: it carries a CloudEvent in its attributes or its data, or is a bucket's notification."""
    message = envelope.get("message") if isinstance(envelope, dict) else None
    if not isinstance(message, dict):
        raise BadEvent("'message' of a Pub/Sub push is a JSON object")
    attributes = message.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise BadEvent("'message.attributes' of a Pub/Sub push is a JSON object")
    data = _decoded(message.get("data") or "", "message.data")
    lower = {str(name).lower(): str(value) for name, value in attributes.items()}
    if _is_structured(lower):
        return _inner(*_structured(data))
    if any(name.startswith("ce-") for name in lower):
        return _inner(*_binary(lower, data))
    if "eventType" not in attributes:
        return Passed(
            "the Pub/Sub message is no event of Cloud Storage: it has neither the attribute eventType nor ce-type"
        )
    return _notification(message.get("messageId") or message.get("message_id"), attributes, data)


def _inner(attributes: Mapping[str, Any], data: Any) -> Ready | Passed:
    if attributes.get("type") == PUBLISHED:
        raise BadEvent("a Pub/Sub message within a Pub/Sub message is not read")
    return _event(attributes, data)


def _notification(id: Any, attributes: Mapping[str, Any], data: bytes) -> Ready | Passed:
    """What a bucket's own notification says. Delivered again it has the same message id."""
    if attributes["eventType"] != "OBJECT_FINALIZE":
        return Passed(f"eventType {attributes['eventType']!r:.80} is not OBJECT_FINALIZE")
    if not isinstance(id, str) or not id:
        raise BadEvent("the Pub/Sub message has no messageId")
    if attributes.get("payloadFormat") == "NONE" or not data:
        raise BadEvent(
            "the notification carries no object, so its size is not known: set the bucket's payloadFormat to JSON_API_V1"
        )
    said = _json(data, "message.data")
    if not isinstance(said, dict):
        raise BadEvent("message.data is not a JSON object (the object that was finalized)")
    bucket = said.get("bucket") or attributes.get("bucketId")
    return _finalized(id, f"//storage.googleapis.com/projects/_/buckets/{bucket}", said, bucket)


def _decoded(text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise BadEvent(f"{where} is not base64") from None


def _json(text: bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"{where} is not JSON: {error}") from None


def _is_text(said: Any) -> bool:
    """Whether it is a text that every store can keep."""
    return isinstance(said, str) and bool(said.strip()) and "\0" not in said and is_text(said)


def _size(said: Any) -> int:
    """A size as the wire says it: a text or a number; left out it is 0, as in every proto3 message."""
    if said is None:
        return 0
    if isinstance(said, int) and not isinstance(said, bool):
        return said
    if isinstance(said, str) and _WHOLE.fullmatch(said.strip()):
        return int(said)
    raise BadEvent(f"size {said!r:.40} is not a whole number")

"""Events of Cloud Storage from Eventarc and Pub/Sub: from a request to the ready folder."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from esclusa import EsclusaError
from esclusa.pipelines.documents.buckets import FLAG, FlagRule, is_text

FINALIZED = "google.cloud.storage.object.v1.finalized"
PUBLISHED = "google.cloud.pubsub.topic.v1.messagePublished"
DEFAULT_FLAG = FlagRule()
_DIGITS = re.compile(r"[0-9]{1,20}")


class BadEvent(EsclusaError):
    """Not an event of Cloud Storage; the message names the reason."""


@dataclass(frozen=True, slots=True)
class ReadyEvent:
    """The flag of a folder was written."""

    event_id: str
    source: str
    bucket: str
    folder_prefix: str


@dataclass(frozen=True, slots=True)
class IgnoredEvent:
    """An event that starts no folder, with the reason."""

    reason: str
    event_id: str | None = None
    bucket: str | None = None
    name: str | None = None


def read_event(
    headers: Mapping[str, str], body: bytes, flag: FlagRule = DEFAULT_FLAG
) -> ReadyEvent | IgnoredEvent:
    """Return what an event means, in any of its forms.

    A CloudEvent in binary or structured mode, or a Pub/Sub push with either of them or with a
    bucket notification inside. Raises BadEvent.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    return _read_push(lower, body, flag) or _read_cloud_event(
        *(_parse_structured(body) if _is_structured(lower) else _parse_binary(lower, body)), flag
    )


def _read_cloud_event(
    attributes: Mapping[str, Any], data: Any, flag: FlagRule
) -> ReadyEvent | IgnoredEvent:
    """Return what a CloudEvent means."""
    missing = [
        name
        for name in ("specversion", "id", "type", "source")
        if not _is_text(attributes.get(name))
    ]
    if missing:
        raise BadEvent(
            f"the event lacks {', '.join(missing)}: a CloudEvent 1.0 has ce-specversion, "
            "ce-id, ce-type and ce-source"
        )
    if attributes["specversion"] != "1.0":
        raise BadEvent(
            f"specversion {attributes['specversion']!r:.40} is not supported; use CloudEvents 1.0"
        )
    if attributes["type"] == PUBLISHED:
        return _read_message(data, flag)
    if attributes["type"] != FINALIZED:
        return IgnoredEvent(
            f"type {attributes['type']!r:.120} is not {FINALIZED}", attributes["id"]
        )
    if not isinstance(data, dict):
        raise BadEvent("the event's data is not a JSON object (the object that was finalized)")
    bucket = data.get("bucket") or attributes.get("bucket")
    return _read_object(attributes["id"], attributes["source"], data, bucket, flag)


def _read_object(
    id: str, source: str, data: dict[str, Any], bucket: Any, flag: FlagRule
) -> ReadyEvent | IgnoredEvent:
    """Return what a finalized object means."""
    name = data.get("name")
    if not isinstance(bucket, str) or not bucket or not isinstance(name, str) or not name:
        raise BadEvent(
            "the event's data names no bucket or no object: it needs 'bucket' and 'name'"
        )
    # an absolute path is a local bucket, which an event must not name
    if not _is_text(bucket) or "/" in bucket:
        raise BadEvent(f"{bucket!r:.120} is not the name of a bucket")
    if not _is_text(name):
        raise BadEvent(f"{name!r:.120} is not a valid object name")
    prefix, slash, last = name.rpartition("/")
    in_root = not slash and flag.root
    if not flag.is_name(last) or not (in_root or prefix.strip("/")):
        reason = f"{name!r:.200} is not {{folder_prefix}}/{FLAG}"
        return IgnoredEvent(reason, id, bucket, name)
    size = _size(data.get("size"))
    if size != 0 and not flag.any_size:
        reason = f"{name!r:.200} has {size} bytes; a folder's flag is empty"
        return IgnoredEvent(reason, id, bucket, name)
    return ReadyEvent(id, source, bucket, prefix)


def _is_structured(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith("application/cloudevents+json")


def _parse_structured(body: bytes) -> tuple[dict[str, Any], Any]:
    event = _parse_json(body, "the body")
    if not isinstance(event, dict):
        raise BadEvent("the body of a structured event is a JSON object")
    if "data" not in event and "data_base64" in event:
        return event, _parse_json(_decode(event["data_base64"], "data_base64"), "data_base64")
    return event, event.get("data")


def _parse_binary(headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], Any]:
    attributes: dict[str, Any] = {
        name[3:]: value for name, value in headers.items() if name.startswith("ce-")
    }
    if not attributes:
        raise BadEvent(
            "not a CloudEvent: it has neither ce-* headers (binary mode) nor Content-Type "
            "application/cloudevents+json, "
            "nor is it a Pub/Sub push (a JSON object with 'message')"
        )
    return attributes, _parse_json(body, "the body")


# Pub/Sub


def _read_push(
    headers: Mapping[str, str], body: bytes, flag: FlagRule
) -> ReadyEvent | IgnoredEvent | None:
    """Return what a Pub/Sub push means; None if the request is none.

    With wrapping the body is the envelope; without it the body is the data, and the attributes of
    the message are headers.
    """
    if _is_structured(headers) or any(name.startswith("ce-") for name in headers):
        return None
    if "eventtype" in headers:
        named = {
            name: headers.get(name.lower())
            for name in ("eventType", "payloadFormat", "bucketId", "objectId")
        }
        return _read_notification(headers.get("x-goog-pubsub-message-id"), named, body, flag)
    value = _parse_json(body, "the body")
    return _read_message(value, flag) if isinstance(value, dict) and "message" in value else None


def _read_message(envelope: Any, flag: FlagRule) -> ReadyEvent | IgnoredEvent:
    """Return what the message in an envelope means.

    It carries a CloudEvent in its attributes or data, or is a bucket notification.
    """
    message = envelope.get("message") if isinstance(envelope, dict) else None
    if not isinstance(message, dict):
        raise BadEvent("'message' of a Pub/Sub push is a JSON object")
    attributes = message.get("attributes") or {}
    if not isinstance(attributes, dict):
        raise BadEvent("'message.attributes' of a Pub/Sub push is a JSON object")
    data = _decode(message.get("data") or "", "message.data")
    lower = {str(name).lower(): str(value) for name, value in attributes.items()}
    if _is_structured(lower):
        return _read_inner_event(*_parse_structured(data), flag)
    if any(name.startswith("ce-") for name in lower):
        return _read_inner_event(*_parse_binary(lower, data), flag)
    if "eventType" not in attributes:
        return IgnoredEvent(
            "the Pub/Sub message is not an event of Cloud Storage: it has neither the "
            "attribute eventType nor ce-type"
        )
    return _read_notification(
        message.get("messageId") or message.get("message_id"), attributes, data, flag
    )


def _read_inner_event(
    attributes: Mapping[str, Any], data: Any, flag: FlagRule
) -> ReadyEvent | IgnoredEvent:
    if attributes.get("type") == PUBLISHED:
        raise BadEvent("a Pub/Sub message within a Pub/Sub message is not supported")
    return _read_cloud_event(attributes, data, flag)


def _read_notification(
    id: Any, attributes: Mapping[str, Any], data: bytes, flag: FlagRule
) -> ReadyEvent | IgnoredEvent:
    """Return what a bucket notification means; redelivered it has the same message id."""
    if attributes["eventType"] != "OBJECT_FINALIZE":
        return IgnoredEvent(f"eventType {attributes['eventType']!r:.80} is not OBJECT_FINALIZE")
    if not isinstance(id, str) or not id:
        raise BadEvent("the Pub/Sub message has no messageId")
    if attributes.get("payloadFormat") == "NONE" or not data:
        raise BadEvent(
            "the notification carries no object, so its size is unknown: set the bucket's "
            "payloadFormat to JSON_API_V1"
        )
    value = _parse_json(data, "message.data")
    if not isinstance(value, dict):
        raise BadEvent("message.data is not a JSON object (the object that was finalized)")
    bucket = value.get("bucket") or attributes.get("bucketId")
    source = f"//storage.googleapis.com/projects/_/buckets/{bucket}"
    return _read_object(id, source, value, bucket, flag)


def _decode(text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise BadEvent(f"{where} is not base64") from None


def _parse_json(text: bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"{where} is not JSON: {error}") from None


def _is_text(value: Any) -> bool:
    """Return whether it is a text that every store can hold."""
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value and is_text(value)


def _size(value: Any) -> int:
    """Return the size from its JSON form, a text or a number; 0 if missing, as in proto3."""
    if value is None:
        return 0
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        return int(value)
    raise BadEvent(f"size {value!r:.40} is not a whole number")

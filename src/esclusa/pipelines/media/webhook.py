"""Deliveries of Meta's webhook: check the signature and read the media. Nothing is stored here."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from esclusa.pipelines.media.records import Medium

# The items that are stored, and the field of each that holds the id of its medium.
_ID_FIELDS = {
    "photo": "photo_id",
    "video": "video_id",
    "share": "share_id",
    "status": "",
    "album": "album_id",
}

# The verbs that are read, and whether each changes an existing post.
_EDITED = {"add": False, "edited": True, "edit": True}

# Characters that no store can hold. Meta cuts texts, sometimes in the middle of an emoji.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_REPLACED = "\ufffd"
_LARGEST_INTEGER = 2**63 - 1


def is_signed(body: bytes, signature: str | None, secret: str) -> bool:
    """Return whether Meta signed exactly these bytes; compares in constant time."""
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(
        expected.encode(), (signature or "").encode("utf-8", "surrogateescape")
    )


def parse(body: str) -> Any:
    """Return the document of a body, with what no store can hold replaced.

    The delivery keeps the body as it came. Raises ValueError, and RecursionError for a body that is
    nested too deeply.
    """
    return _storable(json.loads(body, parse_constant=lambda _: None))


def _storable(value: Any) -> Any:
    match value:
        case str():
            return _UNSTORABLE.sub(_REPLACED, value)
        case list():
            return [_storable(item) for item in value]
        case dict():
            return {_storable(name): _storable(item) for name, item in value.items()}
    return value


def read_media(document: Any, tenants: Mapping[str, str] = {}) -> Iterator[Medium]:
    """Yield the media of a delivery and skip everything else.

    ``tenants``: the tenant of each page; that of ``*`` is for pages without one.
    Meta also sends arrays of documents, and changes directly in the entry: both are read.
    """
    for page in _dicts(document if isinstance(document, list) else [document]):
        if page.get("object") != "page":
            continue
        for entry in _dicts(page.get("entry")):
            page_id = _text(entry.get("id"))
            for change in _dicts(entry.get("changes")) or ([entry] if "value" in entry else []):
                if change.get("field") == "feed" and isinstance(change.get("value"), dict):
                    yield from _media_of(change["value"], _post(change["value"], page_id, tenants))


def _post(value: dict[str, Any], page_id: str | None, tenants: Mapping[str, str]) -> dict[str, Any]:
    """Return what the change says of its post, by column."""
    message, created = value.get("message"), value.get("created_time")
    return {
        "page_id": page_id,
        "nombre_nora": tenants.get(page_id or "", tenants.get("*")),
        "mensaje": message if isinstance(message, str) else None,
        "created_time": created if _is_integer(created) else None,
        "webhook_data": value,
    }


def _media_of(value: dict[str, Any], about: dict[str, Any]) -> Iterator[Medium]:
    item, verb, post = value.get("item"), str(value.get("verb")), _text(value.get("post_id"))
    if not isinstance(item, str) or item not in _ID_FIELDS or verb not in _EDITED or post is None:
        return
    edited, photos = _EDITED[verb], value.get("photos")
    if item in ("status", "album") and isinstance(photos, list) and photos:
        for position, url in enumerate(photos):
            yield Medium(post, str(position), item, _link(url), edited, post=about)
        return
    url = _link(value.get("link")) if item in ("photo", "video") else None
    part = _text(value.get(_ID_FIELDS[item])) or "0"
    yield Medium(post, part, item, url, edited, post=about)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _is_integer(value: Any) -> bool:
    return type(value) is int and abs(value) <= _LARGEST_INTEGER


def _link(value: Any) -> str | None:
    """Return a link as it came: if it cannot be stored or downloaded, that is an error to see."""
    return (value.strip() or None) if isinstance(value, str) else None


def _text(value: Any) -> str | None:
    """Return an id as text; it can be a number too."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value).strip()
    known = text and text.isprintable() and _REPLACED not in text and len(text) <= 8000
    return text if known else None

"""What Meta tells: the signature of a delivery, and the media in it. Pure: nothing is stored here."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any, Literal

from esclusa.model.value import value

_ITEMS = {
    "photo": "photo_id",
    "video": "video_id",
    "share": "share_id",
    "status": "",
    "album": "album_id",
}
"""The kinds of publication that are kept, and where each has the id of its medium."""

_VERBS: dict[str, Literal["add", "edited"]] = {"add": "add", "edited": "edited", "edit": "edited"}


@value
class Told:
    """One medium of one post (``url`` None: a post without media of its own)."""

    post_id: str
    part: str
    tipo_item: str
    url: str | None
    verb: Literal["add", "edited"] = "add"


def signed(body: bytes, signature: str | None, secret: str) -> bool:
    """Whether Meta signed these very bytes; the time it takes tells nothing."""
    expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(
        expected.encode(), (signature or "").encode("utf-8", "surrogateescape")
    )


def read(document: Any) -> Iterator[Told]:
    """The media in a delivery; whatever else it holds is passed over. Documents inside an array, and changes that stand in the
    entry itself, are read too: Meta sends both."""
    for each in document if isinstance(document, list) else [document]:
        if not isinstance(each, dict) or each.get("object") != "page":
            continue
        for entry in _dicts(each.get("entry")):
            for change in _dicts(entry.get("changes")) or ([entry] if "value" in entry else []):
                if change.get("field") == "feed" and isinstance(change.get("value"), dict):
                    yield from _media(change["value"])


def _media(value: dict[str, Any]) -> Iterator[Told]:
    item, verb, post = (
        value.get("item"),
        _VERBS.get(str(value.get("verb"))),
        _text(value.get("post_id")),
    )
    if not isinstance(item, str) or item not in _ITEMS or verb is None or post is None:
        return
    photos = value.get("photos")
    if item in ("status", "album") and isinstance(photos, list) and photos:
        for place, url in enumerate(photos):
            yield Told(post, str(place), item, _text(url), verb)
        return
    media_id = _text(value.get(_ITEMS[item])) if _ITEMS[item] else None
    yield Told(
        post,
        media_id or "0",
        item,
        _text(value.get("link")) if item in ("photo", "video") else None,
        verb,
    )


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    """An id or a link as text; ids come as numbers too."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value).strip()
    return text if text and "\0" not in text and text.isprintable() and len(text) <= 8000 else None

"""Answers of the services outside, read with care: bounded, in any shape, without what no database takes."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import aiohttp

MOST_BYTES = 64 << 20
DEEPEST = 60


async def text_of(answer: aiohttp.ClientResponse) -> str:
    """The body. Raises ClientPayloadError where it is larger than any that means well."""
    import aiohttp  # noqa: PLC0415 - heavy, and only needed where something is called

    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MOST_BYTES:
            raise aiohttp.ClientPayloadError(f"the answer is larger than {MOST_BYTES >> 20} MB")
    return _decoded(bytes(body), answer.charset)


def _decoded(body: bytes, charset: str | None) -> str:
    """The text in the encoding that the answer names; UTF-8 where it names none, as gateways do, or one that is no text's."""
    try:
        return body.decode(charset or "utf-8", "replace")
    except (LookupError, UnicodeError):
        return body.decode("utf-8", "replace")


def json_of(text: str) -> Any:
    """The value; None if it is no JSON. NUL characters and halves of surrogate pairs are taken out, numbers that are none and
    what is nested too deep become null: no store would take them."""
    try:
        return _clean(json.loads(text.removeprefix("\ufeff")), DEEPEST)
    except (ValueError, RecursionError):
        return None


def _clean(value: Any, depth: int) -> Any:
    match value:
        case str():
            return value.replace("\0", "").encode("utf-8", "ignore").decode()
        case float():
            return value if math.isfinite(value) else None
        case dict() | list() if not depth:
            return None
        case dict():
            return {_clean(name, depth): _clean(inner, depth - 1) for name, inner in value.items()}
        case list():
            return [_clean(inner, depth - 1) for inner in value]
        case _:
            return value

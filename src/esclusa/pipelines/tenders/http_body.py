"""Bodies of HTTP responses: bounded in size, and cleaned of what no store can hold."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import aiohttp

MAX_BYTES = 64 << 20
MAX_DEPTH = 60


async def read_text(response: aiohttp.ClientResponse) -> str:
    """Return the body as text. Raises ClientPayloadError if it is larger than ``MAX_BYTES``.

    A missing or unknown charset is read as UTF-8.
    """
    import aiohttp  # noqa: PLC0415 - slow to import, and only calls need it

    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise aiohttp.ClientPayloadError(f"the answer is larger than {MAX_BYTES >> 20} MB")
    try:
        return body.decode(response.charset or "utf-8", "replace")
    except (LookupError, UnicodeError):
        return body.decode("utf-8", "replace")


def parse_json(text: str) -> Any:
    """Return the parsed value; None if the text is not JSON.

    NUL characters and halves of surrogate pairs are removed. Numbers that are not finite and values
    nested deeper than ``MAX_DEPTH`` become null.
    """
    try:
        return _clean(json.loads(text.removeprefix("\ufeff")), MAX_DEPTH)
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

"""Signed links of Meta's CDN: when they expire, and fresh ones from the Graph API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

from esclusa import Text, Throttled
from esclusa.http import retry_after

if TYPE_CHECKING:
    import aiohttp

# The answers to a link that is dead: it expired, or the file was deleted.
DEAD = frozenset({403, 404, 410})
# Codes of the Graph API for calls that may succeed later.
_LATER = frozenset({1, 2, 4, 17, 32, 341, 368, 613})
# Seconds until the next call, if the Graph API does not say.
_LATER_SECONDS = 60.0


def expiry(link: str | None) -> datetime | None:
    """Return when a link expires, if it says so: ``oe`` (hexadecimal) or ``ext`` (decimal)."""
    if link is None or "=" not in link:
        return None
    try:
        query = parse_qs(urlsplit(link).query)
        for name, base in (("oe", 16), ("ext", 10)):
            if name in query:
                return datetime.fromtimestamp(int(query[name][0], base), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


class GraphError(Exception):
    """The Graph API has no fresh link; the message says why."""


@dataclass(frozen=True, slots=True)
class GraphApi:
    """Asks the Graph API for the present link of a medium."""

    session: aiohttp.ClientSession
    address: str
    token: str

    async def fresh_link(self, post_id: str, part: str | None, item: str | None) -> str:
        """Return a fresh link. Raises GraphError, and Throttled if it may be asked later."""
        if part is not None and part.isdecimal() and item in ("photo", "video"):
            field = "images" if item == "photo" else "source"
            found = await self._get(part, field)
            link = _largest(found.get("images")) if item == "photo" else found.get("source")
        else:
            found = await self._get(post_id, "attachments{media,subattachments},full_picture")
            link = _attached(found, int(part) if part is not None and part.isdecimal() else 0)
        if not isinstance(link, str):
            raise GraphError(Text("the Graph API has no link for it any more"))
        return link

    async def _get(self, id: str, fields: str) -> dict[str, Any]:
        address = f"{self.address.rstrip('/')}/{quote(id, safe='')}"
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self.session.get(address, params={"fields": fields}, headers=headers) as answer:
            try:
                found = await answer.json(content_type=None)
            except ValueError:
                found = None
            if answer.status == 200 and isinstance(found, dict) and "error" not in found:
                return found
            error = found.get("error") if isinstance(found, dict) else None
            error = error if isinstance(error, dict) else {}
            words = str(error.get("message", ""))[:250]
            why = Text("the Graph API answered {code}: {words}", code=answer.status, words=words)
            if error.get("code") in _LATER or answer.status in (429, 500, 502, 503, 504):
                after = retry_after(answer.headers, datetime.now(UTC).timestamp())
                later = _LATER_SECONDS if after is None else after
                raise Throttled(why, after=later, stage=False)  # links that work are downloaded
            raise GraphError(why)


def _largest(images: Any) -> Any:
    found = [image for image in images or () if isinstance(image, dict) and image.get("source")]
    best = max(found, key=lambda i: (i.get("width") or 0) * (i.get("height") or 0), default={})
    return best.get("source")


def _attached(post: dict[str, Any], position: int) -> Any:
    """Return the link of the post's picture at this position, or of the whole post."""
    attached = _data(post.get("attachments"))
    pictures = [sub for each in attached for sub in _data(each.get("subattachments"))] or attached
    links = [_media_link(each.get("media")) for each in pictures]
    if position < len(links) and links[position]:
        return links[position]
    return post.get("full_picture") if position == 0 else None


def _data(found: Any) -> list[dict[str, Any]]:
    items = found.get("data") if isinstance(found, dict) else None
    return [item for item in items or () if isinstance(item, dict)]


def _media_link(media: Any) -> Any:
    if not isinstance(media, dict):
        return None
    image = media.get("image")
    return media.get("source") or (image.get("src") if isinstance(image, dict) else None)

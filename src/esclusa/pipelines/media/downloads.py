"""The one stage: fetch the link, judge what came, keep it."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from esclusa import Attempt, Permanent, To, segment
from esclusa.http import Forbidden, TooLarge
from esclusa.http import download as fetch
from esclusa.pipelines.media.records import Publication
from esclusa.pipelines.media.settings import MediaSettings
from esclusa.pipelines.media.sniff import MediaType, media_type

FOLDER = "media"
LONGEST = 240
"""Letters of both ids in a file's name, which has room for 255; if they are more, the post's is a hash."""


class _Judge:
    """Sees the first bytes of a body; raises if it is neither picture nor film."""

    def __init__(self) -> None:
        self.found = MediaType("", "")

    def __call__(self, head: bytes) -> None:
        if not head:
            raise invalid("the body is empty")
        found = media_type(head)
        if found is None:
            raise invalid(f"the body is neither a picture nor a film; it begins with {head[:16]!r}")
        self.found = found


def invalid(why: str) -> Permanent:
    """Final at once: trying again would not make it media."""
    return Permanent(why, type="invalid_media")


def path_of(pub: Publication, extension: str) -> str:
    """One object per row. The last ``-`` parts the row's id from the post's, so that no two rows ever share a name."""
    id, post = segment(pub.id), segment(pub.post_id or "").replace("-", "%2D")
    if len(id) + len(post) > LONGEST:
        post = f"%~{hashlib.sha256(post.encode()).hexdigest()[:40]}"
    return f"{FOLDER}/{id}-{post}{extension}"


async def download(pub: Publication, at: Attempt) -> To:
    """A file behind the row's link becomes an object of its own; the row gets its public address."""
    settings: MediaSettings = at.settings
    assert pub.imagen_url is not None  # the stage takes no others
    at.log(
        f"downloading {pub.tipo_item or 'media'} of post {pub.post_id} (attempt {at.number}/{at.tries})"
    )
    judge = _Judge()
    limits: dict[str, Any] = {
        "limit": settings.max_bytes,
        "total": settings.timeout_seconds,
        "redirects": settings.max_redirects,
    }
    try:
        async with fetch(at.context, pub.imagen_url, look=judge, **limits) as got:
            path = path_of(pub, judge.found.extension)
            keep = (
                at.keep if pub.imagen_local is None else at.artifacts.put
            )  # what it had goes once the new one is safe
            address = await keep(path, got.body, content_type=judge.found.mime)
    except (Forbidden, TooLarge) as error:
        raise invalid(str(error)) from None
    await _forget_older(pub, at, address)
    return To("success", imagen_local=address)


async def _forget_older(pub: Publication, at: Attempt, address: str) -> None:
    """A row that had a file of another type before keeps only the new one."""
    if pub.imagen_local is None or pub.imagen_local == address:
        return
    extension = re.search(r"\.[a-z0-9]{2,4}\Z", pub.imagen_local)
    older = path_of(pub, extension[0]) if extension else None
    if older is not None and at.artifacts.public_url(older) == pub.imagen_local:
        await at.artifacts.delete(older)


def letter(pub: Publication) -> dict[str, Any]:
    """What a dead letter says: enough to find the post. The link is left out, for it is signed."""
    return {"id": pub.id, "post_id": pub.post_id, "tipo_item": pub.tipo_item}

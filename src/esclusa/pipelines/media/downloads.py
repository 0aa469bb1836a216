"""The stage ``download``: fetch the link of a publication, check the file and store it."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from esclusa import Attempt, Permanent, To, segment
from esclusa.http import ForbiddenAddress, TooLarge
from esclusa.http import download as fetch
from esclusa.pipelines.media.media_types import MediaType, media_type
from esclusa.pipelines.media.records import Publication
from esclusa.pipelines.media.settings import MediaSettings

FOLDER = "media"
# Characters of both ids in a file name, which is limited to 255; a longer post id is hashed.
MAX_NAME = 240


def checked_type(head: bytes) -> MediaType:
    """Return the type of a body by its first bytes; raise unless it is an image or a video."""
    if not head:
        raise invalid_media("the body is empty")
    if (found := media_type(head)) is None:
        raise invalid_media(
            f"the body is neither an image nor a video; it begins with {head[:16]!r}"
        )
    return found


def invalid_media(message: str) -> Permanent:
    """Return an error that is final at once: another attempt gives the same body."""
    return Permanent(message, type="invalid_media")


def object_path(publication: Publication, extension: str) -> str:
    """Return the path of the row's object, which no other row has.

    The last ``-`` separates the row's id from the post's.
    """
    id = segment(publication.id)
    post = segment(publication.post_id or "").replace("-", "%2D")
    if len(id) + len(post) > MAX_NAME:
        post = f"%~{hashlib.sha256(post.encode()).hexdigest()[:40]}"
    return f"{FOLDER}/{id}-{post}{extension}"


async def download(publication: Publication, at: Attempt) -> To:
    """Store the file behind the row's link and set its public address."""
    settings: MediaSettings = at.settings
    assert publication.imagen_url is not None  # the stage takes no other rows
    at.log(
        f"downloading {publication.tipo_item or 'media'} of post {publication.post_id}"
        f" (attempt {at.number}/{at.tries})"
    )
    try:
        async with fetch(
            at.context,
            publication.imagen_url,
            inspect=checked_type,
            limit=settings.max_bytes,
            total=settings.timeout_seconds,
            redirects=settings.max_redirects,
        ) as got:
            kind = checked_type(got.head)
            # `put` is durable at once: a previous file is deleted before this settlement is.
            store = at.keep if publication.imagen_local is None else at.artifacts.put
            path = object_path(publication, kind.extension)
            address = await store(path, got.body, content_type=kind.mime)
    except (ForbiddenAddress, TooLarge) as error:
        raise invalid_media(str(error)) from None
    await _delete_previous(publication, at, address)
    return To("success", imagen_local=address)


async def _delete_previous(publication: Publication, at: Attempt, address: str) -> None:
    """Delete the row's earlier file if it had another type, and so another name."""
    if publication.imagen_local is None or publication.imagen_local == address:
        return
    extension = re.search(r"\.[a-z0-9]{2,4}\Z", publication.imagen_local)
    previous = object_path(publication, extension[0]) if extension else None
    if previous is not None and at.artifacts.public_url(previous) == publication.imagen_local:
        await at.artifacts.delete(previous)


def dead_letter(publication: Publication) -> dict[str, Any]:
    """Return the fields of a dead letter: enough to find the post. The signed link is left out."""
    return {
        "id": publication.id,
        "post_id": publication.post_id,
        "tipo_item": publication.tipo_item,
    }

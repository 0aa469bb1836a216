"""The stages ``download`` and ``pictures``: fetch a link, check the file and store it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from esclusa import (
    Attempt,
    Create,
    Effect,
    Permanent,
    RunContext,
    Text,
    To,
    at_most,
    null,
    one_of,
)
from esclusa.http import BadResponse, Download, ForbiddenAddress, SafeSession, TooLarge
from esclusa.http import download as fetch
from esclusa.pipelines.media import deliveries
from esclusa.pipelines.media.links import DEAD, GraphApi, GraphError, expiry
from esclusa.pipelines.media.media_types import MediaType, media_type
from esclusa.pipelines.media.paths import DEFAULT_PATH, object_path
from esclusa.pipelines.media.records import FurtherPicture, MediaFile, MediaNotice, Publication
from esclusa.pipelines.media.settings import MediaSettings

# Links that expire within this time are downloaded before others, the soonest first.
URGENT = timedelta(days=1)
# How many due rows a run looks at to find such links, a page at a time.
LOOKED_AT, PAGE = 2000, 500


@dataclass(frozen=True, slots=True)
class MediaContext:
    """What stays open while the process runs: the session of the downloads, the Graph API."""

    session: SafeSession
    graph: GraphApi | None


def checked_type(head: bytes) -> MediaType:
    """Return the type of a body by its first bytes; raise unless it is an image or a video."""
    if not head:
        raise invalid_media(Text("the body is empty"))
    if (found := media_type(head)) is None:
        raise invalid_media(
            Text(
                "the body is neither an image nor a video; it begins with {begin}",
                begin=repr(head[:16]),
            )
        )
    return found


def invalid_media(message: str) -> Permanent:
    """Return an error that is final at once: another attempt gives the same body."""
    return Permanent(message, type="invalid_media")


def named(row: Publication | FurtherPicture) -> str:
    """Return what log lines call a row."""
    return f"post {row.post_id}"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the artifact store."""

    path: str
    address: str
    mime: str
    size: int
    sha256: str | None


async def download(publication: Publication, at: Attempt) -> To:
    """Store the file behind the row's link and set its public address."""
    # Not `at.log`: the record's history has this attempt already.
    at.run.log(
        f"downloading {publication.tipo_item or 'media'} of post {publication.post_id}"
        f" (attempt {at.number}/{at.tries})",
        record=publication.id,
    )
    if _is_done(publication, at):
        return To("success", reason="its file was there")
    file = await _existing(publication, at) or await _stored(publication, at)
    lacks = Publication.kind.lacks
    fields, also = _fields(file, at, lacks), tuple[Effect, ...]()
    if "media_sha256" in lacks and file.sha256 is not None:
        also = (Create(_proof(publication, file)),)
    return To("success", also=also, **{n: v for n, v in fields.items() if n not in lacks})


async def download_picture(picture: FurtherPicture, at: Attempt) -> To:
    """Store a further picture of a post."""
    file = await _stored(picture, at)
    return To(
        "success",
        imagen_local=file.address,
        media_sha256=file.sha256,
        media_size=file.size,
        media_type=file.mime,
    )


def _fields(file: StoredFile, at: Attempt, lacks: frozenset[str]) -> dict[str, Any]:
    """Return the columns of a success. A video leaves ``imagen_local`` where it has its own."""
    now, address = at.now, file.address
    fields: dict[str, Any] = {"imagen_local": address, "imagen_descargada_en": now}
    if file.mime.startswith("video/") and "video_local" not in lacks:
        fields = {
            "video_local": address,
            "video_url_public": address,
            "video_storage_path": file.path,
            "video_descargado_en": now,
        }
    fields |= {"procesada": True, "procesada_en": now, "media_type": file.mime}
    return fields | {"media_size": file.size, "media_sha256": file.sha256}


def _proof(publication: Publication, file: StoredFile) -> MediaFile:
    assert file.sha256 is not None
    return MediaFile(
        publication=publication.id,
        sha256=file.sha256,
        size=file.size,
        type=file.mime,
        path=file.path,
        address=file.address,
    )


async def _stored(row: Publication | FurtherPicture, at: Attempt) -> StoredFile:
    """Download the link and store the file. If the link is dead, ask for a fresh one first."""
    assert row.imagen_url is not None  # the stages take no other rows
    try:
        return await _stored_from(row.imagen_url, row, at)
    except BadResponse as error:
        if error.status not in DEAD or (fresh := await _fresh_link(row, at)) is None:
            raise
    return await _stored_from(fresh, row, at)


async def _fresh_link(row: Publication | FurtherPicture, at: Attempt) -> str | None:
    context: MediaContext = at.context
    if context.graph is None or row.post_id is None:
        return None
    try:
        part = row.part if isinstance(row, FurtherPicture) else await _part(row, at)
        link = await context.graph.fresh_link(row.post_id, part, row.tipo_item)
    except GraphError as error:
        at.log(f"no fresh link for post {row.post_id}: {error}", level="warning")
        return None
    at.log(f"fresh link for post {row.post_id}")
    return None if link == row.imagen_url else link


async def _part(publication: Publication, at: Attempt) -> str | None:
    """Return the id of the row's medium, as its delivery named it."""
    data = publication.webhook_data
    if isinstance(data, dict):
        for name in ("photo_id", "video_id"):
            if data.get(name):
                return str(data[name])
    where = {"post_id": publication.post_id, "imagen_url": publication.imagen_url}
    notice = await at.records.first(MediaNotice, where)
    return notice.part if notice is not None else None


async def _stored_from(link: str, row: Publication | FurtherPicture, at: Attempt) -> StoredFile:
    settings: MediaSettings = at.settings
    context: MediaContext = at.context
    try:
        async with fetch(
            context.session,
            link,
            inspect=checked_type,
            limit=settings.max_bytes,
            total=settings.timeout_seconds,
            redirects=settings.max_redirects,
        ) as got:
            return await _keep(got, row, at)
    except (ForbiddenAddress, TooLarge) as error:
        raise invalid_media(str(error)) from None
    except BadResponse as error:
        if error.after is not None:  # Retry-After can lengthen the wait, not shorten it
            error.after = max(error.after, settings.backoff_after(at.number))
        raise


async def _keep(got: Download, row: Publication | FurtherPicture, at: Attempt) -> StoredFile:
    settings: MediaSettings = at.settings
    kind = checked_type(got.head)
    path = object_path(row, kind.extension, settings.path)
    # `put` is durable at once: a previous file is deleted before this settlement is.
    before = row.imagen_local
    store = at.keep if before is None else at.artifacts.put
    address = await store(path, got.body, content_type=kind.mime)
    if before is not None and before != address:
        await _delete_previous(row, before, at)
    return StoredFile(path, address, kind.mime, got.size, got.sha256)


async def _delete_previous(row: Publication | FurtherPicture, before: str, at: Attempt) -> None:
    """Delete the row's earlier file if it had another type, and so another name.

    Only a file that this pipeline has stored: under the team's own pattern it may be theirs.
    """
    settings: MediaSettings = at.settings
    extension = re.search(r"\.[a-z0-9]{2,4}\Z", before)
    if extension is None or settings.path != DEFAULT_PATH:
        return
    previous = object_path(row, extension[0], settings.path)
    if at.artifacts.public_url(previous) == before:
        await at.artifacts.delete(previous)


def _is_done(publication: Publication, at: Attempt) -> bool:
    """Whether a row without a state has its file in the team's storage."""
    settings: MediaSettings = at.settings
    files = [each for each in (publication.imagen_local, publication.video_local) if each]
    return at.number == 1 and any(file.startswith(settings.storage) for file in files)


async def _existing(publication: Publication, at: Attempt) -> StoredFile | None:
    """Return the row's file if the team's program has stored it already.

    Under a pattern of the team, a row may only have lost its state.
    """
    settings: MediaSettings = at.settings
    if settings.path == DEFAULT_PATH or at.number > 1:
        return None
    types = _VIDEOS if publication.tipo_item == "video" else _PICTURES
    paths = [object_path(publication, extension, settings.path) for extension in types]
    answers = await asyncio.gather(*map(at.artifacts.info, paths))
    for path, mime, found in zip(paths, types.values(), answers, strict=True):
        if found is not None and found.size > 0:
            at.log(f"post {publication.post_id} has its file already: {path}")
            return StoredFile(path, at.artifacts.public_url(path), mime, found.size, None)
    return None


# The types of the team's files, by extension.
_PICTURES = {".jpg": "image/jpeg", ".png": "image/png", ".webp": "image/webp"}
_VIDEOS = {".mp4": "video/mp4"}


async def run_downloads(run: RunContext) -> None:
    """Download what is due; links that expire soon come first. Then delete old deliveries."""
    settings: MediaSettings = run.settings
    urgent = await _urgent(run, settings)
    for start in range(0, len(urgent), settings.concurrency):
        ids = urgent[start : start + settings.concurrency]
        if not run.stopping:
            await run.drain("download", where={"id": one_of(*ids)})
    for stage in ("download", "pictures"):
        if not run.stopping:
            await run.drain(stage)
    await deliveries.prune(run)


async def _urgent(run: RunContext, settings: MediaSettings) -> list[str]:
    """Return the ids of due rows whose links expire soon, the soonest first.

    The rows that were added first are looked at first. A page without such a link ends the look:
    what follows was added later, and expires later.
    """
    found: list[tuple[datetime, str]] = []
    for due in (null, at_most(run.now)):
        where, after = {"status": "pending", "due_at": due, **settings.where}, None
        for _ in range(LOOKED_AT // PAGE):
            page = await run.records.find(Publication, where, limit=PAGE, after=after)
            soon = [(expires, row.id) for row in page.items if (expires := _expires(row, run.now))]
            found += soon
            after = page.next
            if after is None or not soon:
                break
    return [id for _, id in sorted(found)]


def _expires(row: Publication, now: datetime) -> datetime | None:
    """Return when the row's link expires, if that is soon."""
    expires = expiry(row.imagen_url)
    return expires if expires is not None and now < expires <= now + URGENT else None


def dead_letter(row: Publication | FurtherPicture) -> dict[str, Any]:
    """Return the fields of a dead letter: enough to find the post. The signed link is left out."""
    return {"id": row.id, "post_id": row.post_id, "tipo_item": row.tipo_item}

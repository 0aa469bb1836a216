"""Store new publications from the webhook and from files, each medium of a post once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from esclusa import BadRecord, EsclusaError, Record, RecordWithChildren, one_of
from esclusa.imports import ImportedRow, ImportReport
from esclusa.pipelines.media.records import (
    REACTIONS,
    WAITING,
    FurtherPicture,
    MediaNotice,
    Medium,
    Publication,
)

# Columns of the post that a file may have too.
ABOUT = ("page_id", "nombre_nora", "mensaje")
COLUMNS = ("post_id", "tipo_item", "imagen_url", "imagen_local", "media_id", *ABOUT)
# Prefix of a part that is derived from the link because the row has no media id.
BY_LINK = "url:"
CHUNK = 500
CONCURRENT_EDITS = 16


class InvalidMediaRow(EsclusaError):
    """A row that cannot be imported; the message names every fault."""


class Publications:
    """Adds and edits publications in the name of ``who``.

    A row that another program wrote for the same post and link counts as a duplicate.
    """

    def __init__(self, records: Any, who: str) -> None:
        self._records = records
        self._who = who

    async def receive(self, media: Iterable[Medium]) -> dict[str, Any]:
        """Store a delivery; return the counts, and the fault of each medium the table refuses."""
        report = ImportReport()
        numbered = dict(enumerate(media, 1))
        await self._add({n: m for n, m in numbered.items() if not m.edited}, report)
        updated = await self._edit_all({n: m for n, m in numbered.items() if m.edited}, report)
        report.errors.sort(key=lambda error: error["row"])
        counts = {"created": report.created, "updated": updated, "known": report.known}
        return counts | ({"errors": report.errors} if report.errors else {})

    async def import_rows(self, rows: Iterable[ImportedRow]) -> ImportReport:
        """Store the rows of a file in chunks; the report has the fault of each invalid row."""
        report = ImportReport()
        chunk: dict[int, Medium] = {}
        for row in rows:
            try:
                chunk[row.number] = read_row(row)
            except InvalidMediaRow as error:
                report.refuse(row.number, str(error))
            if len(chunk) >= CHUNK:
                await self._add(chunk, report)
                chunk.clear()
        await self._add(chunk, report)
        report.errors.sort(key=lambda error: error["row"])
        return report

    async def _add(self, media: Mapping[int, Medium], report: ImportReport) -> None:
        """Insert a notice and a publication for each new medium, in one transaction each."""
        rows = await self._rows([medium.post_id for medium in media.values()])
        fresh = [
            (number, medium)
            for number, medium in media.items()
            if not any(row.imagen_url == medium.url for row in rows.get(medium.post_id, ()))
        ]
        report.known += len(media) - len(fresh)
        for start in range(0, len(fresh), CHUNK):
            await self._insert_parts(fresh[start : start + CHUNK], report)

    async def _insert_parts(self, media: list[tuple[int, Medium]], report: ImportReport) -> None:
        """Insert them; if the table refuses one, halve them to find it."""
        try:
            await self._insert([medium for _, medium in media], report)
        except BadRecord as error:
            if len(media) > 1:
                middle = len(media) // 2
                await self._insert_parts(media[:middle], report)
                await self._insert_parts(media[middle:], report)
            else:
                await self._insert_beside(*media[0], error, report)

    async def _insert_beside(
        self, number: int, medium: Medium, error: BadRecord, report: ImportReport
    ) -> None:
        """Store a medium that the table refuses beside the row of its post, or report why not."""
        try:
            result = await self._add_beside(medium)
        except BadRecord as other:
            report.refuse(number, _first_line(other))
            return
        if result is None:
            report.refuse(number, _first_line(error))
        report.created += result == "created"
        report.known += result == "known"

    async def _add_beside(self, medium: Medium) -> Literal["created", "known"] | None:
        """Store a medium that the table refuses because it takes one row per post.

        The first medium belongs to the row, which another program may have written. Further ones
        are pictures beside it, and so are all media if the row is that of a comment. Return None if
        the post has no row: it was refused for itself.
        """
        rows = (await self._rows([medium.post_id])).get(medium.post_id, [])
        if not rows or medium.imagen_local is not None:
            return None
        notices = (await self._notices([medium.post_id])).get(medium.post_id, {})
        taken = bool(notices) or rows[0].tipo_item in REACTIONS
        if taken and medium.part not in notices and medium.url is not None:
            [children] = await self._records.insert_if_new(
                [RecordWithChildren(medium.notice(), [medium.picture()])]
            )
            return "known" if children is None else "created"
        if rows[0].imagen_url is None and medium.url is not None and not taken:
            await self._set_row_link(rows[0], medium.url)
        await self._records.insert_if_new([RecordWithChildren(medium.notice(), [])])
        return "known"

    async def _insert(self, media: list[Medium], report: ImportReport) -> None:
        inserted = await self._records.insert_if_new(
            [RecordWithChildren(medium.notice(), [medium.publication()]) for medium in media]
        )
        created = sum(children is not None for children in inserted)
        report.created += created
        report.known += len(media) - created

    async def _rows(self, posts: Iterable[str]) -> dict[str, list[Publication]]:
        """Return the existing rows of these posts, by post."""
        found: dict[str, list[Publication]] = {}
        async for row in self._of_posts(Publication, posts):
            found.setdefault(row.post_id, []).append(row)
        return found

    async def _notices(self, posts: Iterable[str]) -> dict[str, dict[str, MediaNotice]]:
        """Return the notices of these posts, by post and part."""
        found: dict[str, dict[str, MediaNotice]] = {}
        async for notice in self._of_posts(MediaNotice, posts):
            found.setdefault(notice.post_id, {})[notice.part] = notice
        return found

    async def _of_posts(self, kind: type[Record], posts: Iterable[str]) -> AsyncIterator[Any]:
        wanted = list(dict.fromkeys(posts))
        for start in range(0, len(wanted), CHUNK):
            part = one_of(*wanted[start : start + CHUNK])
            async for record in self._records.each(kind, {"post_id": part}):
                yield record

    async def _edit_all(self, edits: Mapping[int, Medium], report: ImportReport) -> int:
        """Apply the edits, those of one post in order; return how many rows got a new link."""
        edits_of: dict[str, list[tuple[int, Medium]]] = {}
        for number, medium in edits.items():
            edits_of.setdefault(medium.post_id, []).append((number, medium))
        posts = list(edits_of)
        rows, notices = await self._rows(posts), await self._notices(posts)
        for found in rows.values():
            found[:] = [row for row in found if row.tipo_item not in REACTIONS]
        updated = 0

        async def edit(post: str) -> None:
            nonlocal updated
            for number, medium in edits_of[post]:
                try:
                    result = await self._edit(
                        medium, rows.get(post, []), notices.setdefault(post, {})
                    )
                except BadRecord as error:
                    report.refuse(number, _first_line(error))
                    continue
                report.created += result == "created"
                updated += result == "updated"
                report.known += result == "known"

        for start in range(0, len(posts), CONCURRENT_EDITS):
            await asyncio.gather(*map(edit, posts[start : start + CONCURRENT_EDITS]))
        return updated

    async def _edit(
        self, medium: Medium, rows: list[Publication], notices: dict[str, MediaNotice]
    ) -> Literal["created", "updated", "known"]:
        """Give the row of this medium its new link, if its file is not downloaded yet.

        A medium that is new to a known post becomes a row. An unknown post is skipped, and so is a
        medium that could belong to several rows. ``rows`` and ``notices`` are those of the post,
        and are updated in place. Repeating the edit after a crash between the two writes gives the
        same result.
        """
        notice = notices.get(medium.part)
        if medium.url is None or not (rows or notice):
            return "known"
        if any(row.imagen_url == medium.url for row in rows):
            if notice is not None and all(row.imagen_url != notice.imagen_url for row in rows):
                await self._set_link(notice, medium.url)
            return "known"
        if notice is not None:
            row = next((row for row in rows if row.imagen_url == notice.imagen_url), None)
        else:
            identified = {n.imagen_url for n in notices.values() if not n.part.startswith(BY_LINK)}
            free = [row for row in rows if row.imagen_url not in identified]
            if not free:
                return await self._add_to_post(medium, rows, notices)
            row = free[0] if len(rows) == 1 else None
        if row is None:
            return "updated" if await self._edit_picture(medium, notice) else "known"
        changed = await self._set_row_link(row, medium.url)
        if changed:
            row.imagen_url = medium.url
        if notice is None:  # another program's row: the notice links it to this medium from now on
            notice = MediaNotice(
                post_id=medium.post_id, part=medium.part, imagen_url=row.imagen_url
            )
            notices[medium.part] = notice
            await self._records.insert_if_new([RecordWithChildren(notice, [])])
        elif changed:
            await self._set_link(notice, medium.url)
        return "updated" if changed else "known"

    async def _set_row_link(self, row: Publication, url: str) -> bool:
        """Give a row without a file its new link. It is tried anew, unless the row is in error."""
        change = {"who": self._who, "reason": "the webhook sent a new link", "imagen_url": url}
        edit = self._records.edit
        if await edit(Publication, row.id, among=WAITING, to="pending", attempts=0, **change):
            return True
        return bool(await edit(Publication, row.id, among=("error",), **change))

    async def _edit_picture(self, medium: Medium, notice: MediaNotice | None) -> bool:
        """Give a further picture of a post its new link."""
        if notice is None or medium.url is None:
            return False
        changed = await self._records.edit(
            FurtherPicture,
            FurtherPicture.kind.id_of(medium.post_id, medium.part),
            among=WAITING,
            to="pending",
            attempts=0,
            who=self._who,
            reason="the webhook sent a new link",
            imagen_url=medium.url,
        )
        if changed:
            await self._set_link(notice, medium.url)
        return bool(changed)

    async def _add_to_post(
        self, medium: Medium, rows: list[Publication], notices: dict[str, MediaNotice]
    ) -> Literal["created", "known"]:
        notice = medium.notice()
        try:
            [children] = await self._records.insert_if_new(
                [RecordWithChildren(notice, [medium.publication()])]
            )
        except BadRecord:
            if (result := await self._add_beside(medium)) is None:
                raise
            notices[medium.part] = notice
            return result
        rows[:] = (await self._rows([medium.post_id])).get(medium.post_id, [])
        notices[medium.part] = notice
        return "known" if children is None else "created"

    async def _set_link(self, notice: MediaNotice, url: str) -> None:
        await self._records.edit(
            MediaNotice,
            MediaNotice.kind.id_of(notice.post_id, notice.part),
            among=("received",),
            who=self._who,
            reason="edited",
            imagen_url=url,
        )
        notice.imagen_url = url


def _first_line(error: BadRecord) -> str:
    """Return the first line of the error: the rest may show the row with its signed link."""
    return str(error).partition("\n")[0]


def read_row(row: ImportedRow) -> Medium:
    """Return the medium of a row; raise InvalidMediaRow with all of its faults."""
    if row.values is None:
        raise InvalidMediaRow(row.fault or "it cannot be read")
    values = {name: _text(value) for name, value in row.values.items()}
    faults = [
        f"{name}: there is no such column; the columns are {', '.join(COLUMNS)}"
        for name in values
        if name not in COLUMNS
    ]
    faults += [
        f"{name}: it must be text"
        + (" without line breaks or control characters" if isinstance(value, str) else "")
        for name, value in row.values.items()
        if value is not None and values[name] is None and value != ""
    ]
    post, url = values.get("post_id"), values.get("imagen_url")
    if post is None and not any(fault.startswith("post_id: ") for fault in faults):
        faults.append("post_id: it is missing")
    if url is not None and (fault := _link_fault(url)) is not None:
        faults.append(f"imagen_url: {fault}")
    if faults:
        raise InvalidMediaRow("; ".join(faults))
    assert post is not None
    part = values.get("media_id") or (
        "0" if url is None else f"{BY_LINK}{hashlib.sha256(url.encode()).hexdigest()[:32]}"
    )
    return Medium(
        post,
        part,
        values.get("tipo_item"),
        url,
        imagen_local=values.get("imagen_local"),
        post={name: values[name] for name in ABOUT if values.get(name) is not None},
    )


def _link_fault(url: str) -> str | None:
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        return f"it is not an address: {error}"
    fault = f"it must begin with http:// or https://, not {url[:40]!r}"
    return None if scheme in ("http", "https") else fault


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value).strip()
    return text if text and text.isprintable() else None

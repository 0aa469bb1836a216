"""New publications: from the webhook and from files, each medium of a post once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from esclusa import BadRecord, EsclusaError, Record, RecordWithChildren, one_of
from esclusa.imports import Report, Row
from esclusa.pipelines.media.records import OPEN, Notice, Publication
from esclusa.pipelines.media.webhook import Told

COLUMNS = ("post_id", "tipo_item", "imagen_url", "imagen_local", "media_id")
CHUNK = 500
AT_ONCE = 16
BY_LINK = "url:"
"""The beginning of a part that says a link, not which medium of the post it is."""


class BadRow(EsclusaError):
    """A row of a file that does not fit."""


class Entry(NamedTuple):
    """What is to be kept, and which of the rows or media that came it is, counted from 1."""

    number: int
    told: Told
    draft: Publication


class Intake:
    """Keeps what is told. A row that another program wrote for the same post and link counts as told."""

    def __init__(self, records: Any, who: str) -> None:
        self._records = records
        self._who = who

    async def take(self, told: Sequence[Told]) -> dict[str, Any]:
        """Keep a delivery; how many rows are new, changed, known, and the fault of each medium that the table cannot hold."""
        report = Report()
        drafts = [
            Entry(
                number, t, Publication(post_id=t.post_id, tipo_item=t.tipo_item, imagen_url=t.url)
            )
            for number, t in enumerate(told, 1)
            if t.verb == "add"
        ]
        await self._keep(drafts, report)
        updated = await self._edit_all(
            [(number, t) for number, t in enumerate(told, 1) if t.verb == "edited"], report
        )
        report.errors.sort(key=lambda error: error["row"])
        counts = {"created": report.created, "updated": updated, "known": report.known}
        return counts | ({"errors": report.errors} if report.errors else {})

    async def read(self, rows: Iterable[Row]) -> Report:
        """Keep the rows of a file; the report says what became of each. Bounded memory."""
        report, chunk = Report(), list[Entry]()
        for row in rows:
            try:
                chunk.append(_row(row))
            except BadRow as error:
                report.refuse(row.number, str(error))
            if len(chunk) >= CHUNK:
                await self._keep(chunk, report)
                chunk.clear()
        await self._keep(chunk, report)
        report.errors.sort(key=lambda error: error["row"])
        return report

    async def _keep(self, entries: list[Entry], report: Report) -> None:
        """Add a row for each and the note that it was told, together, unless it was told before."""
        rows = await self._rows([entry.told.post_id for entry in entries])
        fresh = [
            e
            for e in entries
            if not any(row.imagen_url == e.told.url for row in rows.get(e.told.post_id, ()))
        ]
        report.known += len(entries) - len(fresh)
        for start in range(0, len(fresh), CHUNK):
            chunk = fresh[start : start + CHUNK]
            try:
                await self._add(chunk, report)
            except BadRecord:  # the table cannot hold one of them, and holds the others
                for entry in chunk:
                    try:
                        await self._add([entry], report)
                    except BadRecord as error:
                        report.refuse(entry.number, _plain(error))

    async def _rows(self, posts: Iterable[str]) -> dict[str, list[Publication]]:
        """The rows of these posts that are there already, by post."""
        found: dict[str, list[Publication]] = {}
        async for row in self._of(Publication, posts):
            found.setdefault(row.post_id, []).append(row)
        return found

    async def _notices(self, posts: Iterable[str]) -> dict[str, dict[str, Notice]]:
        """What was told of these posts, by post and part."""
        found: dict[str, dict[str, Notice]] = {}
        async for notice in self._of(Notice, posts):
            found.setdefault(notice.post_id, {})[notice.part] = notice
        return found

    async def _of(self, kind: type[Record], posts: Iterable[str]) -> AsyncIterator[Any]:
        wanted = list(dict.fromkeys(posts))
        for start in range(0, len(wanted), CHUNK):
            async for record in self._records.each(
                kind, {"post_id": one_of(*wanted[start : start + CHUNK])}
            ):
                yield record

    async def _add(self, entries: list[Entry], report: Report) -> None:
        told = [Notice(post_id=t.post_id, part=t.part, imagen_url=t.url) for _, t, _ in entries]
        made = await self._records.insert_if_new(
            [RecordWithChildren(notice, [e.draft]) for notice, e in zip(told, entries, strict=True)]
        )
        new = sum(each is not None for each in made)
        report.created += new
        report.known += len(entries) - new

    async def _edit_all(self, edits: list[tuple[int, Told]], report: Report) -> int:
        """Make these edits, those of a post in their order; how many rows have a new link."""
        posts = list(dict.fromkeys(t.post_id for _, t in edits))
        rows, notices = await self._rows(posts), await self._notices(posts)
        updated = 0

        async def edit(post: str) -> None:
            nonlocal updated
            for number, told in edits_of[post]:
                try:
                    became = await self._edit(
                        told, rows.get(post, []), notices.setdefault(post, {})
                    )
                except BadRecord as error:
                    report.refuse(number, _plain(error))
                    continue
                report.created += became == "created"
                updated += became == "updated"
                report.known += became == "known"

        edits_of: dict[str, list[tuple[int, Told]]] = {post: [] for post in posts}
        for number, told in edits:
            edits_of[told.post_id].append((number, told))
        for start in range(0, len(posts), AT_ONCE):
            await asyncio.gather(*map(edit, posts[start : start + AT_ONCE]))
        return updated

    async def _edit(
        self, told: Told, rows: list[Publication], notices: dict[str, Notice]
    ) -> Literal["created", "updated", "known"]:
        """Give the row of this medium its new link, if it has no file yet; a medium that the post did not have becomes a row. Of
        several rows that nobody told apart none is touched, nor is a post that is not known. ``rows`` and ``notices`` are the
        post's, and are kept as they become. Made again after a crash between the two writes, it comes to the same."""
        notice = notices.get(told.part)
        if told.url is None or not rows:
            return "known"
        if any(row.imagen_url == told.url for row in rows):
            if notice is not None and all(row.imagen_url != notice.imagen_url for row in rows):
                await self._renote(notice, told.url)
            return "known"
        if notice is not None:
            row = next((row for row in rows if row.imagen_url == notice.imagen_url), None)
        else:
            others = {
                each.imagen_url for each in notices.values() if not each.part.startswith(BY_LINK)
            }
            free = [row for row in rows if row.imagen_url not in others]
            if not free:
                return await self._grow(told, rows, notices)
            row = free[0] if len(rows) == 1 else None
        if row is None:
            return "known"
        reason = "the webhook told a new link"
        changed = await self._records.edit(
            Publication, row.id, among=OPEN, who=self._who, reason=reason, imagen_url=told.url
        )
        if changed:
            row.imagen_url = told.url
        if notice is None:  # another program's row: from now on it is known whose it is
            notices[told.part] = Notice(
                post_id=told.post_id, part=told.part, imagen_url=row.imagen_url
            )
            await self._records.insert_if_new([RecordWithChildren(notices[told.part], [])])
        elif changed:
            await self._renote(notice, told.url)
        return "updated" if changed else "known"

    async def _grow(
        self, told: Told, rows: list[Publication], notices: dict[str, Notice]
    ) -> Literal["created", "known"]:
        draft = Publication(post_id=told.post_id, tipo_item=told.tipo_item, imagen_url=told.url)
        notice = Notice(post_id=told.post_id, part=told.part, imagen_url=told.url)
        [new] = await self._records.insert_if_new([RecordWithChildren(notice, [draft])])
        rows[:] = (await self._rows([told.post_id])).get(told.post_id, [])
        notices[told.part] = notice
        return "known" if new is None else "created"

    async def _renote(self, notice: Notice, url: str) -> None:
        id = Notice.kind.id_of(notice.post_id, notice.part)
        await self._records.edit(
            Notice, id, among=("told",), who=self._who, reason="edited", imagen_url=url
        )
        notice.imagen_url = url


def _plain(error: BadRecord) -> str:
    """Its first line: the rest may show the row, and its link is signed."""
    return str(error).partition("\n")[0]


def _row(row: Row) -> Entry:
    """A row of a file as it is kept; BadRow says every fault of it."""
    if row.values is None:
        raise BadRow(row.fault or "it cannot be read")
    values = {name: _text(value) for name, value in row.values.items()}
    faults = [
        f"{name}: there is no such column; there are {', '.join(COLUMNS)}"
        for name in values
        if name not in COLUMNS
    ]
    faults += [
        f"{name}: it must be text{' without line breaks or control characters' if isinstance(value, str) else ''}"
        for name, value in row.values.items()
        if value is not None and values[name] is None and value != ""
    ]
    post, url = values.get("post_id"), values.get("imagen_url")
    if post is None and not any(fault.startswith("post_id: ") for fault in faults):
        faults.append("post_id: it is missing")
    if url is not None and (why := _link_fault(url)) is not None:
        faults.append(f"imagen_url: {why}")
    if faults:
        raise BadRow("; ".join(faults))
    assert post is not None
    part = values.get("media_id") or (
        "0" if url is None else f"{BY_LINK}{hashlib.sha256(url.encode()).hexdigest()[:32]}"
    )
    kept = values.get("imagen_local")
    item = values.get("tipo_item")
    draft = Publication(
        post_id=post,
        tipo_item=item,
        imagen_url=url,
        imagen_local=kept,
        status="success" if kept else "",
    )
    return Entry(row.number, Told(post, part, item or "", url), draft)


def _link_fault(url: str) -> str | None:
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        return f"it cannot be read as an address: {error}"
    return (
        None
        if scheme in ("http", "https")
        else f"it must begin with http:// or https://, not {url[:40]!r}"
    )


def _text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value).strip()
    return text if text and text.isprintable() else None

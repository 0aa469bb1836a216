"""The saved replies as one flat table: incremental, without duplicates, with bounded memory.

An export reads the files below ``raw/`` that are new or have changed since the last one. It writes
the replies that no earlier part has to the next part,
``exports/replies/parquet/part-00002.parquet``. Beside the parts, ``state/`` holds what each one was
made of: the files with their versions, and the keys of the replies. A part whose state is missing
was not finished: the next export replaces it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from socket import gethostname
from typing import Any

from esclusa import (
    ArtifactError,
    ArtifactExists,
    Artifacts,
    Runtime,
    SettingsError,
    open_artifacts,
)
from esclusa.exports import ExportError, Format, encode
from esclusa.pipelines.replies.reply_rows import (
    COLUMNS,
    FOLDER,
    Pseudonyms,
    Row,
    SourceFile,
    reply_key,
    reply_rows,
    source_file,
)

ROOT = "exports/replies"
# Files that are read ahead, and how many bytes they may have together.
_AHEAD, _AHEAD_BYTES = 8, 32 << 20
# Replies that are prepared at a time, and keys that are written at a time.
_BATCH = 500
_KEY_BYTES = 16
# An export that began so long ago on another machine was killed.
_ABANDONED = timedelta(hours=1)
# Unreadable files that an answer names.
_NAMED = 20


async def export_replies(
    runtime: Runtime,
    form: Format,
    *,
    to: str | None = None,
    filters: Mapping[str, str] | None = None,
    pseudonymise: bool = False,
) -> dict[str, Any]:
    """Write the next part to the artifact store, or to the one that ``to`` names.

    Raises SettingsError if ``pseudonymise`` is asked for without a key.
    """
    key = runtime.settings_of("replies").pseudonym_key
    text = key.get_secret_value().strip() if key is not None else ""
    if pseudonymise and not text:
        fault = "REPLIES_PSEUDONYM_KEY is not set; it is the secret key of the pseudonyms"
        raise SettingsError("the replies cannot be pseudonymised:", [fault])
    target = runtime.artifacts if to is None else open_artifacts(to)
    if to is not None:
        await target.open()
    try:
        return await ReplyExport(
            runtime.artifacts,
            target,
            form,
            filters=filters or {},
            pseudonyms=Pseudonyms(text) if pseudonymise else None,
            now=runtime.engine.clock.now(),
        ).run()
    finally:
        if to is not None:
            await target.close()


class ReplyExport:
    """One export to one place. ``filters`` are values of country, platform and candidate_id."""

    def __init__(
        self,
        source: Artifacts,
        target: Artifacts,
        form: Format,
        *,
        filters: Mapping[str, str],
        pseudonyms: Pseudonyms | None,
        now: datetime,
    ) -> None:
        self._source, self._target, self._form = source, target, form
        self._filters, self._pseudonyms, self._now = filters, pseudonyms, now
        self._folder = f"{ROOT}/{form}{'-pseudonymised' if pseudonyms else ''}"
        self._files = self._rows = self._duplicates = 0
        self._unreadable: list[str] = []

    async def run(self) -> dict[str, Any]:
        """Write the next part, if there are new replies. Raises ExportError and ArtifactError."""
        with _open_state() as state:
            number = await self._load(state) + 1
            claim = await self._claim(number)
            try:
                path = await self._write(state, number)
                if self._files:
                    await self._commit(state, number, path)
            finally:
                await self._target.delete(claim)
        return {
            "file": path,
            "url": self._target.public_url(path) if path else None,
            "replies": self._rows,
            "duplicates": self._duplicates,
            "files": self._files,
            "unreadable": self._unreadable[:_NAMED],
            "unreadable_count": len(self._unreadable),
        }

    # what earlier exports wrote

    async def _load(self, state: sqlite3.Connection) -> int:
        """Read what the earlier parts were made of; return the number of the last one."""
        last = 0
        async for info in self._target.list(f"{self._folder}/state/"):
            name = info.path.rpartition("/")[2]
            if not name.endswith(".files.ndjson"):
                continue
            stem = name.partition(".")[0]
            last = max(last, int(stem))
            head = None
            async for line in _lines(self._target, info.path):
                if head is None:
                    head = self._check_head(json.loads(line))
                    continue
                path, version = json.loads(line)
                state.execute("INSERT OR REPLACE INTO files VALUES (?, ?, 0)", (path, version))
            async for chunk in _blocks(self._target, f"{self._folder}/state/{stem}.keys"):
                keys = ((chunk[n : n + _KEY_BYTES],) for n in range(0, len(chunk), _KEY_BYTES))
                state.executemany("INSERT OR IGNORE INTO keys VALUES (?, 0)", keys)
        return last

    def _check_head(self, head: Any) -> Any:
        key_id = self._pseudonyms.key_id if self._pseudonyms else None
        if head["pseudonym_key"] != key_id:
            fault = (
                f"REPLIES_PSEUDONYM_KEY is not the key of the earlier parts in {self._folder}: the"
                " same author would have two pseudonyms; use that key, or export with --to to"
                " another place"
            )
            raise SettingsError("the replies cannot be exported:", [fault])
        return head

    async def _claim(self, number: int) -> str:
        """Reserve the number of the part; ExportError while another export has it."""
        path = f"{self._folder}/state/{number:05}.begun"
        body = _line({"host": gethostname(), "pid": os.getpid(), "at": self._now.isoformat()})
        try:
            await self._target.put(path, body, create=True)
        except ArtifactExists:
            found = json.loads(await self._target.get(path))
            if not self._is_abandoned(found):
                raise ExportError(
                    f"another export is under way since {found['at']} on {found['host']}"
                    f" (process {found['pid']}); wait for it, or remove {path}"
                ) from None
            await self._target.put(path, body)
        return path

    def _is_abandoned(self, begun: Mapping[str, Any]) -> bool:
        if begun["host"] == gethostname():
            try:
                os.kill(begun["pid"], 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                pass
        return datetime.fromisoformat(begun["at"]) < self._now - _ABANDONED

    # the part

    async def _write(self, state: sqlite3.Connection, number: int) -> str | None:
        rows = self._new_rows(state)
        first = await anext(rows, None)
        if first is None:
            return None
        path = f"{self._folder}/part-{number:05}.{self._form}"
        encoded = encode(COLUMNS, _with_first(first, rows), self._form)
        await self._target.put(path, encoded, content_type=encoded.media_type)
        self._rows = encoded.rows
        return path

    async def _commit(self, state: sqlite3.Connection, number: int, path: str | None) -> None:
        """Record what the part was made of. The list of files is last: it makes the part valid."""
        stem = f"{self._folder}/state/{number:05}"
        await self._target.put(f"{stem}.keys", _stored(state, _new_keys))
        head = {
            "part": path,
            "replies": self._rows,
            "pseudonym_key": self._pseudonyms.key_id if self._pseudonyms else None,
        }
        try:
            await self._target.put(
                f"{stem}.files.ndjson",
                _stored(state, lambda s: chain([_line(head)], _new_files(s))),
                content_type="application/x-ndjson",
                create=True,
            )
        except ArtifactExists:
            raise ExportError(f"another export wrote {path or stem} meanwhile") from None

    async def _new_rows(self, state: sqlite3.Connection) -> AsyncIterator[Row]:
        """The replies that no part has, file by file."""
        async for info, source, body in self._new_files(state):
            rows = self._rows_of(state, source, info, body)
            more, readable = True, True
            while more and readable:
                batch, readable = await asyncio.to_thread(_next, rows)
                for row in batch:
                    yield row
                more = bool(batch)
            if readable:
                state.execute(
                    "INSERT OR REPLACE INTO files VALUES (?, ?, 1)", (info.path, info.version)
                )
                self._files += 1
            else:
                self._unreadable.append(source.path)

    def _rows_of(
        self, state: sqlite3.Connection, source: SourceFile, info: Any, body: bytes
    ) -> Iterator[Row]:
        for row in reply_rows(source, body.decode(), info.modified):
            added = state.execute("INSERT OR IGNORE INTO keys VALUES (?, 1)", (reply_key(row),))
            if added.rowcount:
                yield self._pseudonyms.apply(row) if self._pseudonyms else row
            else:
                self._duplicates += 1

    async def _new_files(
        self, state: sqlite3.Connection
    ) -> AsyncIterator[tuple[Any, SourceFile, bytes]]:
        """The files that are new or have changed, with their content; some are read ahead."""
        reading: deque[tuple[Any, SourceFile, asyncio.Task[bytes]]] = deque()
        size = 0
        try:
            async for info in self._source.list(FOLDER):
                source = source_file(info.path)
                if source is None or not self._is_wanted(source):
                    continue
                known = state.execute("SELECT version FROM files WHERE path = ?", (info.path,))
                if known.fetchone() == (info.version,):
                    continue
                while reading and (len(reading) >= _AHEAD or size + info.size > _AHEAD_BYTES):
                    size -= reading[0][0].size
                    if (found := await self._read(*reading.popleft())) is not None:
                        yield found
                size += info.size
                task = asyncio.create_task(self._source.get(info.path))
                reading.append((info, source, task))
            while reading:
                if (found := await self._read(*reading.popleft())) is not None:
                    yield found
        finally:
            for _, _, task in reading:
                task.cancel()
            await asyncio.gather(*(task for _, _, task in reading), return_exceptions=True)

    async def _read(
        self, info: Any, source: SourceFile, task: asyncio.Task[bytes]
    ) -> tuple[Any, SourceFile, bytes] | None:
        try:
            return info, source, await task
        except ArtifactError:
            self._unreadable.append(info.path)
            return None

    def _is_wanted(self, source: SourceFile) -> bool:
        return all(getattr(source, name) == value for name, value in self._filters.items())


def _next(rows: Iterator[Row]) -> tuple[list[Row], bool]:
    """The next replies of a file, and whether it could be read so far.

    The key of each is recorded, so those before a damage are not lost.
    """
    batch: list[Row] = []
    try:
        batch.extend(islice(rows, _BATCH))
    except (ValueError, RecursionError):
        return batch, False
    return batch, True


async def _with_first(first: Row, rest: AsyncIterator[Row]) -> AsyncIterator[Row]:
    yield first
    async for row in rest:
        yield row


# the state of an export, in a temporary database


@contextmanager
def _open_state() -> Iterator[sqlite3.Connection]:
    with tempfile.TemporaryDirectory(prefix="esclusa-replies-") as folder:
        file = Path(folder) / "state.sqlite"
        state = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        with closing(state):
            state.executescript("""
                PRAGMA journal_mode = OFF;
                PRAGMA synchronous = OFF;
                CREATE TABLE files (path TEXT PRIMARY KEY, version TEXT, new INT) WITHOUT ROWID;
                CREATE TABLE keys (key BLOB PRIMARY KEY, new INT) WITHOUT ROWID;
                BEGIN;
            """)
            yield state


def _new_keys(state: sqlite3.Connection) -> Iterator[bytes]:
    return (key for (key,) in state.execute("SELECT key FROM keys WHERE new"))


def _new_files(state: sqlite3.Connection) -> Iterator[bytes]:
    return map(_line, state.execute("SELECT path, version FROM files WHERE new"))


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


async def _stored(state: sqlite3.Connection, read: Any) -> AsyncIterator[bytes]:
    """The new rows of the state as a file, in chunks."""
    parts = read(state)
    yield b""  # a file without rows is a file, too
    while chunk := await asyncio.to_thread(lambda: b"".join(islice(parts, 20_000))):
        yield chunk


async def _blocks(artifacts: Artifacts, path: str) -> AsyncIterator[bytes]:
    """The content in blocks of whole keys."""
    rest = b""
    async for chunk in artifacts.stream(path):
        rest += chunk
        whole = len(rest) - len(rest) % _KEY_BYTES
        yield rest[:whole]
        rest = rest[whole:]


async def _lines(artifacts: Artifacts, path: str) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in artifacts.stream(path):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line

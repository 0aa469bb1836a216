"""Artifacts in a folder of this machine."""

from __future__ import annotations

import asyncio
import os
import stat
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar, cast
from urllib.parse import quote

from esclusa.artifacts.batches import Batches
from esclusa.artifacts.bodies import regroup, wrong_body
from esclusa.artifacts.disk import Disk
from esclusa.artifacts.drafts import Draft, Workshop, refused
from esclusa.artifacts.paths import RESERVED, clean, clean_prefix, fault
from esclusa.engine.threads import finished, seen_through
from esclusa.model.errors import ArtifactError, ArtifactMissing
from esclusa.ports.artifacts import ArtifactInfo, Artifacts, Body, Kept

T = TypeVar("T")

_BLOCK = 1 << 20
_STALE_SECONDS = 86_400
_THREADS = 16
_BATCH = 32
"""Objects that are made together, each with an open file."""

_BATCHES = 4
"""Full batches at once, for a disk that is slow; one that is not is served as well by one thread, and for less."""

_SMALL = 1 << 18
_UNWRITTEN = 64
"""Bytes of an object that is kept without waiting until it is written, and how many such objects there may be: 16 MB of them."""

_NO_OBJECT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalArtifacts(Artifacts):
    """A folder. Objects are plain files; each is written beside the others under a hidden name, then renamed into place.

    A link below the root that leads outside it is refused; a linked folder is read through but not listed. As in any
    file system a name is either a file or a folder. ``durable`` waits for the disk before an object becomes visible,
    (of what is kept: before ``sync`` returns), so that a record never outlives its file through a power cut.
    """

    def __init__(
        self, root: str | Path, public_url: str | None = None, *, durable: bool = True
    ) -> None:
        self.root = Path(root).expanduser().absolute()
        self.url = self.root.as_uri()
        self._public = public_url.rstrip("/") if public_url else None
        self._real = os.path.realpath(self.root)
        self._making = self.root / f"{RESERVED}making"
        self._threads = ThreadPoolExecutor(_THREADS, "artifacts")
        self._disk = Disk(str(self.root))
        self._workshop = Workshop(
            str(self.root), str(self._making), self._inside, durable, self._disk
        )
        self._puts = Batches(self._threads, self._workshop.finish, most=_BATCH, at_once=_BATCHES)
        self._keeps = Batches(self._threads, self._workshop.keep, most=_BATCH, at_once=_BATCHES)
        self._unwritten: dict[str, asyncio.Future[None]] = {}
        """What was kept and may not be there yet, by its path: whoever asks for it waits."""
        self._syncing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"LocalArtifacts({str(self.root)!r})"

    async def open(self) -> None:
        await asyncio.to_thread(self._check)

    async def close(self) -> None:
        """The threads end with the store; files are not open between calls."""
        await self._all_written()
        self._disk.close()

    async def put(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> str:
        draft = await self._drafted(path, body, create)
        await self._puts.add(draft)
        if draft.error is not None:
            raise draft.error
        return draft.url

    async def keep(self, path: str, body: Body, *, content_type: str | None = None) -> Kept:
        draft = await self._drafted(path, body, False)
        wait = len(draft.content) > _SMALL or draft.begun or self._crowded()
        self._unwritten[path] = draft.made = self._keeps.post(draft)
        if wait:
            await seen_through(draft.made)
            if draft.error is not None:
                raise draft.error
        return draft

    async def sync(self, kept: Sequence[Kept]) -> None:
        drafts = cast("list[Draft]", list(kept))
        for made in {draft.made for draft in drafts if draft.made is not None}:
            try:
                await seen_through(made)
            except ArtifactError as error:
                for draft in drafts:
                    draft.error = error if draft.made is made else draft.error
        async with self._syncing:
            await self._run(partial(self._workshop.sync, drafts))

    async def _drafted(self, path: str, body: Body, create: bool) -> Draft:
        draft = Draft(path, f"{self._workshop.root}/{clean(path)}", self._address(path), create)
        try:
            match body:
                case bytes() | bytearray():
                    draft.content = bytes(body)
                case Path():
                    await self._run(partial(self._copy, draft, body))
                case AsyncIterable():
                    await self._pour(draft, body)
                case _:
                    raise wrong_body(body)
            await self._written(path)
        except BaseException:
            await self._run(draft.clear)
            raise
        return draft

    def _crowded(self) -> bool:
        """Whether so much waits to be written that who brings more waits too."""
        if len(self._unwritten) >= _UNWRITTEN:
            self._unwritten = {
                path: made for path, made in self._unwritten.items() if not made.done()
            }
        return len(self._unwritten) >= _UNWRITTEN

    async def _written(self, path: str) -> None:
        """Return when what was kept there is."""
        while (made := self._unwritten.get(path)) is not None and not made.done():
            with suppress(Exception):  # whoever kept it hears of that
                await seen_through(made)

    async def _all_written(self) -> None:
        for path in list(self._unwritten):
            await self._written(path)

    async def get(self, path: str) -> bytes:
        place = self._place(path)

        def read() -> bytes:
            with self._reading(path, place) as file:
                return file.read()

        await self._written(path)
        return await asyncio.to_thread(read)

    async def stream(self, path: str, chunk: int = 1 << 20) -> AsyncIterator[bytes]:
        place = self._place(path)
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, not {chunk}")
        await self._written(path)
        file = await self._run(partial(self._opened, path, place))
        try:
            while True:
                with _told(path, "read"):
                    block = await self._run(partial(file.read, chunk))
                if not block:
                    return
                yield block
        finally:
            file.close()

    async def info(self, path: str) -> ArtifactInfo | None:
        place = self._place(path)
        await self._written(path)
        return await asyncio.to_thread(self._info, path, place)

    async def list(self, prefix: str = "") -> AsyncIterator[ArtifactInfo]:
        walk = self._walk(clean_prefix(prefix))
        await self._all_written()
        while True:
            page = await self._run(partial(_take, walk, 500))
            for info in page:
                yield info
            if len(page) < 500:
                return

    async def delete(self, path: str) -> None:
        place = self._place(path)
        await self._written(path)
        await self._run(partial(self._delete, path, place))

    def public_url(self, path: str) -> str:
        return self._address(clean(path))

    def _address(self, path: str) -> str:
        return f"{self._public or self.url}/{quote(path, safe='/')}"

    async def _pour(self, draft: Draft, body: AsyncIterable[bytes]) -> None:
        """Write all of it but the last block: a small body is written with those of others."""
        async with aclosing(regroup(body, _BLOCK)) as blocks:
            draft.content = await anext(blocks)
            async for block in blocks:
                with _told(draft.path, "write"):
                    await self._run(partial(self._workshop.fill, draft))
                draft.content = block
        if draft.begun:
            with _told(draft.path, "write"):
                await self._run(partial(self._workshop.flush, draft))

    async def _run(self, work: Callable[[], T]) -> T:
        return await finished(self._threads, work)

    # What follows runs in threads.

    def _check(self) -> None:
        probe = self._making / uuid.uuid4().hex
        try:
            self._making.mkdir(parents=True, exist_ok=True)
            self._real = os.path.realpath(self.root)
            probe.touch(exist_ok=False)
            # The probe's own time tells the file system's now, whatever this machine's clock says.
            now = probe.stat().st_mtime
            probe.unlink()
        except OSError as error:
            why = error.strerror or str(error)
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: the folder {self.root} cannot be made or written: {why}"
            ) from error
        with suppress(OSError):
            for left in self._making.rglob("*"):
                # A process that was killed while it wrote left its file; nobody writes one for a day.
                if left.is_file() and left.stat().st_mtime < now - _STALE_SECONDS:
                    left.unlink(missing_ok=True)

    def _place(self, path: str) -> Path:
        return self.root / clean(path)

    def _inside(self, path: str, place: str | Path) -> None:
        real = os.path.realpath(place)
        if real != self._real and not real.startswith(self._real.rstrip(os.sep) + os.sep):
            raise ArtifactError(f"{path}: a link on this path leads outside {self.root}")

    def _copy(self, draft: Draft, source: Path) -> None:
        """As ``_pour``, from a file."""
        try:
            given = source.open("rb")
        except OSError as error:
            raise ArtifactError(
                f"{draft.path}: its body cannot be read from {source}: {error.strerror}"
            ) from error
        with given, _told(draft.path, "write"):
            draft.content = given.read(_BLOCK)
            while block := given.read(_BLOCK):
                self._workshop.fill(draft)
                draft.content = block
            self._workshop.flush(draft)

    def _opened(self, path: str, place: Path) -> BinaryIO:
        self._inside(path, place)
        try:
            file = place.open("rb")
        except _NO_OBJECT:
            raise ArtifactMissing(f"{path}: there is no such object in {self.root}") from None
        except OSError as error:
            raise ArtifactError(f"{path}: cannot read it: {error.strerror}") from error
        return file

    @contextmanager
    def _reading(self, path: str, place: Path) -> Iterator[BinaryIO]:
        with self._opened(path, place) as file, _told(path, "read"):
            yield file

    def _info(self, path: str, place: Path) -> ArtifactInfo | None:
        self._inside(path, place)
        try:
            found = place.stat()
        except _NO_OBJECT:
            return None
        except OSError as error:
            raise ArtifactError(f"{path}: cannot look at it: {error.strerror}") from error
        return _describe(path, found) if stat.S_ISREG(found.st_mode) else None

    def _delete(self, path: str, place: Path) -> None:
        self._inside(path, place.parent)
        with _told(path, "delete"):
            try:
                place.unlink()
            except _NO_OBJECT:
                return
            except PermissionError:
                if place.is_dir():  # what unlink says of a folder on some systems
                    return
                raise
        for folder in place.parents:
            if folder == self.root:
                break
            try:
                folder.rmdir()
            except OSError:
                break

    def _walk(self, prefix: str) -> Iterator[ArtifactInfo]:
        start = prefix.rpartition("/")[0]
        folder = self.root / start if start else self.root
        self._inside(prefix, folder)
        yield from self._walk_folder(folder, f"{start}/" if start else "", prefix)

    def _walk_folder(self, folder: Path, base: str, prefix: str) -> Iterator[ArtifactInfo]:
        try:
            with os.scandir(folder) as found:
                # A folder sorts as its name with the slash: then the walk is in order of the whole path.
                entries = sorted(
                    (
                        base + entry.name + ("/" if entry.is_dir(follow_symlinks=False) else ""),
                        entry,
                    )
                    for entry in found
                )
        except _NO_OBJECT:
            return
        except OSError as error:
            raise ArtifactError(f"cannot list {folder}: {error.strerror}") from error
        for path, entry in entries:
            if (
                not (path.startswith(prefix) or prefix.startswith(path))
                or fault(path.rstrip("/")) is not None
            ):
                continue
            if path.endswith("/"):
                yield from self._walk_folder(folder / entry.name, path, prefix)
            elif path.startswith(prefix):
                with suppress(ArtifactError):  # a link that leads outside is no object of ours
                    info = self._info(path, folder / entry.name)
                    if info is not None:
                        yield info


@contextmanager
def _told(path: str, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise refused(path, verb, error) from error


def _take(walk: Iterator[ArtifactInfo], limit: int) -> list[ArtifactInfo]:
    return [info for _, info in zip(range(limit), walk, strict=False)]


def _describe(path: str, found: os.stat_result) -> ArtifactInfo:
    version = f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"
    return ArtifactInfo(path, found.st_size, version, datetime.fromtimestamp(found.st_mtime, UTC))

"""Artifacts in a folder of this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import threading
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import quote

from esclusa.artifacts.bodies import regroup, wrong_body
from esclusa.artifacts.paths import RESERVED, clean, clean_prefix, fault
from esclusa.artifacts.threads import finished
from esclusa.model.errors import ArtifactError, ArtifactExists, ArtifactMissing
from esclusa.ports.artifacts import ArtifactInfo, Body

T = TypeVar("T")

_BLOCK = 1 << 20
_STALE_SECONDS = 86_400
_THREADS = 32  # they wait for the disk, which serves many at once faster than one after the other
_NO_OBJECT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalArtifacts:
    """A folder. Objects are plain files; each is written beside the others under a hidden name, then renamed into place.

    A link below the root that leads outside it is refused; a linked folder is read through but not listed. As in any
    file system a name is either a file or a folder. ``durable`` waits for the disk before an object becomes visible,
    so that a record never outlives its file through a power cut.
    """

    def __init__(self, root: str | Path, public_url: str | None = None, *, durable: bool = True) -> None:
        self.root = Path(root).expanduser().absolute()
        self.url = self.root.as_uri()
        self._public = public_url.rstrip("/") if public_url else None
        self._durable = durable
        self._folders = _Folders()
        self._judged: tuple[Path, int, int] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._real = os.path.realpath(self.root)
        self._making = self.root / f"{RESERVED}making"

    def __repr__(self) -> str:
        return f"LocalArtifacts({str(self.root)!r})"

    async def open(self) -> None:
        await asyncio.to_thread(self._check)

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def put(self, path: str, body: Body, *, content_type: str | None = None, create: bool = False) -> str:
        target = self._place(path)
        match body:
            case bytes() | bytearray():
                await self._finish(partial(self._write, path, target, bytes(body), create))
            case Path():
                await self._finish(partial(self._copy, path, target, body, create))
            case AsyncIterable():
                await self._pour(path, target, body, create)
            case _:
                raise wrong_body(body)
        return self.public_url(path)

    async def get(self, path: str) -> bytes:
        place = self._place(path)

        def read() -> bytes:
            with self._reading(path, place) as file:
                return file.read()

        return await asyncio.to_thread(read)

    async def stream(self, path: str, chunk: int = 1 << 20) -> AsyncIterator[bytes]:
        place = self._place(path)
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, not {chunk}")
        file = await self._finish(partial(self._opened, path, place))
        try:
            while True:
                with _told(path, "read"):
                    block = await self._finish(partial(file.read, chunk))
                if not block:
                    return
                yield block
        finally:
            file.close()

    async def info(self, path: str) -> ArtifactInfo | None:
        return await asyncio.to_thread(self._info, path, self._place(path))

    async def list(self, prefix: str = "") -> AsyncIterator[ArtifactInfo]:
        walk = self._walk(clean_prefix(prefix))
        while True:
            page = await self._finish(partial(_take, walk, 500))
            for info in page:
                yield info
            if len(page) < 500:
                return

    async def delete(self, path: str) -> None:
        await self._finish(partial(self._delete, path, self._place(path)))

    def public_url(self, path: str) -> str:
        clean(path)
        return f"{self._public or self.url}/{quote(path, safe='/')}"

    async def _finish(self, work: Callable[[], T]) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "artifacts")
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
            raise ArtifactError(f"ESCLUSA_ARTIFACTS: the folder {self.root} cannot be made or written: {why}") from error
        with suppress(OSError):
            for left in self._making.iterdir():
                # A process that was killed while it wrote left its file; nobody writes one for a day.
                if left.stat().st_mtime < now - _STALE_SECONDS:
                    left.unlink(missing_ok=True)

    def _place(self, path: str) -> Path:
        return self.root / clean(path)

    def _inside(self, path: str, place: Path) -> None:
        real = os.path.realpath(place)
        if real != self._real and not real.startswith(self._real.rstrip(os.sep) + os.sep):
            raise ArtifactError(f"{path}: a link on this path leads outside {self.root}")

    def _folder_inside(self, path: str, folder: Path) -> None:
        """As ``_inside``, for a folder that is written to often: the one that was judged last need not be judged again."""
        try:
            found = folder.stat()
        except OSError:  # it is not there yet
            self._inside(path, folder)
            return
        seen = (folder, found.st_dev, found.st_ino)
        if seen != self._judged:
            self._inside(path, folder)
            self._judged = seen

    def _write(self, path: str, target: Path, content: bytes, create: bool) -> None:
        with self._made(path, target, create) as file, _told(path, "write"):
            file.write(content)

    def _copy(self, path: str, target: Path, source: Path, create: bool) -> None:
        try:
            given = source.open("rb")
        except OSError as error:
            raise ArtifactError(f"{path}: its body cannot be read from {source}: {error.strerror}") from error
        with given, self._made(path, target, create) as file, _told(path, "write"):
            shutil.copyfileobj(given, file, _BLOCK)

    async def _pour(self, path: str, target: Path, body: AsyncIterable[bytes], create: bool) -> None:
        async with aclosing(regroup(body, _BLOCK)) as blocks:
            first = await anext(blocks)
            second = await anext(blocks, None)
            if second is None:
                await self._finish(partial(self._write, path, target, first, create))
                return
            made = self._made(path, target, create)
            file = await self._finish(made.__enter__)
            try:
                with _told(path, "write"):
                    await self._finish(partial(file.writelines, [first, second]))
                del first, second
                async for block in blocks:
                    with _told(path, "write"):
                        await self._finish(partial(file.write, block))
            except BaseException as error:
                # The generator raises it again after clearing up; what it turned it into is what the caller sees.
                await self._finish(partial(made.__exit__, type(error), error, error.__traceback__))
                raise
            await self._finish(partial(made.__exit__, None, None, None))

    @contextmanager
    def _made(self, path: str, target: Path, create: bool) -> Iterator[BinaryIO]:
        """A hidden file to fill; it becomes the object when the block ends well, and is gone when it does not."""
        hidden = self._making / uuid.uuid4().hex
        try:
            file = hidden.open("xb")
        except OSError:
            with _told(path, "write"):
                self._making.mkdir(parents=True, exist_ok=True)
                file = hidden.open("xb")
        moved = False
        try:
            with file:
                yield file
                with _told(path, "write"):
                    file.flush()
                    if self._durable:
                        os.fsync(file.fileno())
            with _told(path, "write"):
                self._install(path, hidden, target, create)
            moved = not create
        finally:
            if not moved:
                hidden.unlink(missing_ok=True)

    def _install(self, path: str, hidden: Path, target: Path, create: bool) -> None:
        for chance in range(20):
            self._folder_inside(path, target.parent)
            try:
                if create:
                    os.link(hidden, target)
                else:
                    hidden.replace(target)
                break
            except FileExistsError:
                raise ArtifactExists(f"{path}: there is an object of that name already") from None
            except FileNotFoundError:
                # Again and again only if deletes take the empty folder away between the two calls, every time.
                if chance == 19:
                    raise
                target.parent.mkdir(parents=True, exist_ok=True)
        if self._durable:
            self._folders.sync(target.parent)

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
                entries = sorted((base + entry.name + ("/" if entry.is_dir(follow_symlinks=False) else ""), entry) for entry in found)
        except _NO_OBJECT:
            return
        except OSError as error:
            raise ArtifactError(f"cannot list {folder}: {error.strerror}") from error
        for path, entry in entries:
            if not (path.startswith(prefix) or prefix.startswith(path)) or fault(path.rstrip("/")) is not None:
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
        if error.errno in {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK} and verb == "write" and error.filename2 is not None:
            raise ArtifactError(f"{path}: this file system has no hard links, so it cannot write create-only objects") from error
        raise ArtifactError(f"{path}: cannot {verb} it: {error.strerror or error}") from error


@dataclass(slots=True)
class _Turn:
    """Who asked for a folder's sync, up to where it is done, and how many are here."""

    busy: threading.Lock = field(default_factory=threading.Lock)
    asked: int = 0
    done: int = 0
    users: int = 0


class _Folders:
    """Waits until the disk knows a folder's names. Writers that ask while one sync is under way share the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[Path, _Turn] = {}

    def sync(self, folder: Path) -> None:
        with self._lock:
            turn = self._turns.setdefault(folder, _Turn())
            turn.users += 1
            turn.asked += 1
            mine = turn.asked
        with turn.busy:
            if turn.done < mine:  # else one that began after we asked has done it
                asked = turn.asked
                _sync_folder(folder)
                turn.done = asked
        with self._lock:
            turn.users -= 1
            if not turn.users:
                del self._turns[folder]


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some file systems cannot, and then need not
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _take(walk: Iterator[ArtifactInfo], limit: int) -> list[ArtifactInfo]:
    return [info for _, info in zip(range(limit), walk, strict=False)]


def _describe(path: str, found: os.stat_result) -> ArtifactInfo:
    version = f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"
    return ArtifactInfo(path, found.st_size, version, datetime.fromtimestamp(found.st_mtime, UTC))

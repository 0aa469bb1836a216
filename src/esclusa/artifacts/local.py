"""Artifacts in a folder of this machine."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import quote

from esclusa.artifacts.batches import ThreadBatches
from esclusa.artifacts.file_writer import FileWriter, PendingFile, os_errors
from esclusa.artifacts.paths import RESERVED, clean, clean_prefix, fault
from esclusa.engine.threads import DaemonThreads, call_in_thread
from esclusa.model.errors import ArtifactError, ArtifactMissing
from esclusa.ports.artifacts import ArtifactInfo, Artifacts, Body, KeptArtifact

_STALE_SECONDS = 86_400
_THREADS = 16
_QUESTIONS = 16
_PAGE = 500
_NO_OBJECT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class _InfoQuestion:
    """What is asked about a path, and the answer."""

    __slots__ = ("error", "info", "path", "place")

    def __init__(self, path: str, place: str) -> None:
        self.path = path
        self.place = place
        self.info: ArtifactInfo | None = None
        self.error: ArtifactError | None = None


class LocalArtifacts(Artifacts):
    """A folder. Artifacts are plain files; each is written under a hidden name, then renamed.

    A link below the root that leads outside it is refused; a linked folder can be read but is not
    listed. As in any file system, a name is either a file or a folder. If ``durable``, an artifact
    is on the disk before ``put`` or ``sync`` returns, so that no power cut leaves a record without
    its file.
    """

    def __init__(
        self, root: str | Path, public_url: str | None = None, *, durable: bool = True
    ) -> None:
        self.root = Path(root).expanduser().absolute()
        self.url = self.root.as_uri()
        self._public = public_url.rstrip("/") if public_url else None
        self._real = os.path.realpath(self.root)
        self._hidden = self.root / f"{RESERVED}making"
        self._threads = DaemonThreads(_THREADS, "artifacts")
        # Handlers ask at the same time: they share the switch to a thread.
        self._questions = ThreadBatches(
            self._threads, self._answer, max_items=_QUESTIONS, parallel=_THREADS
        )
        self._writer = FileWriter(
            str(self.root), str(self._hidden), self._threads, self._check_inside, durable=durable
        )

    def __repr__(self) -> str:
        return f"LocalArtifacts({str(self.root)!r})"

    async def open(self) -> None:
        await call_in_thread(self._threads, self._check)

    async def close(self) -> None:
        await self._writer.close()
        self._threads.shutdown()

    async def put(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> str:
        file = PendingFile(path, f"{self.root}/{clean(path)}", self._address(path), create=create)
        await self._writer.put(file, body)
        return file.url

    async def keep(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> KeptArtifact:
        file = PendingFile(path, f"{self.root}/{clean(path)}", self._address(path), create=create)
        await self._writer.keep(file, body)
        return file

    async def sync(self, kept: Sequence[KeptArtifact]) -> None:
        await self._writer.sync(cast("Sequence[PendingFile]", kept))

    async def get(self, path: str) -> bytes:
        place = self._place(path)

        def read() -> bytes:
            with self._open_file(path, place) as file, os_errors(path, "read"):
                return file.read()

        await self._writer.wait_written(path)
        return await call_in_thread(self._threads, read)

    async def stream(self, path: str, chunk: int = 1 << 20) -> AsyncIterator[bytes]:
        place = self._place(path)
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, not {chunk}")
        await self._writer.wait_written(path)
        file = await call_in_thread(self._threads, partial(self._open_file, path, place))
        try:
            while True:
                with os_errors(path, "read"):
                    block = await call_in_thread(self._threads, partial(file.read, chunk))
                if not block:
                    return
                yield block
        finally:
            file.close()

    async def info(self, path: str) -> ArtifactInfo | None:
        place = f"{self.root}/{clean(path)}"
        await self._writer.wait_written(path)
        question = _InfoQuestion(path, place)
        await self._questions.add(question)
        if question.error is not None:
            raise question.error
        return question.info

    async def list(self, prefix: str = "") -> AsyncIterator[ArtifactInfo]:
        walk = self._walk(clean_prefix(prefix))
        await self._writer.wait_all_written()
        while True:
            page = await call_in_thread(self._threads, partial(_take, walk, _PAGE))
            for info in page:
                yield info
            if len(page) < _PAGE:
                return

    async def delete(self, path: str) -> None:
        place = self._place(path)
        await self._writer.wait_written(path)
        await call_in_thread(self._threads, partial(self._delete, path, place))

    def public_url(self, path: str) -> str:
        return self._address(clean(path))

    def _address(self, path: str) -> str:
        return f"{self._public or self.url}/{quote(path, safe='/:@,=')}"

    # Blocking, in threads

    def _check(self) -> None:
        probe = self._hidden / uuid.uuid4().hex
        try:
            self._hidden.mkdir(parents=True, exist_ok=True)
            self._real = os.path.realpath(self.root)
            probe.touch(exist_ok=False)
            # Files are compared by the file system's own clock, not by this machine's.
            now = probe.stat().st_mtime
            probe.unlink()
        except OSError as error:
            why = error.strerror or str(error)
            raise ArtifactError(
                f"ESCLUSA_ARTIFACTS: the folder {self.root} cannot be created or written: {why}"
            ) from error
        with suppress(OSError):
            for left in self._hidden.rglob("*"):
                # Left by a process that was killed: no write takes a day.
                if left.is_file() and left.stat().st_mtime < now - _STALE_SECONDS:
                    left.unlink(missing_ok=True)

    def _place(self, path: str) -> Path:
        return self.root / clean(path)

    def _check_inside(self, path: str, place: str | Path) -> None:
        if not self._is_inside(_resolved(place)) and not self._is_inside(os.path.realpath(place)):
            raise ArtifactError(f"{path}: a link on this path leads outside {self.root}")

    def _is_inside(self, real: str) -> bool:
        return real == self._real or real.startswith(self._real.rstrip(os.sep) + os.sep)

    def _open_file(self, path: str, place: Path) -> BinaryIO:
        self._check_inside(path, place)
        try:
            return place.open("rb")
        except _NO_OBJECT:
            raise ArtifactMissing(f"{path}: there is no such object in {self.root}") from None
        except OSError as error:
            raise ArtifactError(f"{path}: cannot read it: {error.strerror}") from error

    def _answer(self, questions: Sequence[_InfoQuestion]) -> None:
        for question in questions:
            try:
                question.info = self._info(question.path, question.place)
            except ArtifactError as error:
                question.error = error

    def _info(self, path: str, place: str) -> ArtifactInfo | None:
        try:
            found = os.stat(place)  # noqa: PTH116 - text is faster
        except _NO_OBJECT:
            return None
        except OSError as error:
            raise ArtifactError(f"{path}: cannot look at it: {error.strerror}") from error
        self._check_inside(path, place)
        return _describe(path, found) if stat.S_ISREG(found.st_mode) else None

    def _delete(self, path: str, place: Path) -> None:
        self._check_inside(path, place.parent)
        with os_errors(path, "delete"):
            try:
                place.unlink()
            except _NO_OBJECT:
                return
            except PermissionError:
                if place.is_dir():  # some systems answer so for a folder
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
        self._check_inside(prefix, folder)
        yield from self._walk_folder(folder, f"{start}/" if start else "", prefix)

    def _walk_folder(self, folder: Path, base: str, prefix: str) -> Iterator[ArtifactInfo]:
        try:
            with os.scandir(folder) as found:
                # With a slash after the names of folders, the walk is in order of the whole path.
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
                with suppress(ArtifactError):  # skip a link that leads outside
                    if (info := self._info(path, entry.path)) is not None:
                        yield info


def _resolved(place: str | Path) -> str:
    """Return the path of an existing file without links, as Linux knows it.

    ``realpath`` would take ten times as long, for it looks at every folder. Empty if it cannot be
    known so.
    """
    try:
        handle = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return ""
    try:
        return os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - text is faster
    except OSError:
        return ""
    finally:
        os.close(handle)


def _take(walk: Iterator[ArtifactInfo], limit: int) -> list[ArtifactInfo]:
    return [info for _, info in zip(range(limit), walk, strict=False)]


def _describe(path: str, found: os.stat_result) -> ArtifactInfo:
    version = f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"
    return ArtifactInfo(path, found.st_size, version, datetime.fromtimestamp(found.st_mtime, UTC))

# ruff: noqa: PTH103, PTH105, PTH108, PTH120
# Paths are text here: pathlib would cost as much as writing a small file.
"""Writes the files of a folder: hidden files that get their name once they are complete."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing, contextmanager, suppress
from functools import cache, partial
from itertools import count, cycle
from pathlib import Path

from esclusa.artifacts.batches import ThreadBatches
from esclusa.artifacts.bodies import open_source, regroup, wrong_body
from esclusa.artifacts.disk import FileSystem, drop_from_cache, sync_file, sync_folder
from esclusa.engine.threads import HANGING, call_in_thread, wait_until_done
from esclusa.model.errors import ArtifactError, ArtifactExists
from esclusa.ports.artifacts import Body, KeptArtifact

_BLOCK = 1 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MAX_KNOWN_FOLDERS = 10_000

# Files that are written together, each with an open handle.
_BATCH = 32

# Full batches at once, for a slow disk. A fast disk needs only one thread.
_PARALLEL_BATCHES = 4

_SMALL = 1 << 18
# How many files of up to `_SMALL` bytes `keep` leaves unwritten when it returns: 16 MB.
_MAX_UNWRITTEN = 64

# Seconds for which kept files may wait for others that are written with them.
_GATHER = 0.05

# Number of files from which one sync of the whole file system replaces a sync of each file.
_SYNC_ALL_FROM = 8

# Folders in which hidden files are written in turn.
#
# A file system keeps the files of one folder together, and concurrent writers there block each
# other. Several folders double the throughput.
FOLDERS = 8

# Parts of a hidden name, together with the process id, which differs after a fork.
_PROCESS = uuid.uuid4().hex
_numbers = count()


class PendingFile(KeptArtifact):
    """A file on its way to the disk. ``error`` says why it cannot become an artifact."""

    def __init__(self, path: str, target: str, url: str, *, create: bool = False) -> None:
        super().__init__(url)
        self.path = path
        self.target = target
        self.create = create
        # The bytes that are still to be written.
        self.content = b""
        # Done once the file has its name, or an error.
        self.written: asyncio.Future[None] | None = None
        # How many losses of the file system were known before it was written.
        self.losses = 0
        self.hidden: str | None = None
        self.handle = -1


class FileWriter:
    """Turns bodies into files, many at a time.

    ``check_folder`` raises ArtifactError for a folder that leads outside the root. If ``durable``,
    a file survives a power cut: the disk has its content before its name, and its name before
    ``put`` or ``sync`` returns.
    """

    def __init__(
        self,
        root: str,
        hidden_root: str,
        threads: Executor,
        check_folder: Callable[[str, str], None],
        *,
        durable: bool,
    ) -> None:
        self._root = root
        self._hidden_root = hidden_root
        self._threads = threads
        self._check_folder = check_folder
        self._durable = durable
        self._file_system = FileSystem(root)
        self._puts = ThreadBatches(
            threads, self._put_batch, max_items=_BATCH, parallel=_PARALLEL_BATCHES
        )
        self._keeps = ThreadBatches(
            threads,
            self._keep_batch,
            max_items=_BATCH,
            parallel=_PARALLEL_BATCHES,
            gather=_GATHER,
        )
        # Kept files that may not have their name yet, by path. Readers of a path wait for it.
        self._unwritten: dict[str, asyncio.Future[None]] = {}
        self._syncing = asyncio.Lock()
        self._folder_numbers = cycle(range(FOLDERS))
        # Folders whose own names are durable.
        self._known_folders: set[str] = set()

    async def put(self, file: PendingFile, body: Body) -> None:
        """Write a file and wait until it is durable. Raises ArtifactError."""
        await self._receive(file, body)
        await self._puts.add(file)
        if file.error is not None:
            raise file.error

    async def keep(self, file: PendingFile, body: Body) -> None:
        """Write a file that becomes durable with ``sync``.

        A small file is written soon, together with others. A large file, or a file that comes while
        many others are unwritten, is awaited. So is a file that must be new if this process has
        lately kept one of its path: the caller then learns at once that it exists.
        """
        await self._receive(file, body)
        wait = len(file.content) > _SMALL or file.handle >= 0 or self._is_crowded()
        wait = wait or (file.create and file.path in self._unwritten)
        self._unwritten[file.path] = file.written = self._keeps.post(file)
        if wait:
            self._keeps.hurry()
            await wait_until_done(file.written)
            if file.error is not None:
                raise file.error

    async def sync(self, files: Sequence[PendingFile]) -> None:
        """Make kept files durable. Never raises: a file that cannot be durable gets its error."""
        self._keeps.hurry()
        for written in {file.written for file in files if file.written is not None}:
            try:
                await wait_until_done(written)
            except ArtifactError as error:
                for file in files:
                    file.error = error if file.written is written else file.error
        async with self._syncing:
            await call_in_thread(self._threads, partial(self._sync_batch, files))

    async def wait_written(self, path: str) -> None:
        """Return once a kept file of this path has its name, or failed."""
        while (written := self._unwritten.get(path)) is not None and not written.done():
            self._keeps.hurry()
            with suppress(Exception):  # ``sync`` reports the error to the caller of ``keep``
                await wait_until_done(written)

    async def wait_all_written(self) -> None:
        """Return once every kept file has its name, or failed."""
        for path in list(self._unwritten):
            await self.wait_written(path)

    async def close(self) -> None:
        """Write what was kept. No file stays open between calls.

        A disk that hangs is waited for only some seconds.
        """
        self._keeps.hurry()
        if unwritten := [each for each in self._unwritten.values() if not each.done()]:
            await asyncio.wait(unwritten, timeout=HANGING)
        self._file_system.close()

    def _is_crowded(self) -> bool:
        if len(self._unwritten) >= _MAX_UNWRITTEN:
            self._unwritten = {p: done for p, done in self._unwritten.items() if not done.done()}
        return len(self._unwritten) >= _MAX_UNWRITTEN

    # Receiving a body: all but its last block is written at once, the last with those of others.

    async def _receive(self, file: PendingFile, body: Body) -> None:
        try:
            match body:
                case bytes() | bytearray():
                    file.content = bytes(body)
                case Path():
                    await call_in_thread(self._threads, partial(self._copy, file, body))
                case AsyncIterable():
                    await self._copy_stream(file, body)
                case _:
                    raise wrong_body(body)
            await self.wait_written(file.path)  # two files of one path are written in order
        except BaseException:
            await call_in_thread(self._threads, partial(_clean_up, file))
            raise

    async def _copy_stream(self, file: PendingFile, body: AsyncIterable[bytes]) -> None:
        async with aclosing(regroup(body, _BLOCK)) as blocks:
            file.content = await anext(blocks)
            async for block in blocks:
                with os_errors(file.path, "write"):
                    await call_in_thread(self._threads, partial(self._write, file, start_sync=True))
                file.content = block
        if file.handle >= 0:
            with os_errors(file.path, "write"):
                await call_in_thread(self._threads, partial(self._sync_content, file))

    def _copy(self, file: PendingFile, source: Path) -> None:
        with open_source(file.path, source) as given, os_errors(file.path, "write"):
            file.content = given.read(_BLOCK)
            while block := given.read(_BLOCK):
                self._write(file, start_sync=True)
                file.content = block
            self._sync_content(file)

    # Writing, in threads. Each step runs for all files of a batch, so that they share the waits for
    # the disk; a file that failed is left out of the next steps.

    def _put_batch(self, files: list[PendingFile]) -> None:
        with _cleaned_up(files):
            _each(files, partial(self._write, start_sync=True))
            _each(files, self._sync_content)
            _each(files, _close)
            _each(files, partial(self._install, set()))
            self._sync_names(files)

    def _keep_batch(self, files: list[PendingFile]) -> None:
        losses = self._file_system.watch()
        checked: set[str] = set()

        def keep(file: PendingFile) -> None:
            file.losses = losses
            self._write(file)
            if self._durable and not file.create and os.path.lexists(file.target):
                # Never replace a durable file by one that a power cut can lose.
                self._sync_content(file)
            _close(file)
            self._install(checked, file)

        with _cleaned_up(files):
            _each(files, keep)

    def _sync_batch(self, files: Sequence[PendingFile]) -> None:
        if not self._durable:
            return
        if len(files) < _SYNC_ALL_FROM or not self._file_system.sync():
            _each(files, lambda file: sync_file(file.target))
            self._sync_names(files)
        _each(files, self._check_losses)
        _each(files, lambda file: drop_from_cache(file.target))

    def _check_losses(self, file: PendingFile) -> None:
        """Raise the file system's error for every file that may be the one it lost.

        ``syncfs`` reports an error once and does not name the file.
        """
        if self._file_system.error is not None and file.losses < self._file_system.losses:
            raise self._file_system.error

    def _write(self, file: PendingFile, *, start_sync: bool = False) -> None:
        """Append the content to the hidden file, and have the disk start on it if asked to."""
        if file.handle < 0:
            self._create_hidden(file)
        left = memoryview(file.content)
        while left:
            left = left[os.write(file.handle, left) :]
        file.content = b""
        if start_sync and self._durable and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # advice: Linux starts to write what it shall drop
                os.posix_fadvise(file.handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def _create_hidden(self, file: PendingFile) -> None:
        folder = f"{self._hidden_root}/{next(self._folder_numbers)}"
        hidden = f"{folder}/{os.getpid()}-{_PROCESS}-{next(_numbers)}"
        try:
            file.handle = os.open(hidden, _NEW_FILE, 0o666)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            file.handle = os.open(hidden, _NEW_FILE, 0o666)
        file.hidden = hidden

    def _sync_content(self, file: PendingFile) -> None:
        if self._durable and file.handle >= 0:
            os.fsync(file.handle)

    def _install(self, checked: set[str], file: PendingFile) -> None:
        """Give the hidden file its name: from now on the artifact exists, complete."""
        hidden = file.hidden
        assert hidden is not None
        folder = os.path.dirname(file.target)
        for retry in range(20):
            if folder not in checked:
                self._check_folder(file.path, folder)
            try:
                if file.create:
                    os.link(hidden, file.target)
                else:
                    os.replace(hidden, file.target)
                    file.hidden = None
                checked.add(folder)
                return
            except FileExistsError:
                raise ArtifactExists(
                    f"{file.path}: an object of that name exists already"
                ) from None
            except FileNotFoundError:
                # A delete may remove the empty folder again before the next call.
                if retry == 19:
                    raise
                checked.discard(folder)
                self._known_folders.discard(folder)
                os.makedirs(folder, exist_ok=True)

    def _sync_names(self, files: Sequence[PendingFile]) -> None:
        """Make the files' names durable, and those of their folders if they may be new."""
        sync_once = cache(sync_folder)

        def sync_name(file: PendingFile) -> None:
            folder = each = os.path.dirname(file.target)
            while (
                (error := sync_once(each)) is None
                and folder not in self._known_folders
                and each != self._root
            ):
                each = os.path.dirname(each)
            if error is not None:
                raise error
            if len(self._known_folders) >= _MAX_KNOWN_FOLDERS:
                self._known_folders.clear()
            self._known_folders.add(folder)

        if self._durable:
            _each(files, sync_name)


def _each(files: Sequence[PendingFile], step: Callable[[PendingFile], None]) -> None:
    """Take a step with every file that has no error yet; an error is stored in its file."""
    for file in files:
        if file.error is None:
            try:
                step(file)
            except OSError as error:
                file.error = os_error(file.path, "write", error)
            except ArtifactError as error:
                file.error = error


def _close(file: PendingFile) -> None:
    handle, file.handle = file.handle, -1
    if handle >= 0:
        os.close(handle)


def _clean_up(file: PendingFile) -> None:
    """Close and remove the hidden file, if there is one."""
    with suppress(OSError):
        _close(file)
    if file.hidden is not None:
        with suppress(OSError):
            os.unlink(file.hidden)
        file.hidden = None


@contextmanager
def _cleaned_up(files: Sequence[PendingFile]) -> Iterator[None]:
    try:
        yield
    finally:
        for file in files:
            _clean_up(file)


@contextmanager
def os_errors(path: str, verb: str) -> Iterator[None]:
    """Raise ArtifactError in place of OSError."""
    try:
        yield
    except OSError as error:
        raise os_error(path, verb, error) from error


def os_error(path: str, verb: str, error: OSError) -> ArtifactError:
    """The ArtifactError of a failed system call."""
    if (
        error.errno in {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK}
        and verb == "write"
        and error.filename2 is not None
    ):
        return ArtifactError(
            f"{path}: this file system has no hard links, so it cannot write create-only objects"
        )
    return ArtifactError(f"{path}: cannot {verb} it: {error.strerror or error}")

# ruff: noqa: PTH103, PTH105, PTH108, PTH120 - names are plain text here: taking paths apart would cost as much as writing a small file
"""Objects of a folder in the making: hidden files that come to their places whole, safe on the disk, many at a time. All of it blocks."""

from __future__ import annotations

import errno
import os
import uuid
from asyncio import Future
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import cache, partial
from itertools import count, cycle

from esclusa.artifacts.disk import Disk, forget_file, sync_file, sync_folder
from esclusa.model.errors import ArtifactError, ArtifactExists
from esclusa.model.value import value
from esclusa.ports.artifacts import Kept

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MOST_KNOWN = 10_000

_CROWD = 8
"""Objects from which on the whole file system is synced rather than each of them."""

_MADE = uuid.uuid4().hex
_numbers = count()
"""Hidden names: no two of this process are alike, nor those of two processes, wherever they run; a fork has another number."""

FOLDERS = 8
"""Folders in which drafts are written in turn. A file system keeps the files of a folder close together, and those who write there at
the same time hold each other up; from several folders as much again comes to the disk in the same time."""


class Draft(Kept):
    """One object in the making. ``content`` is what is still to be written of it, ``error`` why it cannot become an object."""

    def __init__(self, path: str, target: str, url: str, create: bool) -> None:
        super().__init__(url)
        self.path = path
        self.target = target
        self.create = create
        self.content = b""
        self.made: Future[None] | None = None
        """Done when it is an object, or has an error."""
        self.losses = 0
        """How often the disk had lost something before it was written."""
        self._hidden: str | None = None
        self._file = -1

    @property
    def begun(self) -> bool:
        return self._file >= 0

    def write(self, making: str) -> None:
        """Write its content, so far; its hidden file is in the folder ``making``."""
        if not self.begun:
            self._begin(making)
        left = memoryview(self.content)
        while left:
            left = left[os.write(self._file, left) :]
        self.content = b""

    def _begin(self, making: str) -> None:
        hidden = f"{making}/{os.getpid()}-{_MADE}-{next(_numbers)}"
        try:
            self._file = os.open(hidden, _NEW, 0o666)
        except FileNotFoundError:
            os.makedirs(making, exist_ok=True)
            self._file = os.open(hidden, _NEW, 0o666)
        self._hidden = hidden

    def start_sync(self) -> None:
        """Have the disk begin, where the system can be told to: ``sync`` then waits less."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # it is advice: what Linux shall forget, it begins to write
                os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Wait until the disk has what was written of it."""
        if self.begun:
            os.fsync(self._file)

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def install(self) -> None:
        """Give it its name: from now on the object is there, whole."""
        assert self._hidden is not None
        if self.create:
            os.link(self._hidden, self.target)
        else:
            os.replace(self._hidden, self.target)
            self._hidden = None

    def clear(self) -> None:
        """Leave nothing behind but the object, if it became one."""
        if self.begun:
            with suppress(OSError):
                self.close()
        if self._hidden is not None:
            with suppress(OSError):
                os.unlink(self._hidden)
            self._hidden = None

    def take(self, step: Callable[[Draft], None]) -> None:
        """Take a step, unless one before it failed. What goes wrong is kept."""
        if self.error is None:
            try:
                step(self)
            except OSError as error:
                self.error = refused(self.path, "write", error)
            except ArtifactError as error:
                self.error = error


@value
class Workshop:
    """Where drafts become objects. ``judge`` raises ArtifactError for a folder that leads outside the root.

    ``durable``: an object outlives a power cut, for the disk has its content before its name, and its name before anybody hears of it.
    """

    root: str
    making: str
    judge: Callable[[str, str], None]
    durable: bool
    disk: Disk
    _turns: Iterator[int] = field(default_factory=lambda: cycle(range(FOLDERS)))
    _known: set[str] = field(default_factory=set)
    """Folders of which the disk knows that they are there."""

    def fill(self, draft: Draft) -> None:
        """Write what there is of its content, and have the disk begin."""
        self._write(draft)
        if self.durable:
            draft.start_sync()

    def flush(self, draft: Draft) -> None:
        """Wait for the disk. What is large does so before it becomes an object, and so keeps nobody waiting then."""
        if self.durable:
            draft.sync()

    def finish(self, drafts: list[Draft]) -> None:
        """Make safe objects of them, side by side, step by step: so they share the waits for the disk. Each keeps its own error."""
        with _cleared(drafts):
            _each(drafts, self.fill)
            _each(drafts, self._seal)
            _each(drafts, partial(self._install, set()))
            _each(drafts, partial(self._sync_folders, cache(sync_folder)))

    def keep(self, drafts: list[Draft]) -> None:
        """Make objects of them that are safe after ``sync``."""
        losses = self.disk.watch()
        with _cleared(drafts):
            for draft in drafts:
                draft.losses = losses
            _each(drafts, partial(self._keep, set()))

    def sync(self, drafts: list[Draft]) -> None:
        """Wait until the disk has what ``keep`` made, and the names of it. Each keeps its own error."""
        if not self.durable:
            return
        if len(drafts) < _CROWD or not self.disk.sync():
            _each(drafts, lambda draft: sync_file(draft.target))
            _each(drafts, partial(self._sync_folders, cache(sync_folder)))
        _each(drafts, self._judge_loss)
        _each(drafts, lambda draft: forget_file(draft.target))

    def _judge_loss(self, draft: Draft) -> None:
        """What was lost is told once, and not of which file: it may be any that was written by then, even after ``sync`` began."""
        if self.disk.lost is not None and draft.losses < self.disk.losses:
            raise self.disk.lost

    def _keep(self, judged: set[str], draft: Draft) -> None:
        self._write(draft)
        self._spare(draft)
        draft.close()
        self._install(judged, draft)

    def _spare(self, draft: Draft) -> None:
        """An object that has the name already may be of use to somebody: the disk has the new content before it goes."""
        if self.durable and os.path.lexists(draft.target):
            draft.sync()

    def _write(self, draft: Draft) -> None:
        draft.write(f"{self.making}/{next(self._turns)}")

    def _seal(self, draft: Draft) -> None:
        self.flush(draft)
        draft.close()

    def _install(self, judged: set[str], draft: Draft) -> None:
        folder = os.path.dirname(draft.target)
        for chance in range(20):
            if folder not in judged:
                self.judge(draft.path, folder)
            try:
                draft.install()
                judged.add(folder)
                return
            except FileExistsError:
                raise ArtifactExists(
                    f"{draft.path}: there is an object of that name already"
                ) from None
            except FileNotFoundError:
                # Again and again only if deletes take the empty folder away between the two calls, every time.
                if chance == 19:
                    raise
                judged.discard(folder)
                self._known.discard(folder)
                os.makedirs(folder, exist_ok=True)

    def _sync_folders(self, sync: Callable[[str], OSError | None], draft: Draft) -> None:
        """Wait until the disk knows its name, and the names of its folders if they may be new."""
        if not self.durable:
            return
        folder = each = os.path.dirname(draft.target)
        while (error := sync(each)) is None and folder not in self._known and each != self.root:
            each = os.path.dirname(each)
        if error is not None:
            raise error
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(folder)


def _each(drafts: list[Draft], step: Callable[[Draft], None]) -> None:
    for draft in drafts:
        draft.take(step)


@contextmanager
def _cleared(drafts: list[Draft]) -> Iterator[None]:
    try:
        yield
    finally:
        for draft in drafts:
            draft.clear()


def refused(path: str, verb: str, error: OSError) -> ArtifactError:
    """The system's own words, for whoever asked."""
    if (
        error.errno in {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK}
        and verb == "write"
        and error.filename2 is not None
    ):
        return ArtifactError(
            f"{path}: this file system has no hard links, so it cannot write create-only objects"
        )
    return ArtifactError(f"{path}: cannot {verb} it: {error.strerror or error}")

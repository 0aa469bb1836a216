"""What a folder's disk says of being safe: of a file, of names, of all that its file system has. All of it blocks."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from contextlib import suppress
from threading import Lock

_CANNOT = frozenset(
    {
        errno.EINVAL,
        errno.ENOSYS,
        errno.EOPNOTSUPP,
        errno.EBADF,
        errno.EACCES,
        errno.EPERM,
        errno.EISDIR,
        errno.ENOENT,
        errno.ENOTDIR,
    }
)
"""What says that a folder cannot be synced, or is gone with its names. Whatever else goes wrong, nobody knows that they are safe."""

_TELLING = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})
"""File systems whose ``syncfs`` waits for the disk and says what was lost: ext4, xfs, btrfs, f2fs, tmpfs. Others (a network's, FUSE,
overlays) pass it on in part, or not at all."""

_SINCE = (5, 8)
"""The Linux from which on ``syncfs`` says what was lost."""


class Disk:
    """The file system of a folder, synced as a whole.

    What it could not write it says once to each who had it open before. So it is held open from before the first write, and
    its losses are counted: whatever was written before the last of them may be what was lost.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = Lock()
        self._handle: int | None = None
        self.losses = 0
        self.lost: OSError | None = None
        """The last of them."""

    def watch(self) -> int:
        """Hear of every loss from now on; the number of those before."""
        if self._handle is None:
            with self._lock:
                if self._handle is None:
                    with suppress(OSError):
                        self._handle = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC)
        return self.losses

    def sync(self) -> bool:
        """Wait until the disk has whatever the file system has to write, or count a loss; False if this one cannot say."""
        if self._handle is None or not self._tells(self._handle):
            return False
        try:
            if _LIBRARY.syncfs(self._handle):
                raise OSError(said := ctypes.get_errno(), os.strerror(said))
            os.fsync(
                self._handle
            )  # a file system that has given up writing says so here, and not there
        except OSError as error:
            self.lost = error
            self.losses += 1
        return True

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    __del__ = close

    def _tells(self, handle: int) -> bool:
        if not hasattr(_LIBRARY, "syncfs") or _linux() < _SINCE:
            return False
        about = ctypes.create_string_buffer(512)
        try:
            same = os.stat(self._root).st_dev == os.fstat(handle).st_dev  # noqa: PTH116 - nothing was mounted there meanwhile
        except OSError:
            return False
        return (
            same
            and not _LIBRARY.fstatfs(handle, about)
            and ctypes.c_long.from_buffer(about).value & 0xFFFFFFFF in _TELLING
        )


_LIBRARY = ctypes.CDLL(None, use_errno=True)
"""Python has no ``syncfs`` of its own."""


def _linux() -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return tuple(map(int, found.groups())) if found and os.uname().sysname == "Linux" else (0,)


def sync_file(path: str) -> None:
    """Wait until the disk has it, if it is still there."""
    with suppress(FileNotFoundError):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def forget_file(path: str) -> None:
    """Give back the memory that the system has of it, where it can be told to: nobody may read it for long, and what others read
    often would make room for it. The disk has it already."""
    if not hasattr(os, "posix_fadvise"):
        return
    with suppress(OSError):  # it is advice
        file = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def sync_folder(path: str) -> OSError | None:
    """Wait until the disk knows a folder's names; what it said if it does not."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        return None if error.errno in _CANNOT else error
    return None

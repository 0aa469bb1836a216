"""Durability of files and folders: fsync, and syncfs for a whole file system. All calls block."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

# Errors of a folder that cannot be synced, or no longer exists. Any other error is a loss.
_CANNOT_SYNC = frozenset(
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

# File systems whose `syncfs` waits for the disk and reports errors.
#
# They are ext4, xfs, btrfs, f2fs and tmpfs. Network file systems, FUSE and overlays pass the call
# on only in part.
_RELIABLE = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})

# The first Linux version whose `syncfs` reports errors.
_REPORTS_ERRORS_SINCE = (5, 8)


class FileSystem:
    """The file system of a folder, which can be synced as a whole.

    A failed write is reported once to each handle that was open before. So a handle is opened
    before the first write, and losses are counted: any file written before a loss may be the lost
    one.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = Lock()
        self._handle: int | None = None
        self.losses = 0
        # The error of the last loss.
        self.error: OSError | None = None

    def watch(self) -> int:
        """Notice every loss from now on; return the number of losses so far."""
        if self._handle is None:
            with self._lock:
                if self._handle is None:
                    with suppress(OSError):
                        self._handle = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC)
        return self.losses

    def sync(self) -> bool:
        """Wait until everything is on the disk, or count a loss.

        Return False, without waiting, if this file system does not report losses reliably.
        """
        if self._handle is None or not self._reports_losses(self._handle):
            return False
        try:
            if _LIBRARY.syncfs(self._handle):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            os.fsync(self._handle)  # only this fails if the file system has become read-only
        except OSError as error:
            self.error = error
            self.losses += 1
        return True

    def close(self) -> None:
        """Release the handle."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    __del__ = close

    def _reports_losses(self, handle: int) -> bool:
        if not hasattr(_LIBRARY, "syncfs") or _linux() < _REPORTS_ERRORS_SINCE:
            return False
        status = ctypes.create_string_buffer(512)
        try:  # another file system may have been mounted there meanwhile
            same = os.stat(self._root).st_dev == os.fstat(handle).st_dev  # noqa: PTH116
        except OSError:
            return False
        return (
            same
            and not _LIBRARY.fstatfs(handle, status)
            and ctypes.c_long.from_buffer(status).value & 0xFFFFFFFF in _RELIABLE
        )


# The C library: Python has no `syncfs`.
_LIBRARY = ctypes.CDLL(None, use_errno=True)


def _linux() -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return tuple(map(int, found.groups())) if found and os.uname().sysname == "Linux" else (0,)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def sync_file(path: str) -> None:
    """Wait until the file's content is on the disk. A file that no longer exists is skipped."""
    with suppress(FileNotFoundError), _opened(path) as handle:
        os.fsync(handle)


def drop_from_cache(path: str) -> None:
    """Release the system's page cache of a file that is on the disk.

    New artifacts are rarely read soon, and would displace pages that are read often.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    with suppress(OSError), _opened(path) as handle:  # it is only advice
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def sync_folder(path: str) -> OSError | None:
    """Wait until the names in a folder are on the disk; return the error if they may be lost."""
    try:
        with _opened(path) as handle:
            os.fsync(handle)
    except OSError as error:
        return None if error.errno in _CANNOT_SYNC else error
    return None

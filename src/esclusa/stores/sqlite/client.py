"""Connections to the SQLite file, each on a thread of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw

from esclusa.model.errors import (
    BadRecord,
    EsclusaError,
    SchemaError,
    StoreNotReady,
    StoreUnavailable,
)
from esclusa.model.texts import text
from esclusa.stores.sqlite.codec import DECIMAL_COLLATION, compare_decimals

T = TypeVar("T")

_UNAVAILABLE = (
    apsw.CantOpenError,
    apsw.IOError,
    apsw.FullError,
    apsw.PermissionsError,
)


_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
# How a WAL is read whose shared memory cannot be made: without locks, as if no other process had
# the file open.
_UNLOCKED = "mode=ro&vfs=unix-none"


class ConnectionThread:
    """A connection and the thread on which all its calls run, in turn.

    ``busy``: seconds to wait for a lock of another process. ``cache``: megabytes of pages that the
    connection may keep. The system caches the file, too, so a page that is not kept costs little.
    """

    def __init__(self, path: Path, name: str, busy: float, cache: int = 16) -> None:
        self._path = path
        self._busy = busy
        self._cache = cache
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"sqlite-{name}")
        self._closed = False
        self.connection: apsw.Connection | None = None
        # Whether the file, or its folder, cannot be written.
        self.read_only = False
        # What SQLite reported about a damaged page that a call met.
        self.damage: str | None = None

    async def open(self) -> None:
        await self._run(self._open)

    async def close(self) -> None:
        """Wait for calls under way, then close. A second call does nothing."""
        if not self._closed:
            self._closed = True
            try:
                await self._run(self._close)
            finally:
                self._thread.shutdown(wait=False)

    async def call(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run ``work`` on the thread."""
        if self.connection is None:
            raise StoreUnavailable(text("store_not_open", store=self._path))
        connection = self.connection
        return await self._run(lambda: work(connection))

    async def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run ``work`` on the thread, in a transaction that excludes other writers."""

        def in_transaction(connection: apsw.Connection) -> T:
            connection.execute("BEGIN IMMEDIATE")
            try:
                answer = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return answer

        return await self.call(in_transaction)

    async def _run(self, work: Callable[[], T]) -> T:
        with self._mapped_errors():
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        if not self._path.parent.is_dir():
            raise StoreUnavailable(f"{self._path}: the folder {self._path.parent} does not exist")
        try:
            self.connection = self._connect(str(self._path))
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            if not self._path.is_file():
                raise
            self.connection = self._connect(_read_only_uri(self._path))
        self.read_only = self.connection.readonly("main")

    def _connect(self, name: str) -> apsw.Connection:
        connection = apsw.Connection(name, flags=_FLAGS, statementcachesize=400)
        try:
            if _UNLOCKED in name:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.set_busy_timeout(int(self._busy * 1000))
            # Fetched, because apsw stops at the first row. FULL: a commit survives a power cut.
            connection.execute(
                f"""PRAGMA journal_mode = WAL;
                PRAGMA synchronous = FULL;
                PRAGMA cache_size = -{self._cache * 1024};
                PRAGMA wal_autocheckpoint = 4000;
                PRAGMA temp_store = MEMORY"""
            ).fetchall()
            connection.create_collation(DECIMAL_COLLATION, compare_decimals)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Raise Esclusa's errors for SQLite's; those about the file name it."""
        try:
            yield
        except (apsw.BusyError, apsw.LockedError):
            raise StoreNotReady(
                text("store_locked", store=self._path, seconds=f"{self._busy:g}")
            ) from None
        except apsw.ReadOnlyError:
            raise StoreUnavailable(text("store_read_only", store=self._path)) from None
        except _UNAVAILABLE as error:
            raise StoreUnavailable(f"{self._path}: {error}") from None
        except apsw.NotADBError:
            raise StoreUnavailable(
                f"{self._path} is not a SQLite database; move it away or name another file"
            ) from None
        except apsw.CorruptError as error:
            self.damage = str(error)
            raise EsclusaError(text("store_damaged", store=self._path, why=error)) from None
        except apsw.ConstraintError as error:
            raise BadRecord(f"the table does not allow it: {error}") from None
        except apsw.SQLError as error:
            missing = ("no such table", "no such column", "no such index")
            if str(error).startswith(missing) or "has no column" in str(error):
                raise SchemaError(str(self._path), [f"{error}; run: esclusa migrate"]) from None
            raise
        except (OverflowError, UnicodeEncodeError) as error:
            raise BadRecord(f"a value cannot be stored: {error}") from None


def _read_only_uri(path: Path) -> str:
    """The address of a file beside which SQLite cannot make the files of its WAL.

    No process has it open, because these files are missing, so it does not change.
    """
    wal = path.with_name(f"{path.name}-wal")
    left = wal.is_file() and wal.stat().st_size > 0
    return f"{path.absolute().as_uri()}?{_UNLOCKED if left else 'immutable=1'}"


def fetch_value(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> Any:
    """Return the first value of the first row."""
    return next(iter(connection.execute(statement, values)))[0]


def fetch_json(
    connection: apsw.Connection, statement: str, values: Sequence[Any]
) -> list[list[Any]]:
    """Return the rows of a statement made by ``statements.select_json``."""
    rows: list[list[Any]] = json.loads(fetch_value(connection, statement, values))
    return rows

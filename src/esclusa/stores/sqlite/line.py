"""One connection on one thread of its own: every call on it runs there, in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw

from esclusa.model.errors import BadRecord, EsclusaError, SchemaError, StoreUnavailable
from esclusa.model.texts import text
from esclusa.stores.sqlite.codec import compare_decimals
from esclusa.stores.sqlite.statements import DECIMAL

T = TypeVar("T")


class Line:
    """A connection and its thread. ``cache``: megabytes of pages that it may keep."""

    def __init__(self, path: Path, name: str, busy: float, cache: int = 64) -> None:
        self._path = path
        self._busy = busy
        self._cache = cache
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"sqlite-{name}")
        self._closed = False
        self.connection: apsw.Connection | None = None

    async def open(self) -> None:
        await self._run(self._open)

    async def close(self) -> None:
        """Wait for calls under way, and end. A second time does nothing."""
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
        """Run ``work`` on the thread, in a transaction that no other writer can disturb."""

        def whole(connection: apsw.Connection) -> T:
            with transaction(connection):
                return work(connection)

        return await self.call(whole)

    async def _run(self, work: Callable[[], T]) -> T:
        with self._told():
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        if not self._path.parent.is_dir():
            raise StoreUnavailable(f"{self._path}: the folder {self._path.parent} does not exist")
        connection = apsw.Connection(str(self._path), statementcachesize=400)
        try:
            connection.set_busy_timeout(int(self._busy * 1000))
            connection.execute(
                f"PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -{self._cache * 1024};"
                "PRAGMA wal_autocheckpoint = 4000; PRAGMA temp_store = MEMORY"
            )
            connection.create_collation(DECIMAL, compare_decimals)
        except BaseException:
            connection.close()
            raise
        self.connection = connection

    def _close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors as ours, naming the file."""
        try:
            yield
        except (apsw.BusyError, apsw.LockedError):
            raise StoreUnavailable(
                text("store_locked", store=self._path, seconds=f"{self._busy:g}")
            ) from None
        except (
            apsw.CantOpenError,
            apsw.IOError,
            apsw.FullError,
            apsw.ReadOnlyError,
            apsw.PermissionsError,
        ) as error:
            raise StoreUnavailable(f"{self._path}: {error}") from None
        except apsw.NotADBError:
            raise StoreUnavailable(
                f"{self._path} is not a SQLite database; move it away or name another file"
            ) from None
        except apsw.CorruptError as error:
            raise EsclusaError(
                f"{self._path} is damaged ({error}); restore it from a copy"
            ) from None
        except apsw.ConstraintError as error:
            raise BadRecord(f"the table does not allow it: {error}") from None
        except apsw.SQLError as error:
            if str(error).startswith(
                ("no such table", "no such column", "no such index")
            ) or "has no column" in str(error):
                raise SchemaError(str(self._path), [f"{error}; run: esclusa migrate"]) from None
            raise
        except (OverflowError, UnicodeEncodeError) as error:
            raise BadRecord(f"a value cannot be stored: {error}") from None


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def first(connection: apsw.Connection, statement: str) -> Any:
    return next(iter(connection.execute(statement)))[0]

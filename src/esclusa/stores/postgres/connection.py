"""Connections: the pool, the mapping of PostgreSQL's errors to ours, and the retry of conflicts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions as pg

from esclusa.model.errors import SchemaError, StoreConflict, StoreUnavailable
from esclusa.model.texts import text
from esclusa.stores.postgres import times

T = TypeVar("T")
Purpose: TypeAlias = Literal["work", "claims", "reads"]

UNAVAILABLE = (
    pg.PostgresConnectionError,
    pg.OperatorInterventionError,
    pg.InsufficientResourcesError,
    pg.ReadOnlySQLTransactionError,
    pg.InvalidAuthorizationSpecificationError,
    pg.InvalidCatalogNameError,
    pg.InternalClientError,
    pg.InterfaceError,
    OSError,
    TimeoutError,
)
CONFLICT = (
    pg.TransactionRollbackError,
    pg.LockNotAvailableError,
    pg.InvalidCachedStatementError,
    pg.OutdatedSchemaCacheError,
)
UNFIT = (
    pg.DataError,
    pg.IntegrityConstraintViolationError,
    pg.ProgramLimitExceededError,
    ValueError,
    TypeError,
)
"""What PostgreSQL (or asyncpg, before it sends them: ValueError) says of values that a column or its index cannot hold."""

REFUSED = (*UNFIT, pg.RaiseError)
"""The same, and what a trigger says."""

_BY_INDEX = dict.fromkeys(("enable_sort", "enable_bitmapscan", "enable_seqscan", "jit"), "off")
_PLANNING = {"plan_cache_mode": "force_custom_plan", **_BY_INDEX}
"""How the engine's own statements are planned. A settlement's best plan depends on how many it settles, so plans are made for the
values at hand; and statistics are always behind a queue (they saw none in the state that now has them all), so that the planner would
rather sort all that is due, or read a whole table for a batch of ids, than follow the index. What has to be is still done; before
PostgreSQL 18 it then looks so dear that the statement would be compiled for longer than it runs (``jit``)."""
_CLAIMING = {**_PLANNING, "plan_cache_mode": "force_generic_plan"}
"""Claims are planned once: their index is the only way there is, whatever the limit, and a record that has just come waits for it."""

_TRIES = 6
_CREATE_POOL: Any = asyncpg.create_pool
_CONNECT: Any = asyncpg.connect
"""asyncpg is not typed; its edge is here."""


class Connection(asyncpg.Connection):
    """A connection without the reset on release: the store leaves no session state behind, and it costs a round trip."""

    def get_reset_query(self) -> str:
        return ""


class Connections:
    """The store's pools: one for claims, one for the rest of the engine's work, planned for it, and one for readers with questions of
    their own. Everything they raise is ours, or a fault in values (``UNFIT``)."""

    def __init__(self, dsn: str, pool_size: int, statement_cache_size: int) -> None:
        self.dsn = dsn
        self.url = without_password(dsn)
        self._size = pool_size
        self._cache = statement_cache_size
        self._pools: dict[Purpose, Any] = {}

    async def open(self) -> None:
        if self._pools:
            return
        reads, claims = max(1, self._size // 3), self._size // 4
        with mapped(self.url):
            work = await self._pool(1, max(1, self._size - reads - claims), _PLANNING)
            self._pools = {
                "work": work,
                "claims": await self._pool(0, claims, _CLAIMING) if claims else work,
                "reads": await self._pool(0, reads, {}),
            }

    async def _pool(self, least: int, most: int, settings: dict[str, str]) -> Any:
        settings = settings if self._cache else {}  # a pooler in between refuses them
        return await _CREATE_POOL(
            self.dsn, min_size=least, max_size=most, statement_cache_size=self._cache, max_cached_statement_lifetime=0, timeout=10,
            command_timeout=120, connection_class=Connection, server_settings={"application_name": "esclusa", **settings}, init=times.use,
        )  # fmt: skip

    async def close(self) -> None:
        pools, self._pools = set(self._pools.values()), {}
        try:
            await asyncio.wait_for(asyncio.gather(*(pool.close() for pool in pools)), 30)
        except (
            UNAVAILABLE
        ):  # the server is gone, or a call does not end: nothing is left to wait for
            for pool in pools:
                pool.terminate()
        except asyncio.CancelledError:
            for pool in pools:
                pool.terminate()
            raise

    async def dedicated(self) -> Any:
        """A connection of one's own, outside the pool and without a time limit on statements."""
        with mapped(self.url):
            return await _CONNECT(self.dsn, statement_cache_size=self._cache, timeout=10)

    @asynccontextmanager
    async def connection(self, purpose: Purpose = "work") -> AsyncIterator[Any]:
        pool = self._pools.get(purpose)
        if pool is None:
            raise StoreUnavailable(text("store_not_open", store=self.url))
        with mapped(self.url):
            async with pool.acquire(timeout=60) as connection:
                yield connection

    async def fetch(self, statement: str, *values: Any) -> list[Any]:
        """One statement of the engine's, its own transaction."""
        return await self._fetch("work", statement, values)

    async def read(self, statement: str, *values: Any) -> list[Any]:
        """A reader's question, planned as PostgreSQL thinks best."""
        return await self._fetch("reads", statement, values)

    async def _fetch(self, purpose: Purpose, statement: str, values: tuple[Any, ...]) -> list[Any]:
        async def run() -> list[Any]:
            async with self.connection(purpose) as connection:
                rows: list[Any] = await connection.fetch(statement, *values)
                return rows

        return await self._again(run)

    async def claim(self, statement: str, *values: Any) -> list[Any]:
        """One statement that must read an index in its order, even where the connection could not be told so."""
        if self._cache:
            return await self._fetch("claims", statement, values)

        async def run(connection: Any) -> list[Any]:
            await connection.execute(
                ";".join(f"SET LOCAL {name} = {value}" for name, value in _BY_INDEX.items())
            )
            rows: list[Any] = await connection.fetch(statement, *values)
            return rows

        return await self.transaction(run)

    async def transaction(
        self, body: Callable[[Any], Awaitable[T]], *, snapshot: bool = False
    ) -> T:
        """``body(connection)`` in one transaction, made again from its start when another transaction got in its way. With
        ``snapshot`` all its statements see the same moment."""
        isolation = "repeatable_read" if snapshot else None

        async def run() -> T:
            async with self.connection() as connection, connection.transaction(isolation=isolation):
                return await body(connection)

        return await self._again(run)

    async def _again(self, run: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(1, _TRIES + 1):
            try:
                return await run()
            except StoreConflict:
                if attempt == _TRIES:
                    raise
                await asyncio.sleep(0.01 * 2**attempt * random.random())
        raise AssertionError("unreachable")


class mapped:  # noqa: N801 - used like a function
    """Turn PostgreSQL's errors into ours."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: Any
    ) -> None:
        if error is None:
            return
        if isinstance(error, CONFLICT):
            raise StoreConflict(f"{self.url}: {error}") from error
        if isinstance(error, pg.UndefinedTableError | pg.UndefinedColumnError):
            raise SchemaError(self.url, [f"{error}; run: esclusa migrate"]) from error
        if isinstance(error, UNAVAILABLE) and not (
            isinstance(error, pg.InterfaceError) and isinstance(error, ValueError)
        ):
            why = str(error) or type(error).__name__
            raise StoreUnavailable(text("store_unavailable", store=self.url, why=why)) from error


def said(error: Exception) -> str:
    """What PostgreSQL says, without its detail: that shows the whole row, and a row may hold what is nobody's business."""
    return str(error.args[0]) if isinstance(error, pg.PostgresError) and error.args else str(error)


def without_password(dsn: str) -> str:
    parts = urlsplit(dsn)
    if parts.password is None:
        return dsn
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}@{host}" if parts.username else host))

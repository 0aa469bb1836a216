"""Connection pools, PostgreSQL's errors as Esclusa's, and the retry of conflicts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions as pg

from esclusa.model.errors import SchemaError, StoreConflict, StoreUnavailable
from esclusa.model.texts import text
from esclusa.stores.postgres.codec import use_time_codec

T = TypeVar("T")
# Runs a statement with its values and returns the rows.
Fetch: TypeAlias = Callable[..., Awaitable[list[Any]]]
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
# Raised for a value that a column or its index cannot hold; by asyncpg before it is sent.
VALUE_ERRORS = (
    pg.DataError,
    pg.IntegrityConstraintViolationError,
    pg.ProgramLimitExceededError,
    ValueError,
    TypeError,
)

# `VALUE_ERRORS`, and what a trigger raises.
TABLE_ERRORS = (*VALUE_ERRORS, pg.RaiseError)

# Plan by index where one exists.
#
# Statistics lag behind a queue: they saw no row in the state that now has them all. The planner
# would then sort everything that is due, or read a whole table for a batch of ids. Where no index
# serves, it still sorts. Before PostgreSQL 18 such a plan looks so expensive that it is compiled,
# which takes longer than running it; hence `jit`.
_USE_INDEXES = dict.fromkeys(("enable_sort", "enable_bitmapscan", "enable_seqscan", "jit"), "off")
# The best plan of a settlement depends on the number of records, so it is made for each call.
_WORK_SETTINGS = {"plan_cache_mode": "force_custom_plan", **_USE_INDEXES}
# A claim always reads its index, whatever its limit, so it is planned once: this saves latency.
_CLAIM_SETTINGS = {"plan_cache_mode": "force_generic_plan", **_USE_INDEXES}

_CONFLICT_ATTEMPTS = 6
_CREATE_POOL: Any = asyncpg.create_pool  # asyncpg has no types
_CONNECT: Any = asyncpg.connect


class PooledConnection(asyncpg.Connection):
    """A connection that is not reset on release: the store leaves no session state behind.

    It saves a round trip.
    """

    def get_reset_query(self) -> str:
        return ""


class ConnectionPools:
    """One pool for claims, one for the engine's other work, one for queries of readers.

    Raises Esclusa's errors, or one of ``VALUE_ERRORS``.
    """

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
        with mapped_errors(self.url):
            work = await self._pool(1, max(1, self._size - reads - claims), _WORK_SETTINGS)
            self._pools = {
                "work": work,
                "claims": await self._pool(0, claims, _CLAIM_SETTINGS) if claims else work,
                "reads": await self._pool(0, reads, {}),
            }

    async def _pool(self, least: int, most: int, settings: dict[str, str]) -> Any:
        settings = settings if self._cache else {}  # a pooler such as PgBouncer refuses them
        return await _CREATE_POOL(
            self.dsn,
            min_size=least,
            max_size=most,
            statement_cache_size=self._cache,
            max_cached_statement_lifetime=0,
            timeout=10,
            command_timeout=120,
            connection_class=PooledConnection,
            server_settings={"application_name": "esclusa", **settings},
            init=use_time_codec,
        )

    async def close(self) -> None:
        pools, self._pools = set(self._pools.values()), {}
        try:
            await asyncio.wait_for(asyncio.gather(*(pool.close() for pool in pools)), 30)
        except (*UNAVAILABLE, asyncio.CancelledError) as error:
            for pool in pools:
                pool.terminate()
            if isinstance(error, asyncio.CancelledError):
                raise

    async def dedicated(self) -> Any:
        """Return a connection outside the pools, without a time limit on statements."""
        with mapped_errors(self.url):
            return await _CONNECT(self.dsn, statement_cache_size=self._cache, timeout=10)

    @asynccontextmanager
    async def connection(self, purpose: Purpose = "work") -> AsyncIterator[Any]:
        pool = self._pools.get(purpose)
        if pool is None:
            raise StoreUnavailable(text("store_not_open", store=self.url))
        with mapped_errors(self.url):
            async with pool.acquire(timeout=60) as connection:
                yield connection

    async def fetch(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement of the engine, in its own transaction."""
        return await self._fetch("work", statement, values)

    async def read(self, statement: str, *values: Any) -> list[Any]:
        """Run a reader's query, planned as PostgreSQL thinks best."""
        return await self._fetch("reads", statement, values)

    async def _fetch(self, purpose: Purpose, statement: str, values: tuple[Any, ...]) -> list[Any]:
        async def run() -> list[Any]:
            async with self.connection(purpose) as connection:
                rows: list[Any] = await connection.fetch(statement, *values)
                return rows

        return await self._retry_conflicts(run)

    async def claim(self, statement: str, *values: Any) -> list[Any]:
        """Run one statement that must read an index in its order, behind a pooler too."""
        if self._cache:
            return await self._fetch("claims", statement, values)

        async def run(connection: Any) -> list[Any]:
            await connection.execute(
                ";".join(f"SET LOCAL {name} = {value}" for name, value in _USE_INDEXES.items())
            )
            rows: list[Any] = await connection.fetch(statement, *values)
            return rows

        return await self.transaction(run)

    async def transaction(
        self, body: Callable[[Any], Awaitable[T]], *, snapshot: bool = False
    ) -> T:
        """Run ``body(connection)`` in one transaction, again from its start after a conflict.

        ``snapshot``: all its statements see the same state of the database.
        """

        async def run() -> T:
            async with (
                self.connection() as connection,
                connection.transaction(isolation="repeatable_read" if snapshot else None),
            ):
                return await body(connection)

        return await self._retry_conflicts(run)

    async def _retry_conflicts(self, run: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(1, _CONFLICT_ATTEMPTS):
            try:
                return await run()
            except StoreConflict:
                await asyncio.sleep(0.01 * 2**attempt * random.random())
        return await run()


@contextmanager
def mapped_errors(url: str) -> Iterator[None]:
    """Raise Esclusa's errors for PostgreSQL's."""
    try:
        yield
    except CONFLICT as error:
        raise StoreConflict(f"{url}: {error}") from error
    except (pg.UndefinedTableError, pg.UndefinedColumnError) as error:
        raise SchemaError(url, [f"{error}; run: esclusa migrate"]) from error
    except UNAVAILABLE as error:
        if isinstance(error, pg.InterfaceError) and isinstance(error, ValueError):
            raise  # asyncpg cannot encode a value
        why = str(error) or type(error).__name__
        raise StoreUnavailable(text("store_unavailable", store=url, why=why)) from error


def error_message(error: Exception) -> str:
    """Return PostgreSQL's message without its detail, which shows the whole row."""
    return str(error.args[0]) if isinstance(error, pg.PostgresError) and error.args else str(error)


def without_password(dsn: str) -> str:
    """Return a DSN as messages may show it."""
    parts = urlsplit(dsn)
    if parts.password is None:
        return dsn
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}@{host}" if parts.username else host))

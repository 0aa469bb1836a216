"""Connection pools, PostgreSQL's errors as Esclusa's, and the retry of conflicts."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from asyncpg import exceptions as pg

from esclusa.model.errors import SchemaError, StoreConflict, StoreNotReady, StoreUnavailable
from esclusa.model.texts import text
from esclusa.stores.isolate import LockTimeout, StatementTimeout
from esclusa.stores.postgres.codec import use_time_codec
from esclusa.stores.postgres.hosts import Hosts
from esclusa.stores.postgres.limits import (
    MIGRATION_LIMITS,
    READ_LIMITS,
    SERVER_KEEPALIVE,
    StatementLimits,
    watch_peer,
    work_limits,
)
from esclusa.stores.postgres.names import Installation

# A pool that cannot connect says so with a traceback; calls raise StoreUnavailable anyway.
logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)

T = TypeVar("T")
# Runs a statement with its values and returns the rows.
Fetch: TypeAlias = Callable[..., Awaitable[list[Any]]]
Purpose: TypeAlias = Literal["work", "claims", "reads"]

UNAVAILABLE = (
    pg.PostgresConnectionError,
    pg.OperatorInterventionError,
    pg.IdleInTransactionSessionTimeoutError,
    pg.InsufficientResourcesError,
    pg.ReadOnlySQLTransactionError,
    pg.InvalidAuthorizationSpecificationError,
    pg.InvalidCatalogNameError,
    pg.InternalClientError,
    pg.InterfaceError,
    OSError,
    TimeoutError,
)
# Of these, what passes by itself.
_NOT_READY = (
    pg.TooManyConnectionsError,
    pg.CannotConnectNowError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.ConnectionDoesNotExistError,
    pg.ConnectionFailureError,
    # of several servers, or behind one address: none takes writes now, until one is promoted
    pg.TargetServerAttributeNotMatched,
    pg.ReadOnlySQLTransactionError,
    TimeoutError,
)
_UNREACHABLE = {
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ETIMEDOUT,
}
CONFLICT = (
    pg.TransactionRollbackError,
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

# A row that exists already, or whose target was removed: also if another session did that just now.
ROW_CONFLICTS = (pg.UniqueViolationError, pg.ForeignKeyViolationError)

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
# How long the server may take to confirm that it cancelled a statement.
_CANCEL_SECONDS = 0.25
# How long a connection may take to close in the usual way.
_CLOSE_SECONDS = 2.0
# How long a call waits for a free connection.
_ACQUIRE_SECONDS = 60.0
_CREATE_POOL: Any = asyncpg.create_pool  # asyncpg has no types


class PooledConnection(asyncpg.Connection):
    """A connection that is not reset on release: the store leaves no session state behind.

    It saves a round trip. A connection that hangs, so that a cancelled statement is not confirmed,
    is terminated, and ``on_hang`` is called.
    """

    on_hang: Callable[[], None] | None = None

    def get_reset_query(self) -> str:
        return ""

    async def close(self, *, timeout: float | None = None) -> None:
        """Close it; terminate it if it does not answer soon."""
        limit = _CLOSE_SECONDS if timeout is None else min(timeout, _CLOSE_SECONDS)
        with suppress(*UNAVAILABLE):
            await super().close(timeout=limit)  # type: ignore[no-untyped-call]

    def _cancel_current_command(self, *waiters: Any) -> None:
        """Cancel a statement that timed out, or whose caller was cancelled.

        asyncpg would wait for the confirmation as long as for an answer.
        """
        super()._cancel_current_command(*waiters)  # type: ignore[no-untyped-call]
        self._loop.call_later(_CANCEL_SECONDS, self._end_cancelling)

    def _end_cancelling(self) -> None:
        connection: Any = self
        if not connection.is_closed() and connection._protocol._is_cancelling():  # noqa: SLF001
            connection.terminate()
            if self.on_hang is not None:
                self.on_hang()


class ConnectionPools:
    """One pool for claims, one for the engine's other work, one for queries of readers.

    Raises Esclusa's errors, or one of ``VALUE_ERRORS``. Statements of work end after ``timeout``
    seconds, and wait a short time for locks. When a connection hangs, the others are replaced
    before they are used again: they probably hang, too. The same
    happens when a server turns out to be read-only: another one may have taken its place.
    """

    def __init__(
        self,
        dsn: str,
        pool_size: int,
        statement_cache_size: int,
        timeout: float,
        installation: Installation,
    ) -> None:
        self._hosts = Hosts(dsn)
        self.installation = installation
        self.url = without_password(dsn)
        self.limits = work_limits(timeout)
        # Called when a connection hangs.
        self.on_hang: Callable[[], None] | None = None
        self._size = pool_size
        self._cache = statement_cache_size
        self._connect_timeout = min(10.0, max(3.0, timeout))
        self._pools: dict[Purpose, Any] = {}
        self._expired = False

    async def open(self) -> None:
        if self._pools:
            return
        reads, claims = max(1, self._size // 3), self._size // 4
        with mapped_errors(self.url):
            most = max(1, self._size - reads - claims)
            work = await self._pool(1, most, self.limits, _WORK_SETTINGS)
            self._pools = {
                "work": work,
                "claims": await self._pool(0, claims, self.limits, _CLAIM_SETTINGS)
                if claims
                else work,
                "reads": await self._pool(0, reads, READ_LIMITS, {}),
            }

    async def _pool(
        self, least: int, most: int, limits: StatementLimits, settings: dict[str, str]
    ) -> Any:
        return await _CREATE_POOL(
            connect=self._hosts.connect,
            min_size=least,
            max_size=most,
            max_cached_statement_lifetime=0,
            command_timeout=limits.client,
            init=self._prepare,
            **self._options(limits, settings),
        )

    def _options(self, limits: StatementLimits, settings: dict[str, str]) -> dict[str, Any]:
        """The options of every connection."""
        named = {"application_name": self.installation.application}
        if self._cache:  # a pooler such as PgBouncer refuses other settings
            named |= settings | limits.settings | SERVER_KEEPALIVE
        return {
            "statement_cache_size": self._cache,
            "timeout": self._connect_timeout,
            "connection_class": PooledConnection,
            "server_settings": named,
        }

    async def _prepare(self, connection: PooledConnection) -> None:
        connection.on_hang = self._hang
        watch_peer(connection)
        await use_time_codec(connection)

    def _hang(self) -> None:
        self._expired = True
        if self.on_hang is not None:
            self.on_hang()

    async def close(self) -> None:
        pools, self._pools = set(self._pools.values()), {}
        try:
            await asyncio.wait_for(asyncio.gather(*(pool.close() for pool in pools)), 30)
        except (*UNAVAILABLE, asyncio.CancelledError) as error:
            for pool in pools:
                pool.terminate()
            if isinstance(error, asyncio.CancelledError):
                raise

    @property
    def pooled(self) -> bool:
        """Whether a pooler such as PgBouncer may be between: a session's state does not last."""
        return not self._cache

    async def dedicated(self) -> Any:
        """Return a connection outside the pools, without a time limit on statements."""
        with mapped_errors(self.url):
            connection = await self._hosts.connect(**self._options(MIGRATION_LIMITS, {}))
        watch_peer(connection)
        return connection

    @asynccontextmanager
    async def connection(self, purpose: Purpose = "work") -> AsyncIterator[Any]:
        pool = self._pools.get(purpose)
        if pool is None:
            raise StoreUnavailable(text("store_not_open", store=self.url))
        if self._expired:
            self._expired = False
            for each in set(self._pools.values()):
                await each.expire_connections()
        with mapped_errors(self.url):
            try:
                async with pool.acquire(timeout=_ACQUIRE_SECONDS) as connection:
                    yield connection
            except pg.ReadOnlySQLTransactionError:  # the server is a standby now
                self._hang()
                raise

    async def fetch(
        self,
        statement: str,
        *values: Any,
        limits: StatementLimits | None = None,
        retry_locks: bool = True,
    ) -> list[Any]:
        """Run one statement of the engine, in its own transaction."""
        return await self._fetch("work", statement, values, limits, retry_locks)

    async def read(self, statement: str, *values: Any) -> list[Any]:
        """Run a reader's query, planned as PostgreSQL thinks best."""
        return await self._fetch("reads", statement, values)

    async def claim(
        self, statement: str, *values: Any, limits: StatementLimits | None = None
    ) -> list[Any]:
        """Run one statement that must read an index in its order, behind a pooler too."""
        return await self._fetch("claims", statement, values, limits)

    async def _fetch(
        self,
        purpose: Purpose,
        statement: str,
        values: tuple[Any, ...],
        limits: StatementLimits | None = None,
        retry_locks: bool = True,
    ) -> list[Any]:
        async def run() -> list[Any]:
            async with self.connection(purpose) as connection:
                rows: list[Any] = await connection.fetch(statement, *values)
                return rows

        async def run_limited(connection: Any) -> list[Any]:
            timeout = None if limits is None else limits.client
            rows: list[Any] = await connection.fetch(statement, *values, timeout=timeout)
            return rows

        if limits is None and self._cache:
            return await self._retry_conflicts(run, retry_locks)
        return await self.transaction(
            run_limited, purpose=purpose, limits=limits, retry_locks=retry_locks
        )

    async def transaction(
        self,
        body: Callable[[Any], Awaitable[T]],
        *,
        purpose: Purpose = "work",
        snapshot: bool = False,
        limits: StatementLimits | None = None,
        retry_locks: bool = True,
    ) -> T:
        """Run ``body(connection)`` in one transaction, again from its start after a conflict.

        ``snapshot``: all its statements see the same state of the database. ``limits``: instead of
        those of the pool. Without ``retry_locks`` the first lock that is not released in time
        raises LockTimeout.
        """
        isolation = "repeatable_read" if snapshot else None
        settings = self._local_settings(purpose, limits)

        async def run() -> T:
            async with (
                self.connection(purpose) as connection,
                connection.transaction(isolation=isolation),
            ):
                if settings:
                    await connection.execute(settings)
                return await body(connection)

        return await self._retry_conflicts(run, retry_locks)

    def _local_settings(self, purpose: Purpose, limits: StatementLimits | None) -> str:
        """The statements with which a transaction begins."""
        if self._cache:
            return "" if limits is None else limits.set_local
        usual = READ_LIMITS if purpose == "reads" else self.limits
        planner = _USE_INDEXES if purpose == "claims" else {}
        indexes = [f"SET LOCAL {name} = {each}" for name, each in planner.items()]
        return ";".join([*indexes, (limits or usual).set_local])

    async def _retry_conflicts(self, run: Callable[[], Awaitable[T]], retry_locks: bool) -> T:
        for attempt in range(1, _CONFLICT_ATTEMPTS):
            try:
                return await run()
            except StoreConflict as error:
                if isinstance(error, LockTimeout) and not retry_locks:
                    raise
                await asyncio.sleep(0.01 * 2**attempt * random.random())
        return await run()


@contextmanager
def mapped_errors(url: str) -> Iterator[None]:
    """Raise Esclusa's errors for PostgreSQL's."""
    try:
        yield
    except pg.LockNotAvailableError as error:
        raise LockTimeout(f"{url}: {error}") from error
    except CONFLICT as error:
        raise StoreConflict(f"{url}: {error}") from error
    except (pg.UndefinedTableError, pg.UndefinedColumnError) as error:
        raise SchemaError(url, [f"{error}; run: esclusa migrate"]) from error
    except pg.QueryCanceledError as error:
        raise StatementTimeout(f"{url}: {error}") from error
    except UNAVAILABLE as error:
        if isinstance(error, pg.InterfaceError) and isinstance(error, ValueError):
            raise  # asyncpg cannot encode a value
        why = str(error) or "no answer in time"
        if "unsupported startup parameter" in why:
            why += "; behind PgBouncer set ESCLUSA_POSTGRES_STATEMENT_CACHE_SIZE=0"
        unavailable = StoreNotReady if _is_not_ready(error, url) else StoreUnavailable
        raise unavailable(text("store_unavailable", store=url, why=why)) from error


def _is_not_ready(error: BaseException, url: str) -> bool:
    """Whether the server may accept the same connection later; not if a setting is wrong."""
    if isinstance(error, FileNotFoundError):  # its Unix socket, not the file of a certificate
        return not urlsplit(url).hostname
    if isinstance(error, ConnectionError):
        return "rejected SSL upgrade" not in str(error)  # the server has no TLS
    if isinstance(error, _NOT_READY):
        return True
    # asyncio joins the errors of several addresses in one text.
    numbers = {int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error))}
    return isinstance(error, OSError) and bool(numbers) and numbers <= _UNREACHABLE


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

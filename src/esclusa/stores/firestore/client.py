"""Calls to Firestore: one connection that counts its operations and translates its errors."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import grpc
from google.api_core import exceptions as google
from google.auth.exceptions import GoogleAuthError
from google.cloud.firestore_v1 import types
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport

from esclusa.model.errors import (
    BadQuery,
    EsclusaError,
    SchemaError,
    StoreConflict,
    StoreUnavailable,
)
from esclusa.stores.firestore.clock import ServerClock
from esclusa.stores.firestore.errors import PreconditionFailed, mapped_errors, unavailable
from esclusa.stores.firestore.writes import in_commits
from esclusa.stores.isolate import LockTimeout

T = TypeVar("T")

StructuredQuery: Any = type(types.StructuredQuery.pb(types.StructuredQuery()))
CommitRequest: Any = type(types.CommitRequest.pb(types.CommitRequest()))
BatchWriteRequest: Any = type(types.BatchWriteRequest.pb(types.BatchWriteRequest()))
BatchGetRequest: Any = type(types.BatchGetDocumentsRequest.pb(types.BatchGetDocumentsRequest()))
QueryRequest: Any = type(types.RunQueryRequest.pb(types.RunQueryRequest()))
AggregationRequest: Any = type(
    types.RunAggregationQueryRequest.pb(types.RunAggregationQueryRequest())
)

_MAX_GETS = 300
_OK = 0
# Operations whose query comes from the caller. Without an index for it, the query is at fault.
_CALLER_QUERIES = ("find", "count", "scan", "summary", "purge", "archive", "assign")
# gRPC codes after which a single write may be sent again.
_RETRYABLE = (4, 8, 10, 13, 14)
_CHANNEL = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
]


# Seconds that a commit waits for the transactions of other clients, where others depend on it;
# and seconds for each of its writes, so that a large commit does not pass for a locked one.
LOCK_SECONDS, _WRITE_SECONDS = 4.0, 0.005
# Seconds after such a wait in which documents are written one by one.
_LOCKS_REMEMBERED = 30.0
# The answer to a write whose document another client has locked.
LOCKED: Any = object()


class FirestoreClient:
    """One connection to a database. Every method takes the operation that its cost counts for.

    ``reads`` and ``writes`` count documents by operation, as Firestore's price list does.
    """

    # Observer of every structured query: the operation, the query, the field that is summed.
    on_query: Callable[[str, Any, str | None], None] | None = None

    def __init__(self, project: str, database: str, client: FirestoreAsyncClient | None) -> None:
        self.database = f"projects/{project}/databases/{database}"
        self.root = f"{self.database}/documents"
        self.clock = ServerClock()
        self.reads: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()
        self._client, self._owned = client, client is None
        self._metadata = [("google-cloud-resource-prefix", self.database)]
        self._locks_until = float("-inf")
        self._calls = 0
        self._idle = asyncio.Event()

    async def open(self) -> None:
        """Connect, and learn the server's time."""
        if self._client is None:
            if host := os.environ.get("FIRESTORE_EMULATOR_HOST"):
                channel = grpc.aio.insecure_channel(host, options=_CHANNEL)
                self._client = FirestoreAsyncClient(
                    transport=FirestoreGrpcAsyncIOTransport(channel=channel)
                )
                self._metadata.append(("authorization", "Bearer owner"))
            else:
                try:
                    self._client = FirestoreAsyncClient()
                except GoogleAuthError as error:
                    raise StoreUnavailable(f"Firestore: no credentials: {error}") from error
        await self.get([f"{self.root}/esclusa_schema/_store"], "clock")

    async def close(self) -> None:
        """Refuse new calls, wait up to 30 s for those in progress, then disconnect."""
        client, self._client = self._client, None
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                while self._calls:
                    self._idle.clear()
                    await self._idle.wait()
        if client is not None and self._owned:
            await client.transport.close()  # type: ignore[no-untyped-call]

    @property
    def api(self) -> FirestoreAsyncClient:
        """Google's client; StoreUnavailable after ``close``."""
        if self._client is None:
            raise StoreUnavailable("Firestore: the store is closed")
        return self._client

    # Reads

    async def get(
        self, names: Sequence[str], op: str, transaction: bytes | None = None
    ) -> dict[str, Any]:
        """Return the documents that exist, by name."""
        chunks = [names[i : i + _MAX_GETS] for i in range(0, len(names), _MAX_GETS)]
        found: dict[str, Any] = {}
        for part in await asyncio.gather(*(self._get(chunk, op, transaction) for chunk in chunks)):
            found |= part
        return found

    async def _get(
        self, names: Sequence[str], op: str, transaction: bytes | None
    ) -> dict[str, Any]:
        request = BatchGetRequest(
            database=self.database, documents=list(names), transaction=transaction
        )

        async def call() -> dict[str, Any]:
            found, began = {}, self.clock.ticks()
            async for answer in await self.api.batch_get_documents(
                types.BatchGetDocumentsRequest.wrap(request),
                metadata=self._metadata,
                timeout=30,
                retry=None,
            ):
                part = types.BatchGetDocumentsResponse.pb(answer)
                self.clock.learn(began, part.read_time)
                if part.WhichOneof("result") == "found":
                    found[part.found.name] = part.found
            return found

        self.reads[op] += len(names)
        return await self._read(call, retry=transaction is None)

    async def query(
        self, query: Any, op: str, transaction: bytes | None = None, *, below: str = ""
    ) -> list[Any]:
        """Return the documents that a structured query finds, in its order.

        ``below``: the path of a document, whose collections are searched.
        """
        parent = f"{self.root}/{below}" if below else self.root
        request = QueryRequest(parent=parent, structured_query=query, transaction=transaction)

        async def call() -> list[Any]:
            if self.on_query is not None:
                self.on_query(op, query, None)
            stream = await self.api.run_query(
                types.RunQueryRequest.wrap(request), metadata=self._metadata, timeout=60, retry=None
            )
            parts = [types.RunQueryResponse.pb(answer) async for answer in stream]
            return [part.document for part in parts if part.HasField("document")]

        found = await self._read(call, retry=transaction is None, op=op)
        self.reads[op] += max(1, len(found))  # an empty answer costs one read
        return found

    async def count(self, query: Any, up_to: int, op: str, transaction: bytes | None = None) -> int:
        """Count the documents that match, up to ``up_to``."""
        counted = {"count": {"up_to": {"value": up_to}}}
        values = await self._aggregate(query, counted, op, transaction=transaction)
        found = sum(each.integer_value for each in values)
        self.reads[op] += max(1, -(-found // 1000))
        return int(found)

    async def sum(self, query: Any, path: str, op: str) -> int | float:
        """Sum a number field over the documents that match."""
        bare = StructuredQuery()
        bare.CopyFrom(query)
        bare.ClearField("order_by")  # otherwise the index would need the order's fields too
        found = await self._aggregate(bare, {"sum": {"field": {"field_path": path}}}, op, path)
        self.reads[op] += 1
        return float(v) if (v := found[0].double_value) else int(found[0].integer_value)

    async def _aggregate(
        self,
        query: Any,
        aggregation: dict[str, Any],
        op: str,
        summed: str | None = None,
        transaction: bytes | None = None,
    ) -> list[Any]:
        request = AggregationRequest(
            parent=self.root,
            transaction=transaction,
            structured_aggregation_query={
                "structured_query": query,
                "aggregations": [{"alias": "value", **aggregation}],
            },
        )

        async def call() -> list[Any]:
            if self.on_query is not None:
                self.on_query(op, query, summed)
            stream = await self.api.run_aggregation_query(
                types.RunAggregationQueryRequest.wrap(request),
                metadata=self._metadata,
                timeout=60,
                retry=None,
            )
            parts = [types.RunAggregationQueryResponse.pb(answer) async for answer in stream]
            return [p.result.aggregate_fields["value"] for p in parts if p.HasField("result")]

        return await self._read(call, retry=transaction is None, op=op)

    async def _read(self, call: Callable[[], Awaitable[T]], *, retry: bool, op: str = "") -> T:
        for pause in (0.05, 0.2, 0.6, None) if retry else (None,):
            try:
                with self._mapped_errors():
                    return await call()
            except (StoreUnavailable, StoreConflict):
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            except PreconditionFailed as error:  # a read's only precondition is its index
                if isinstance(error.__cause__, google.NotFound):
                    raise StoreUnavailable(unavailable(error)) from error
                if op in _CALLER_QUERIES:
                    raise BadQuery(
                        f"{error}. Remove the order or the range from the query, or add"
                        " `index=` to the record and deploy the indexes"
                    ) from error
                raise SchemaError(
                    "Firestore", [f"{error}; deploy firestore.indexes.json"]
                ) from error
        raise AssertionError("the last attempt returns or raises")

    # Writes

    async def commit(
        self,
        writes: Sequence[Any],
        op: str,
        transaction: bytes | None = None,
        *,
        bounded: bool = False,
    ) -> list[Any]:
        """Apply all of these writes or none, and return their results.

        Raises PreconditionFailed if the precondition of a write does not hold. A commit waits for
        the transactions of other clients; ``bounded``: some seconds, then it raises LockTimeout.
        """
        timeout = LOCK_SECONDS + _WRITE_SECONDS * len(writes) if bounded else 60.0
        request = CommitRequest(database=self.database, writes=writes, transaction=transaction)
        began = self.clock.ticks()
        with self._mapped_errors():
            try:
                answer = await self.api.commit(
                    types.CommitRequest.wrap(request),
                    metadata=self._metadata,
                    timeout=timeout,
                    retry=None,
                )
            except google.DeadlineExceeded as error:
                if not bounded:
                    raise
                raise LockTimeout(f"Firestore: {error.message}") from error
        done = types.CommitResponse.pb(answer)
        self.clock.learn(began, done.commit_time)
        self.writes[op] += len(writes)
        return list(done.write_results)

    async def each(
        self, writes: Sequence[Any], op: str, *, skip_locked: bool = False
    ) -> list[Any | None]:
        """Apply each write on its own: return its result, or None if its precondition failed.

        A document that another client has locked is LOCKED with ``skip_locked``; without it, all
        others are written, and StoreConflict is raised. One commit of all writes is the cheapest
        call, so it is tried first.
        """
        out: list[Any | None] = []
        for chunk in in_commits([[w] for w in writes]):
            flat = [w for unit in chunk for w in unit]
            if self.clock.ticks() < self._locks_until:
                out += await self._each(flat, op, skip_locked)
                continue
            try:
                out += await self.commit(flat, op, bounded=True)
            except (PreconditionFailed, StoreConflict) as error:
                if isinstance(error, LockTimeout):
                    self._locks_until = self.clock.ticks() + _LOCKS_REMEMBERED
                out += await self._each(flat, op, skip_locked)
        if not skip_locked and any(result is LOCKED for result in out):
            raise StoreConflict("Firestore: other clients keep a document locked")
        return out

    async def _each(self, writes: Sequence[Any], op: str, skip_locked: bool) -> list[Any | None]:
        out: list[Any | None] = [None] * len(writes)
        todo = list(range(len(writes)))
        for pause in (0.05, 0.0) if skip_locked else (0.05, 0.2, 0.5, 1.0, 0.0):
            request = BatchWriteRequest(database=self.database, writes=[writes[i] for i in todo])
            with self._mapped_errors():
                answer = await self.api.batch_write(
                    types.BatchWriteRequest.wrap(request),
                    metadata=self._metadata,
                    timeout=60,
                    retry=None,
                )
            done = types.BatchWriteResponse.pb(answer)
            retryable = []
            for i, result, status in zip(todo, done.write_results, done.status, strict=True):
                if status.code == _OK:
                    out[i] = result
                    self.writes[op] += 1
                elif status.code in _RETRYABLE:
                    retryable.append(i)
                    out[i] = LOCKED
                else:
                    out[i] = None
            todo = retryable
            if not todo:
                break
            await asyncio.sleep(pause)
        return out

    # Transactions

    async def begin(self, *, read_only: bool = False) -> bytes:
        """Begin a transaction. With ``read_only`` it locks nothing: its reads are one snapshot."""
        request = types.BeginTransactionRequest(database=self.database)
        if read_only:
            request.options = types.TransactionOptions(
                read_only=types.TransactionOptions.ReadOnly()
            )
        with self._mapped_errors():
            answer = await self.api.begin_transaction(
                request, metadata=self._metadata, timeout=30, retry=None
            )
        return bytes(answer.transaction)

    async def rollback(self, transaction: bytes) -> None:
        """End a transaction. Never raises: the server ends it by itself if this fails."""
        with suppress(EsclusaError, asyncio.CancelledError), self._mapped_errors():
            await self.api.rollback(
                database=self.database,
                transaction=transaction,
                metadata=self._metadata,
                timeout=30,
                retry=None,
            )

    # Notifications

    async def listen(self, collection: str) -> AsyncIterator[Any]:
        """Yield the changes of a collection as they arrive."""
        add = types.ListenRequest(
            database=self.database,
            add_target=types.Target(
                target_id=1,
                query=types.Target.QueryTarget(
                    parent=self.root,
                    structured_query=types.StructuredQuery(
                        from_=[types.StructuredQuery.CollectionSelector(collection_id=collection)]
                    ),
                ),
            ),
        )
        ended = asyncio.Event()

        async def requests() -> AsyncIterator[Any]:
            yield add
            await ended.wait()

        try:
            async for answer in await self.api.listen(
                requests=requests(), metadata=self._metadata, timeout=3600, retry=None
            ):
                yield types.ListenResponse.pb(answer)
        finally:
            ended.set()

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Raise Esclusa's errors in place of Google's; ``close`` waits for the call inside."""
        self._calls += 1
        try:
            with mapped_errors():
                yield
        finally:
            self._calls -= 1
            self._idle.set()

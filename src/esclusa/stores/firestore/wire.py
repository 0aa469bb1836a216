"""The calls to Firestore: what goes over the wire, what it costs, and what its errors mean."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import grpc
from google.api_core import exceptions as google
from google.auth.exceptions import GoogleAuthError
from google.cloud.firestore_v1 import types
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport

from esclusa.model.errors import (
    BadQuery,
    BadRecord,
    EsclusaError,
    SchemaError,
    StoreConflict,
    StoreUnavailable,
)
from esclusa.model.value import value
from esclusa.stores.firestore.clock import ServerClock

T = TypeVar("T")

Write: Any = type(types.Write.pb(types.Write()))
StructuredQuery: Any = type(types.StructuredQuery.pb(types.StructuredQuery()))
CommitRequest: Any = type(types.CommitRequest.pb(types.CommitRequest()))
BatchWriteRequest: Any = type(types.BatchWriteRequest.pb(types.BatchWriteRequest()))
BatchGetRequest: Any = type(types.BatchGetDocumentsRequest.pb(types.BatchGetDocumentsRequest()))
QueryRequest: Any = type(types.RunQueryRequest.pb(types.RunQueryRequest()))
CountRequest: Any = type(types.RunAggregationQueryRequest.pb(types.RunAggregationQueryRequest()))

MOST_WRITES = 500
MOST_BYTES = 4_000_000
"""Firestore takes 10 MiB in a call, its emulator 4."""
_GETS = 300
_OK, _ALREADY_EXISTS = 0, 6
_ASKED = ("find", "count", "scan", "summary", "purge", "archive", "assign")
"""Operations whose question comes from outside: one that no index serves is a bad question."""
_BUSY = (4, 8, 10, 13, 14)
"""gRPC codes of a single write that may be made again."""
_CHANNEL = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
]


class Stale(EsclusaError):
    """A precondition does not hold any more: somebody else wrote. Expected; caught where the call was made."""


@value
class Cost:
    """What was asked of Firestore, by operation: its price list counts document reads, writes and deletes."""

    reads: Counter[str]
    writes: Counter[str]


class Wire:
    """One connection. Every method names the operation it serves, so that costs can be told apart."""

    seen: Callable[[str, Any, str | None], None] | None = None
    """Called with the operation, every structured query that is sent, and the field of which it asks the mean."""

    def __init__(self, project: str, database: str, client: FirestoreAsyncClient | None) -> None:
        self.database = f"projects/{project}/databases/{database}"
        self.root = f"{self.database}/documents"
        self.clock = ServerClock()
        self.cost = Cost(Counter(), Counter())
        self._client, self._given = client, client is not None
        self._channel: Any = None
        self._metadata = [("google-cloud-resource-prefix", self.database)]
        self._under_way = 0
        self._idle = asyncio.Event()

    async def open(self) -> None:
        if self._client is None:
            if host := os.environ.get("FIRESTORE_EMULATOR_HOST"):
                self._channel = grpc.aio.insecure_channel(host, options=_CHANNEL)
                self._client = FirestoreAsyncClient(
                    transport=FirestoreGrpcAsyncIOTransport(channel=self._channel)
                )
                self._metadata.append(("authorization", "Bearer owner"))
            else:
                try:
                    self._client = FirestoreAsyncClient()
                except GoogleAuthError as error:
                    raise StoreUnavailable(f"Firestore: no credentials: {error}") from error
        await self.get([f"{self.root}/esclusa_schema/_store"], "clock")

    async def close(self) -> None:
        """Disconnect, after the calls under way; new ones are refused."""
        client, self._client = self._client, None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while self._under_way:
                    self._idle.clear()
                    await self._idle.wait()
        if client is not None and not self._given:
            await client.transport.close()  # type: ignore[no-untyped-call]

    @property
    def api(self) -> FirestoreAsyncClient:
        if self._client is None:
            raise StoreUnavailable("Firestore: the store is closed")
        return self._client

    # reads

    async def get(
        self, names: Sequence[str], op: str, transaction: bytes | None = None
    ) -> dict[str, Any]:
        """The documents that are there, by name."""
        chunks = [names[i : i + _GETS] for i in range(0, len(names), _GETS)]
        found: dict[str, Any] = {}
        for part in await asyncio.gather(*(self._get(chunk, op, transaction) for chunk in chunks)):
            found |= part
        return found

    async def _get(
        self, names: Sequence[str], op: str, transaction: bytes | None
    ) -> dict[str, Any]:
        request = BatchGetRequest(database=self.database, documents=list(names))
        if transaction is not None:
            request.transaction = transaction

        async def call() -> dict[str, Any]:
            found, began = {}, self.clock.ticks()
            wrapped = types.BatchGetDocumentsRequest.wrap(request)
            async for answer in await self.api.batch_get_documents(
                wrapped, metadata=self._metadata, timeout=30, retry=None
            ):
                part = types.BatchGetDocumentsResponse.pb(answer)
                self.clock.learn(began, part.read_time)
                if part.WhichOneof("result") == "found":
                    found[part.found.name] = part.found
            return found

        self.cost.reads[op] += len(names)
        return await self._read(call, again=transaction is None)

    async def query(self, query: Any, op: str, transaction: bytes | None = None) -> list[Any]:
        """The documents that a structured query finds, in its order."""
        request = QueryRequest(parent=self.root, structured_query=query)
        if transaction is not None:
            request.transaction = transaction

        async def call() -> list[Any]:
            self._tell(op, query)
            wrapped = types.RunQueryRequest.wrap(request)
            stream = await self.api.run_query(
                wrapped, metadata=self._metadata, timeout=60, retry=None
            )
            parts = [types.RunQueryResponse.pb(answer) async for answer in stream]
            return [part.document for part in parts if part.HasField("document")]

        found = await self._read(call, again=transaction is None, op=op)
        self.cost.reads[op] += max(1, len(found))  # an empty answer costs one
        return found

    async def count(self, query: Any, up_to: int, op: str) -> int:
        """How many documents match, counted up to a number."""
        request = CountRequest(parent=self.root)
        request.structured_aggregation_query.structured_query.CopyFrom(query)
        counting = request.structured_aggregation_query.aggregations.add(alias="n")
        counting.count.up_to.value = up_to

        async def call() -> int:
            self._tell(op, query)
            wrapped = types.RunAggregationQueryRequest.wrap(request)
            stream = await self.api.run_aggregation_query(
                wrapped, metadata=self._metadata, timeout=60, retry=None
            )
            parts = [types.RunAggregationQueryResponse.pb(answer) async for answer in stream]
            return sum(
                part.result.aggregate_fields["n"].integer_value
                for part in parts
                if part.HasField("result")
            )

        found = await self._read(call, again=True, op=op)
        self.cost.reads[op] += max(1, -(-found // 1000))
        return found

    async def mean(self, query: Any, path: str, op: str) -> float | None:
        """The mean of a number over the documents that match; None if there is none."""
        request = CountRequest(parent=self.root)
        asked = request.structured_aggregation_query.structured_query
        asked.CopyFrom(query)
        asked.ClearField("order_by")  # an index would have to hold both
        request.structured_aggregation_query.aggregations.add(alias="a").avg.field.field_path = path

        async def call() -> float | None:
            self._tell(op, asked, path)
            wrapped = types.RunAggregationQueryRequest.wrap(request)
            stream = await self.api.run_aggregation_query(
                wrapped, metadata=self._metadata, timeout=60, retry=None
            )
            parts = [types.RunAggregationQueryResponse.pb(answer) async for answer in stream]
            found = [part.result.aggregate_fields["a"] for part in parts if part.HasField("result")]
            return (
                float(found[0].double_value or found[0].integer_value)
                if found and not found[0].HasField("null_value")
                else None
            )

        found = await self._read(call, again=True, op=op)
        self.cost.reads[op] += 1
        return found

    def _tell(self, op: str, query: Any, average: str | None = None) -> None:
        if self.seen is not None:
            self.seen(op, query, average)

    async def _read(self, call: Callable[[], Awaitable[T]], *, again: bool, op: str = "") -> T:
        for pause in (0.05, 0.2, 0.6, None) if again else (None,):
            try:
                return await self._meant(call)
            except (StoreUnavailable, StoreConflict):
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            except Stale as error:  # a read has no other precondition than its index
                if isinstance(error.__cause__, google.NotFound):
                    raise StoreUnavailable(f"Firestore: {error}") from error
                if op in _ASKED:
                    raise BadQuery(
                        f"{error}. Ask without the order or the range, or add `index=` to the record and deploy"
                    ) from error
                raise SchemaError(
                    "Firestore", [f"{error}; deploy firestore.indexes.json"]
                ) from error
        raise AssertionError("the last try returns or raises")

    # writes

    async def commit(
        self, writes: Sequence[Any], op: str, transaction: bytes | None = None
    ) -> list[Any]:
        """All of these writes or none; their results. Stale when a precondition does not hold."""
        request = CommitRequest(database=self.database, writes=writes)
        if transaction is not None:
            request.transaction = transaction

        async def call() -> list[Any]:
            began = self.clock.ticks()
            answer = await self.api.commit(
                types.CommitRequest.wrap(request), metadata=self._metadata, timeout=60, retry=None
            )
            done = types.CommitResponse.pb(answer)
            self.clock.learn(began, done.commit_time)
            return list(done.write_results)

        done = await self._meant(call)
        self.cost.writes[op] += len(writes)
        return done

    async def each(self, writes: Sequence[Any], op: str) -> list[Any | None]:
        """Each of these writes for itself: its result, or None where its precondition does not hold.

        Tried as one commit first, which is the cheapest call; when one of them is stale, the others still go through.
        """
        out: list[Any | None] = []
        for chunk in chunked([[w] for w in writes]):
            flat = [w for unit in chunk for w in unit]
            try:
                out += await self.commit(flat, op)
            except (Stale, StoreConflict):
                out += await self._each(flat, op)
        return out

    async def _each(self, writes: Sequence[Any], op: str) -> list[Any | None]:
        out: list[Any | None] = [None] * len(writes)
        todo = list(range(len(writes)))
        for pause in (0.05, 0.2, 0.5, 1.0, 0.0):
            request = BatchWriteRequest(database=self.database, writes=[writes[i] for i in todo])

            async def call(request: Any = request) -> Any:
                wrapped = types.BatchWriteRequest.wrap(request)
                answer = await self.api.batch_write(
                    wrapped, metadata=self._metadata, timeout=60, retry=None
                )
                return types.BatchWriteResponse.pb(answer)

            done = await self._meant(call)
            busy = []
            for i, result, status in zip(todo, done.write_results, done.status, strict=True):
                if status.code == _OK:
                    out[i] = result
                    self.cost.writes[op] += 1
                elif status.code in _BUSY:
                    busy.append(i)
            todo = busy
            if not todo:
                break
            await asyncio.sleep(pause)
        return out

    # transactions

    async def begin(self) -> bytes:
        async def call() -> bytes:
            answer = await self.api.begin_transaction(
                database=self.database, metadata=self._metadata, timeout=30, retry=None
            )
            return bytes(answer.transaction)

        return await self._meant(call)

    async def rollback(self, transaction: bytes) -> None:
        async def call() -> None:
            await self.api.rollback(
                database=self.database,
                transaction=transaction,
                metadata=self._metadata,
                timeout=30,
                retry=None,
            )

        try:
            await self._meant(call)
        except (EsclusaError, asyncio.CancelledError):
            return  # the server ends it by itself

    # listening

    async def listen(self, collection: str) -> AsyncIterator[Any]:
        """The changes in a collection, as they come."""
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
        ends = asyncio.Event()

        async def requests() -> AsyncIterator[Any]:
            yield add
            await ends.wait()

        try:
            stream = await self.api.listen(
                requests=requests(), metadata=self._metadata, timeout=3600, retry=None
            )
            async for answer in stream:
                yield types.ListenResponse.pb(answer)
        finally:
            ends.set()

    async def _meant(self, call: Callable[[], Awaitable[T]]) -> T:
        """The call with Firestore's errors in our words."""
        self._under_way += 1
        try:
            return await call()
        except (google.FailedPrecondition, google.AlreadyExists, google.NotFound) as error:
            raise Stale(str(error)) from error
        except google.Aborted as error:
            raise StoreConflict(f"Firestore: {error.message}") from error
        except google.InvalidArgument as error:
            if "transaction" in error.message and (
                "expired" in error.message or "no longer valid" in error.message
            ):
                raise StoreConflict(f"Firestore: {error.message}") from error
            raise BadRecord(f"Firestore refuses it: {error.message}") from error
        except google.ResourceExhausted as error:
            if (
                "message exceeds maximum size" in error.message
            ):  # trying again would not make it smaller
                raise BadRecord(f"Firestore refuses it: {error.message}") from error
            raise StoreUnavailable(f"Firestore: {error}") from error
        except (
            google.GoogleAPICallError,
            google.RetryError,
            grpc.RpcError,
            GoogleAuthError,
        ) as error:
            raise StoreUnavailable(f"Firestore: {error}") from error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise StoreUnavailable(f"Firestore: the connection is closed: {error}") from error
        finally:
            self._under_way -= 1
            self._idle.set()


def chunked(units: Iterable[list[Any]], most: int = MOST_WRITES) -> list[list[list[Any]]]:
    """Units of writes that belong together, in chunks that one commit can take."""
    chunks: list[list[list[Any]]] = []
    count = size = 0
    for unit in units:
        weight = sum(w.ByteSize() for w in unit)
        if not chunks or count + len(unit) > most or size + weight > MOST_BYTES:
            chunks.append([])
            count = size = 0
        chunks[-1].append(unit)
        count, size = count + len(unit), size + weight
    return chunks


def put(
    name: str,
    document: Any,
    *,
    mask: Sequence[str] | None = None,
    at: Any = None,
    exists: bool | None = None,
) -> Any:
    """A write of a document's fields: all of them, or those in the mask. ``at``: only if it was last written then."""
    write = Write()
    write.update.CopyFrom(document)
    write.update.name = name
    if mask is not None:
        write.update_mask.field_paths.extend(_field_path(column) for column in mask)
        write.update_mask.SetInParent()
    return conditioned(write, at, exists)


def delete(name: str, *, at: Any = None, exists: bool | None = None) -> Any:
    return conditioned(Write(delete=name), at, exists)


def verify(name: str, at: Any) -> Any:
    """A write that changes nothing and fails if the document changed: an update of no field."""
    write = Write()
    write.update.name = name
    write.update_mask.SetInParent()
    return conditioned(write, at, None)


def conditioned(write: Any, at: Any, exists: bool | None) -> Any:
    if at is not None:
        write.current_document.update_time.CopyFrom(at)
    elif exists is not None:
        write.current_document.exists = exists
    return write


def _field_path(column: str) -> str:
    return (
        column
        if column.replace("_", "a").isalnum() and column.isascii() and not column[0].isdigit()
        else f"`{column}`"
    )

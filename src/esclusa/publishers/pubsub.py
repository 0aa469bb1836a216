"""Publishes messages to Google Cloud Pub/Sub."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from esclusa.model.errors import Failure, Permanent, SettingsError
from esclusa.model.system_records import Message

if TYPE_CHECKING:
    from google.pubsub_v1 import PublisherAsyncClient

# The attribute with the message's own id; one published twice has two ids of Pub/Sub.
EVENT_ID = "event_id"

_MAX_MESSAGES = 1000
_MAX_BYTES = 8_000_000
_MAX_MESSAGE = 10_000_000
_MAX_ATTRIBUTES, _MAX_NAME, _MAX_VALUE = 100, 256, 1024


class PubSubPublisher:
    """Publishes with the credentials of the environment.

    A message's topic is ``projects/p/topics/t``, or ``t`` in this project. Messages of one topic
    are sent together. ``emulator``: host:port of an emulator, which needs no credentials. ``lazy``:
    connect with the first message; if that fails, the messages fail and are retried. ``timeout``:
    seconds for which a transient failure is retried here; after that the outbox retries.
    """

    def __init__(
        self,
        project: str,
        *,
        emulator: str | None = None,
        timeout: float = 20.0,
        lazy: bool = False,
    ) -> None:
        self._project = project
        self._timeout = timeout
        self._emulator = emulator
        self._lazy = lazy
        self._connecting = asyncio.Lock()
        self._client: PublisherAsyncClient | None = None

    def __repr__(self) -> str:
        return f"PubSubPublisher({self._project!r})"

    async def open(self) -> None:
        if not self._lazy:
            await self._connect()

    async def _connect(self) -> None:
        async with self._connecting:
            if self._client is not None:
                return
            try:
                self._client = (
                    _emulated(self._emulator)
                    if self._emulator
                    else await asyncio.to_thread(_connected)
                )
            except ImportError as error:
                missing = (
                    "ESCLUSA_PUBLISH: pubsub:// needs the extra esclusa[google]: "
                    f"pip install 'esclusa[google]' ({error})"
                )
                raise SettingsError("settings", [missing]) from error

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.transport.close()

    async def publish(self, messages: Sequence[Message]) -> list[Failure | None]:
        try:
            await self._connect()
        except SettingsError as error:
            return [Failure("; ".join(error.faults), type="configuration") for _ in messages]
        by_topic: dict[str, list[_Prepared]] = defaultdict(list)
        answers: list[Failure | None] = [None] * len(messages)
        for place, message in enumerate(messages):
            wire = _Prepared(place, message)
            answers[place] = wire.fault()
            if answers[place] is None:
                by_topic[self._full(message.topic)].append(wire)
        for topic, prepared in by_topic.items():
            for part in _parts(prepared):
                for wire, answer in zip(part, await self._send(topic, part), strict=True):
                    answers[wire.place] = answer
        return answers

    def _full(self, topic: str) -> str:
        return (
            topic if topic.startswith("projects/") else f"projects/{self._project}/topics/{topic}"
        )

    async def _send(self, topic: str, messages: Sequence[_Prepared]) -> list[Failure | None]:
        """Send one request. If it is invalid, send each message alone, to find the bad one."""
        from google.api_core import exceptions as api  # noqa: PLC0415 - an extra, loaded with the client
        from google.api_core.retry_async import AsyncRetry  # noqa: PLC0415
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

        transient = (
            api.ServiceUnavailable,
            api.DeadlineExceeded,
            api.ResourceExhausted,
            api.InternalServerError,
            api.Aborted,
            api.Unknown,
        )
        again = AsyncRetry(
            lambda error: isinstance(error, transient),
            initial=0.1,
            maximum=3.0,
            timeout=self._timeout,
        )
        assert self._client is not None
        try:
            made = [{"data": each.data, "attributes": each.attributes} for each in messages]
            await self._client.publish(
                topic=topic, messages=made, timeout=self._timeout, retry=again
            )
        except api.InvalidArgument as error:
            if len(messages) > 1:
                return [(await self._send(topic, [message]))[0] for message in messages]
            return [
                Permanent(f"Pub/Sub refuses the message: {error.message}", type="invalid_message")
            ]
        except api.NotFound:
            name = topic.rpartition("/")[2]
            missing = (
                f"there is no topic {topic}: create it (gcloud pubsub topics create {name}), "
                "then retry the message"
            )
            return [Permanent(missing, type="topic_not_found") for _ in messages]
        except (api.PermissionDenied, api.Unauthenticated) as error:
            refused = (
                f"may not publish to {topic}: {error.message}; "
                "grant roles/pubsub.publisher on it to this service account"
            )
            return [Failure(refused, type="forbidden") for _ in messages]
        except (api.GoogleAPIError, GoogleAuthError, OSError) as error:
            cause = getattr(error, "message", None) or str(error) or type(error).__name__
            return [Failure(f"{topic}: {cause}"[:500], type="pubsub_error") for _ in messages]
        return [None] * len(messages)


def _connected() -> PublisherAsyncClient:
    """A client with the environment's credentials; finding them may take a round trip."""
    from google.auth.exceptions import DefaultCredentialsError  # noqa: PLC0415 - an extra
    from google.pubsub_v1 import PublisherAsyncClient  # noqa: PLC0415

    try:
        return PublisherAsyncClient()
    except DefaultCredentialsError:
        missing = (
            "ESCLUSA_PUBLISH: there are no Google credentials here; run with a service account,"
            " run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS"
        )
        raise SettingsError("settings", [missing]) from None


def _emulated(host: str) -> PublisherAsyncClient:
    import grpc  # noqa: PLC0415 - an extra
    from google.pubsub_v1 import PublisherAsyncClient  # noqa: PLC0415
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport  # noqa: PLC0415

    return PublisherAsyncClient(
        transport=PublisherGrpcAsyncIOTransport(channel=grpc.aio.insecure_channel(host))
    )


class _Prepared:
    """A message as it is sent, and its place in the given list."""

    __slots__ = ("attributes", "data", "place", "size")

    def __init__(self, place: int, message: Message) -> None:
        self.place = place
        self.data = json.dumps(
            message.data, ensure_ascii=False, separators=(",", ":"), default=str
        ).encode("utf-8", "backslashreplace")
        self.attributes = {
            name: _cut(value)
            for name, value in {EVENT_ID: message.id, **message.attributes}.items()
        }
        self.size = len(self.data) + sum(
            len(name.encode()) + len(value.encode()) for name, value in self.attributes.items()
        )

    def fault(self) -> Permanent | None:
        """Why Pub/Sub would refuse the message, and the whole request with it."""
        if self.size > _MAX_MESSAGE:
            return Permanent(
                f"the message has {self.size:,} bytes; Pub/Sub accepts {_MAX_MESSAGE:,}",
                type="invalid_message",
            )
        if len(self.attributes) > _MAX_ATTRIBUTES:
            return Permanent(
                f"the message has {len(self.attributes)} attributes; "
                f"Pub/Sub accepts {_MAX_ATTRIBUTES}",
                type="invalid_message",
            )
        wrong = [
            name
            for name in self.attributes
            if not name or len(name.encode()) > _MAX_NAME or name.startswith("goog")
        ]
        if wrong:
            rule = f"an attribute's name has 1 to {_MAX_NAME} bytes and does not begin with goog"
            return Permanent(f"{rule}, not {wrong[0][:80]!r}", type="invalid_message")
        return None


def _parts(prepared: Sequence[_Prepared]) -> Iterator[list[_Prepared]]:
    """Split into requests, by number and by size."""
    part: list[_Prepared] = []
    size = 0
    for wire in prepared:
        if part and (size + wire.size > _MAX_BYTES or len(part) == _MAX_MESSAGES):
            yield part
            part, size = [], 0
        part.append(wire)
        size += wire.size
    if part:
        yield part


def _cut(value: Any) -> str:
    """An attribute's value, cut to what Pub/Sub accepts; the data has all of it."""
    return str(value).encode("utf-8", "backslashreplace")[:_MAX_VALUE].decode("utf-8", "ignore")

"""Google's Pub/Sub emulator, and a topic with its subscription."""

from __future__ import annotations

import time
import uuid
from typing import Any

from .emulator import Emulator

PROJECT = "esclusa-tests"


class PubSubEmulator(Emulator):
    """One emulator for all topics."""

    NAME = "Pub/Sub"
    HOST = "PUBSUB_EMULATOR_HOST"
    PROGRAM = "platform/pubsub-emulator/lib"
    MAIN = ("com.google.cloud.pubsub.testing.v1.Main",)

    def topic(self) -> Topic:
        """A new topic with a subscription."""
        return Topic(self.host)


class Topic:
    """A topic with a subscription, as an oracle that shares no code with Esclusa."""

    def __init__(self, host: str) -> None:
        import grpc
        from google.pubsub_v1 import PublisherClient, SubscriberClient
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
        from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

        self._channel = grpc.insecure_channel(
            host, options=[("grpc.max_receive_message_length", -1)]
        )
        self._subscriber = SubscriberClient(
            transport=SubscriberGrpcTransport(channel=self._channel)
        )
        name = f"t-{uuid.uuid4().hex}"
        self.name = f"projects/{PROJECT}/topics/{name}"
        self._subscription = f"projects/{PROJECT}/subscriptions/{name}"
        PublisherClient(transport=PublisherGrpcTransport(channel=self._channel)).create_topic(
            name=self.name, timeout=30
        )
        self._subscriber.create_subscription(name=self._subscription, topic=self.name, timeout=30)

    def read(self, count: int, seconds: float = 20.0) -> list[Any]:
        """Return at least ``count`` messages; AssertionError if they do not arrive in time."""
        received: list[Any] = []
        end = time.monotonic() + seconds
        while len(received) < count:
            assert time.monotonic() < end, f"{len(received)} of {count} messages arrived"
            answer = self._subscriber.pull(
                subscription=self._subscription, max_messages=1000, timeout=10, retry=None
            )
            received += [each.message for each in answer.received_messages]
            if answer.received_messages:
                ids = [each.ack_id for each in answer.received_messages]
                self._subscriber.acknowledge(
                    subscription=self._subscription, ack_ids=ids, timeout=10
                )
        return received

    def close(self) -> None:
        self._channel.close()

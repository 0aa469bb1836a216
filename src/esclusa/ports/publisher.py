"""The publisher protocol: where the outbox sends its messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from esclusa.model.errors import Failure
from esclusa.model.system_records import Message


class Publisher(Protocol):
    """Sends messages to topics, each at least once.

    The id of a message goes with it, so that a reader can recognize a message that comes twice.
    """

    async def open(self) -> None:
        """Connect. Raises SettingsError with what is missing."""

    async def close(self) -> None: ...

    async def publish(self, messages: Sequence[Message]) -> list[Failure | None]:
        """Send the messages; answer in order, None for each that was accepted.

        After a Permanent failure no later attempt can succeed.
        """

"""The publisher protocol: where the outbox sends its messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from esclusa.model.errors import Failure
from esclusa.model.system_records import Message


class Publisher(Protocol):
    """Sends messages to topics, each at least once; its id goes with it, so that a reader can tell a message that came twice."""

    async def open(self) -> None:
        """Connect. Raises SettingsError with what is missing."""

    async def close(self) -> None: ...

    async def publish(self, messages: Sequence[Message]) -> list[Failure | None]:
        """Send them; answers in order, None where it was accepted. A Permanent failure is one that no later attempt can mend."""

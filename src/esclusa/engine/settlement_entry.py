"""A settlement in a queue, and who gets its verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from esclusa.model.settlement import Settlement, Verdict
from esclusa.ports.artifacts import KeptArtifact


class Receiver(Protocol):
    """Gets the verdicts of the settlements that it added."""

    def written(self, verdicts: list[tuple[Any, Settlement, Verdict]]) -> None:
        """Called once for each settlement, with the token that was added with it."""

    def put_aside(self) -> None:
        """Called when settlements of this receiver begin to wait apart from the others."""


class SingleReceiver:
    """The receiver of a caller that awaits one verdict."""

    def __init__(self, verdict: asyncio.Future[Verdict]) -> None:
        self._verdict = verdict

    def written(self, verdicts: list[tuple[Any, Settlement, Verdict]]) -> None:
        if not self._verdict.done():
            self._verdict.set_result(verdicts[0][2])

    def put_aside(self) -> None:
        pass


# The settlement, its receiver with the token that it gets back, and the files it refers to.
Entry: TypeAlias = tuple[Settlement, "Receiver | None", Any, Sequence[KeptArtifact]]

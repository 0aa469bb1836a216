"""The base class of a source of tenders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Self

from esclusa import EsclusaError, RunContext
from esclusa.http import session
from esclusa.pipelines.tenders.settings import TendersSettings

if TYPE_CHECKING:
    import aiohttp


class SourceBlocked(EsclusaError):
    """The source answers nothing more today: its credential is invalid or its quota is used up."""


class SourceFailed(EsclusaError):
    """A call failed after its retries. ``outage``: the source is down; other calls fail too."""

    def __init__(self, message: str, *, outage: bool = False) -> None:
        self.outage = outage
        super().__init__(message)


@dataclass
class Listing:
    """The rows of a source's list by code, and what could not be read of it.

    ``unreadable``: somebody has to look at the source, because its answers have another shape than
    expected, or it has none.
    """

    rows: dict[str, dict[str, Any]]
    faults: list[str] = field(default_factory=list)
    unreadable: bool = False

    def report(self, fault: str, *, unreadable: bool = False) -> None:
        self.faults.append(fault)
        self.unreadable = self.unreadable or unreadable


class TenderSource(ABC):
    """A place that lists tenders and may have their details.

    Metered calls reserve from their budget first (``run.spend``). Methods that call the source
    raise SourceBlocked and SourceFailed.
    """

    # What messages call it.
    name: str
    # Whether a run fails if its list cannot be read; otherwise the run goes on without it.
    required = False
    # Whether it can list an earlier day.
    lists_past_days = False

    def __init__(self, http: aiohttp.ClientSession, settings: TendersSettings) -> None:
        self.http = http
        self.settings = settings

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: TendersSettings) -> AsyncIterator[Self]:
        """Open the source for the duration of the block."""
        async with session(total=settings.api_timeout_seconds, connections=1) as http:
            yield cls(http, settings)

    @abstractmethod
    async def list_tenders(self, run: RunContext, day: date) -> Listing:
        """Return the listed tenders by code, each as the source's own row."""

    async def list_open(self, run: RunContext) -> Listing:
        """Return the tenders that are open now, of whatever day."""
        return Listing({})

    async def detail(self, run: RunContext, code: str, *, retry: bool) -> dict[str, Any] | None:
        """Return the full row of a tender; None if the source does not have it.

        ``retry``: repeat a failed call after a wait.
        """
        return None

    def fields(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return what a row of a list or a detail says, as fields of ``Licitacion``."""
        return row

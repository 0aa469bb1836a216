"""The contract of a source of tenders."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import date
from typing import Any, ClassVar, Protocol, Self

from esclusa import EsclusaError, RunContext
from esclusa.pipelines.tenders.settings import TendersSettings


class SourceBlocked(EsclusaError):
    """The source answers nothing more today: its credential is invalid or its quota is used up."""


class SourceFailed(EsclusaError):
    """A call failed after its retries. ``outage``: the source is down; other calls fail too."""

    def __init__(self, message: str, *, outage: bool = False) -> None:
        self.outage = outage
        super().__init__(message)


class TenderSource(Protocol):
    """A place that lists tenders and may have their details.

    Metered calls reserve from their budget first (``run.spend``). All methods raise SourceBlocked
    and SourceFailed.
    """

    name: ClassVar[str]
    """What messages call it."""
    required: ClassVar[bool]
    """Whether a run fails if its list cannot be read; otherwise the run goes on without it."""
    lists_past_days: ClassVar[bool]
    """Whether it can list an earlier day. If not, ``list_tenders`` returns the newest tenders."""

    @classmethod
    def open(cls, settings: TendersSettings) -> AbstractAsyncContextManager[Self]:
        """Open the source for the duration of the block."""

    async def list_tenders(self, run: RunContext, day: date) -> dict[str, dict[str, Any]]:
        """Return the listed tenders by code, each as the source's own row."""

    async def detail(self, run: RunContext, code: str, *, patient: bool) -> dict[str, Any] | None:
        """Return the full row of a tender; None if the source does not have it.

        ``patient``: a call that fails is repeated after a wait.
        """

    def fields(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return what a row says as fields of ``Licitacion``."""

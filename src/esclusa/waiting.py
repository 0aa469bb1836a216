"""Waiting for others: for the children of a record, and for an operation of another service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from esclusa.engine.attempt import Attempt
from esclusa.model import duration
from esclusa.model.effects import Effect, Move
from esclusa.model.errors import DeclarationError
from esclusa.model.outcome import Outcome, Retry, Wait
from esclusa.model.query import one_of
from esclusa.model.record import Record
from esclusa.model.value import value

C = TypeVar("C", bound=Record)
R = TypeVar("R", bound=Record)
Length = str | float | timedelta

# The most children that one settlement moves.
MOST_MOVES = 500


@value
class ChildCounts:
    """How far the children of a record are. A record without children is complete."""

    total: int
    done: int
    failed: int

    @property
    def open(self) -> int:
        """How many are still under way."""
        return self.total - self.done - self.failed

    @property
    def complete(self) -> bool:
        """Whether all are done or failed."""
        return self.open == 0


class Children(Generic[C]):
    """The children of one record, as the handler of its stage sees them.

    ``done`` and ``failed`` name states; in any other one a child is under way. ``link``: the fields
    of the children that say whose they are: ``Children(at, Page, done="read", book_id=book.id)``.

    Let the children wake their parent when they end, by ``also=[Wake(Book, page.book_id)]``, and
    let the parent ``Wait``. A parent that is held at that moment is not woken, so its ``Wait`` is
    the longest delay: minutes, not days.
    """

    def __init__(
        self,
        at: Attempt,
        kind: type[C],
        *,
        done: str | Collection[str],
        failed: str | Collection[str] = (),
        **link: Any,
    ) -> None:
        self._records = at.records
        self._kind = kind
        self._done = (done,) if isinstance(done, str) else tuple(done)
        self._failed = (failed,) if isinstance(failed, str) else tuple(failed)
        self._link = link
        states = kind.kind.lifecycle.states
        if wrong := [s for s in (*self._done, *self._failed) if s not in states]:
            raise DeclarationError(
                f"children in {kind.kind.table}",
                [f"{state!r} is not one of its states ({', '.join(states)})" for state in wrong],
            )

    async def counts(self) -> ChildCounts:
        """Count them by state, in one query."""
        totals = await self._records.totals(self._kind, ["status"], where=self._link)
        found = {str(total.values["status"]): total.count for total in totals}
        return ChildCounts(
            sum(found.values()),
            sum(found.get(state, 0) for state in self._done),
            sum(found.get(state, 0) for state in self._failed),
        )

    async def cancel(self, to: str, **fields: Any) -> list[Effect]:
        """Effects that move every child that is under way to the state ``to``.

        A child that ends meanwhile stays as it is, and so does one in a state without that move.
        """
        ended = (*self._done, *self._failed, to)
        return await self._moves([s for s in self._sources(to) if s not in ended], to, fields)

    async def compensate(self, to: str, **fields: Any) -> list[Effect]:
        """Effects that move every child that is done to ``to``, where a stage undoes its work."""
        return await self._moves([s for s in self._sources(to) if s in self._done], to, fields)

    def _sources(self, to: str) -> tuple[str, ...]:
        return self._kind.kind.lifecycle.sources(to)

    async def _moves(self, states: list[str], to: str, fields: dict[str, Any]) -> list[Effect]:
        if not states:
            return []
        where = self._link | {"status": one_of(*states)}
        page = await self._records.find(self._kind, where, limit=MOST_MOVES)
        return [Move(self._kind, child.id, to, frm=tuple(states), **fields) for child in page.items]


async def remote_operation(
    record: R,
    at: Attempt,
    *,
    handle: str,
    submit: Callable[[R], Awaitable[str]],
    collect: Callable[[str], Awaitable[Outcome | None]],
    every: Length = "30s",
    begun: str | None = None,
    within: Length | None = None,
) -> Outcome:
    """Run an operation of another service over several attempts: submit, wait, collect.

    handle: the field that holds what the service calls the operation. It is saved before anything
    else happens, so a crash later does not submit again. If the process dies between the service's
    answer and that, the operation is submitted twice: give the service an idempotency key.
    submit: begins it and returns the handle. collect: takes the handle; None: it is still running,
    then the record waits ``every``, which counts no attempt. begun, within: a field for the time of
    the submission, and how long the operation may take; then the record is retried, with a new one.
    """
    if (within is None) != (begun is None):
        raise TypeError("remote_operation: give both begun= (a field) and within=, or neither")
    known: str | None = getattr(record, handle)
    if known is None:
        known = await submit(record)
        await at.save(**{handle: known}, **({begun: at.now} if begun else {}))
        return Wait(every, f"submitted as {known}")
    outcome = await collect(known)
    if outcome is not None:
        return outcome
    started: datetime | None = getattr(record, begun) if begun else None
    if within is not None and started is not None:
        limit = duration.seconds(within)
        if at.now - started > timedelta(seconds=limit):
            again: dict[str, Any] = {handle: None, begun: None} if begun else {}
            message = f"{known} took longer than {duration.words(limit)}"
            return Retry(message, type="remote_timeout", **again)
    return Wait(every, f"{known} is still running")

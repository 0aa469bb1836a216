"""The actions that pipelines declare, on behalf of an operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from esclusa.engine.alert_operations import AlertOperations
from esclusa.engine.audited import Acted
from esclusa.engine.records import Records
from esclusa.engine.runs import RunContext
from esclusa.engine.selection import selected
from esclusa.model.action import Action, both
from esclusa.model.decide import fault_error
from esclusa.model.errors import BadQuery
from esclusa.model.outcome import To
from esclusa.model.query import Where, query
from esclusa.model.settlement import Settlement
from esclusa.model.texts import text
from esclusa.ports.artifacts import Artifacts

# The records that a preview asks the action about.
SAMPLE = 100


@dataclass
class ActionDone(Acted):
    """What an action of a pipeline did; ``message`` is of one that acts on no record."""

    message: str | None = None


class ActionContext:
    """What an action gets beside the record.

    ``params`` are those of the operator, ``settings`` those of the pipeline; ``who`` acts.
    """

    def __init__(
        self,
        records: Records,
        artifacts: Artifacts,
        settings: Any,
        params: Any,
        who: str,
        run: Callable[..., Awaitable[RunContext]],
    ) -> None:
        self.records = records
        self.artifacts = artifacts
        self.settings = settings
        self.params = params
        self.who = who
        self._run = run

    async def run(self, cycle: str, **params: Any) -> RunContext:
        """Run a cycle now, to its end. Raises AlreadyRunning or Paused."""
        return await self._run(cycle, params=params)


class ActionOperations(AlertOperations):
    """The operations that pipelines declare."""

    async def act(
        self,
        name: str,
        *,
        ids: Sequence[str] | None = None,
        where: Where | None = None,
        params: Mapping[str, Any] | None = None,
        reason: str = "",
        seen: int | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> ActionDone:
        """Apply an action to records, by id or by a filter; by default to all that it is for.

        With ``dry_run``, ``passed`` names those of the first hundred that it would skip, and why.
        ``params`` is None while nobody has entered them: such a dry run does not ask the action.
        """
        action = self._registry.action(name)
        asked = params is not None or not (dry_run and action.required)
        at = self._context(action, action.read_params(params or {})) if asked else None
        if action.kind is None:
            return await self._perform(action, at, ids, where, reason, dry_run=dry_run)
        kind = action.kind
        named = selected(kind, ids, where) if ids is not None or where else {}
        chosen = both(named, action.where)

        async def choose(record: Any) -> To | str:
            answer: To | str = await action.function(record, at)
            return answer

        acted = await self.apply(
            action.verb,
            kind.table,
            choose,
            where=chosen,
            reason=reason,
            seen=seen,
            limit=limit,
            dry_run=dry_run,
        )
        if acted.dry_run:
            page = await self._store.find(query(kind, chosen, limit=SAMPLE))
            refusals = self._registry.refusals(kind, self.who)
            for record in page.items:
                answer = kind.fault_of(record) or (await choose(record) if asked else None)
                state = kind.lifecycle.current(record.status)
                if not isinstance(answer, str) and (answer is None or answer.state != state):
                    answer = refusals.get(state)
                if isinstance(answer, str):
                    acted.passed.append({"id": record.id, "why": answer})
        return ActionDone(**vars(acted))

    async def _perform(
        self,
        action: Action,
        at: ActionContext | None,
        ids: Sequence[str] | None,
        where: Where | None,
        reason: str,
        *,
        dry_run: bool,
    ) -> ActionDone:
        if ids or where:
            raise BadQuery(text("action_without_records", action=action.name))
        done = ActionDone(action.verb, "", 0, exact=True, dry_run=dry_run)
        if not dry_run:
            done.message = await action.function(at)
            await self.note(action.verb, action.name, 0, reason=reason)
        return done

    def _context(self, action: Action, params: BaseModel) -> ActionContext:
        settings = self._registry.plan_of(action.name).settings
        return ActionContext(self._records, self._artifacts, settings, params, self.who, self.run)

    async def apply(
        self,
        verb: str,
        table: str,
        choose: Callable[[Any], Awaitable[To | str]],
        *,
        where: Where,
        reason: str = "",
        limit: int | None = None,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """Apply an operation of a pipeline to each record that matches, in one transaction each.

        ``choose`` returns the move with its fields, fault and effects, or a text that says why the
        record is skipped. A record with values that do not fit its declaration is skipped.
        ``limit``: the most records that are moved.
        """
        kind = self._registry.kind(table)
        acted = await self._start(verb, kind, where, seen=seen, dry_run=dry_run)
        async for records in self._chunks(kind, where, acted):
            settlements: list[Settlement] = []
            for record in records:
                if limit is not None and acted.moved + len(settlements) >= limit:
                    break
                fault = kind.fault_of(record)
                answer = fault or await choose(record)
                if isinstance(answer, str):
                    acted.passed.append({"id": record.id, "why": answer})
                    continue
                settlements.append(
                    Settlement(
                        record.ref,
                        answer.state,
                        (record.status,),
                        None,
                        kind.check_fields(answer.fields),
                        answer.attempts or 0,
                        answer.after,
                        error=None
                        if answer.fault is None
                        else fault_error(answer.fault, record.attempts, self._clock.now()),
                        effects=answer.also,
                        who=self.who,
                        reason=_reason(answer.reason, reason) or verb,
                        changes=self._changes(record, answer.fields),
                    )
                )
            await self._settle(settlements, acted, records)
            if limit is not None and acted.moved >= limit:
                break
        return await self._finish(acted, where, reason)

    async def run(
        self, cycle: str, *, limit: int | None = None, params: dict[str, Any] | None = None
    ) -> RunContext:
        """Run a cycle now, to its end. Raises AlreadyRunning or Paused."""
        run = await self._runner.run(cycle, limit=limit, params=params)
        await self.note("run", cycle, run.counters["taken"])
        return run


def _reason(own: str | None, given: str) -> str:
    """The move's own reason if it includes the operator's; otherwise the operator's, if any."""
    return own if own and given in own else given

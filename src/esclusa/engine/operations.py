"""The operator's verbs: what the command line, the API and the console can do. Every act leaves an audit row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from esclusa.engine.clock import StoreClock
from esclusa.engine.cycle_records import CycleRecords
from esclusa.engine.cycles import CycleRunner
from esclusa.engine.registry import Registry
from esclusa.engine.runs import RunContext
from esclusa.model.effects import Move
from esclusa.model.errors import BadQuery, NotFound, UndeclaredMove
from esclusa.model.outcome import To
from esclusa.model.query import Cond, Where, one_of, query
from esclusa.model.record import Kind, Record
from esclusa.model.settlement import Settled, Settlement
from esclusa.model.stage import Stage
from esclusa.model.system_records import SYSTEM_RECORDS, Audit, CycleRecord, DeadLetter
from esclusa.model.texts import text
from esclusa.ports.store import Store

CHUNK = 500
MOVABLE = ("dead_letters", "esclusa_outbox", "esclusa_alerts")
"""The books of the house that an operator may move."""


@dataclass
class Acted:
    """What a bulk act did, or would do (``dry_run``): how many match, how many were moved, which were passed over and why."""

    verb: str
    table: str
    matched: int
    exact: bool
    moved: int = 0
    dry_run: bool = False
    passed: list[dict[str, str]] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        return {
            "verb": self.verb, "table": self.table, "matched": self.matched, "exact": self.exact, "moved": self.moved,
            "dry_run": self.dry_run, "passed": self.passed,
        }  # fmt: skip


class Operations:
    """One person (or token) at work. ``who`` goes into the history and the audit.

    Acts on many take ``seen``, how many matched when somebody decided: if more match now, nothing is done, and the answer is that of
    a dry run."""

    def __init__(
        self,
        who: str,
        registry: Registry,
        runner: CycleRunner,
        cycle_records: CycleRecords,
        store: Store,
        clock: StoreClock,
    ) -> None:
        self.who = who
        self._registry = registry
        self._runner = runner
        self._cycle_records = cycle_records
        self._store = store
        self._clock = clock

    async def move(
        self,
        table: str,
        to: str,
        *,
        reason: str,
        ids: Sequence[str] | None = None,
        where: Where | None = None,
        fields: Mapping[str, Any] | None = None,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """Move records to a state, by their ids or by a filter. If one of them cannot make that move, none is moved:
        UndeclaredMove. Attempts start again at 0; leases end."""
        kind = self._registry.kind(table)
        if kind in [book.kind for book in SYSTEM_RECORDS] and kind.table not in MOVABLE:
            raise BadQuery(text("system_table", table=table))
        if to not in kind.lifecycle.states:
            raise UndeclaredMove(table, "any state", to, kind.lifecycle.states)
        chosen = _chosen(kind, ids, where)
        await self._refuse_undeclared(kind, to, chosen)
        return await self._bulk(
            "move", kind, to, chosen, reason, fields or {}, seen=seen, dry_run=dry_run
        )

    async def retry(
        self,
        table: str,
        *,
        reason: str,
        ids: Sequence[str] | None = None,
        where: Where | None = None,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """Give records in an exhausted state a new try: back to where their stage takes them."""
        kind = self._registry.kind(table)
        ways = ways_back(kind, self._registry.all_stages)
        if not ways:
            raise NotFound(text("no_retry", table=table))
        chosen = _narrowed(_chosen(kind, ids, where), ways)
        return await self._bulk("retry", kind, ways, chosen, reason, {}, seen=seen, dry_run=dry_run)

    async def apply(
        self,
        verb: str,
        table: str,
        choose: Callable[[Any], Awaitable[To | str]],
        *,
        where: Where,
        reason: str = "",
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """A verb of a pipeline's own: each record that matches (``limit``: up to so many that are moved) gets what ``choose``
        answers, with its fields and effects, in one transaction each; a text says why it is passed over."""
        kind = self._registry.kind(table)
        acted = await self._start(verb, kind, where, dry_run=dry_run)
        async for records in self._chunks(kind, where, acted):
            settlements: list[Settlement] = []
            for record in records:
                if limit is not None and acted.moved + len(settlements) >= limit:
                    break
                answer = await choose(record)
                if isinstance(answer, str):
                    acted.passed.append({"id": record.id, "why": answer})
                    continue
                fields, why = kind.check_fields(answer.fields), answer.reason or reason or verb
                move = Settlement(
                    record.ref,
                    answer.state,
                    (record.status,),
                    None,
                    fields,
                    delay=answer.after,
                    who=self.who,
                    reason=why,
                )
                settlements.append(
                    replace(move, attempts=answer.attempts or 0, effects=answer.also)
                )
            await self._settle(settlements, acted)
            if limit is not None and acted.moved >= limit:
                break
        return await self._finish(acted, where, reason)

    async def redrive(
        self,
        *,
        reason: str,
        ids: Sequence[str] | None = None,
        where: Where | None = None,
        fields: Mapping[str, Any] | None = None,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """Send dead letters back: the record to where its stage took it (its fields edited if ``fields`` are given), the
        letter to ``redriven``, in one transaction each. A letter whose record has left its exhausted state is passed over."""
        chosen = _narrowed(_chosen(DeadLetter.kind, ids, where), ["open"])
        acted = await self._start("redrive", DeadLetter.kind, chosen, seen=seen, dry_run=dry_run)
        async for letters in self._chunks(DeadLetter.kind, chosen, acted):
            settlements = []
            for letter in letters:
                assert isinstance(letter, DeadLetter)
                try:
                    settlements.append(await self._redriven(letter, reason, fields or {}))
                except NotFound as error:
                    acted.passed.append({"id": letter.id, "why": error.text})
            await self._settle(settlements, acted)
        return await self._finish(acted, chosen, reason)

    async def discard(
        self,
        *,
        reason: str,
        ids: Sequence[str] | None = None,
        where: Where | None = None,
        seen: int | None = None,
        dry_run: bool = False,
    ) -> Acted:
        """Close dead letters without sending them back."""
        chosen = _narrowed(_chosen(DeadLetter.kind, ids, where), ["open"])
        return await self._bulk(
            "discard", DeadLetter.kind, "discarded", chosen, reason, {}, seen=seen, dry_run=dry_run
        )

    async def pause(self, cycle: str, reason: str = "") -> None:
        """No worker starts the cycle, or claims for it, until it is resumed. What is under way goes on."""
        await self._switch(cycle, ("idle", "running"), "paused", reason)

    async def resume(self, cycle: str, reason: str = "") -> None:
        await self._switch(cycle, ("paused",), "idle", reason)

    async def run(
        self, cycle: str, *, limit: int | None = None, params: dict[str, Any] | None = None
    ) -> RunContext:
        """Run a cycle now, to its end. Raises AlreadyRunning or Paused."""
        run = await self._runner.run(cycle, limit=limit, params=params)
        await self.note("run", cycle, run.counters["taken"])
        return run

    async def limit(self, budget: str, per: str, limit: int, reason: str = "") -> None:
        """Set the limit of a budget's open window, until it resets; what is declared holds again after that."""
        found = next(
            (b for plan in self._registry.plans for b in plan.budgets if b.name == budget), None
        )
        if found is None or per not in [w.per for w in found.windows]:
            raise NotFound(text("budget_not_found", budget=budget, per=per))
        await self._store.observe(found, per, limit=limit)
        await self.note("limit", budget, 1, {"per": per, "limit": str(limit)}, reason)

    async def note(
        self,
        verb: str,
        subject: str,
        affected: int,
        filter: Mapping[str, Any] | None = None,
        reason: str = "",
    ) -> None:
        """Leave an audit row, for an act that a door does without one of the verbs above: it added, replaced or removed records."""
        row = Audit(
            who=self.who, verb=verb, subject=subject, filter=dict(filter or {}), affected=affected, reason=reason,
            done_at=self._clock.now(),
        )  # fmt: skip
        await self._store.insert([row])

    # how

    async def _switch(self, cycle: str, frm: tuple[str, ...], to: str, reason: str) -> None:
        found = self._registry.cycle(cycle)
        card = await self._cycle_records.get(found.name)
        if card is None:
            raise NotFound(text("cycle_never_started", cycle=cycle))
        if card.status == to or card.status not in frm:  # paused already, or not paused at all
            return
        until = found.schedule.next_after(self._clock.now()) if to == "idle" else None
        verdict = await self._store.settle(
            [Settlement(card.ref, to, frm, None, until=until, who=self.who, reason=reason)]
        )
        if not isinstance(verdict[0], Settled):
            raise UndeclaredMove(
                f"cycle {cycle}", card.status, to, CycleRecord.lifecycle.targets(card.status)
            )
        await self.note("pause" if to == "paused" else "resume", cycle, 1, reason=reason)
        await self._cycle_records.refresh()

    async def _refuse_undeclared(self, kind: Kind, to: str, chosen: Where) -> None:
        wrong = [s for s in kind.lifecycle.states if s != to and not kind.lifecycle.allows(s, to)]
        page = await self._store.find(query(kind, _narrowed(chosen, wrong), limit=1))
        if page.items:
            state = page.items[0].status
            raise UndeclaredMove(str(page.items[0].ref), state, to, kind.lifecycle.targets(state))

    async def _bulk(
        self,
        verb: str,
        kind: Kind,
        to: str | Ways,
        chosen: Where,
        reason: str,
        fields: Mapping[str, Any],
        *,
        seen: int | None,
        dry_run: bool,
    ) -> Acted:
        acted = await self._start(verb, kind, chosen, seen=seen, dry_run=dry_run)
        checked = kind.check_fields(fields)
        async for records in self._chunks(kind, chosen, acted):
            settlements = []
            for record in records:
                state = to if isinstance(to, str) else await self._back(record, to)
                if record.status == state:
                    acted.passed.append({"id": record.id, "why": text("same_state", state=state)})
                    continue
                settlements.append(
                    Settlement(
                        record.ref,
                        state,
                        kind.lifecycle.sources(state),
                        None,
                        checked,
                        attempts=0,
                        who=self.who,
                        reason=reason or verb,
                    )
                )
            await self._settle(settlements, acted)
        return await self._finish(acted, chosen, reason)

    async def _start(
        self, verb: str, kind: Kind, chosen: Where, *, seen: int | None = None, dry_run: bool
    ) -> Acted:
        count, exact = await self._store.count(query(kind, chosen))
        return Acted(
            verb, kind.table, count, exact, dry_run=dry_run or (seen is not None and count > seen)
        )

    async def _chunks(self, kind: Kind, chosen: Where, acted: Acted) -> Any:
        """Pages of what matches, by id, so that moved records do not disturb the paging."""
        after: str | None = None
        while not acted.dry_run:
            page = await self._store.find(query(kind, chosen, limit=CHUNK, after=after))
            if page.items:
                yield page.items
            after = page.next
            if after is None:
                return

    async def _settle(self, settlements: list[Settlement], acted: Acted) -> None:
        if not settlements:
            return
        for settlement, verdict in zip(
            settlements, await self._store.settle(settlements), strict=True
        ):
            if isinstance(verdict, Settled):
                acted.moved += 1
            else:
                acted.passed.append(
                    {
                        "id": settlement.ref.id,
                        "why": getattr(verdict, "why", text("changed_meanwhile")),
                    }
                )

    async def _finish(self, acted: Acted, chosen: Where, reason: str) -> Acted:
        if not acted.dry_run:
            await self.note(
                acted.verb,
                acted.table,
                acted.moved,
                {name: _told(said) for name, said in chosen.items()},
                reason,
            )
            acted.passed = acted.passed[:100]
        return acted

    async def _back(self, record: Record, ways: Ways) -> str:
        """Where the stage would take it again that gave it up; where several could have, the history says which one."""
        found = ways[record.status]
        if len({state for _, state in found}) > 1:
            steps = await self._store.history(record.ref, 10, newest=True)
            came = next(
                (
                    s.frm
                    for s in reversed(steps)
                    if s.to == record.status and s.frm != record.status
                ),
                None,
            )
            found = [way for way in found if came in way[0].states] or found
        return found[0][1]

    async def _redriven(
        self, letter: DeadLetter, reason: str, fields: Mapping[str, Any]
    ) -> Settlement:
        kind = self._registry.kind(letter.table_name)
        ways = ways_back(kind, self._registry.all_stages)
        record = (await self._store.get(kind, [letter.record_id]))[0]
        if record is None:
            raise NotFound(text("dead_letter_orphaned", id=letter.record_id, table=kind.table))
        if record.status not in ways:
            code = "dead_letter_outdated" if ways else "dead_letter_final"
            raise NotFound(text(code, record=str(record.ref), state=record.status))
        taken = any(
            letter.state_before in s.take for s, _ in ways[record.status]
        ) and kind.lifecycle.allows(record.status, letter.state_before)
        back = letter.state_before if taken else await self._back(record, ways)
        effect = Move(
            kind, letter.record_id, back, frm=record.status, reason=reason or "redrive", **fields
        )
        return Settlement(
            letter.ref,
            "redriven",
            ("open",),
            None,
            effects=(effect,),
            who=self.who,
            reason=reason or "redrive",
        )


Ways: TypeAlias = Mapping[str, Sequence[tuple[Stage, str]]]
"""For each exhausted state, the stages that give records up there, and where each would take one again."""


def retry_targets(kind: Kind, stages: Sequence[Stage]) -> dict[str, str]:
    """For each exhausted state of the kind, where a record would be taken again; of several places the first."""
    return {state: ways[0][1] for state, ways in ways_back(kind, stages).items()}


def ways_back(kind: Kind, stages: Sequence[Stage]) -> Ways:
    found: dict[str, list[tuple[Stage, str]]] = {}
    for stage in stages:
        if stage.kind == kind and stage.exhausted is not None:
            back = [
                t
                for t in (stage.retry_to, *stage.take)
                if kind.lifecycle.allows(stage.exhausted, t)
            ]
            if back:
                found.setdefault(stage.exhausted, []).append((stage, back[0]))
    return found


def _narrowed(chosen: Where, states: Iterable[str]) -> dict[str, Any]:
    """The same choice, among records in these states only."""
    said = chosen.get("status")
    among = one_of(*states)
    both = (
        among
        if said is None
        else (
            *(
                said
                if isinstance(said, tuple)
                else (said if isinstance(said, Cond) else Cond("eq", said),)
            ),
            among,
        )
    )
    return {**chosen, "status": both}


def _chosen(kind: Kind, ids: Sequence[str] | None, where: Where | None) -> dict[str, Any]:
    if (ids is None) == (not where):
        if ids is None:
            raise BadQuery(text("choose_records", table=kind.table))
        if where:
            raise BadQuery(text("choose_once"))
    if ids is not None:
        return {"id": one_of(*ids)}
    return dict(where or {})


def _told(said: Any) -> str:
    """A condition in the audit."""
    if isinstance(said, tuple):
        return " and ".join(dict.fromkeys(_told(part) for part in said))
    if isinstance(said, Cond):
        values = said.value if isinstance(said.value, tuple) else (said.value,)
        sign = {"lt": "< ", "le": "<= ", "gt": "> ", "ge": ">= "}.get(said.op, "")
        return {"null": "is empty", "not_null": "is not empty"}.get(
            said.op, f"{sign}{' or '.join(map(str, values))}"[:500]
        )
    return str(said)

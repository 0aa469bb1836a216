"""Random operations on every store, compared step by step with the oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from conformance.databases import DatabaseProvider, opened
from conformance.helpers import NOON, claim_request, operator_move, set_clock, settlement_of
from conformance.kinds import COLLECT, READ, WORK, Job, Note, Post
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from property.oracle import UNIT, Oracle, Row

from esclusa.model.budget import Budget, Denied, Window
from esclusa.model.effects import Add, Create, Effect, Exists, Move, Wake
from esclusa.model.kind import Ref
from esclusa.model.query import above, conditions, not_null, null, one_of, query
from esclusa.model.record import Record
from esclusa.model.settlement import ClaimRequest, Inserted, Leased, Renewal, Settlement

JOBS = [f"j{n}" for n in range(6)]
POSTS = ["x:1", "x:2", "x:3"]
NOTES = ["n1", "n2", "n3"]
KINDS: dict[str, type[Record]] = {"jobs": Job, "posts": Post, "notes": Note}
IDS = {"jobs": JOBS, "posts": POSTS, "notes": NOTES}
STAGES = {"work": WORK, "collect": COLLECT, "read": READ}
BUDGET = Budget("quota", Window("day", 10), Window("month", 25))
BAD = {"message": "no", "type": "t"}

jobs, posts, notes = st.sampled_from(JOBS), st.sampled_from(POSTS), st.sampled_from(NOTES)
units = st.sampled_from([0, 1, 2, 5])
lengths = st.sampled_from([1, 3])
limits = st.integers(1, 4)
# By name, so that a failing run is readable.
stages = st.sampled_from(["work", "work", "collect", "read"])
kinds = st.sampled_from(list(KINDS))
lanes = st.sampled_from(["a", "b"])
picks = st.integers(0, 1000)
numbers = st.integers(-3, 5)
spenders = st.sampled_from(["s1", "s2"])


class StoreMachine(RuleBasedStateMachine):
    """Two store objects on the same data; all answers and rows must equal the oracle's."""

    def __init__(self, provider: DatabaseProvider) -> None:
        super().__init__()
        self.provider = provider
        self.runner = asyncio.Runner()
        self.leases: list[Leased] = []
        self.marks: list[tuple[Any, Any]] = []
        self.turn = 0

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(call)

    @property
    def store(self) -> Any:
        """The two store objects take turns."""
        self.turn += 1
        return self.stores[self.turn % 2]

    @initialize()
    def begin(self) -> None:
        self.run(self._begin())

    async def _begin(self) -> None:
        self.database = await self.provider.database()
        self.stores = [await opened(self.database), await opened(self.database)]
        start = await set_clock(self.stores[0], NOON)
        self.stores[1].clock_offset = self.stores[0].clock_offset
        self.oracle = Oracle(start)

    def teardown(self) -> None:
        try:
            if hasattr(self, "oracle"):
                self.run(self._end())
        finally:
            self.runner.close()

    async def _end(self) -> None:
        try:
            for row in self.oracle.rows.values():
                await self._check_history(row)
        finally:
            for store in self.stores:
                await store.close()
            await self.database.remove()

    # insert

    def insert(self, drafts: list[Record]) -> None:
        answers = self.run(self.store.insert(drafts))
        assert [isinstance(a, Inserted) for a in answers] == self.oracle.insert(drafts)

    @rule(id=jobs, post=st.none() | posts, lane=lanes, rank=st.none() | numbers, later=units)
    def insert_job(
        self, id: str, post: str | None, lane: str, rank: int | None, later: int
    ) -> None:
        due = (
            None
            if later == 0
            else self.oracle.start + timedelta(seconds=UNIT * (self.oracle.units + later))
        )
        self.insert([Job(id=id, post=post, lane=lane, rank=rank, due_at=due)])

    @rule(ids=st.lists(posts, min_size=1, max_size=3), note=lanes)
    def insert_posts_and_duplicates(self, ids: list[str], note: str) -> None:
        self.insert([Post(platform="x", post_id=id[2:], note=note) for id in [*ids, ids[0]]])

    @rule(ids=st.lists(notes, min_size=1, max_size=2), url=st.none() | lanes)
    def insert_notes(self, ids: list[str], url: str | None) -> None:
        self.insert([Note(name=id, url=url) for id in ids])

    # claim

    def claim(self, request: ClaimRequest, before: Any = None) -> None:
        leases = self.run(self.store.claim(request))
        held = self.oracle.claim(request, before)
        assert [(x.ref.id, x.taken, x.fence, x.attempt, x.group) for x in leases] == [
            (h.id, h.taken, h.fence, h.attempt, h.group) for h in held
        ]
        self.leases += leases

    @rule(stage=stages, limit=limits, length=lengths, worker=spenders)
    def claim_some(self, stage: str, limit: int, length: int, worker: str) -> None:
        self.claim(claim_request(STAGES[stage], limit=limit, lease=length * UNIT, worker=worker))

    @rule(lane=lanes, rank=st.none() | numbers)
    def claim_where(self, lane: str, rank: int | None) -> None:
        where = {"lane": lane} if rank is None else {"lane": lane, "rank": above(rank)}
        self.claim(claim_request(WORK, where=conditions(Job.kind, where), lease=UNIT))

    @rule(ids=st.lists(jobs, min_size=1, max_size=3, unique=True))
    def claim_these(self, ids: list[str]) -> None:
        self.claim(claim_request(WORK, ids=tuple(ids), lease=UNIT))

    @rule()
    def mark_the_start_of_a_run(self) -> None:
        self.marks.append((self.run(self.stores[0].now()), self.oracle.tick()))

    @precondition(lambda self: self.marks)
    @rule(stage=stages, eager=st.booleans(), pick=picks, limit=limits)
    def claim_before(self, stage: str, eager: bool, pick: int, limit: int) -> None:
        real, mark = self.marks[pick % len(self.marks)]
        self.claim(
            claim_request(STAGES[stage], before=real, eager=eager, lease=UNIT, limit=limit), mark
        )

    # settle

    def settle(self, *settlements: Settlement) -> None:
        verdicts = self.run(self.store.settle(list(settlements)))
        assert [type(v).__name__ for v in verdicts] == self.oracle.settle(list(settlements))
        assert [v.ref for v in verdicts] == [s.ref for s in settlements]

    def lease(self, pick: int) -> Leased:
        """One of the last leases; a stale one must be lost."""
        return self.leases[-1 - pick % min(len(self.leases), 5)]

    def targets(self, lease: Leased) -> tuple[str, ...]:
        return lease.ref.kind.lifecycle.targets(lease.record.status)

    @precondition(lambda self: self.leases)
    @rule(pick=picks, which=picks, result=st.none() | lanes, later=units)
    def settle_to(self, pick: int, which: int, result: str | None, later: int) -> None:
        lease = self.lease(pick)
        targets = self.targets(lease)
        fields = {"result": result} if lease.ref.kind == Job.kind else {}
        self.settle(
            settlement_of(
                lease,
                targets[which % len(targets)],
                fields=fields,
                delay=later * UNIT,
                clear_error=True,
            )
        )

    @precondition(lambda self: self.leases)
    @rule(pick=picks, later=units)
    def settle_retry(self, pick: int, later: int) -> None:
        lease = self.lease(pick)
        self.settle(settlement_of(lease, lease.taken, delay=later * UNIT, error=BAD))

    @precondition(lambda self: self.leases)
    @rule(pick=picks, later=lengths)
    def settle_wait(self, pick: int, later: int) -> None:
        lease = self.lease(pick)
        until = self.oracle.start + timedelta(seconds=UNIT * (self.oracle.units + later))
        self.settle(
            settlement_of(lease, lease.taken, until=until, attempts=max(0, lease.attempt - 1))
        )

    @precondition(lambda self: self.leases)
    @rule(pick=picks)
    def settle_stale(self, pick: int) -> None:
        lease = self.leases[pick % len(self.leases)]
        row = self.oracle.row(lease.ref.kind, lease.ref.id)
        if row is None or not row.held(lease.fence):
            self.settle(
                settlement_of(
                    lease,
                    self.targets(lease)[0],
                    fields={},
                    error=BAD,
                    effects=(Create(Note(name="stale")),),
                )
            )

    @precondition(lambda self: self.leases)
    @rule(later=units)
    def settle_all_at_once(self, later: int) -> None:
        latest = {lease.ref: lease for lease in self.leases[-6:]}
        self.settle(
            *[settlement_of(x, self.targets(x)[0], delay=later * UNIT) for x in latest.values()]
        )

    @rule(kind=kinds, pick=picks, which=picks, reset=st.booleans())
    def operator_moves(self, kind: str, pick: int, which: int, reset: bool) -> None:
        of, id = KINDS[kind].kind, IDS[kind][pick % len(IDS[kind])]
        frm, to = sorted(of.lifecycle.moves)[which % len(of.lifecycle.moves)]
        row = self.oracle.row(of, id)
        if row is not None and of.lifecycle.targets(row.status) and which % 3:
            frm, to = row.status, of.lifecycle.targets(row.status)[0]
        self.settle(operator_move(Ref(of, id), frm, to, attempts=0 if reset else None))

    @precondition(lambda self: self.leases)
    @rule(pick=picks, length=lengths, result=st.none() | lanes)
    def renew(self, pick: int, length: int, result: str | None) -> None:
        lease = self.lease(pick)
        fields = {"result": result} if result and lease.ref.kind == Job.kind else {}
        renewal = Renewal(lease.ref, lease.fence, length * UNIT, fields)
        assert (lease.ref in self.run(self.store.renew([renewal]))) == self.oracle.renew(renewal)

    @precondition(lambda self: self.leases)
    @rule(pick=picks, group=st.sampled_from([8, 1]), length=lengths)
    def crash_while_handling(self, pick: int, group: int, length: int) -> None:
        """Mark a suspect, let its lease expire, and claim it again."""
        lease = self.lease(pick)
        renewal = Renewal(lease.ref, lease.fence, length * UNIT, holder=f"w/{group}")
        assert (lease.ref in self.run(self.store.renew([renewal]))) == self.oracle.renew(renewal)
        self.advance_the_clock(length + 1)
        stage = next(s for s in STAGES.values() if s.kind == lease.ref.kind)
        self.claim(claim_request(stage, ids=(lease.ref.id,), lease=length * UNIT))

    # effects

    def settle_with(self, pick: int, *effects: Effect) -> None:
        lease = self.lease(pick)
        targets = self.targets(lease)
        if any(getattr(e, "id", None) == lease.ref.id for e in effects):
            return
        self.settle(settlement_of(lease, targets[pick % len(targets)], effects=effects))

    @precondition(lambda self: self.leases)
    @rule(pick=picks, note=notes, job=jobs, url=st.none() | lanes)
    def effect_create(self, pick: int, note: str, job: str, url: str | None) -> None:
        self.settle_with(pick, Create(Note(name=note, url=url)), Create(Job(id=job, lane="b")))

    @precondition(lambda self: self.leases)
    @rule(pick=picks, post=posts, move=st.sampled_from(sorted(Post.lifecycle.moves)))
    def effect_move(self, pick: int, post: str, move: tuple[str, str]) -> None:
        self.settle_with(
            pick, Move(Post, post, move[1], frm=move[0], note="moved"), Wake(Post, post)
        )

    @precondition(lambda self: self.leases)
    @rule(
        pick=picks,
        post=posts,
        to=st.sampled_from(["done", "failed"]),
        states=st.sampled_from([("pending",), ("pending", "working")]),
    )
    def effect_guarded_move(self, pick: int, post: str, to: str, states: tuple[str, ...]) -> None:
        self.settle_with(
            pick,
            Move(
                Post,
                post,
                to,
                frm="collecting",
                unless=Exists(Job, post=post, status=one_of(*states)),
            ),
        )

    @precondition(lambda self: self.leases)
    @rule(pick=picks, post=posts, to=st.sampled_from(Post.lifecycle.states), note=notes)
    def effect_move_that_must_be_declared(self, pick: int, post: str, to: str, note: str) -> None:
        self.settle_with(pick, Create(Note(name=note)), Move(Post, post, to))

    @precondition(lambda self: self.leases)
    @rule(pick=picks, post=posts, amount=numbers, other=posts)
    def effect_add(self, pick: int, post: str, amount: int, other: str) -> None:
        self.settle_with(pick, Add(Post, post, jobs=amount, failures=1), Add(Post, other, jobs=1))

    @precondition(lambda self: self.leases)
    @rule(pick=picks, job=jobs, note=notes, post=posts)
    def effect_wake(self, pick: int, job: str, note: str, post: str) -> None:
        self.settle_with(pick, Wake(Job, job), Wake(Note, note), Wake(Post, post))

    # time, removal, queries

    @rule(length=st.sampled_from([1, 1, 2, 5, 90]))
    def advance_the_clock(self, length: int) -> None:
        self.oracle.units += length
        for store in self.stores:
            store.clock_offset += length * UNIT

    @rule(kind=kinds, pick=picks, limit=limits)
    def purge(self, kind: str, pick: int, limit: int) -> None:
        states = KINDS[kind].lifecycle.states
        wanted = query(KINDS[kind], {"status": states[pick % len(states)]}, order="id", limit=limit)
        was = len(self.oracle.find(wanted))
        assert self.run(self.store.purge(wanted)) == min(was, limit)
        self.oracle.purge(wanted)

    @rule(kind=kinds, tried=numbers, states=st.lists(picks, max_size=2), held=st.booleans())
    def find(self, kind: str, tried: int, states: list[int], held: bool) -> None:
        names = KINDS[kind].lifecycle.states
        where: dict[str, Any] = {"attempts": above(tried), "leased_by": not_null if held else null}
        if states:
            where["status"] = [names[n % len(names)] for n in states]
        wanted = query(KINDS[kind], where, order="id")
        assert [r.id for r in self.run(self.store.find(wanted)).items] == self.oracle.find(wanted)

    @rule(stage=stages)
    def tally_and_backlog(self, stage: str) -> None:
        request = claim_request(STAGES[stage])
        counts = dict.fromkeys(request.kind.lifecycle.states, 0)
        for row in self.oracle.of(request.kind):
            counts[row.status] += 1
        assert {c.state: c.count for c in self.run(self.store.tally(request.kind))} == counts
        assert self.run(self.store.backlog(request)).due == self.oracle.backlog(request)

    # budgets

    @rule(amount=st.integers(1, 8), least=st.integers(1, 4), spender=spenders)
    def spend(self, amount: int, least: int, spender: str) -> None:
        least = min(amount, least)
        answer = self.run(self.store.spend(BUDGET, amount, spender, least))
        assert answer == self.oracle.spend(BUDGET, amount, spender, least)
        assert isinstance(answer, Denied) or answer.units >= least

    @rule(amount=st.integers(1, 8), spender=spenders)
    def refund(self, amount: int, spender: str) -> None:
        self.run(self.store.refund(BUDGET, amount, spender))
        self.oracle.refund(BUDGET, amount, spender)

    @rule(
        per=st.sampled_from(["day", "month"]),
        used=st.none() | st.integers(0, 12),
        limit=st.none() | st.integers(0, 30),
    )
    def observe(self, per: str, used: int | None, limit: int | None) -> None:
        self.run(self.store.observe(BUDGET, per, used=used, limit=limit))
        self.oracle.observe(BUDGET, per, used, limit)

    # invariants

    @invariant()
    def rows_and_budgets_equal_the_oracle(self) -> None:
        if hasattr(self, "oracle"):
            self.run(self._check())

    async def _check(self) -> None:
        store = self.store
        for kind in KINDS.values():
            found = {r.id: r for r in (await store.find(query(kind, limit=1000))).items}
            assert sorted(found) == sorted(row.id for row in self.oracle.of(kind.kind))
            for row in self.oracle.of(kind.kind):
                self._check_row(row, found[row.id])
                if row.updated[1] >= self.oracle.calls - 1:
                    await self._check_history(row)
        uses = await store.usage(BUDGET)
        for n, use in enumerate(uses):
            expected = self.oracle.window(BUDGET, n)
            assert (use.used, use.limit) == (expected["used"], expected["limit"])
            assert {k: v for k, v in use.spenders.items() if v} == {
                k: v for k, v in expected["spenders"].items() if v
            }

    def _check_row(self, row: Row, record: Any) -> None:
        assert (record.status, record.attempts, record.fence) == (
            row.status,
            row.attempts,
            row.fence,
        ), row
        assert (record.leased_by, record.last_error) == (row.leased_by, row.error), row
        assert {name: getattr(record, name) for name in row.fields} == row.fields
        late = (record.due_at - self.oracle.start).total_seconds() - row.due[0] * UNIT
        assert -0.001 <= late < UNIT / 2, row

    async def _check_history(self, row: Row) -> None:
        steps = await self.stores[0].history(Ref(row.kind, row.id))
        assert [(s.frm, s.to) for s in steps] == row.history
        assert not steps or steps[-1].to == row.status
        for before, after in pairwise(steps):
            assert before.to == after.frm


@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.promise(3)
@pytest.mark.promise(8)
def test_a_store_equals_the_oracle(provider: DatabaseProvider) -> None:
    few = settings(
        max_examples=20,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: StoreMachine(provider), settings=few)

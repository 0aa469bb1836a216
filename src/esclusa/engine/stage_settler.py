"""Settles the attempts of one stage in one run, and counts what became of them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

from esclusa.engine.alerts import AlertLog
from esclusa.engine.clock import StoreClock
from esclusa.engine.dead_letters import DeadLetterCloser
from esclusa.engine.leases import HeldLease, LeaseRenewer
from esclusa.engine.pauses import StageGate
from esclusa.engine.rates import Rates
from esclusa.engine.runs import RunContext
from esclusa.engine.settlement_queue import SettlementQueue
from esclusa.engine.tracebacks import location_of
from esclusa.model.decide import (
    ExhaustionFailed,
    GivenBack,
    Raised,
    Result,
    decide,
    exhaustion_failed,
)
from esclusa.model.errors import FAULTS, BadRecord, Failure
from esclusa.model.outcome import OUTCOMES, To
from esclusa.model.results import FAILED, ResultName
from esclusa.model.settlement import Leased, Lost, Rejected, Settled, Settlement, Verdict
from esclusa.model.stage import Stage
from esclusa.model.texts import Text, error_text, load, text
from esclusa.ports.artifacts import KeptArtifact
from esclusa.ports.telemetry import Telemetry

# What else a log event has of an error.
_NOTED = ("traceback", "fault")

# Results that a run counts by name; it counts the others by the state that the record moved to.
_COUNTED_BY_RESULT = frozenset({"retried", "waited", "lost"})

_Ended: TypeAlias = list[tuple[HeldLease, Settlement | None]]


class StageSettler:
    """From a result to its settlement, and from the verdict to the counters.

    ``settling`` counts the settlements that are not written yet. ``released`` is called after each
    batch of verdicts, with the number of records that this process no longer holds.
    """

    def __init__(
        self,
        stage: Stage,
        run: RunContext,
        *,
        queue: SettlementQueue,
        leases: LeaseRenewer,
        rates: Rates,
        telemetry: Telemetry,
        alerts: AlertLog,
        clock: StoreClock,
        rng: Random,
        worker: str,
        gate: StageGate,
        closer: DeadLetterCloser,
        released: Callable[[int], None],
    ) -> None:
        self._stage = stage
        self._run = run
        self._queue = queue
        self._leases = leases
        self._rates = rates
        self._telemetry = telemetry
        self._alerts = alerts
        self._clock = clock
        self._rng = rng
        self._worker = worker
        self._gate = gate
        self._released = released
        self._closer = closer
        self._takes_exhausted = closer.watches(stage)
        self.settling = 0

    def settle(self, held: HeldLease, result: Result) -> None:
        """Decide what the result means for the record and queue the settlement.

        If the lease was lost meanwhile, it is only counted.
        """
        if held.lost and self.drop_lost(held):
            return
        if not isinstance(result, To):
            result = self._gate.judge(result, held.lease.attempt)
        try:
            settlement = decide(
                result,
                held.lease,
                self._stage,
                now=self._clock.now(),
                rng=self._rng,
                who=self._worker,
                run=self._run.id or None,
            )
        except Exception as error:  # noqa: BLE001 - the answer names an undeclared move or a bad field
            self.settle(held, self._unusable(error))
            return
        kept: Sequence[KeptArtifact] = ()
        attempt = held.attempt
        if attempt is not None:
            if attempt.kept and isinstance(result, OUTCOMES):
                # Files belong to an answer: those of a failed attempt need not be on disk.
                kept = attempt.kept
            if attempt.lines is not None:
                settlement = settlement.but(log=attempt.lines.stored())
        failure = settlement.transition.error
        if failure is not None:
            self._report(held, settlement)
            if attempt is not None and attempt.span is not None:
                # The next attempt links to it.
                settlement = settlement.but(error={**failure, "trace": attempt.span})
        held.result = result
        self.settling += 1
        self._queue.add(settlement, self, held, kept)

    def drop_lost(self, held: HeldLease) -> bool:
        """Whether the lease is lost: then it is counted, and nothing is settled."""
        if held.lost:
            self._count("lost", [(held, None)])
            self._released(1)
        return held.lost

    def given_back(self, held_leases: Sequence[HeldLease]) -> None:
        """Count these: their leases were ended without a settlement."""
        self._count("given_back", [(held, None) for held in held_leases])
        self._released(len(held_leases))

    def hurry(self) -> None:
        """Write what is queued now."""
        self._queue.hurry()

    @property
    def aside(self) -> int:
        """How many settlements wait apart from the others, for example for a foreign lock."""
        return self._queue.aside(self)

    def put_aside(self) -> None:
        """Let the stage see that these may take long."""
        self._released(0)

    async def flush(self) -> None:
        """Wait until everything that was settled so far is written or put aside."""
        await self._queue.flush()

    def written(self, verdicts: list[tuple[HeldLease, Settlement, Verdict]]) -> None:
        """Count what was written; a rejected settlement ends with an error instead.

        A settlement that was lost because its own process claimed the record again is made again.
        """
        self.settling -= len(verdicts)
        ended: defaultdict[ResultName, _Ended] = defaultdict(list)
        for held, settlement, verdict in verdicts:
            if isinstance(verdict, Settled):
                ended[self._result_name(held, settlement)].append((held, settlement))
            elif isinstance(verdict, Rejected) and not exhaustion_failed(settlement.error):
                self._reject(held, settlement, verdict)
            elif isinstance(verdict, Lost) and held.lease.fence != settlement.fence:
                assert held.result is not None
                self.settle(held, held.result)
            else:
                if isinstance(verdict, Lost) and verdict.moved_to is not None:
                    self._report_moved(held, settlement, verdict.moved_to)
                ended["lost"].append((held, settlement))
        for name, those in ended.items():
            self._count(name, those)
        own = self._takes_exhausted
        if moved := [
            s for _, s, v in verdicts if (own or s.transition.effects) and isinstance(v, Settled)
        ]:
            self._closer.settled(moved, own=own)
        self._released(sum(map(len, ended.values())))

    def _reject(self, held: HeldLease, settlement: Settlement, verdict: Rejected) -> None:
        """Settle again, as an error: this settlement cannot be written."""
        if verdict.error is not None:
            self.settle(held, Raised(verdict.error))
        elif settlement.error is not None and self._exhausts(settlement):
            self.settle(held, ExhaustionFailed(settlement.error, "rejected", verdict.why))
        else:
            self.settle(
                held, Raised(Failure(_rejection(held.result, verdict.why), type="rejected"))
            )

    def _unusable(self, error: Exception) -> Raised:
        """The result of an answer that cannot be settled: a fault, unless only a value is wrong."""
        if isinstance(error, BadRecord) and not isinstance(error, FAULTS):
            return Raised(error)
        return Raised(error, location_of(self._stage.handler), fault=True)

    def _report(self, held: HeldLease, settlement: Settlement) -> None:
        """Report what no later attempt repairs: a failed exhaustion, a fault of the handler."""
        error, stage = settlement.error, self._stage.name
        assert error is not None
        if exhaustion_failed(settlement.error):
            self._telemetry.event(
                "error",
                f"{stage}: {held.ref} cannot be exhausted: {error['message']}",
                engine_stage=stage,
                record=held.ref.id,
            )
        if "fault" in error:
            why = text("handler_wrong", stage=stage, why=error_text(error))
            self._run.end("error", why)
            message = text("cycle_failed", cycle=self._run.cycle.name, why=why)
            self._alerts.begin_soon("cycle_failed", self._run.cycle.name, message, run=self._run.id)

    def _report_moved(self, held: HeldLease, settlement: Settlement, state: str) -> None:
        """Report that another program moved a record while it was held: it stays there."""
        why = text("moved_elsewhere", worker=self._worker, to=settlement.to)
        self._telemetry.event(
            "warning",
            f"{self._stage.name}: {held.ref} is in {state}: {why}",
            engine_stage=self._stage.name,
            record=held.ref.id,
            moved_to=state,
            reason=settlement.reason and load(settlement.reason),
        )

    def _exhausts(self, settlement: Settlement) -> bool:
        stage = self._stage
        if settlement.error is None or exhaustion_failed(settlement.error):
            return False
        if not stage.exhausted_fields:
            return settlement.to == stage.exhausted
        return stage.exhausted_fields.items() <= settlement.fields.items()

    def _result_name(self, held: HeldLease, settlement: Settlement) -> ResultName:
        failed = settlement.transition.error is not None
        if failed and self._exhausts(settlement):
            return "exhausted"
        if isinstance(held.result, To):
            return "moved"
        if failed:
            return "retried"
        return "given_back" if isinstance(held.result, GivenBack) else "waited"

    def _count(self, name: ResultName, ended: _Ended) -> None:
        """Count these, which all have the same result, in the run, the rates and the telemetry."""
        run, moves = self._run, _moves(ended)
        self._leases.release([held for held, _ in ended])
        if name == "moved" and self._gate.breaker is not None:
            self._gate.worked()
        if name == "given_back":
            run.counters["taken"] -= len(ended)
        elif name in _COUNTED_BY_RESULT or (name == "exhausted" and self._stage.exhausted_fields):
            run.counters[name] += len(ended)
        else:
            for (_, to), ids in moves.items():
                run.counters[to] += len(ids)
        if name not in ("lost", "given_back") and not self._stage.kind.system:
            for (frm, to), ids in moves.items():
                run.moves.add(self._stage.kind.table, name, frm, to, ids)
        if name in FAILED:
            run.failed_again += sum(held.lease.attempt > 1 for held, _ in ended)
        if name == "exhausted":
            state = self._stage.exhausted or ", ".join(self._stage.exhausted_fields)
            run.end("partial", text("records_exhausted", state=state))
        times = [held.took for held, _ in ended]
        self._rates.add(self._stage.name, name, times)
        self._telemetry.settled(
            self._stage.name,
            name,
            times,
            lambda n: (
                _event_fields(ended[n][0].lease, ended[n][1], run.id)
                | _message(self._stage, ended[n][0].lease, name)
                | _span_fields(ended[n][0])
            ),
        )


def _moves(ended: _Ended) -> Mapping[tuple[str, str], list[str]]:
    """The ids of the records that were settled, by the states before and after."""
    moves: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for held, settlement in ended:
        if settlement is not None:
            moves[held.lease.taken, settlement.transition.to].append(held.ref.id)
    return moves


def _rejection(result: Result | None, why: str) -> Text:
    """The message of a rejected settlement: with the reason of its move, for the next attempt."""
    if isinstance(result, To) and result.reason is not None:
        return text("rejected_move", reason=result.reason, why=why)
    return text("rejected", why=why)


def _span_fields(held: HeldLease) -> dict[str, Any]:
    """The span of the handler, and how long its settlement took; nothing if no spans are made."""
    attempt = held.attempt
    if attempt is None or attempt.span is None:
        return {}
    return {"span": attempt.span, "settling": time.monotonic() - attempt.ended_at}


def _message(stage: Stage, lease: Leased, name: ResultName) -> dict[str, Any]:
    """The message of a settlement's log event, if the stage says what to call a record."""
    if stage.log_as is None:
        return {}
    try:
        subject = str(stage.log_as(lease.record))
    except Exception as error:  # noqa: BLE001 - a function of the pipeline may raise anything
        subject = f"{lease.ref} (log_as: {type(error).__name__})"
    tries = stage.retry.tries
    attempt = f"attempt {lease.attempt}" + ("" if tries is None else f"/{tries}")
    if name == "retried":
        return {"message": f"{subject} will retry ({attempt})"}
    if name == "exhausted" and tries is not None and lease.attempt >= tries:
        return {"message": f"{subject} reached the maximum of attempts ({tries})"}
    return {"message": f"{subject}: {name} ({attempt})"}


def _event_fields(lease: Leased, settlement: Settlement | None, run: str) -> dict[str, Any]:
    """The fields of a settlement's log event: the record and its move, no business field."""
    fields: dict[str, Any] = {
        "table": lease.ref.kind.table,
        "record": lease.ref.id,
        "attempt": lease.attempt,
        "run": run,
    }
    if settlement is not None:
        reason = settlement.reason and load(settlement.reason)
        fields |= {"from": settlement.frm[0], "to": settlement.to, "reason": reason}
        if settlement.error is not None:
            fields |= {
                "error_type": settlement.error["type"],
                "error_message": settlement.error["message"],
            }
            fields |= {n: settlement.error[n] for n in _NOTED if n in settlement.error}
    return fields

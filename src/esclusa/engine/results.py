"""How a handler's call ended: what it answered or raised, and what the log says of that."""

from __future__ import annotations

from typing import Any

from esclusa.model.decide import Raised, Result
from esclusa.model.outcome import Retry, To, Wait
from esclusa.model.settlement import Leased, Settlement
from esclusa.model.stage import Stage

OUTCOMES = (To, Retry, Wait)


def result_of(answer: Any, stage: Stage) -> Result:
    """Its answer, if it is one. Raises TypeError."""
    if isinstance(answer, OUTCOMES):
        return answer
    raise TypeError(
        f"stage {stage.name}: its handler must answer To, Retry or Wait, not {type(answer).__name__}"
    )


def results_of(answers: Any, count: int, stage: Stage) -> list[Result]:
    """The same for a handler that was called with so many records."""
    if not isinstance(answers, list | tuple) or len(answers) != count:
        got = (
            f"{len(answers)} answers"
            if isinstance(answers, list | tuple)
            else type(answers).__name__
        )
        raise TypeError(
            f"stage {stage.name}: a batch of {count} needs a list of {count} outcomes, not {got}"
        )
    return [result_of(one, stage) for one in answers]


def raised(error: BaseException) -> Raised:
    """What a handler raised, without the frame that called it: that one holds what holds the error, and both would stay until the
    collector comes, with the record and all that the handler had at hand."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
    return Raised(error)


def event_fields(lease: Leased, settlement: Settlement | None, run: str) -> dict[str, Any]:
    """What a settlement's event says: which record, and what became of it; none of its business fields."""
    said: dict[str, Any] = {
        "table": lease.ref.kind.table,
        "record": lease.ref.id,
        "attempt": lease.attempt,
        "run": run,
    }
    if settlement is not None:
        said |= {"from": settlement.frm[0], "to": settlement.to, "reason": settlement.reason}
        if settlement.error is not None:
            said |= {
                "error_type": settlement.error["type"],
                "error_message": settlement.error["message"],
            }
    return said

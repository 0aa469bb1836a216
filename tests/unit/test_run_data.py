"""What a run keeps of its moves, and how lists fold runs that did nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from esclusa.engine.run_moves import MOST, NEWEST, RunMoves
from esclusa.model.system_records import Alert
from esclusa.web.console.run_data import alert_data, folded, was_idle

CHECK = SimpleNamespace(
    name="replies.check",
    kind=SimpleNamespace(table="pending_jobs"),
    take=("pending",),
    exhausted="failed",
)
CYCLES = {
    "replies.process-jobs": SimpleNamespace(stages=[CHECK], function=None),
    "replies.report": SimpleNamespace(stages=[], function=print),
}
CONSOLE: Any = SimpleNamespace(
    read_model=SimpleNamespace(registry=SimpleNamespace(all_stages=[CHECK], cycles=CYCLES))
)


def run(number: int, status: str = "ok", **counters: int) -> dict[str, Any]:
    return {"id": str(number), "status": status, "counters": counters, "started_at": number}


def test_moves_are_counted_and_the_newest_records_kept() -> None:
    moves = RunMoves()
    for n in range(100):
        moves.add("items", "moved", "new", "done", [f"i{n}"])
    moves.add("items", "retried", "new", "new", ["bad"])
    first, second = moves.as_json()
    assert (first["count"], first["ids"][0], len(first["ids"])) == (100, "i99", NEWEST)
    assert (second["result"], second["count"], second["ids"]) == ("retried", 1, ["bad"])


def test_moves_have_a_limit() -> None:
    moves = RunMoves()
    for n in range(2 * MOST):
        moves.add("items", "moved", "new", f"s{n}", ["i"])
    assert len(moves.as_json()) == MOST


def test_runs_that_did_nothing_are_folded() -> None:
    runs = [run(9, taken=1), run(8), run(7, taken=0), run(6), run(5, "error"), run(4), run(3)]
    shown = folded(runs)
    assert [item.get("id") for item in shown] == ["9", None, "5", "4", "3"]
    fold = shown[1]
    assert [quiet["id"] for quiet in fold["fold"]] == ["8", "7", "6"]
    assert (fold["since"], fold["until"]) == (6, 8)


def test_a_list_of_idle_runs_is_one_item() -> None:
    [item] = folded([run(n) for n in range(5, 0, -1)])
    assert len(item["fold"]) == 5


def test_an_alert_about_a_cycle_of_stages_leads_to_their_records() -> None:
    for subject in ("replies.process-jobs", "replies.check"):
        noon = datetime(2026, 11, 17, 12, tzinfo=UTC)
        alert = Alert(name="error_rate", subject=subject, message="", begun_at=noon)
        assert alert_data(CONSOLE, alert)["links"][-1] == (
            "Records",
            "/console/records/pending_jobs?status=failed",
        )


def test_a_function_that_counts_nothing_was_not_idle() -> None:
    assert was_idle(CONSOLE, "replies.process-jobs", {"taken": 0})
    assert not was_idle(CONSOLE, "replies.process-jobs", {"taken": 3})
    assert not was_idle(CONSOLE, "replies.report", {})

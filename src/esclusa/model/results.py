"""The names of results, the same in counters, metrics, logs, commands and pages.

An attempt ends with a `ResultName`, a run with a `RunOutcome`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

# What became of one attempt.
#
# `moved`: the handler's `To` was settled. `retried`: it failed and will be attempted again.
# `waited`: it waits, the attempt not counted. `exhausted`: it failed for good. `lost`: the lease
# was lost, nothing was settled. `given_back`: a stop came before the handler ended.
ResultName: TypeAlias = Literal["moved", "retried", "waited", "exhausted", "lost", "given_back"]

# The results that rates count: all but `given_back`.
RATED: Final[tuple[ResultName, ...]] = ("moved", "retried", "waited", "exhausted", "lost")

# The results of attempts that a handler ended by itself; shares of errors are taken from these.
PROCESSED: Final[tuple[ResultName, ...]] = ("moved", "retried", "exhausted")

# The results after which the record is no longer due for the stage.
LEFT: Final[tuple[ResultName, ...]] = ("moved", "exhausted")

# The results of attempts that ended with an error.
FAILED: Final[tuple[ResultName, ...]] = ("retried", "exhausted")

# How a run ended, from the best outcome to the worst.
RunOutcome: TypeAlias = Literal["ok", "partial", "blocked", "error"]

RUN_OUTCOMES: Final[tuple[RunOutcome, ...]] = get_args(RunOutcome)

# The level of the log line about a result or an outcome; info for all others.
LOG_LEVELS: Final[dict[str, str]] = {
    "exhausted": "warning",
    "lost": "warning",
    "rejected": "error",
    "partial": "warning",
    "blocked": "warning",
    "error": "error",
}

# The roles of runs on pages. They differ from those that the lifecycle gives: the system's stage
# takes running runs, and a blocked run is terminal but not finished.
RUN_ROLES: Final[dict[str, str]] = {
    "running": "working",
    "ok": "finished",
    "partial": "failed",
    "error": "failed",
    "blocked": "resting",
}

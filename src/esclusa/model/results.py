"""The names of the results of an attempt: the same in counters, rates, metrics, logs and pages."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

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

# The results of attempts that ended with an error.
FAILED: Final[tuple[ResultName, ...]] = ("retried", "exhausted")

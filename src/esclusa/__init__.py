"""Esclusa: durable record pipelines. The record is the queue."""

from esclusa.artifacts.paths import segment
from esclusa.engine.attempt import Attempt
from esclusa.engine.runs import RunContext
from esclusa.model.budget import Budget, BudgetEmpty, Window, WindowUse
from esclusa.model.columns import track
from esclusa.model.effects import Add, Create, Effect, Exists, Move, Wake
from esclusa.model.errors import (
    ArtifactError,
    ArtifactExists,
    ArtifactMissing,
    BadRecord,
    EsclusaError,
    Failure,
    Permanent,
    Throttled,
)
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.options import option
from esclusa.model.outcome import Outcome, Retry, To, Wait
from esclusa.model.pipeline import App
from esclusa.model.query import above, at_least, at_most, below, not_null, null, one_of
from esclusa.model.record import Record
from esclusa.model.retry import Backoff
from esclusa.model.schedule import cron, every
from esclusa.model.settlement import Duplicate, FanOut, Inserted, RecordWithChildren
from esclusa.model.system_records import publish
from esclusa.ports.artifacts import Artifacts
from esclusa.version import __version__

__all__ = [
    "Add",
    "App",
    "ArtifactError",
    "ArtifactExists",
    "ArtifactMissing",
    "Artifacts",
    "Attempt",
    "Backoff",
    "BadRecord",
    "Budget",
    "BudgetEmpty",
    "Create",
    "Duplicate",
    "Effect",
    "EsclusaError",
    "Exists",
    "Failure",
    "FanOut",
    "Inserted",
    "Lifecycle",
    "Move",
    "Outcome",
    "Permanent",
    "Record",
    "RecordWithChildren",
    "Retry",
    "RunContext",
    "Throttled",
    "To",
    "Wait",
    "Wake",
    "Window",
    "WindowUse",
    "__version__",
    "above",
    "at_least",
    "at_most",
    "below",
    "cron",
    "every",
    "not_null",
    "null",
    "one_of",
    "option",
    "publish",
    "segment",
    "track",
]  # fmt: skip

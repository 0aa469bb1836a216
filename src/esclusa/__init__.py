"""Esclusa: durable record pipelines. The record is the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from esclusa.artifacts import open_artifacts, plain_segment, segment
from esclusa.engine.attempt import Attempt
from esclusa.engine.run_files import RunFiles
from esclusa.engine.runs import RunContext
from esclusa.model.breaker import Breaker
from esclusa.model.budget import Budget, BudgetEmpty, Rate, Window, WindowUse
from esclusa.model.columns import track, untracked
from esclusa.model.effects import Add, Create, Effect, Exists, Move, Wake
from esclusa.model.errors import (
    ArtifactError,
    ArtifactExists,
    ArtifactMissing,
    BadQuery,
    BadRecord,
    EsclusaError,
    Failure,
    NotFound,
    Permanent,
    SettingsError,
    StoreConflict,
    Throttled,
)
from esclusa.model.gauge import Gauge
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.options import option
from esclusa.model.outcome import Outcome, Retry, To, Wait
from esclusa.model.pipeline import App
from esclusa.model.query import (
    Page,
    above,
    at_least,
    at_most,
    beginning,
    below,
    not_null,
    null,
    one_of,
)
from esclusa.model.record import Record
from esclusa.model.retry import Backoff
from esclusa.model.schedule import Always, cron, every
from esclusa.model.settlement import Duplicate, FanOut, Inserted, RecordWithChildren
from esclusa.model.storable import storage_fault
from esclusa.model.system_records import DeadLetter, Export, publish
from esclusa.ports.artifacts import Artifacts
from esclusa.version import __version__

if TYPE_CHECKING:
    from esclusa.runtime import Runtime

__all__ = [
    "Add",
    "Always",
    "App",
    "ArtifactError",
    "ArtifactExists",
    "ArtifactMissing",
    "Artifacts",
    "Attempt",
    "Backoff",
    "BadQuery",
    "BadRecord",
    "Breaker",
    "Budget",
    "BudgetEmpty",
    "Create",
    "DeadLetter",
    "Duplicate",
    "Effect",
    "EsclusaError",
    "Exists",
    "Export",
    "Failure",
    "FanOut",
    "Gauge",
    "Inserted",
    "Lifecycle",
    "Move",
    "NotFound",
    "Outcome",
    "Page",
    "Permanent",
    "Rate",
    "Record",
    "RecordWithChildren",
    "Retry",
    "RunContext",
    "RunFiles",
    "Runtime",
    "SettingsError",
    "StoreConflict",
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
    "beginning",
    "below",
    "cron",
    "every",
    "not_null",
    "null",
    "one_of",
    "open_artifacts",
    "option",
    "plain_segment",
    "publish",
    "segment",
    "storage_fault",
    "track",
    "untracked",
]


def __getattr__(name: str) -> Any:
    if name == "Runtime":  # imports the whole engine; declarations do not need it
        from esclusa.runtime import Runtime  # noqa: PLC0415

        return Runtime
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

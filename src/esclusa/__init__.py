"""Esclusa: durable record pipelines. The record is the queue."""

from __future__ import annotations

from importlib import import_module
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
    from esclusa.embedding import migrate, open, open_sync  # noqa: A004 - used as esclusa.open
    from esclusa.engine.pipeline_actions import ActionContext
    from esclusa.runtime import Runtime
    from esclusa.sync import SyncRuntime

__all__ = [
    "ActionContext",
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
    "SyncRuntime",
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
    "migrate",
    "not_null",
    "null",
    "one_of",
    "open",
    "open_artifacts",
    "open_sync",
    "option",
    "plain_segment",
    "publish",
    "segment",
    "storage_fault",
    "track",
    "untracked",
]


# The module of each name that imports the whole engine; declarations do not need it.
_LATE = {
    "ActionContext": "esclusa.engine.pipeline_actions",
    "Runtime": "esclusa.runtime",
    "SyncRuntime": "esclusa.sync",
    "migrate": "esclusa.embedding",
    "open": "esclusa.embedding",
    "open_sync": "esclusa.embedding",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)

"""Esclusa: durable record pipelines. The record is the queue."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from esclusa.version import __version__

if TYPE_CHECKING:
    from esclusa.artifacts import open_artifacts, plain_segment, segment
    from esclusa.embedding import migrate, open, open_sync  # noqa: A004 - used as esclusa.open
    from esclusa.engine.attempt import Attempt
    from esclusa.engine.pipeline_actions import ActionContext
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
    from esclusa.model.text import Text
    from esclusa.ports.artifacts import Artifacts
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
    "Text",
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


# The public names of each module, which is imported when one of them is first used: a command
# that only prints its help needs none.
_MODULES = {
    "esclusa.artifacts": ("open_artifacts", "plain_segment", "segment"),
    "esclusa.embedding": ("migrate", "open", "open_sync"),
    "esclusa.engine.attempt": ("Attempt",),
    "esclusa.engine.pipeline_actions": ("ActionContext",),
    "esclusa.engine.run_files": ("RunFiles",),
    "esclusa.engine.runs": ("RunContext",),
    "esclusa.model.breaker": ("Breaker",),
    "esclusa.model.budget": ("Budget", "BudgetEmpty", "Rate", "Window", "WindowUse"),
    "esclusa.model.columns": ("track", "untracked"),
    "esclusa.model.effects": ("Add", "Create", "Effect", "Exists", "Move", "Wake"),
    "esclusa.model.errors": (
        "ArtifactError",
        "ArtifactExists",
        "ArtifactMissing",
        "BadQuery",
        "BadRecord",
        "EsclusaError",
        "Failure",
        "NotFound",
        "Permanent",
        "SettingsError",
        "StoreConflict",
        "Throttled",
    ),
    "esclusa.model.gauge": ("Gauge",),
    "esclusa.model.lifecycle": ("Lifecycle",),
    "esclusa.model.options": ("option",),
    "esclusa.model.outcome": ("Outcome", "Retry", "To", "Wait"),
    "esclusa.model.pipeline": ("App",),
    "esclusa.model.query": (
        "Page",
        "above",
        "at_least",
        "at_most",
        "beginning",
        "below",
        "not_null",
        "null",
        "one_of",
    ),
    "esclusa.model.record": ("Record",),
    "esclusa.model.retry": ("Backoff",),
    "esclusa.model.schedule": ("Always", "cron", "every"),
    "esclusa.model.settlement": ("Duplicate", "FanOut", "Inserted", "RecordWithChildren"),
    "esclusa.model.storable": ("storage_fault",),
    "esclusa.model.system_records": ("DeadLetter", "Export", "publish"),
    "esclusa.model.text": ("Text",),
    "esclusa.ports.artifacts": ("Artifacts",),
    "esclusa.runtime": ("Runtime",),
    "esclusa.sync": ("SyncRuntime",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

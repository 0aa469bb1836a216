"""The settings of the pipeline under test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from esclusa.model.pipeline import App


def settings_of(app: App, given: BaseModel | Mapping[str, Any] | None) -> BaseModel:
    """The settings as an object. Raises ValueError for a name that the pipeline does not have."""
    if isinstance(given, BaseModel):
        return given
    known = app.settings.model_fields
    if unknown := sorted(set(given or {}) - set(known)):
        names = ", ".join(known) or "none"
        raise ValueError(f"{app.name} has no setting {', '.join(unknown)}; it has {names}")
    return app.settings(**(given or {}))

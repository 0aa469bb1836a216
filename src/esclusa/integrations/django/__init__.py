"""Django: models as records, inserts in ``atomic()``, the command of the worker, an admin action.

``INSTALLED_APPS = [..., "esclusa.integrations.django"]`` and, in the settings,
``ESCLUSA = {"pipelines": ["shop.pipeline:app"]}``. The names below are imported when they are first
used, because Django loads this module before its models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from esclusa.extras import with_advice

if TYPE_CHECKING:
    from esclusa.integrations.django.admin import retry_action
    from esclusa.integrations.django.inserts import insert
    from esclusa.integrations.django.model_records import ModelRecord
    from esclusa.integrations.django.system import opened

__all__ = ["ModelRecord", "insert", "opened", "retry_action"]

_MODULES = {
    "ModelRecord": "model_records",
    "insert": "inserts",
    "opened": "system",
    "retry_action": "admin",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        raise with_advice(error) from None

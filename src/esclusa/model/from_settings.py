"""Options that are functions of the settings of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from esclusa.model.errors import DeclarationError
from esclusa.model.stage import FUNCTIONS


def resolved(options: Mapping[str, Any], settings: BaseModel, where: str) -> dict[str, Any]:
    """The options for these settings; functions of the record stay."""
    return {
        name: given if name in FUNCTIONS else resolve(given, settings, where, name)
        for name, given in options.items()
    }


def resolve(value: Any, settings: BaseModel, of: str, option: str) -> Any:
    """The option, or what its function answers for these settings."""
    if not callable(value) or isinstance(value, type):
        return value
    try:
        return value(settings)
    except DeclarationError:
        raise
    except Exception as error:  # a function of the pipeline may raise anything
        raise DeclarationError(
            of,
            [f"{option} is a function of the settings that raised {type(error).__name__}: {error}"],
        ) from error

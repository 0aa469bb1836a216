"""The log inside another application: lines go to its own ``logging``, which is not configured.

Events are written by loggers below ``esclusa``, with their fields in ``record.esclusa``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from esclusa.observability import redact

LEVELS: Mapping[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


def enabled(level: str) -> bool:
    """Whether the host writes lines of this level."""
    return logging.getLogger("esclusa").isEnabledFor(LEVELS[level])


def write(name: str, level: str, message: str, fields: Mapping[str, Any]) -> None:
    """Write a line with the host's ``logging``; secrets are masked."""
    shown = redact.fields({**fields, "event": message})
    text = shown.pop("event")
    error = shown.pop("exc_info", None)
    logging.getLogger(name).log(
        LEVELS[level],
        "%s",
        text,
        extra={"esclusa": shown},
        exc_info=error if isinstance(error, BaseException | tuple | bool) else None,
    )

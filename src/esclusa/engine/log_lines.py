"""The lines that a handler logs, as the history of its record keeps them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from esclusa.model.storable import storable_text

# Of each attempt the last lines are kept, each text cut to so many characters.
MOST_LINES, MOST_FIELDS, MOST_TEXT = 50, 20, 1000


class LogLines:
    """The last lines of one attempt. A handler in a thread adds to them, too."""

    def __init__(self) -> None:
        self._lines: deque[dict[str, Any]] = deque(maxlen=MOST_LINES)
        self._count = 0

    def add(self, at: datetime, level: str, message: str, fields: Mapping[str, Any]) -> None:
        """Add a line; the oldest gives way."""
        line: dict[str, Any] = {"at": at.isoformat(), "level": level, "message": _text(message)}
        if fields:
            names = list(fields)[:MOST_FIELDS]
            line["fields"] = {name: _plain(fields[name]) for name in names}
        self._count += 1
        self._lines.append(line)

    def stored(self) -> dict[str, Any]:
        """The lines, and how many earlier ones are left out."""
        return {"lines": list(self._lines), "omitted": self._count - len(self._lines)}


def _text(value: object) -> str:
    return storable_text(str(value)[:MOST_TEXT])


def _plain(value: Any) -> Any:
    """The value as JSON holds it in every store: a small whole number, a truth value or a text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    return _text(value)

"""What a run did with records: a number for each move, and the newest records of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

# The newest records of each move that are kept, and the most moves that are kept.
NEWEST, MOST = 20, 50


class RunMoves:
    """Counts the settlements of one run by table, result and states. Its size is bounded."""

    __slots__ = ("_moves",)

    def __init__(self) -> None:
        self._moves: dict[tuple[str, str, str, str], _Move] = {}

    def add(self, table: str, result: str, frm: str, to: str, ids: Sequence[str]) -> None:
        """Count settlements of these records: ``result`` is moved, retried, waited or exhausted."""
        key = (table, result, frm, to)
        move = self._moves.get(key)
        if move is None:
            if len(self._moves) >= MOST:
                return
            move = self._moves[key] = _Move()
        move.count += len(ids)
        move.ids.extend(ids[-NEWEST:])

    def as_json(self) -> list[dict[str, Any]]:
        """Each move with its count and the ids of its newest records, the newest first."""
        return [
            {
                "table": table,
                "result": result,
                "from": frm,
                "to": to,
                "count": move.count,
                "ids": list(reversed(move.ids)),
            }
            for (table, result, frm, to), move in self._moves.items()
        ]


class _Move:
    __slots__ = ("count", "ids")

    def __init__(self) -> None:
        self.count = 0
        self.ids: deque[str] = deque(maxlen=NEWEST)

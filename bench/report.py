"""The table: what was measured, our number, the other number, their ratio, its range, the goal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

TITLES = ("what", "ours", "beside", "theirs", "ratio", "min–max", "goal", "")


@dataclass(frozen=True)
class Row:
    """One comparison.

    ``ratios`` has one entry per round. It compares two numbers of the same round, and a larger
    ratio is better for us.
    """

    what: str
    unit: str
    ours: Sequence[float]
    beside: str
    theirs: Sequence[float]
    ratios: Sequence[float]
    goal: float | None = None

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "ok" if median(self.ratios) >= self.goal else "miss"

    def cells(self) -> tuple[str, ...]:
        return (
            self.what,
            number(median(self.ours), self.unit),
            self.beside,
            number(median(self.theirs), self.unit),
            f"{median(self.ratios):.2f}",
            f"{min(self.ratios):.2f}–{max(self.ratios):.2f}",
            "" if self.goal is None else f"≥ {self.goal:g}",
            self.verdict,
        )


def rates(
    what: str,
    ours: Sequence[float],
    beside: str,
    theirs: Sequence[float],
    goal: float | None = None,
    unit: str = "/s",
) -> Row:
    """A row of rates: more is better, so the ratio is ours to theirs."""
    return Row(
        what, unit, ours, beside, theirs, [a / b for a, b in zip(ours, theirs, strict=True)], goal
    )


def times(
    what: str,
    ours: Sequence[float],
    beside: str,
    theirs: Sequence[float],
    goal: float | None = None,
    unit: str = " ms",
) -> Row:
    """A row of times or sizes: less is better, so the ratio is theirs to ours."""
    return Row(
        what, unit, ours, beside, theirs, [b / a for a, b in zip(ours, theirs, strict=True)], goal
    )


@dataclass
class Report:
    """All rows and notes of a benchmark; ``str()`` gives the table."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [TITLES, *(row.cells() for row in self.rows)]
        widths = [max(len(line[n]) for line in lines) for n in range(len(TITLES))]
        text = [
            "  ".join(_aligned(cell, widths[n], n) for n, cell in enumerate(line)).rstrip()
            for line in lines
        ]
        text.insert(1, "  ".join("─" * width for width in widths).rstrip())
        return "\n".join([*text, *(f"note: {note}" for note in self.notes)])

    def write(self, path: Path) -> None:
        """Write every number of every round as JSON."""
        rows = [
            asdict(row) | {"ratio": median(row.ratios), "verdict": row.verdict} for row in self.rows
        ]
        path.write_text(
            json.dumps({"machine": self.machine, "rows": rows, "notes": self.notes}, indent=2)
            + "\n"
        )


def number(value: float, unit: str) -> str:
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return digits + unit


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if column in (1, 3, 4, 6) else cell.ljust(width)

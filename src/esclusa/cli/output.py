"""How answers look: JSON for programs, plain columns for pipes, rich for terminals."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import click

from esclusa.model import duration

if TYPE_CHECKING:
    from rich.console import Console

WIDEST = 60
SHORT = 20
FEW = 8
FAULTS = 20
STYLES = {
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
    "error": "red",
    "partial": "yellow",
    "blocked": "yellow",
    "paused": "yellow",
    "running": "cyan",
    "failed": "red",
}


def as_json(answer: Any, indent: int | None = None) -> str:
    """The answer as JSON; times in ISO 8601, decimals as text."""
    return json.dumps(answer, ensure_ascii=False, default=_plain, indent=indent)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def text_of(value: Any) -> str:
    """A value on one line, without control characters that a terminal would obey."""
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict | list):
        value = as_json(value)
    return "".join(
        c if c.isprintable() else " " if c in "\n\t" else f"\\x{ord(c):02x}" for c in str(value)
    )


def moment(value: datetime | str | None) -> str:
    """Date and time, to the second."""
    return "-" if value is None else f"{_time(value):%Y-%m-%d %H:%M:%S}"


def ago(value: datetime | str | None, now: datetime) -> str:
    """A time relative to ``now``: ``5m ago``, ``in 2h``."""
    if value is None:
        return "-"
    seconds = (now - _time(value)).total_seconds()
    if abs(seconds) < 1:
        return "now"
    words = duration.words(round(abs(seconds)))
    return f"{words} ago" if seconds > 0 else f"in {words}"


def _time(value: datetime | str) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def seconds_of(value: float | None) -> str:
    """A duration, ``1m 30s``."""
    return "-" if value is None else duration.words(value)


def share(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{value:.1%}"


def approximate(counted: dict[str, Any]) -> str:
    """The ``count`` of an answer; ``~`` before it if it is not ``exact``."""
    return f"{'' if counted['exact'] else '~'}{counted['count']:,}"


class Screen:
    """Prints tables and lines for people, with colours on a terminal."""

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(highlight=False)

    def line(self, text: str = "", style: str = "") -> None:
        if self.terminal and style:
            from rich.text import Text

            self.console.print(Text(text, style), soft_wrap=True)
        else:
            click.echo(text)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "nothing"
    ) -> None:
        """Print rows under their columns. ``>`` before a column's name aligns it to the right."""
        cells = [[text_of(cell) for cell in row] for row in rows]
        if not cells:
            self.line(empty, "dim")
        elif self.terminal:
            self.console.print(rich_table(columns, cells, self.console.width))
        else:
            self._plain(columns, cells)

    def pairs(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Print names and values, one per line, uncut."""
        shown = [(name, text_of(value)) for name, value in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            self.line(f"{name:<{width}}  {value}")

    def _plain(self, columns: Sequence[str], cells: list[list[str]]) -> None:
        rows = [[c.lstrip(">") for c in columns], *([cut(cell) for cell in row] for row in cells)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
        for row in rows:
            padded = [
                cell.rjust(width) if name.startswith(">") else cell.ljust(width)
                for name, cell, width in zip(columns, row, widths, strict=True)
            ]
            click.echo("  ".join(padded).rstrip())


def cut(text: str, width: int = WIDEST) -> str:
    """The text, shortened to this width."""
    return text if len(text) <= width else text[: width - 1] + "…"


def rich_table(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Any:
    """The table for a terminal of this width, with every column."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    titles = [name.lstrip(">") for name in columns]
    shown = [[cut(cell) for cell in row] for row in cells]
    wide = [max(map(cell_len, column)) for column in zip(titles, *shown, strict=True)]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for name, title, size in zip(
        columns, titles, widths(wide, width - 2 * (len(columns) - 1)), strict=True
    ):
        justify: Literal["left", "right"] = "right" if name.startswith(">") else "left"
        table.add_column(title, justify=justify, overflow="ellipsis", no_wrap=True, width=size)
    for row in shown:
        table.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    return table


def widths(wide: Sequence[int], room: int) -> list[int]:
    """The widths at which columns that need ``wide`` fit into ``room``.

    Long columns shrink first, down to a few letters. Short columns shrink only after them.
    """
    giving = [size for size in wide if size > SHORT]
    left = room - sum(size for size in wide if size <= SHORT)
    if left >= FEW * len(giving):
        most = _level(giving, left)
        return [size if size <= SHORT else min(size, most) for size in wide]
    most = _level(wide, room)
    return [min(size, most) for size in wide]


def _level(wide: Sequence[int], room: int) -> int:
    """The width to which the widest columns must shrink so that all fit."""
    for done, size in enumerate(sorted(wide)):
        even = room // (len(wide) - done)
        if size > even:
            return max(1, even)
        room -= size
    return max(wide, default=1)


def print_report(screen: Screen, answer: dict[str, Any], known: str = "known") -> None:
    """Print the result of an import: counts, and the first faults by row."""
    errors = answer["errors"]
    screen.line(f"{answer['created']:,} new, {answer['known']:,} {known}, {len(errors):,} refused")
    for error in errors[:FAULTS]:
        screen.line(f"row {error['row']}: {text_of(error['error'])}")
    if len(errors) > FAULTS:
        screen.line(f"… and {len(errors) - FAULTS:,} more; --json lists all")
    warnings = answer.get("warnings", [])
    for warning in warnings[:FAULTS]:
        screen.line(f"row {warning['row']}: warning: {warning['warning']}")
    if len(warnings) > FAULTS:
        screen.line(f"… and {len(warnings) - FAULTS:,} more warnings; --json lists them")

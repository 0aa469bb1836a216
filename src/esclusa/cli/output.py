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

from esclusa.cli.zones import local
from esclusa.model import duration

if TYPE_CHECKING:
    from rich.console import Console

# Columns up to this width are not cut as long as longer ones can give way.
SHORT = 20
# The least width to which a long column is cut.
FEW = 8
# The least width to which a long id is wrapped.
ID = 24
# The most faults of an import that are printed.
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
        return f"{moment(value)} {local(value).tzname() or ''}".rstrip()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict | list):
        value = as_json(value)
    return "".join(
        c if c.isprintable() else " " if c in "\n\t" else f"\\x{ord(c):02x}" for c in str(value)
    )


def moment(value: datetime | str | None) -> str:
    """Date and time, to the second, in the zone of the reader."""
    return "-" if value is None else f"{local(_time(value)):%Y-%m-%d %H:%M:%S}"


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
    """Prints tables and lines for people, with colours on a terminal.

    ``wide``: nothing is cut or left out for lack of room.
    """

    def __init__(self, *, wide: bool = False) -> None:
        self.terminal = sys.stdout.isatty()
        self.wide = wide

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
        """Print rows under their columns.

        Marks before a column's name: ``>`` aligns it to the right, ``!`` is an id, which is never
        cut, ``+`` wraps instead of being cut. Without a terminal, and with ``--wide``, nothing is
        cut. A terminal gets the columns that fit, and a remark names the others.
        """
        cells = [[text_of(cell) for cell in row] for row in rows]
        if not cells:
            self.line(empty, "dim")
        elif self.terminal and not self.wide:
            shown, left_out = fitting(columns, cells, self.console.width)
            self.console.print(rich_table(*shown, self.console.width))
            if left_out:
                click.echo(f"No room for {', '.join(left_out)}: use --wide.", err=True)
        else:
            self._plain(columns, cells)

    def pairs(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Print names and values, one per line, uncut."""
        shown = [(name, text_of(value)) for name, value in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            self.line(f"{name:<{width}}  {value}")

    def _plain(self, columns: Sequence[str], cells: list[list[str]]) -> None:
        rows = [[_title(c) for c in columns], *cells]
        widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
        for row in rows:
            padded = [
                cell.rjust(width) if name.startswith(">") else cell.ljust(width)
                for name, cell, width in zip(columns, row, widths, strict=True)
            ]
            click.echo("  ".join(padded).rstrip())


def _title(column: str) -> str:
    """The title of a column, without the marks before it."""
    return column.lstrip(">!+")


def fitting(
    columns: Sequence[str], cells: Sequence[Sequence[str]], width: int
) -> tuple[tuple[list[str], list[list[str]]], list[str]]:
    """The columns and cells that fit into a terminal, and the titles of the columns that do not.

    Ids are always there; then come the columns in their order, each with the width that it needs.
    """
    needed = [
        _needed(name, size, _id_width(columns, width)) for name, size in _sizes(columns, cells)
    ]
    shown = [index for index, name in enumerate(columns) if _is_id(name)]
    left = width + 2 - sum(needed[index] + 2 for index in shown)
    for index in range(len(columns)):
        if index in shown:
            continue
        left -= needed[index] + 2
        if left < 0 and shown:
            break
        shown.append(index)
    shown.sort()
    left_out = [_title(name) for index, name in enumerate(columns) if index not in shown]
    return ([columns[i] for i in shown], [[row[i] for i in shown] for row in cells]), left_out


def _is_id(column: str) -> bool:
    return column.startswith("!")


def _sizes(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[tuple[str, int]]:
    """Each column with the width of its longest text."""
    from rich.cells import cell_len

    return [
        (name, max(cell_len(text) for text in (_title(name), *(row[index] for row in cells))))
        for index, name in enumerate(columns)
    ]


def _id_width(columns: Sequence[str], width: int) -> int:
    """The least width of a long id in a terminal: together, ids take half of it."""
    return max(ID, width // 2 // max(1, sum(map(_is_id, columns))))


def _needed(column: str, size: int, id_width: int) -> int:
    """The least width of a column.

    A short one needs all of it, a long one a few letters. A long id goes on in the next line.
    """
    if _is_id(column):
        return min(size, id_width)
    return size if size <= SHORT else FEW


def rich_table(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Any:
    """The table for a terminal of this width, with every column."""
    from rich.table import Table
    from rich.text import Text

    sizes = _sizes(columns, cells)
    room = width - 2 * (len(columns) - 1)
    least = sum(_needed(name, size, 0) for name, size in sizes if not _is_id(name))
    most = _level([size for name, size in sizes if _is_id(name)], max(1, room - least))
    ids = [min(size, most) if _is_id(name) else 0 for name, size in sizes]
    others = [size for name, size in sizes if not _is_id(name)]
    rest = iter(widths(others, max(1, room - sum(ids))))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for name, id in zip(columns, ids, strict=True):
        wraps = name.startswith(("!", "+"))
        justify: Literal["left", "right"] = "right" if name.startswith(">") else "left"
        table.add_column(
            _title(name),
            justify=justify,
            overflow="fold" if wraps else "ellipsis",
            no_wrap=not wraps,
            width=id or next(rest),
        )
    for row in cells:
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

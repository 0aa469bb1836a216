"""How answers look: JSON for programs, plain columns for pipes, rich for terminals."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import click

from esclusa.cli.zones import local, zone_name
from esclusa.model import duration
from esclusa.model.text import Text, fill
from esclusa.model.value import value

if TYPE_CHECKING:
    from rich.console import Console

# Texts up to this width are not cut.
SHORT = 20
# The least width to which a longer text is cut, and to which one is wrapped.
FEW, WRAPPED = 12, 24
# The least width to which a long id is wrapped.
ID = 24
# The most faults of an import that are printed.
FAULTS = 20
# A time, as ``moment`` and ``text_of`` write it.
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( \S+)?")
# A time among the values of a stored text.
_STORED_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
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
    if isinstance(value, Text):
        value = sentence(value)
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


def sentence(given: str) -> str:
    """A text of Esclusa with its times in the zone of the reader; words of others as they are."""
    if not isinstance(given, Text):
        return given
    return fill(given.template, {name: _word(each) for name, each in given.values.items()})


def _word(value: Any) -> Any:
    if isinstance(value, Text):
        return sentence(value)
    if isinstance(value, str) and _STORED_TIME.fullmatch(value):
        value = datetime.fromisoformat(value)
    return f"{moment(value)} {zone_name()}" if isinstance(value, datetime) else value


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

    @property
    def cuts(self) -> bool:
        """Whether tables show what has room: on a terminal, without ``wide``."""
        return self.terminal and not self.wide

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

        Marks before a column's name: ``!`` is an id, which is always there and never cut, ``>`` is
        a number, which is never cut either, nor is ``=``; ``+`` wraps instead of being cut. Without
        a terminal, and with ``--wide``, nothing is cut. A terminal gets the columns that fit, and a
        remark names the others.
        """
        cells = [[text_of(cell) for cell in row] for row in rows]
        if not cells:
            self.line(empty, "dim")
        elif self.cuts:
            shown, left_out = fitting(columns, cells, self.console.width)
            self.console.print(rich_table(*shown, self.console.width))
            if left_out:
                click.echo(f"No room for {', '.join(left_out)}: use --wide.", err=True)
        else:
            self._plain(columns, cells)

    def pairs(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Print names and values, one per line, uncut."""
        shown = [(name, text_of(given)) for name, given in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        for name, written in shown:
            self.line(f"{name:<{width}}  {written}")

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
    return column.lstrip(">!+=")


@value
class _Column:
    """A column for a terminal.

    ``wide`` is its whole width, ``cells`` that of its longest cell, ``least`` the least width at
    which it can be read.
    """

    name: str
    wide: int
    cells: int
    least: int
    empty: bool

    @property
    def is_id(self) -> bool:
        return self.name.startswith("!")


def _columns(names: Sequence[str], cells: Sequence[Sequence[str]], id_width: int) -> list[_Column]:
    from rich.cells import cell_len

    made = []
    for index, name in enumerate(names):
        texts = [row[index] for row in cells]
        title = _title(name)
        longest = max((cell_len(text) for text in texts), default=0)
        if name.startswith("!"):
            least = min(longest, id_width)
        elif name.startswith((">", "=")) or any(map(_TIME.fullmatch, texts)):
            least = longest
        elif name.startswith("+"):
            least = min(longest, WRAPPED)
        else:
            least = longest if longest <= SHORT else FEW
        words = max(map(len, title.split()), default=0)
        wide = max(longest, cell_len(title))
        empty = not name.startswith("!") and set(texts) <= {"-"}
        made.append(_Column(name, wide, longest, max(least, words), empty))
    return made


def fitting(
    columns: Sequence[str], cells: Sequence[Sequence[str]], width: int
) -> tuple[tuple[list[str], list[list[str]]], list[str]]:
    """The columns and cells that fit into a terminal, and the titles of the columns that do not.

    Ids are always there; then come the columns in their order, each with the width that it needs.
    If there is no room for all, columns in which no row has a value are left out first.
    """
    found = _columns(columns, cells, _id_width(columns, width))
    if sum(column.least + 2 for column in found) - 2 > width:
        wanted = [index for index, column in enumerate(found) if not column.empty]
    else:
        wanted = list(range(len(found)))
    shown = [index for index in wanted if found[index].is_id]
    left = width + 2 - sum(found[index].least + 2 for index in shown)
    for index in wanted:
        if index in shown:
            continue
        left -= found[index].least + 2
        if left < 0 and shown:
            break
        shown.append(index)
    shown.sort()
    left_out = [_title(columns[index]) for index in wanted if index not in shown]
    return ([columns[i] for i in shown], [[row[i] for i in shown] for row in cells]), left_out


def _id_width(columns: Sequence[str], width: int) -> int:
    """The least width of a long id in a terminal: together, ids take two thirds of it."""
    return max(ID, width * 2 // 3 // max(1, sum(name.startswith("!") for name in columns)))


def rich_table(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Any:
    """The table for a terminal of this width, with every column."""
    from rich.table import Table
    from rich.text import Text

    columns = _columns(names, cells, 0)
    room = width - 2 * (len(columns) - 1)
    least = sum(column.least for column in columns if not column.is_id)
    most = _level([c.wide for c in columns if c.is_id], max(1, room - least))
    bounds = [
        (min(c.wide, most), min(c.wide, most)) if c.is_id else (c.least, c.wide) for c in columns
    ]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for column, size in zip(columns, widths(bounds, room), strict=True):
        # A title goes on in the next line; a cell does only if it must not be cut.
        wraps = column.name.startswith(("!", "+")) or column.cells <= size
        justify: Literal["left", "right"] = "right" if column.name.startswith(">") else "left"
        table.add_column(
            _title(column.name),
            justify=justify,
            overflow="fold" if wraps else "ellipsis",
            no_wrap=not wraps,
            width=size,
        )
    for row in cells:
        table.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    return table


def widths(bounds: Sequence[tuple[int, int]], room: int) -> list[int]:
    """The widths of columns, each between its least and its whole width, that fill ``room``.

    What is left after the least widths goes to the narrowest first. Where even those have no room,
    the widest give way.
    """
    found = [least for least, _ in bounds]
    if sum(found) > room:
        most = _level(found, room)
        return [min(size, most) for size in found]
    for _ in range(room - sum(found)):
        growing = [n for n, (_, wide) in enumerate(bounds) if found[n] < wide]
        if not growing:
            break
        found[min(growing, key=found.__getitem__)] += 1
    return found


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

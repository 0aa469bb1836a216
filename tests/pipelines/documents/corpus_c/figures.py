"""Statements before layout: rows, columns, and formats of numbers."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from pipelines.documents.drawing import Truth
from pipelines.documents.months import MONTHS

Box = tuple[float, float, float, float]
MARKED = re.compile(r"(#{1,2}|_?==?\d?|>!?|[$@]|[?!~*_-]{1,3}) +")


@dataclass(frozen=True)
class Numerals:
    """The format of numbers; an amount is an integer count of the smallest unit printed."""

    group: str = "."
    point: str = ","
    decimals: int = 0
    negative: str = "({})"
    zero: str = "-"

    def shown(self, amount: int, decimals: int | None = None) -> str:
        """Return the amount as printed."""
        whole, point, rest = self.value(abs(amount), decimals).partition(".")
        triples, mark = (
            (r"(\d\d)*\d{3}", ",") if self.group == "lakh" else (r"(\d{3})+", self.group)
        )
        text = re.sub(rf"(?<=\d)(?={triples}$)", mark, whole) + (self.point if point else "") + rest
        return self.negative.format(text) if amount < 0 else text if amount else self.zero

    def value(self, amount: int, decimals: int | None = None) -> str:
        """Return the amount as a signed decimal."""
        places = self.decimals if decimals is None else decimals
        whole, rest = divmod(abs(amount), 10**places)
        return "-" * (amount < 0) + (f"{whole}.{rest:0{places}}" if places else str(whole))


@dataclass(frozen=True)
class Column:
    """A column of amounts: random (`value`) or computed from the columns `of`.

    Computed kinds are `sum`, `change` and `percent`.
    """

    head: str
    year: int | None = None
    period: str | None = None
    kind: str = "value"
    of: tuple[int, ...] = ()
    weight: float = 1.0


@dataclass
class Row:
    """A line of the statement: a section header, an item or a total."""

    kind: str
    label: str
    section: str | None
    level: int = 0
    code: str = ""
    note: str = ""
    decimals: int | None = None
    amounts: list[int] = field(default_factory=list)
    grand: bool = False


@cache
def words(name: str) -> tuple[str, ...]:
    """Return the lines of a block of the word list; the first line of a statement is its title."""
    text = Path(__file__).with_name("items.txt").read_text(encoding="utf-8")
    return tuple(text.split(f"[{name}]\n")[1].split("\n\n")[0].strip().split("\n"))


def end(year: int, month: int) -> str:
    """Return the ISO date of the last day of a month."""
    return f"{year}-{month:02}-{calendar.monthrange(year, month)[1]:02}"


def spoken(period: str, lang: str) -> str:
    """Return the date in words."""
    year, month, day = period.split("-")
    name = MONTHS[lang[:2]][int(month) - 1]
    return {
        "es": f"{day} de {name} de {year}",
        "en": f"{day} {name} {year}",
        "en-us": f"{name} {day}, {year}",
    }[lang]


def added(*amounts: list[int]) -> list[int]:
    """Return the sums column by column."""
    return [sum(column) for column in zip(*amounts, strict=True)]


def drawn(
    rng: Random, mark: str, size: float, columns: list[Column], decimals: int, seen: set[int]
) -> list[int]:
    """Return the amounts of an item, different from those used; some are small or missing."""
    while True:
        first = (
            int(10**size * rng.uniform(2, 9))
            if "!" in mark
            else int(10 ** rng.uniform(max(size - 2.4, 0.9), size))
        )
        first = (
            rng.randint(7, 98)
            if "!" not in mark and rng.random() < 0.04
            else first // 2
            if mark == "-!"
            else first
        )
        first = (first * 10**decimals + rng.randrange(10**decimals)) * (
            -1 if re.search("[-_]", mark) else 1
        )
        turns = [-1 if "~" in mark and rng.random() < 0.4 else 1 for _ in columns]
        amounts = [
            t * round(first * c.weight * rng.uniform(0.7, 1.35)) * (c.kind == "value")
            for t, c in zip(turns, columns, strict=True)
        ]
        if "!" not in mark and len(amounts) > 1 and rng.random() < 0.08:
            amounts[rng.randrange(len(amounts))] = 0
        new = [abs(a) for a in amounts if a]
        if new and len(set(new)) == len(new) and not seen & set(new):
            seen.update(new)
            return amounts


def rows(
    rng: Random,
    name: str,
    columns: list[Column],
    size: float,
    decimals: int = 0,
    *,
    notes: float = 0,
    balance: list[int] | None = None,
) -> list[Row]:
    """Return the rows of a statement of the word list, with totals that add up to `balance`.

    Most items have up to ten to the power of `size`, the main ones more. Marks: `#` section, `?`
    optional, `!` main, `-` negative, `~` of either sign, `_` printed without its minus, `*` evens
    both sides, `=` total of a block, `=2` of two, `==` of all, `>` so far.
    """
    zero, out, flipped, seen, blocks = (
        [0] * len(columns),
        list[Row](),
        list[Row](),
        set[int](),
        list[list[int]](),
    )
    block, everything, section, level, note, plug, is_main = zero, zero, None, 0, 3, None, False
    for line in words(name)[1:]:
        found = MARKED.match(line)
        mark, label = (found[1], line[found.end() :]) if found else ("", line)
        if "?" in mark and rng.random() < 0.45:
            continue
        code, _, label = label.rpartition(" | ")
        if mark in ("#", "##"):
            level, section = len(mark), label
            out.append(Row("section", label, section, level - 1))
            continue
        total = mark[-1:] == "=" or mark[:1] in ("=", ">")
        row = Row("total" if total else "item", label, section, max(level - total, 0), code)
        if mark[-2:] == "==":
            row.amounts = added(*blocks, block)
            if plug and balance:
                gap = [b - a for a, b in zip(row.amounts, balance, strict=True)]
                for other in [r for r in out[out.index(plug) :] if r is plug or r.kind == "total"][
                    :2
                ]:
                    other.amounts = added(other.amounts, gap)
                row.amounts = list(balance)
            balance, blocks, block = row.amounts, [], zero
        elif total and mark[0] != ">":
            blocks += [block] if any(block) else []
            row.amounts = added(*blocks[-int(mark[-1]) :]) if mark[-1].isdigit() else block
            block, level = zero, max(level - 1, 0)
        elif total:
            row.amounts, block = everything, zero
        elif mark in ("$", "@"):
            low, high, row.decimals = (12, 780, 2) if mark == "$" else (20_000, 90_000, 0)
            row.amounts = [
                rng.randint(low, high) * (-1 if mark == "$" and a < 0 else 1) for a in everything
            ]
        else:
            row.amounts = zero if "*" in mark else drawn(rng, mark, size, columns, decimals, seen)
            plug, is_main = (row, "!" in mark) if "*" in mark else (plug, is_main)
            if rng.random() < notes:
                row.note, note = str(note), note + rng.randint(1, 2)
            block, everything = added(block, row.amounts), added(everything, row.amounts)
        if (mark == ">!" and min(everything) < 0) or (
            mark[-2:] == "==" and plug and is_main and min(plug.amounts) < 0
        ):
            return rows(rng, name, columns, size, decimals, notes=notes)
        row.grand = mark[-2:] == "==" or mark[:1] == ">"
        row.level *= not row.grand
        out.append(row)
        flipped += [row] if "_" in mark else []
    for row in out:
        row.amounts = (
            [-a for a in row.amounts] if any(row is f for f in flipped) else list(row.amounts)
        )
        for at, column in enumerate(columns if row.amounts else []):
            if column.kind == "sum":
                row.amounts[at] = sum(row.amounts[i] for i in column.of)
            elif column.kind == "change":
                row.amounts[at] = row.amounts[column.of[0]] - row.amounts[column.of[1]]
    return out


def percent(row: Row, column: Column, numerals: Numerals) -> str:
    """Return the relative change that a percentage column shows."""
    new, old = (row.amounts[i] for i in column.of)
    change = 1000 * (new - old) / abs(old) if old else 9999
    return (
        "n/a"
        if abs(change) > 9000
        else Numerals(numerals.group, numerals.point, 1, numerals.negative).shown(round(change))
        + "%"
    )


def truth(
    row: Row, at: int, columns: list[Column], numerals: Numerals, page: int, box: Box
) -> Truth:
    """Return the value of a row in a column."""
    amount, column = row.amounts[at], columns[at]
    printed, value = (
        re.sub(r"\s", "", numerals.shown(amount, row.decimals)),
        numerals.value(amount, row.decimals),
    )
    return Truth(
        row.label,
        column.year,
        column.period,
        value,
        printed,
        page,
        box,
        row.section,
        row.kind == "total",
    )


def stamped(content: bytes) -> bytes:
    """Return the same document with fixed dates and identifiers."""
    content = re.sub(rb"(D:)\d{14}", rb"\g<1>20250303090000", content)
    return re.sub(rb"<[0-9a-fA-F]{32}>", b"<" + b"0" * 32 + b">", content)

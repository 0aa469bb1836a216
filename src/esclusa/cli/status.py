"""The status page on the terminal, once or live."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any

import click

from esclusa.cli.output import (
    Screen,
    ago,
    approximate,
    as_json,
    fitting,
    moment,
    rich_table,
    seconds_of,
    sentence,
    share,
    text_of,
)
from esclusa.cli.zones import zone_name
from esclusa.model.texts import text

KINDS = ["!KIND", "+STATES"]
STAGES = ["!STAGE", ">DUE", "OLDEST", ">PER MIN", ">ERRORS", ">P50", ">P99", "+TIME TO DRAIN"]
CYCLES = ["!CYCLE", "STATE", "SCHEDULE", "NEXT", "LAST RUN", "OUTCOME"]
BUDGETS = ["!BUDGET", "PER", ">SPENT", ">LEFT", "RESETS"]


def draw_status(screen: Screen, answer: dict[str, Any]) -> None:
    """Print the answer of ``ReadModel.status``."""
    screen.line(_head(answer), "bold")
    for columns, rows in _tables(answer):
        screen.line()
        screen.table(columns, rows)
    screen.line()
    for line in _unadopted(answer):
        screen.line(line, "yellow")
    screen.line(_foot(answer))


async def watch_status(
    screen: Screen, ask: Callable[[], Awaitable[dict[str, Any]]], every: float, *, json: bool
) -> None:
    """Print it repeatedly until Ctrl-C: in place on a terminal, otherwise one after another."""
    while json or not screen.terminal:
        if json:
            click.echo(as_json(await ask()))
        else:
            draw_status(screen, await ask())
        await asyncio.sleep(every)
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=screen.console, screen=True, auto_refresh=False) as live:
        while True:
            answer = await ask()
            parts: list[Any] = [Text(_head(answer), "bold")]
            for columns, rows in _tables(answer):
                cells = [[text_of(cell) for cell in row] for row in rows]
                shown, _ = fitting(columns, cells, screen.console.width)
                parts += [Text(), rich_table(*shown, screen.console.width)]
            live.update(
                Group(
                    *parts,
                    Text(),
                    *(Text(line, "yellow") for line in _unadopted(answer)),
                    Text(_foot(answer)),
                    Text("Press Ctrl-C to stop.", "dim"),
                ),
                refresh=True,
            )
            await asyncio.sleep(every)


def _head(answer: dict[str, Any]) -> str:
    return f"{answer['store']}  {moment(answer['now'])} {zone_name()}"


def _foot(answer: dict[str, Any]) -> str:
    alive, dead = len(answer["workers"]), answer["dead_letters"]
    workers = f"{alive} workers" if alive != 1 else "1 worker"
    letters = (
        f"{dead:,} dead letter{'' if dead == 1 else 's'} (esclusa dead-letters)"
        if dead
        else "no dead letters"
    )
    return f"{workers if alive else 'no worker is running (esclusa worker)'}, {letters}"


def _unadopted(answer: dict[str, Any]) -> list[str]:
    return [
        text(
            "unadopted",
            table=each["table"],
            count=each["count"],
            examples=", ".join(each["examples"]),
        )
        for each in answer["unadopted"]
    ]


def _tables(answer: dict[str, Any]) -> Iterator[tuple[list[str], list[Any]]]:
    now = answer["now"]
    if not answer["kinds"]:
        yield ["PIPELINES"], [["none; run esclusa doctor"]]
        return
    yield KINDS, [(k["table"], _states(k)) for k in answer["kinds"]]
    if answer["stages"]:
        yield STAGES, [_stage(s) for s in answer["stages"]]
    if answer["cycles"]:
        yield CYCLES, cycle_rows(answer["cycles"], now)
    windows = [(b["budget"], w) for b in answer["budgets"] for w in b["windows"]]
    if windows:
        yield (
            BUDGETS,
            [(name, w["per"], w["used"], w["left"], ago(w["reset"], now)) for name, w in windows],
        )


def _states(kind: dict[str, Any]) -> str:
    return "  ".join(f"{c['state']} {approximate(c)}" for c in kind["counts"])


def _stage(stage: dict[str, Any]) -> list[Any]:
    return [
        stage["stage"],
        f"{stage['due']:,}{'' if stage['due_exact'] else '+'}",
        seconds_of(stage["oldest_due_seconds"]),
        f"{stage['per_minute']:,g}",
        share(stage["error_share"]),
        seconds_of(stage["p50"]),
        seconds_of(stage["p99"]),
        _drain(stage),
    ]


def _drain(stage: dict[str, Any]) -> str:
    """The time to drain with what limits it, or why there is none at this rate."""
    note = stage["drain_note"] and sentence(stage["drain_note"])
    if stage["drain_seconds"] is None:
        return f"not at this rate: {note}" if note else "-"
    seconds = seconds_of(stage["drain_seconds"])
    return f"{seconds}: {note}" if note else seconds


def cycle_rows(cycles: list[dict[str, Any]], now: datetime) -> list[list[Any]]:
    """One row per cycle, with the columns of ``CYCLES``."""
    return [
        [
            c["cycle"],
            c["state"],
            c["schedule"],
            _pause(c["pause"], now) if c["state"] == "paused" else ago(c["next"], now),
            ago((c["last"] or {}).get("started_at"), now),
            (c["last"] or {}).get("status"),
        ]
        for c in cycles
    ]


def _pause(pause: dict[str, Any] | None, now: datetime) -> str:
    """Who paused a cycle, when and why, as far as that is known."""
    if pause is None or pause["by"] is None:
        return "when resumed"
    why = f": {pause['reason']}" if pause["reason"] else ""
    return f"when resumed (paused by {pause['by']} {ago(pause['since'], now)}{why})"

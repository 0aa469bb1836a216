"""Tables on a terminal: every column is there, however narrow it is."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from esclusa.cli.output import Screen, fitting, rich_table, text_of, widths
from esclusa.model.texts import load, text

COLUMNS = (">COUNT", "KIND", "ERROR", "MESSAGE", "NEWEST", "EXAMPLE")
ROW = (
    "2",
    "meta_publicaciones_webhook",
    "invalid_media",
    "the body is neither a picture nor a film; it begins with b'<!",
    "4s ago",
    "14",
)


def drawn(width: int, columns: Sequence[str] = COLUMNS, row: Sequence[str] = ROW) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(rich_table(columns, [row], width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_column_is_left_out_of_a_narrow_terminal(width: int) -> None:
    head, row = drawn(width)
    assert head.split() == [name.lstrip(">") for name in COLUMNS]
    assert {"2", "invalid_media", "14"} <= set(row.split())
    assert row.split()[1][:11] == "meta_public"
    assert max(map(len, (head, row))) <= width


def test_where_there_is_room_nothing_is_cut() -> None:
    assert "meta_publicaciones_webhook  invalid_media" in drawn(200)[1]


def test_times_and_numbers_are_never_cut_and_long_titles_go_on_below() -> None:
    columns = ("!ID", ">LARGEST BACKLOG", "DUE (America/Santiago)", "NOTE", "URL")
    row = ("7", "1,234,567", "2026-11-19 00:35:17", "-", "https://example.org/a/long/path")
    (shown, cells), left_out = fitting(columns, [row], 34)
    assert (shown, left_out) == ([*columns[:3]], ["URL"])  # a column without a value is not missed
    first, second, third = drawn(34, shown, cells[0])
    assert (first.split(), second.split()[:2]) == (["LARGEST", "DUE"], ["ID", "BACKLOG"])
    assert third.split() == ["7", "1,234,567", "2026-11-19", "00:35:17"]


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=12),
    st.integers(12, 200),
)
def test_columns_have_the_room_that_they_need(sizes: list[tuple[int, int]], room: int) -> None:
    bounds = [(least, least + more) for least, more in sizes]
    shown = widths(bounds, room)
    assert sum(shown) <= room
    assert all(0 < now <= wide for now, (_, wide) in zip(shown, bounds, strict=True))
    if sum(wide for _, wide in bounds) <= room:
        assert shown == [wide for _, wide in bounds]
    if sum(least for least, _ in bounds) <= room:
        assert all(now >= least for now, (least, _) in zip(shown, bounds, strict=True))


LONG_ID = "preavaluos-2026-10-c08d68a8e0cd:91-roto-ca02734d7803d5ed"
MANY = ("!ID", "STATUS", ">ATTEMPTS", "DUE", *(f"FIELD_{n}" for n in range(14)))
WIDE_ROW = (LONG_ID, "done", "0", "2026-11-18 13:27:49", *(f"value {n}" for n in range(14)))


@pytest.mark.parametrize("width", [40, 80, 120, 400])
def test_an_id_is_never_cut(width: int) -> None:
    (columns, cells), left_out = fitting(MANY, [WIDE_ROW], width)
    out = io.StringIO()
    Console(file=out, width=width).print(rich_table(columns, cells, width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    second = lines[0].index("STATUS")
    assert "".join(line[:second].strip() for line in lines[1:]) == LONG_ID
    assert "done" in out.getvalue()
    assert [*(c.lstrip(">!") for c in columns), *left_out] == [c.lstrip(">!") for c in MANY]
    assert bool(left_out) == (width < 400)


def test_without_a_terminal_and_with_wide_nothing_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "x" * 500
    Screen().table(["!ID", "MESSAGE"], [(LONG_ID, text)])
    assert f"{LONG_ID}  {text}" in capsys.readouterr().out
    screen = Screen(wide=True)
    screen.terminal = True
    screen.table(["!ID", "MESSAGE"], [(LONG_ID, text)])
    assert f"{LONG_ID}  {text}" in capsys.readouterr().out


def test_what_has_no_room_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.terminal = True
    screen.console = Console(width=80, highlight=False)
    screen.table(MANY, [WIDE_ROW])
    captured = capsys.readouterr()
    assert "FIELD_13: use --wide." in captured.err
    assert "…" not in captured.out.split("FIELD")[0]


def test_times_in_texts_are_in_the_zone_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Santiago")
    until = datetime(2026, 11, 20, tzinfo=UTC)
    empty = text("budget_empty", budget="api", until=until, used=500, limit=500, per="day")
    for sentence in (empty, load(empty.dump())):
        assert "until 2026-11-19 21:00:00 America/Santiago" in text_of(sentence)
    assert text_of("until 2026-11-20 00:00:00+00:00") == "until 2026-11-20 00:00:00+00:00"

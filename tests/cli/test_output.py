"""Tables on a terminal: every column is there, however narrow it is."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from esclusa.cli.output import FEW, SHORT, rich_table, widths

COLUMNS = (">COUNT", "KIND", "ERROR", "MESSAGE", "NEWEST", "EXAMPLE")
ROW = (
    "2",
    "meta_publicaciones_webhook",
    "invalid_media",
    "the body is neither a picture nor a film; it begins with b'<!",
    "4s ago",
    "14",
)


def drawn(width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(rich_table(COLUMNS, [ROW], width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [70, 80, 100, 200])
def test_no_column_is_left_out_of_a_narrow_terminal(width: int) -> None:
    head, row = drawn(width)
    assert head.split() == [name.lstrip(">") for name in COLUMNS]
    assert {"2", "invalid_media", "14"} <= set(row.split())
    assert row.split()[1][:7] == "meta_pu"
    assert max(map(len, (head, row))) <= width


def test_where_there_is_room_nothing_is_cut() -> None:
    assert "meta_publicaciones_webhook  invalid_media" in drawn(200)[1]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(12, 200))
def test_columns_have_room_and_the_long_give_way_first(wide: list[int], room: int) -> None:
    shown = widths(wide, room)
    assert sum(shown) <= room
    assert all(0 < now <= before for now, before in zip(shown, wide, strict=True))
    if sum(wide) <= room:
        assert shown == wide
    if sum(min(size, FEW) if size > SHORT else size for size in wide) <= room:
        assert all(now == before or before > SHORT for now, before in zip(shown, wide, strict=True))

"""Lifecycles drawn with characters: every state once, every move there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from esclusa.cli.drawing import draw
from esclusa.model.lifecycle import Lifecycle


def test_a_state_stands_where_it_is_first_reached() -> None:
    assert draw(Lifecycle("a -> b -> c -> d\na -> d")).splitlines() == [
        "● a",
        "  ├─▶ b",
        "  │   └─▶ c",
        "  │       └─▶ ↩ d",
        "  └─▶ d ■",
    ]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_every_state_once_and_every_move(pairs: list[tuple[int, int]]) -> None:
    extra = "".join(f"\ns{a} -> s{b}" for a, b in pairs if a != b)
    life = Lifecycle(f"s0 -> s1 -> s2 -> s3 -> s4 -> s5 -> s6{extra}", endless=True)
    lines = draw(life).splitlines()
    assert sorted(
        line.split()[-1 if "■" not in line else -2] for line in lines if "↩" not in line
    ) == sorted(life.states)
    assert len(lines) == 1 + len(life.moves)

"""What changed in a field: words of a text, values inside JSON."""

from __future__ import annotations

from typing import Any

import pytest

from esclusa.web.console.diff import rows

ARROW = ' <span aria-hidden="true">→</span> '


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ([None, 3], [("f", f"<del>—</del>{ARROW}<ins>3</ins>")]),
        (["red", "blue"], [("f", f"<del>red</del>{ARROW}<ins>blue</ins>")]),
        (
            ["a <b> at 10:00 is late", "a <b> at 11:00 is late"],
            [("f", "a &lt;b&gt; at <del>10</del><ins>11</ins>:00 is late")],
        ),
        (
            [{"a": {"b": 1, "c": 2}, "d": 0}, {"a": {"b": 1, "c": 3}}],
            [
                ("f.a.c", f"<del>2</del>{ARROW}<ins>3</ins>"),
                ("f.d", f"<del>0</del>{ARROW}<ins>—</ins>"),
            ],
        ),
        ([7], [("f", f"…{ARROW}<ins>7</ins>")]),
    ],
)
def test_a_change(change: list[Any], shown: list[tuple[str, str]]) -> None:
    assert rows({"f": change}) == shown


def test_long_texts_keep_only_what_is_around_the_change() -> None:
    words = " ".join(f"w{n}" for n in range(300))
    [(_, shown)] = rows({"f": [words, words.replace("w150 ", "x ")]})
    assert "<del>w150</del><ins>x</ins>" in shown
    assert len(shown) < 200


def test_a_text_of_many_words_is_compared_at_once() -> None:
    text = "word " * 100_000
    [(_, shown)] = rows({"f": [text, f"{text}more"]})
    assert shown.startswith("<del>word ")

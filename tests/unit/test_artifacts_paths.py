"""Allowed artifact paths, and safe segments from values."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import BAD_PATHS

from esclusa.artifacts.paths import clean, clean_prefix, segment
from esclusa.model.errors import ArtifactError

GOOD = [
    "a",
    "a/b.txt",
    "año/ñandú (1).pdf",
    "日本/🙂.jpg",
    "%empty",
    "a/..b",
    "a/b..c",
    "...",
    "media/2026-11-16/x+y&z.jpg",
    "ab:c",
]


@pytest.mark.parametrize("path", GOOD)
def test_good_path_is_unchanged(path: str) -> None:
    assert clean(path) == path


@pytest.mark.parametrize(("path", "why"), BAD_PATHS.items())
def test_bad_path_is_refused_with_the_reason(path: str, why: str) -> None:
    with pytest.raises(ArtifactError, match=re.escape(why)) as caught:
        clean(path)
    assert ascii(path)[:100] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\0" not in str(caught.value)


def test_path_must_be_text() -> None:
    with pytest.raises(ArtifactError, match="not text"):
        clean(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", "a/.", "media/2026-1"])
def test_prefix_may_end_anywhere(prefix: str) -> None:
    assert clean_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", ["/", "../", "a/../", "a//", "a/./", "..", "a\\", "/a"])
def test_bad_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ArtifactError):
        clean_prefix(prefix)


def test_segments_of_typical_values() -> None:
    assert segment("post_12-3.jpg") == "post_12-3.jpg"
    assert segment(42) == "42"
    assert segment("../x") == "%2E.%2Fx"
    assert segment("..") == "%2E%2E"
    assert segment(".") == "%2E"
    assert segment("") == "%empty"
    assert segment("año") == "a%C3%B1o"
    assert segment("%2E") == "%252E"


def test_long_value_is_cut_and_hashed() -> None:
    one, two = segment("x" * 5000), segment("x" * 4999 + "y")
    assert one != two
    assert len(one) <= 150
    assert one[:100] == two[:100]
    assert not re.search(r"%[0-9A-F]?%~", segment("ñ" * 500))


@pytest.mark.parametrize("value", [True, None, 1.5, b"x"])
def test_segment_takes_text_and_integers_only(value: object) -> None:
    with pytest.raises(TypeError):
        segment(value)  # type: ignore[arg-type]


TEXT = (
    st.text(st.characters(), max_size=80)
    | st.text("./%~\\\0 aA0eEmpty2", max_size=12)
    | st.text("%./", min_size=100, max_size=200)
)


@given(TEXT)
def test_any_text_becomes_one_clean_segment(text: str) -> None:
    made = segment(text)
    assert clean(made) == made
    assert re.fullmatch(r"[A-Za-z0-9_.%~-]+", made)
    assert clean(f"kept/{made}.jpg").count("/") == 1


@given(TEXT, TEXT)
def test_different_values_have_different_segments(one: str, two: str) -> None:
    assert (segment(one) == segment(two)) == (one == two)

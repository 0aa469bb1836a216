"""Texts: every code has a sentence, and every place that uses a code gives its values."""

from __future__ import annotations

import ast
import copy
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from string import Formatter

import pytest

import esclusa
from esclusa.model.errors import BadQuery, Failure, NotFound, UndeclaredMove
from esclusa.model.texts import TEXTS, Text, load, text

SOURCE = Path(esclusa.__file__).parent


def calls(function: str) -> Iterator[tuple[str, str, set[str]]]:
    """Every call ``text("code", name=…)`` of the source: where, the code, the names."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id=name), args=[ast.Constant(value=str(code))], keywords=given
                ) if name == function and all(keyword.arg for keyword in given):
                    where = f"{path.relative_to(SOURCE)}:{node.lineno}"
                    yield where, code, {str(keyword.arg) for keyword in given}


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def test_each_use_of_a_code_gives_exactly_its_values() -> None:
    wrong = [
        (where, code)
        for where, code, given in calls("text")
        if code not in TEXTS or placeholders(TEXTS[code]) != given
    ]
    assert wrong == []


def test_each_sentence_of_a_pipeline_gives_exactly_its_values() -> None:
    found = list(calls("Text"))
    assert [where for where, code, given in found if placeholders(code) != given] == []
    assert len(found) > 100


def test_a_refusal_carries_its_text_and_reads_as_its_sentence() -> None:
    error = NotFound(text("record_not_found", id="7", table="posts"))
    assert (error.text.code, error.text.values) == (
        "record_not_found",
        {"id": "7", "table": "posts"},
    )
    assert str(error) == "there is no record '7' in posts"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_refusal_accepts_a_plain_sentence() -> None:
    error = BadQuery("no {braces} are filled in")
    assert (error.text.code, str(error)) == ("plain", "no {braces} are filled in")


def test_an_undeclared_move_names_what_is_allowed() -> None:
    assert str(UndeclaredMove("posts 7", "a", "b", ["c", "d"])) == (
        "posts 7: the move a -> b is not declared; from a it can go to c, d"
    )
    assert str(UndeclaredMove("posts 7", "a", "b", [])) == (
        "posts 7: the move a -> b is not declared; a is a terminal state"
    )


def test_a_text_is_stored_and_read_again() -> None:
    until = datetime(2026, 1, 1, tzinfo=UTC)
    stored = text("budget_empty", budget="b", until=until).dump()
    found = load(stored)
    assert isinstance(found, Text)
    assert found == "budget b is empty until 2026-01-01 00:00:00+00:00"
    assert load("a handler's own words") == "a handler's own words"
    assert load('{"code": "unknown"}') == '{"code": "unknown"}'


def test_a_sentence_of_a_pipeline_is_stored_and_read_again() -> None:
    why = Failure(Text("the provider answers {code}", code=503))
    template = "{why} (post {post}); {size:,} bytes in {seconds:g} s"
    made = Text(template, why=why, post="7", size=1234, seconds=2.0)
    assert made == "the provider answers 503 (post 7); 1,234 bytes in 2 s"
    for found in (load(made.dump()), pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert isinstance(found, Text)
        assert (found, found.template, found.code) == (made, made.template, "")
        assert isinstance(found.values["why"], Text)
    assert type(str(made)) is str


@pytest.mark.parametrize(
    "stored",
    [
        '{"sentence": "{a.__class__}", "values": {"a": 1}}',
        '{"sentence": "{a:>999999999}", "values": {"a": 1}}',
        '{"sentence": "{a}", "values": {}}',
        '{"sentence": "{a:,}", "values": {"a": "x"}}',
        '{"sentence": 1, "values": {}}',
        '{"sentence": "", "values": []}',
        '{"sentence": "Not found"}',
    ],
)
def test_words_of_others_are_not_taken_for_a_sentence(stored: str) -> None:
    assert (load(stored), type(load(stored))) == (stored, str)


def test_a_text_without_its_values_fails_where_it_is_made() -> None:
    with pytest.raises(KeyError):
        text("paused")
    with pytest.raises(KeyError):
        text("no_such_code")
    with pytest.raises(KeyError):
        Text("it has no {value}")
    with pytest.raises(ValueError, match="braces hold a name"):
        Text("{value!r}", value=1)

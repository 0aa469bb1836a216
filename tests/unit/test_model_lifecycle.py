"""Lifecycles: what the arrows mean, and that every fault is reported when it is declared."""

from __future__ import annotations

import pytest

from esclusa.model.errors import DeclarationError, UndeclaredMove
from esclusa.model.lifecycle import Lifecycle

MEDIA = """
    pending -> downloading -> success   # the normal way
    downloading -> pending | error

    error -> pending
"""


def test_arrows_become_states_and_moves() -> None:
    life = Lifecycle(MEDIA)
    assert life.states == ("pending", "downloading", "success", "error")
    assert life.initial == "pending"
    assert life.terminal == {"success"}
    assert life.moves == {
        ("pending", "downloading"),
        ("downloading", "success"),
        ("downloading", "pending"),
        ("downloading", "error"),
        ("error", "pending"),
    }
    assert life.targets("downloading") == ("pending", "success", "error")
    assert life.sources("pending") == ("downloading", "error")
    assert life.targets("nowhere") == ()


def test_alternatives_on_both_sides_of_an_arrow() -> None:
    assert Lifecycle("a -> b | c -> d").moves == {("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")}


def test_a_single_state_is_a_lifecycle() -> None:
    life = Lifecycle("kept")
    assert (life.states, life.terminal) == (("kept",), {"kept"})


def test_lifecycles_are_compared_by_states_and_moves() -> None:
    assert Lifecycle("a -> b -> c") == Lifecycle("a->b\nb->c # more")
    assert hash(Lifecycle("a -> b")) == hash(Lifecycle("a->b"))
    assert Lifecycle("a -> b") != Lifecycle("a -> c")


@pytest.mark.promise(2)
def test_an_undeclared_move_names_the_allowed_states() -> None:
    life = Lifecycle(MEDIA)
    life.check("error", "pending", "here")
    assert life.allows("error", "pending")
    with pytest.raises(UndeclaredMove) as caught:
        life.check("downloading", "downloading", "publications 7")
    assert str(caught.value) == (
        "publications 7: the move downloading -> downloading is not declared; "
        "from downloading it can go to pending, success, error"
    )
    with pytest.raises(UndeclaredMove, match="is a terminal state"):
        life.check("success", "pending", "x")
    with pytest.raises(UndeclaredMove):
        life.check("unheard", "of", "x")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no states"),
        ("  # only a comment\n", "no states"),
        ("a -> b\nc -> b", "state c cannot be reached from the initial state a"),
        ("a -> b\nb -> a", "no terminal state"),
        ("a -> b | c\nc -> d -> c", "no terminal state can be reached from the state c"),
        ("a -> a", "a -> a is not a move"),
        ("a -> b -> ", "'' is not a state name"),
        ("a -> b c", "'b c' is not a state name"),
        ("a -> 'b'", "is not a state name"),
        ("a -> 1b", "is not a state name"),
        ("a => b", "is not a state name"),
        ("a -> | b", "'' is not a state name"),
        ("a -> " + "b" * 64, "is not a state name"),
    ],
)
def test_a_wrong_lifecycle_is_refused(text: str, fault: str) -> None:
    with pytest.raises(DeclarationError, match="lifecycle") as caught:
        Lifecycle(text)
    assert any(fault in f for f in caught.value.faults), caught.value.faults


def test_all_faults_are_reported_at_once_with_their_lines() -> None:
    with pytest.raises(DeclarationError) as caught:
        Lifecycle("a -> b!\n\nc -> c\nd? -> a")
    assert len(caught.value.faults) == 3
    assert [f.split(":")[0] for f in caught.value.faults] == ["line 1", "line 3", "line 4"]


def test_an_endless_lifecycle_must_be_declared_endless() -> None:
    life = Lifecycle("idle -> running -> idle", endless=True)
    assert life.terminal == frozenset()
    with pytest.raises(DeclarationError, match="cannot be reached"):
        Lifecycle("a -> b -> a\nc -> a", endless=True)


def test_it_is_drawn_as_mermaid() -> None:
    assert Lifecycle("a -> b | c").mermaid().splitlines() == [
        "stateDiagram-v2",
        "    [*] --> a",
        "    a --> b",
        "    a --> c",
        "    b --> [*]",
        "    c --> [*]",
    ]


def test_failed_and_finished_name_states() -> None:
    life = Lifecycle("new -> done | bad\ndone -> new", failed=["bad"], finished=["done"])
    assert (life.failed, life.finished) == ({"bad"}, {"done"})
    with pytest.raises(DeclarationError) as caught:
        Lifecycle("new -> done", failed=["error"], finished=["ok"])
    assert caught.value.faults == (
        "failed names 'error', which is not one of its states (new, done)",
        "finished names 'ok', which is not one of its states (new, done)",
    )


def test_a_renamed_state_stands_for_its_present_name() -> None:
    life = Lifecycle("new -> busy -> done", renamed={"fresh": "new", "young": "new"})
    assert life.renamed == {"fresh": "new", "young": "new"}
    assert (life.current("fresh"), life.current("done")) == ("new", "done")
    assert life.sources("busy") == ("new", "fresh", "young")
    assert life.with_earlier(["new", "done"]) == ("new", "done", "fresh", "young")
    assert life.allows("fresh", "busy")
    assert not life.allows("fresh", "done")
    assert "fresh" not in life.states
    assert hash(life) == hash(Lifecycle("new -> busy -> done"))
    assert life != Lifecycle("new -> busy -> done")


@pytest.mark.parametrize(
    ("renamed", "fault"),
    [
        ({"new": "done"}, "renamed: 'new' is still one of its states (new, busy, done)"),
        ({"old": "gone"}, "renamed: 'old' becomes 'gone', which is not one of its states"),
        ({"a": "b", "b": "done"}, "renamed: 'a' becomes 'b', which is renamed itself"),
        ({"a": "a"}, "renamed: 'a' becomes 'a', which is renamed itself"),
        ({"a": "b", "b": "a"}, "renamed: 'b' becomes 'a', which is renamed itself"),
        ({"two words": "done"}, "renamed: 'two words' is not a state name"),
        ({"": "done"}, "renamed: '' is not a state name"),
    ],
    ids=str,
)
def test_a_wrong_rename_is_refused(renamed: dict[str, str], fault: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        Lifecycle("new -> busy -> done", renamed=renamed)
    assert fault in str(refused.value)

"""Filters by error, part of a text and relative time, and chosen columns, in the command."""

from __future__ import annotations

import pytest
from support.command import RunCommand


def ids(greeted: RunCommand, *words: str) -> list[str]:
    answer = greeted("records", "greetings", *words, "--json")
    assert answer.code == 0, answer.err
    return [item["id"] for item in answer.json["items"]]


def test_records_by_error_type(greeted: RunCommand) -> None:
    assert ids(greeted, "-w", "error_type=moved_away") == ["grace"]
    assert ids(greeted, "-w", "last_error.type=moved_away,timeout", "-s", "waiting") == ["alan"]
    retried = greeted(
        "retry", "greetings", "-w", "error_type=moved_away", "--yes", "--reason", "x", "--json"
    )
    assert retried.json["moved"] == 1
    audit = greeted("audit", "--json").json["items"][0]
    assert audit["filter"]["last_error.type"] == "moved_away"


@pytest.mark.parametrize("esclusa", ["sqlite"], indirect=True)
def test_records_by_text_and_time(greeted: RunCommand) -> None:
    assert ids(greeted, "-w", "error_message~HAS MOVED") == ["grace"]
    assert ids(greeted, "-w", 'words~"hello, a"') == ["ada"]
    assert ids(greeted, "-w", "created_at>=-1h", "-n", "1") == ["ada"]
    assert ids(greeted, "-w", "created_at<-1h") == []
    assert ids(greeted, "-w", "due_at>=+1s", "-w", "due_at<+1d") == ["alan"]
    wrong = greeted("records", "greetings", "-w", "created_at>=yesterday")
    assert (wrong.code, wrong.out) == (2, "")
    assert "2026-11-16 or -2h" in wrong.err


@pytest.mark.parametrize("esclusa", ["firestore"], indirect=True)
def test_a_search_within_texts_is_refused_with_the_reason(greeted: RunCommand) -> None:
    wrong = greeted("records", "greetings", "-w", "error_message~moved")
    assert (wrong.code, wrong.out) == (2, "")
    assert "Firestore cannot search within texts (last_error.message~…)" in wrong.err


def test_chosen_columns(greeted: RunCommand) -> None:
    shown = greeted("records", "greetings", "-w", "id=grace", "--columns", "id,error_type")
    assert shown.out.split() == ["ID", "LAST_ERROR.TYPE", "grace", "moved_away"]
    answer = greeted("records", "greetings", "-w", "id=grace", "--columns", "status", "--json")
    assert answer.json["items"] == [{"status": "failed"}]
    file = greeted("records", "greetings", "-n", "1", "--columns", "words,id", "--format", "csv")
    assert file.out.splitlines()[0] == "words,id"
    wrong = greeted("records", "greetings", "--columns", "wrods")
    assert (wrong.code, wrong.out) == (2, "")
    assert "Did you mean words?" in wrong.err

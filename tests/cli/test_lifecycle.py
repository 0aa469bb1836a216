"""A lifecycle that changes between two deployments, as the command shows it, on each store."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support.command import CommandResult, RunCommand

from esclusa.app import open_runtime, open_store
from esclusa.cli import code_of
from esclusa.engine import lifecycles

HEAD = """
from esclusa import App, Backoff, Lifecycle, Record, Retry, To

app = App("post")
"""

FIRST = (
    HEAD
    + '''
class Letter(Record, table="letters", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> writing -> sent | failed
        writing -> new
        failed -> new
    """)

@app.stage(Letter, take="new", hold="writing", exhausted="failed", every="1h",
           retry=Backoff(tries=1))
async def send(letter, at):
    return To("sent") if letter.name != "bad" else Retry("no such street")
'''
)

RENAMED = (
    HEAD
    + '''
class Letter(Record, table="letters", key="name"):
    name: str
    lifecycle = Lifecycle("""
        pending -> sending -> delivered | lost
        sending -> pending
        lost -> pending
    """, renamed={"new": "pending", "writing": "sending", "sent": "delivered", "failed": "lost"})

@app.stage(Letter, take="pending", hold="sending", exhausted="lost", every="1h",
           retry=Backoff(tries=1))
async def send(letter, at):
    return To("delivered")
'''
)

# neither declares nor renames `sent`; takes what failed
CUT = (
    HEAD
    + '''
class Letter(Record, table="letters", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> writing -> posted | failed
        writing -> new
        failed -> new
        failed -> reading -> posted | failed
    """)

@app.stage(Letter, take="new", hold="writing", exhausted="failed", every="1h",
           retry=Backoff(tries=1))
async def send(letter, at):
    return To("posted")

@app.stage(Letter, take="failed", hold="reading", exhausted="posted", every="1h")
async def read(letter, at):
    return To("posted")
'''
)


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
def command(
    request: pytest.FixtureRequest,
    providers: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> RunCommand:
    """Calls the command with the pipeline of a version: ``command("first", "migrate")``."""
    monkeypatch.chdir(tmp_path)
    database = asyncio.run(providers(request.param).database(empty=True))
    monkeypatch.setenv("ESCLUSA_STORE", database.url)
    monkeypatch.setenv("ESCLUSA_LOG_LEVEL", "error")
    for name, text in (("first", FIRST), ("renamed", RENAMED), ("cut", CUT)):
        (tmp_path / f"{name}.py").write_text(text)

    def call(version: str, *argv: str) -> CommandResult:
        capsys.readouterr()
        monkeypatch.setenv("ESCLUSA_PIPELINES", f"{tmp_path / version}.py:app")
        code = code_of(argv, open_runtime=open_runtime, open_store=open_store)
        captured = capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    return call


@pytest.fixture
def sent(command: Any, tmp_path: Path) -> Any:
    """After the first version ran: three are sent, one failed, two are new."""
    assert command("first", "migrate").code == 0
    insert(command, "a", "b", "c", "bad")
    assert command("first", "run", "post.send").code == 5
    insert(command, "x", "y")
    return command


@pytest.fixture
def unmoved(command: Any) -> Any:
    """The same, but written by old workers after the next version was migrated."""
    assert command("first", "migrate").code == 0
    assert command("renamed", "migrate").code == 0
    insert(command, "a", "b", "c", "bad")
    assert command("first", "run", "post.send").code == 5
    insert(command, "x", "y")
    return command


def insert(command: Any, *names: str) -> None:
    """Insert letters with the first version."""

    async def do() -> None:
        from esclusa.settings import load

        settings = load()
        async with open_runtime(settings, work=False) as runtime:
            letter = runtime.engine.kind("letters").model
            await runtime.store.insert([letter(name=name) for name in names])

    command("first", "kinds")
    asyncio.run(do())


def states(command: Any, version: str) -> dict[str, str]:
    found = command(version, "records", "letters", "--json").json["items"]
    return {r["id"]: r["status"] for r in found}


def audited(command: Any, version: str, verb: str) -> list[dict[str, Any]]:
    items = command(version, "audit", "--json").json["items"]
    return [item for item in items if item["verb"] == verb]


def test_migrate_moves_the_records_of_renamed_states(sent: Any) -> None:
    shown = sent("renamed", "lifecycle", "diff", "--json")
    assert shown.code == 0, shown.err
    [diff] = shown.json["items"]
    assert diff["table"] == "letters"
    assert diff["renamed"] == [
        {"from": "new", "to": "pending", "count": 2},
        {"from": "writing", "to": "sending", "count": 0},
        {"from": "sent", "to": "delivered", "count": 3},
        {"from": "failed", "to": "lost", "count": 1},
    ]
    assert (diff["added"], diff["removed"], diff["stages"], diff["stranded"]) == ([], [], [], 0)
    assert states(sent, "first")["x"] == "new"
    done = sent("renamed", "migrate")
    assert done.code == 0, done.err
    assert "rename states of letters" in done.out
    assert "6 records" in done.out
    assert states(sent, "renamed") == {
        "a": "delivered",
        "b": "delivered",
        "c": "delivered",
        "bad": "lost",
        "x": "pending",
        "y": "pending",
    }
    [audit] = audited(sent, "renamed", "rename")
    assert (audit["subject"], audit["affected"]) == ("letters", 6)
    sent("renamed", "migrate")  # drops the index of the old version
    assert sent("renamed", "migrate").out.strip() == "Already up to date."
    assert "Nothing differs." in sent("renamed", "lifecycle", "diff").out
    shown = sent("renamed", "show", "letters", "a").out
    assert "the state sent is called delivered now" in shown


@pytest.mark.parametrize("command", ["postgres"], indirect=True)
def test_migrate_names_the_records_that_another_program_has_locked(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycles, "LOCK_WAIT", 0.01)
    assert command("first", "migrate").code == 0
    insert(command, "a", "x", "y")
    for _ in range(2):  # the second drops the index of the first version
        assert command("renamed", "migrate").code == 0
    locked, done = threading.Event(), threading.Event()

    async def lock() -> None:
        connection = await asyncpg.connect(os.environ["ESCLUSA_STORE"])
        await connection.execute("UPDATE letters SET status = 'new'")  # as an old worker would
        async with connection.transaction():
            await connection.fetch("SELECT 1 FROM letters WHERE id IN ('a', 'x') FOR UPDATE")
            locked.set()
            await asyncio.to_thread(done.wait, 30)
        await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(lock()))
    thread.start()
    assert locked.wait(30)
    migrated = command("renamed", "migrate")
    done.set()
    thread.join()
    assert migrated.code == 0, migrated.err
    assert "letters: 2 records locked by other programs" in migrated.err
    assert ": a, x;" in migrated.err
    assert states(command, "renamed")["y"] == "pending"
    assert "2 records" in command("renamed", "migrate").out


def test_dead_letters_are_redriven_after_a_rename(sent: Any) -> None:
    sent("renamed", "migrate")
    done = sent("renamed", "dead-letters", "redrive", "--table", "letters", "--yes", "--json")
    assert done.json["moved"] == 1, done.json
    assert states(sent, "renamed")["bad"] == "pending"


def test_dead_letters_are_redriven_before_their_record_was_renamed(unmoved: Any) -> None:
    done = unmoved("renamed", "dead-letters", "redrive", "--table", "letters", "--yes", "--json")
    assert done.json["moved"] == 1, done.json
    assert states(unmoved, "renamed")["bad"] == "pending"


def test_retry_and_move_find_a_record_under_its_earlier_name(unmoved: Any) -> None:
    assert unmoved("renamed", "retry", "letters", "bad", "--yes").code == 0
    assert unmoved("renamed", "move", "letters", "x", "--to", "sending", "--yes").code == 0
    found = states(unmoved, "renamed")
    assert (found["bad"], found["x"], found["y"]) == ("pending", "sending", "new")
    refused = unmoved("renamed", "move", "letters", "y", "--to", "delivered", "--yes")
    assert refused.code != 0
    assert "the move new -> delivered is not declared; from new it can go to sending" in refused.err


def test_a_renamed_record_says_why_it_waits(unmoved: Any) -> None:
    answer = unmoved("renamed", "why", "letters", "x", "--json").json
    assert [reason["code"] for reason in answer["reasons"]] == ["renamed"]
    assert "new is called pending now" in answer["answer"]


def test_a_worker_moves_what_an_old_worker_wrote(sent: Any) -> None:
    sent("renamed", "migrate")
    insert(sent, "late")
    for _ in range(3):
        assert sent("renamed", "run", "post.send").code in (0, 5)
    assert states(sent, "renamed")["late"] == "delivered"
    assert [audit["affected"] for audit in audited(sent, "renamed", "rename")] == [1, 6]


def test_diff_names_records_that_would_be_stranded(sent: Any) -> None:
    shown = sent("cut", "lifecycle", "diff")
    assert shown.code == 1
    assert "removed state: sent" in shown.out
    assert "new state: posted" in shown.out
    assert "STRANDED: 3 records in sent" in shown.out
    assert "stage post.read is new; records in failed that it takes at once: 1" in shown.out
    assert "3 records would be stranded" in shown.err
    answer = sent("cut", "lifecycle", "diff", "--json").json
    assert answer["stranded"] == 3
    assert answer["items"][0]["undeclared"] == [{"state": "sent", "count": 3, "exact": True}]


def test_an_undeclared_state_fails_doctor_and_is_repaired(sent: Any) -> None:
    assert sent("cut", "migrate").code == 0
    checked = sent("cut", "doctor")
    assert checked.code == 4
    assert "letters: records in 'sent', which is not one of its states: 3" in checked.out
    assert "esclusa repair letters --from 'sent' --to STATE --reason TEXT" in checked.out
    why = sent("cut", "why", "letters", "a").out
    assert "'sent' is not a state of letters" in why
    assert "moved it there" in why
    refused = sent("cut", "move", "letters", "a", "--to", "posted", "--yes")
    assert refused.code != 0
    assert "letters a: 'sent' is not a state of letters" in refused.err
    assert "esclusa repair" in refused.err
    assert states(sent, "cut")["a"] == "sent"
    no_reason = sent("cut", "repair", "letters", "--from", "sent", "--to", "posted", "--yes")
    assert no_reason.code != 0
    assert "a repair needs a reason" in no_reason.err
    chosen = ("repair", "letters", "--from", "sent", "--to", "posted", "--reason", "same thing")
    assert sent("cut", *chosen, "--dry-run").out.strip() == "3 records match"
    assert states(sent, "cut")["a"] == "sent"
    done = sent("cut", *chosen, "--yes", "--json")
    assert (done.code, done.json["moved"]) == (0, 3), done.err
    assert states(sent, "cut")["a"] == "posted"
    [audit] = audited(sent, "cut", "repair")
    assert (audit["affected"], audit["reason"]) == (3, "same thing")
    assert sent("cut", "doctor").out.count("all records are in declared states") == 1


@pytest.mark.parametrize(
    ("frm", "to", "why"),
    [
        ("failed", "posted", "failed is a state of letters: 'esclusa move' moves its records"),
        ("sent", "gone", "letters has no state 'gone'"),
    ],
)
def test_a_wrong_repair_is_refused(sent: Any, frm: str, to: str, why: str) -> None:
    sent("cut", "migrate")
    refused = sent("cut", "repair", "letters", "--from", frm, "--to", to, "--reason", "r", "--yes")
    assert refused.code == 2
    assert why in refused.err


def test_a_new_stage_takes_what_is_there_or_begins_from_now_on(sent: Any) -> None:
    done = sent("cut", "migrate")
    assert "stage post.read is new; records in failed that it takes at once: 1" in done.out
    assert "esclusa migrate --from-now post.read" in done.err
    later = sent("cut", "migrate", "--from-now", "post.read")
    assert "stage post.read takes records in failed that are due from" in later.out
    assert sent("cut", "run", "post.read", "--json").json["counters"] == {}
    why = sent("cut", "why", "letters", "bad", "--json").json
    assert why["reasons"][0]["code"] == "before_start"
    status = sent("cut", "status", "--json").json
    assert {s["stage"]: s["due"] for s in status["stages"]}["post.read"] == 0
    # a record that enters the state from now on is taken
    assert sent("cut", "move", "letters", "bad", "--to", "new", "--yes").code == 0
    assert sent("cut", "move", "letters", "bad", "--to", "writing", "--yes").code == 0
    assert sent("cut", "move", "letters", "bad", "--to", "failed", "--yes").code == 0
    assert sent("cut", "run", "post.read", "--json").json["counters"]["taken"] == 1
    unknown = sent("cut", "migrate", "--from-now", "post.write")
    assert unknown.code == 1
    assert "there is no stage 'post.write'" in unknown.err
    assert "there are: post.read, post.send" in unknown.err


def test_diff_works_on_a_store_that_was_never_migrated(command: Any) -> None:
    shown = command("cut", "lifecycle", "diff", "--json")
    assert (shown.code, shown.json["stranded"]) == (0, 0), shown.err

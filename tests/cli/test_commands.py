"""The command on SQLite and on Firestore: what it answers, what it refuses, and the exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import RunCommand

from esclusa.stores.firestore.client import FirestoreClient


def test_run_answers_as_promised(esclusa: RunCommand) -> None:
    answer = esclusa("run", "hello.greet", "--limit", "2", "--json").json
    assert set(answer) == {"run", "cycle", "outcome", "counters", "message", "files"}
    assert (answer["cycle"], answer["outcome"]) == ("hello.greet", "ok")
    assert answer["counters"]["taken"] == 2
    assert esclusa("run", "hello.greet", "--json").json["outcome"] == "partial"


def test_tick_runs_what_is_due_and_exits(esclusa: RunCommand) -> None:
    first = esclusa("tick", "--json")
    assert first.code == 5, first.err
    greetings = [
        run["counters"] for run in first.json["runs"] if run["cycle"] == "hello.greet"
    ]  # on a slow day its next slot comes too
    assert greetings[0] == {"taken": 5, "greeted": 3, "retried": 1, "failed": 1}
    assert first.json["complete"] is True
    assert "Nothing more is due" in esclusa("tick", "--seconds", "20").out


@pytest.mark.parametrize(
    "command", [["tick", "--seconds", "nan"], ["status", "--watch", "--every", "nan"]], ids=" ".join
)
def test_a_time_that_is_no_number_is_wrong_usage(esclusa: RunCommand, command: list[str]) -> None:
    refused = esclusa(*command)
    assert refused.code == 2
    assert "'nan' is not a number of seconds" in refused.err


def test_status(greeted: RunCommand) -> None:
    answer = greeted("status", "--json").json
    assert {c["state"]: c["count"] for c in answer["kinds"][0]["counts"]} == {
        "waiting": 1,
        "greeting": 0,
        "greeted": 3,
        "failed": 1,
    }
    assert answer["dead_letters"] == 1
    text = greeted("status").out
    assert "greetings" in text
    assert "hello.greet" in text
    assert "1 dead letter " in text


def test_options_count_before_the_command_and_after_it(greeted: RunCommand) -> None:
    assert greeted("--json", "kinds").json == greeted("kinds", "--json").json
    other = greeted("--store", "sqlite:///other.db", "status")
    assert other.code == 3
    assert "other.db is not up to date" in other.err
    assert greeted("status", "--store", "sqlite:///other.db").code == 3


def test_records_by_filter(greeted: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    # The example declares no Firestore index for these queries.
    monkeypatch.setattr(FirestoreClient, "on_query", None)

    def ids(*filters: str) -> list[str]:
        return [r["id"] for r in greeted("records", "greetings", "--json", *filters).json["items"]]

    assert ids() == ["ada", "alan", "edsger", "grace", "katherine"]
    assert ids("--status", "failed,waiting") == ["alan", "grace"]
    assert ids("--where", "words=null", "--where", "name>=b") == ["grace"]
    assert ids("--where", "words!=null", "--order", "-name", "--limit", "2") == [
        "katherine",
        "edsger",
    ]
    first = greeted("records", "greetings", "--json", "--limit", "3").json
    assert ids("--limit", "3", "--after", first["next"]) == ["grace", "katherine"]
    wrong = greeted("records", "greetings", "--where", "colour=red")
    assert (wrong.code, wrong.out) == (2, "")
    assert "greetings has no field colour" in wrong.err
    assert greeted("records", "greetings", "--where", "nonsense").code == 2


@pytest.mark.parametrize("esclusa", ["firestore"], indirect=True)
def test_a_question_that_no_index_serves_is_refused_with_what_to_do(greeted: RunCommand) -> None:
    answer = greeted("records", "greetings", "--where", "words=null", "--where", "name>=b")
    assert (answer.code, answer.out) == (2, "")
    assert "requires an index" in answer.err
    assert "add `index=` to the record" in answer.err


def test_show_and_why(greeted: RunCommand) -> None:
    shown = greeted("show", "greetings", "grace", "--json").json
    assert [(s["frm"], s["to"]) for s in shown["history"]] == [
        ("waiting", "greeting"),
        ("greeting", "failed"),
    ]
    assert shown["record"]["last_error"]["type"] == "moved_away"
    assert shown["why"]["reasons"][0]["code"] == "exhausted"
    assert "moved_away" in greeted("show", "greetings", "grace").out
    why = greeted("why", "greetings", "alan")
    assert why.code == 0
    assert "not due until" in why.out
    assert "finished" in greeted("why", "greetings", "ada").out
    missing = greeted("show", "greetings", "nobody")
    assert (missing.code, missing.out) == (1, "")
    assert missing.err == "esclusa: there is no record 'nobody' in greetings\n"
    assert "there is no kind 'nothing'" in greeted("records", "nothing").err


def test_retry_counts_then_wants_a_yes(greeted: RunCommand) -> None:
    dry = greeted("retry", "greetings", "--where", "status=failed", "--dry-run", "--json")
    assert (dry.code, dry.json["matched"], dry.json["moved"]) == (0, 1, 0)
    refused = greeted("retry", "greetings", "grace")
    assert refused.code == 2
    assert "--yes" in refused.err
    done = greeted("retry", "greetings", "grace", "--yes", "--reason", "she is back", "--json")
    assert (done.code, done.json["moved"]) == (0, 1)
    last = greeted("show", "greetings", "grace", "--json").json["history"][-1]
    assert (last["frm"], last["to"], last["reason"]) == ("failed", "waiting", "she is back")
    assert last["who"].startswith("cli")
    assert greeted("retry", "greetings", "--where", "status=failed", "--yes").code == 1
    neither = greeted("retry", "greetings", "--yes")
    assert neither.code == 2
    assert "by id or by a filter" in neither.err


@pytest.mark.promise(2)
def test_an_undeclared_move_moves_nothing(greeted: RunCommand) -> None:
    answer = greeted("move", "greetings", "grace", "ada", "--to", "waiting", "--yes")
    assert answer.code == 1
    assert "the move greeted -> waiting is not declared" in answer.err
    assert greeted("show", "greetings", "grace", "--json").json["record"]["status"] == "failed"
    assert (
        greeted(
            "move", "greetings", "grace", "--to", "waiting", "--set", "words=late", "--yes"
        ).code
        == 0
    )
    assert greeted("show", "greetings", "grace", "--json").json["record"]["words"] == "late"
    refused = greeted("move", "greetings", "grace", "--to", "nowhere", "--yes")
    assert refused.code == 2  # wrong usage, as any unknown name
    assert "no state 'nowhere'; it has waiting, greeting, greeted, failed" in refused.err


def test_dead_letters(greeted: RunCommand) -> None:
    groups = greeted("dead-letters", "--json").json
    assert [(g["table"], g["error_type"], g["count"]) for g in groups["items"]] == [
        ("greetings", "moved_away", 1)
    ]
    assert "moved_away" in greeted("dead-letters").out
    letter = greeted("dead-letters", "list", "--error", "moved_away", "--json").json["items"][0]
    assert letter["record_id"] == "grace"
    assert (
        greeted("dead-letters", "redrive", "--error", "moved_away", "--yes", "--json").json["moved"]
        == 1
    )
    assert greeted("show", "greetings", "grace", "--json").json["record"]["status"] == "waiting"
    assert greeted("dead-letters", "list", "--json").json["items"] == []
    assert greeted("run", "hello.greet").code == 5
    slip = greeted("dead-letters", "redrive", "--error", "moved_awya", "--dry-run").err
    assert "there are: moved_away. Did you mean moved_away?" in slip
    second = greeted("dead-letters", "list", "--json").json["items"][0]["id"]
    assert greeted("dead-letters", "discard", second, "--yes", "--json").json["moved"] == 1
    assert greeted("dead-letters").out == "No dead letters.\n"


def test_pause_and_resume(greeted: RunCommand) -> None:
    assert greeted("pause", "hello.greet", "--reason", "maintenance").code == 0
    assert "maintenance" in greeted("cycles", "--wide").out
    assert "paused by" in greeted("status", "--wide").out
    assert greeted("cycles", "--json").json["items"][0]["state"] == "paused"
    blocked = greeted("run", "hello.greet")
    assert blocked.code == 1
    assert "paused" in blocked.err
    assert greeted("resume", "hello.greet").code == 0
    assert greeted("run", "hello.greet").code == 0
    assert "there is no cycle 'x'" in greeted("pause", "x").err


def test_lists(greeted: RunCommand) -> None:
    for command in ("runs", "cycles", "budgets", "alerts", "workers", "kinds", "dead-letters"):
        assert set(greeted(command, "--json").json) >= {"items", "next"}, command
        assert greeted(command).code == 0
    runs = greeted("runs", "--cycle", "hello.greet", "--outcome", "partial", "--json").json["items"]
    assert runs[0]["counters"]["taken"] == 5


def test_graph(esclusa: RunCommand) -> None:
    assert esclusa("graph", "greetings").out.splitlines() == [
        "● waiting                 taken by hello.say-hello",
        "  └─▶ greeting            held by hello.say-hello",
        "      ├─▶ greeted ■",
        "      ├─▶ failed          exhausted by hello.say-hello",
        "      │   └─▶ ↩ waiting",
        "      └─▶ ↩ waiting",
    ]
    assert esclusa("graph", "greetings", "--mermaid").out.startswith("stateDiagram-v2\n")
    assert ["waiting", "greeting"] in esclusa("graph", "greetings", "--json").json["moves"]
    assert not Path("esclusa.db").exists()


def test_migrate(esclusa: RunCommand) -> None:
    behind = esclusa("migrate", "--check", "--json")
    assert (behind.code, behind.json["up_to_date"]) == (1, False)
    sql = esclusa("migrate", "--sql").out
    assert 'CREATE TABLE "greetings"' in sql or "greetings" in sql
    assert esclusa("migrate").code == 0
    assert esclusa("migrate", "--check").code == 0
    assert esclusa("migrate", "--sql").out == ""
    assert esclusa("migrate", "--json").json == {"done": []}


def test_doctor(esclusa: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ESCLUSA_STOER", "x")
    answer = esclusa("doctor", "--json")
    assert answer.code == 0, answer.out
    checks = {(c["name"], c["verdict"]) for c in answer.json["checks"]}
    assert checks >= {
        ("settings", "ok"),
        ("settings", "warn"),
        ("hello", "ok"),
        ("store", "ok"),
        ("schema", "warn"),
        ("clock", "ok"),
        ("artifacts", "ok"),
    }
    assert "did you mean ESCLUSA_STORE?" in esclusa("doctor").out
    (tmp_path / "file").write_text("")
    bad = esclusa("doctor", "--artifacts", "file/below", "--store", "sqlite:///file/below.db")
    assert bad.code == 4
    assert "fail  store: " in bad.out
    assert "fail  artifacts: " in bad.out
    monkeypatch.setenv("ESCLUSA_AUTO_MIGRATE", "false")
    assert "run 'esclusa migrate'" in esclusa("doctor", "--store", "sqlite:///new.db").out


def test_doctor_reports_the_checks_of_a_pipeline(esclusa: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "keyed.py").write_text(
        "from esclusa import App\napp = App('keyed')\n@app.checks\ndef check(settings):\n"
        "    yield 'KEY is not set'\n    yield 'warn', 'it is old'\n"
    )
    answer = esclusa("doctor", "--pipelines", "keyed.py", "--json")
    checks = [(c["verdict"], c["text"]) for c in answer.json["checks"] if c["name"] == "keyed"]
    assert (answer.code, checks) == (4, [("fail", "KEY is not set"), ("warn", "it is old")])


def test_wrong_settings_are_reported_together(
    esclusa: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT", "abc")
    answer = esclusa("status", "--store", "oracle://x")
    assert (answer.code, answer.out) == (3, "")
    assert "PORT: 'abc'" in answer.err
    assert "--store: 'oracle://x'" in answer.err
    assert "Traceback" not in answer.err
    assert esclusa("doctor").code == 3
    assert esclusa("--help").code == 0
    assert esclusa("version").code == 0


def test_a_store_that_does_not_answer(esclusa: RunCommand) -> None:
    answer = esclusa("status", "--store", "postgresql://u:hunter2@127.0.0.1:1/x")
    assert (answer.code, answer.out) == (4, "")
    assert "does not answer" in answer.err
    assert "hunter2" not in answer.err
    assert len(answer.err.splitlines()) == 1


def test_the_server_refuses_to_listen_without_tokens(esclusa: RunCommand) -> None:
    answer = esclusa("serve", "--host", "0.0.0.0")
    assert answer.code == 3
    assert "ESCLUSA_API_TOKENS" in answer.err


def test_usage(esclusa: RunCommand) -> None:
    assert esclusa("records").code == 2
    assert esclusa("nonsense").code == 2
    assert esclusa().code == 2
    assert esclusa("completion", "bash").out.startswith("_esclusa_completion()")
    assert esclusa("version", "--json").json["esclusa"]
    assert "Print JSON" in esclusa("status", "-h").out
    assert esclusa("run", "hello.nothing").code == 1


def test_a_pipelines_own_commands(esclusa: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import click\nfrom esclusa import App\napp = App('loud')\n@app.commands\ndef build():\n"
        "    @click.group()\n    def loud():\n        '''Loud things.'''\n"
        "    @loud.command()\n    @click.pass_obj\n    def shout(session):\n"
        "        name = session.settings.plans[0].name\n"
        "        session.show({'name': name}, lambda screen: screen.line('HEY'))\n    return loud\n"
    )
    assert "Loud things." in esclusa("--pipelines", "loud.py", "--help").out
    assert esclusa("--pipelines", "loud.py", "loud", "shout").out == "HEY\n"
    assert esclusa("--pipelines", "loud.py", "--json", "loud", "shout").json == {"name": "loud"}
    assert esclusa("--pipelines", "gone.py", "loud", "shout").code == 3


def test_text_from_outside_cannot_command_the_terminal(esclusa: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "esc.py").write_text(
        "from esclusa import App, Lifecycle, Record, RunContext\n"
        "class Note(Record, table='notes', key='name'):\n    name: str\n    text: str\n"
        "    lifecycle = Lifecycle('kept')\n"
        "app = App('esc', records=[Note])\n"
        "@app.cycle()\nasync def fill(run: RunContext) -> None:\n"
        "    await run.records.insert([Note(name='a', text='\\x1b[2Jboo')])\n"
    )
    assert esclusa("run", "esc.fill", "--pipelines", "esc.py").code == 0
    out = esclusa("records", "notes", "--pipelines", "esc.py").out
    assert "\x1b" not in out
    assert "\\x1b[2Jboo" in out


def test_rules_for_alerts(greeted: RunCommand) -> None:
    text = greeted("alert-rules").out
    assert "backlog" in text
    assert "hello.say-hello" in text
    assert greeted("alert-rules", "set", "backlog", "2h").code == 2  # without a reason
    subject = ("--subject", "hello.say-hello")
    changed = greeted("alert-rules", "set", "backlog", "2h", *subject, "--reason", "slow")
    assert changed.code == 0, changed.err
    assert changed.out.strip() == "backlog of hello.say-hello: 2h"
    items = greeted("alert-rules", "--json").json["items"]
    rule = next(i for i in items if (i["rule"], i["subject"]) == ("backlog", "hello.say-hello"))
    assert (rule["threshold"], rule["declared"]) == (7200.0, 3600.0)
    muted = greeted("alert-rules", "mute", "backlog", "--for", "1h", "--note", "maintenance")
    assert "backlog of all is muted until" in muted.out
    assert "maintenance" in greeted("alert-rules").out
    assert greeted("alert-rules", "unmute", "backlog").code == 0
    assert "maintenance" not in greeted("alert-rules").out
    assert greeted("alert-rules", "reset", "backlog", *subject).out.strip().endswith("as declared")
    wrong = greeted("alert-rules", "mute", "backlog", "--for", "a while", "--note", "n")
    assert (wrong.code, "is not a duration" in wrong.err) == (2, True)

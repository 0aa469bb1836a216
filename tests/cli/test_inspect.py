"""Commands that show rates, audits, leases, views and archives, on each store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.command import RunCommand

OLD = """
from datetime import UTC, datetime, timedelta
from esclusa import App, Lifecycle, Record, RunContext

class Note(Record, table="old_notes", key="name", archive=True):
    name: str
    ended_at: datetime
    lifecycle = Lifecycle("open -> ended")

app = App("old", records=[Note])

@app.cycle()
async def fill(run: RunContext) -> None:
    ends = [datetime(2020, month, 1, tzinfo=UTC) for month in (1, 2, 3)]
    await run.records.insert(
        [Note(name=f"n{end.month}", status="ended", ended_at=end) for end in ends]
    )

@app.cycle()
async def keep(run: RunContext) -> None:
    run.count("archived", await run.archiver.archive(Note.kind, {"status": "ended"}, "ended_at"))

@app.cycle()
async def export(run: RunContext) -> None:
    for file in await run.archiver.export(Note.kind, "ended_at", keep=timedelta(0)):
        run.count("rows", file.row_count)

@app.cycle()
async def drop(run: RunContext) -> None:
    run.count("dropped", await run.archiver.drop(Note.kind))
"""


def test_rates_leases_archives_relations_and_audit(greeted: RunCommand) -> None:
    def call(*words: str) -> Any:
        answer = greeted(*words, "--json")
        assert answer.code == 0, answer.err
        return answer.json["items"]

    assert [s["stage"] for s in call("rates")] == ["hello.say-hello"]
    assert call("leases") == []
    assert call("archives") == []
    assert [
        (r["table"], r["way"], len(r["items"])) for r in call("related", "greetings", "grace")
    ] == [("esclusa_dead_letters", "from", 1)]
    assert [a["verb"] for a in call("audit")] == ["run"]


def test_archives(
    esclusa: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexes: dict[str, Any]
) -> None:
    (tmp_path / "old.py").write_text(OLD)
    monkeypatch.setenv("ESCLUSA_PIPELINES", "old.py")
    indexes_of(tmp_path / "old.py", indexes)

    def run(cycle: str) -> Any:
        answer = esclusa("run", f"old.{cycle}", "--json")
        assert (answer.code, answer.json["outcome"]) == (0, "ok"), answer
        return answer.json["counters"]

    run("fill")
    assert run("keep") == {"archived": 3}
    assert esclusa("records", "old_notes", "--json").json["items"] == []
    archived = esclusa("records", "old_notes", "--archived", "--json").json["items"]
    assert [r["id"] for r in archived] == ["n1", "n2", "n3"]
    found = esclusa(
        "records",
        "old_notes",
        "--archived",
        "--where",
        "archived_at!=null",
        "--where",
        "id=n2",
        "--json",
    ).json["items"]
    assert [r["id"] for r in found] == ["n2"]
    [before] = esclusa("archives", "--json").json["items"]
    assert (before["rows"], before["not_exported"], before["exports"]) == (3, 3, 0)
    assert run("export") == {"rows": 3}
    [after] = esclusa("archives", "--json").json["items"]
    assert (
        after["not_exported"],
        after["exports"],
        after["exported_rows"],
        after["unverified"],
    ) == (0, 3, 3, 0)
    assert run("drop") == {"dropped": 3}
    assert esclusa("records", "old_notes", "--archived", "--json").json["items"] == []
    assert len(list(tmp_path.rglob("*.parquet"))) == 3


def indexes_of(pipeline: Path, indexes: dict[str, Any]) -> None:
    """Let the store refuse what this pipeline's index file does not serve."""
    from esclusa.loading import load_app
    from esclusa.stores.firestore import indexes_for

    app = load_app(str(pipeline))
    indexes.update(indexes_for([app.bind(app.settings())]))


@pytest.mark.parametrize("id", ["-100123", "a/b", "50%", "El Niño:1"])
def test_an_id_works_as_it_is_shown(esclusa: RunCommand, tmp_path: Path, id: str) -> None:
    (tmp_path / "pasted.py").write_text(
        "from esclusa import *\n"
        "class Note(Record, table='notes'):\n    lifecycle = Lifecycle('new -> done')\n"
        "app = App('pasted')\napp.records += [Note]\n"
        f"@app.cycle()\nasync def fill(run):\n    await run.records.insert([Note(id={id!r})])\n"
    )
    assert esclusa("run", "pasted.fill", "--pipelines", "pasted.py").code == 0
    for command in ("show", "why", "related"):
        answer = esclusa(command, "notes", id, "--json", "--pipelines", "pasted.py")
        assert answer.code == 0, answer.err
    assert esclusa("show", "notes", "--jsn", id, "--pipelines", "pasted.py").code == 2


def test_a_list_is_written_as_a_file(greeted: RunCommand, tmp_path: Path) -> None:
    import csv

    import duckdb

    for name in ("all.csv", "all.ndjson", "all.parquet"):
        answer = greeted("records", "greetings", "-o", name)
        assert (answer.code, answer.out) == (0, ""), answer.err
        assert answer.err == f"5 records written to {name}\n"
        [(count,)] = duckdb.sql(f"SELECT count(*) FROM '{tmp_path / name}'").fetchall()
        assert count == 5
    answer = greeted("records", "greetings", "-w", "status=greeted", "--format", "csv")
    assert answer.code == 0, answer.err
    rows = list(csv.DictReader(answer.out.splitlines()))
    assert [row["status"] for row in rows] == ["greeted"] * 3
    assert [*rows[0]][:2] == ["id", "status"]
    one = greeted("records", "greetings", "--format", "ndjson", "-n", "1").out.splitlines()
    assert len(one) == 1


@pytest.mark.parametrize("esclusa", ["sqlite"], indirect=True)
def test_a_wrong_export_is_a_usage_error_and_leaves_no_file(
    esclusa: RunCommand, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    for words, why in (
        (["-o", "list.xlsx"], "must end in .csv, .ndjson, .jsonl, .parquet"),
        (["-o", "list.csv", "--after", "abc"], "leave out `after`"),
        (["-o", "list.csv", "-w", "nothing=1"], "nothing"),
    ):
        answer = esclusa("records", "greetings", *words)
        assert answer.code == 2, answer
        assert why in answer.err
    assert sorted(tmp_path.iterdir()) == before


def test_series_times_and_the_event_log(greeted: RunCommand, tmp_path: Path) -> None:
    series = greeted("rates", "--over", "day", "--compare", "--json").json["items"]
    assert [(s["stage"], s["points"]) for s in series] == [("hello.say-hello", 96)]
    assert series[0]["previous"]["total"]["moved"] == 0
    steps = greeted("rates", "--stage", "hello.say-hello", "--utc")
    assert len(steps.out.splitlines()) == 61
    assert "FROM (UTC)" in steps.out
    assert greeted("rates", "--stage", "hello.say-helo").code != 0
    assert greeted("rates", "--over", "day", "--minutes", "5").code == 2
    [times] = greeted("times", "greetings", "--json").json["items"]
    assert times["table"] == "greetings"
    assert greeted("times", "greetings", "--state", "nonsense").code == 2
    ocel, table = tmp_path / "log.json", tmp_path / "log.csv"
    assert greeted("history", "greetings", "-o", str(ocel)).code == 0
    found = json.loads(ocel.read_text())
    assert "greetings/grace" in {each["id"] for each in found["objects"]}
    assert greeted("history", "greetings", "-o", str(table)).code == 0
    assert len(table.read_text().splitlines()) == len(found["events"]) + 1
    assert greeted("history", "greetings", "--since", "soon", "-o", str(table)).code == 2

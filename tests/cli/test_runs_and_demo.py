"""What runs say that they did, and demos that run at the same time in one folder."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.command import RunCommand

from esclusa.cli import demo

HOLD = """
    from esclusa.cli.demo import _own_folder
    with _own_folder() as folder:
        (folder / "esclusa.db").write_text("first")
        print(folder, flush=True)
        input()
"""


def test_a_second_demo_leaves_the_data_of_a_running_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout is not None
        assert first.stdin is not None
        assert first.stdout.readline().strip() == ".cache/demo"
        with demo._own_folder() as second:
            assert second == Path(".cache/demo-2")
            assert (tmp_path / ".cache/demo/esclusa.db").read_text() == "first"
            first.stdin.write("\n")
            first.stdin.flush()
            first.wait()
        with demo._own_folder() as again:
            assert again == Path(".cache/demo")
            assert [path.name for path in again.iterdir()] == ["lock"]


@pytest.mark.parametrize("esclusa", ["sqlite"], indirect=True)
def test_the_result_of_a_run_names_what_it_took_and_wrote(
    esclusa: RunCommand, tmp_path: Path
) -> None:
    assert esclusa("run", "hello.greet", "-n", "1", "--json").json["counters"]["taken"] == 1
    (tmp_path / "rows.py").write_text(
        textwrap.dedent("""
        from esclusa import App, Backoff, Lifecycle, Record, RunContext, To

        class Row(Record, table="rows", key="name"):
            name: str
            lifecycle = Lifecycle("new -> done")

        app = App("rows")

        @app.stage(Row, take="new", every="1h", retry=Backoff(tries=None))
        async def finish(row, at):
            return To("done")

        @app.cycle()
        async def fill(run: RunContext) -> None:
            await run.records.insert([Row(name=str(n)) for n in range(3000)])

        @app.cycle()
        async def rest(run: RunContext) -> None: ...

        @app.cycle()
        async def check(run: RunContext) -> None:
            run.files += [f"logs/{n}.ndjson" for n in range(6)]
            run.end("partial", "some rows are odd")
        """)
    )

    def line(cycle: str, code: int = 0) -> str:
        answer = esclusa("--pipelines", "rows.py", "run", cycle)
        assert answer.code == code, answer
        return answer.out.strip()

    assert line("rows.finish") == "rows.finish: ok (nothing was due)"
    assert line("rows.fill") == "rows.fill: ok (created 3,000)"
    assert line("rows.rest") == "rows.rest: ok"
    assert line("rows.finish") == "rows.finish: ok (taken 3,000, done 3,000)"
    _, message, *files = line("rows.check", 5).splitlines()
    assert message == "some rows are odd"
    assert files == [*(f"wrote logs/{n}.ndjson" for n in range(4)), "wrote 2 more files of the run"]

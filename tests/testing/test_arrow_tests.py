"""Generated tests are a start that works: they pass, and linters find nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from esclusa import App, Attempt, Lifecycle, Outcome, Record, To
from esclusa.cli.arrow_tests import arrow_tests
from esclusa.loading import load_app

ROOT = Path(__file__).parents[2]


class Claim(Record, table="claims", key="number"):
    number: int
    line: str | None = None
    lifecycle = Lifecycle(
        """
        open -> review -> approved | escalated
        escalated -> approved
        open -> failed
        """
    )


def claims() -> App:
    app = App("claims")

    @app.stage(Claim, take="open", exhausted="failed", where={"line": "car"})
    async def look(claim: Claim, at: Attempt) -> Outcome:
        return To("review")

    app.deadline(Claim, "review", after="2d", to="escalated")
    return app


def test_arrows_are_driven_by_what_makes_them() -> None:
    source = arrow_tests("claims:app", claims())
    tests = source.split("async def ")[1:]
    assert [test.partition("(")[0] for test in tests] == [
        "test_claim_open_to_review",
        "test_claim_open_to_failed",
        "test_claim_review_to_approved",
        "test_claim_review_to_escalated",
        "test_claim_escalated_to_approved",
    ]
    assert 'h.answer(To("review"), stage="look")' in tests[0]
    assert 'h.fail(Permanent("refused"), stage="look")' in tests[1]
    assert 'await h.move(record, "approved")' in tests[2]
    assert "await h.skip(seconds=172801)" in tests[3]
    assert 'await h.run_stage("review-deadline")' in tests[3]
    assert 'Claim(number=1, line="car", status=status)' in source


async def test_generated_tests_pass_for_stages_and_deadlines() -> None:
    source = arrow_tests("claims:app", claims())
    names: dict[str, Any] = {"app": claims(), "Claim": Claim}
    body = "\n".join(line for line in source.splitlines() if not line.startswith("from claims"))
    exec(compile(body, "generated", "exec"), names)
    ran = [await test() for name, test in list(names.items()) if name.startswith("test_")]
    assert len(ran) == 5


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    for name in ("examples/hello.py:app", "examples/existing_table.py:app", "media"):
        path = str(ROOT / name) if name.startswith("examples") else name
        module = Path(name.partition(":")[0]).stem
        (tmp_path / f"test_{module}.py").write_text(arrow_tests(path, load_app(path)), "utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        f"pythonpath = {ROOT / 'examples'}\n"
    )
    return tmp_path


def test_generated_tests_of_the_examples_pass_and_are_clean(generated: Path) -> None:
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("ESCLUSA_", "PYTEST"))}
    for command in (
        ["pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        ["ruff", "check", "--isolated", "."],
        ["ruff", "format", "--isolated", "--check", "."],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=generated,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=clean,
        )
        assert done.returncode == 0, done.stdout + done.stderr

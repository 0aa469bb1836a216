"""Generated tests are a start that works: they pass, and linters find nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

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
    tests = source.split("\ndef test_")[1:]
    assert [test.partition("(")[0] for test in tests] == [
        "claim_open_to_review",
        "claim_open_to_failed",
        "claim_review_to_approved",
        "claim_review_to_escalated",
        "claim_escalated_to_approved",
    ]
    assert 'h.answer(To("review"), stage="look")' in tests[0]
    assert 'h.fail(Permanent("refused"), stage="look")' in tests[1]
    assert 'h.move(record, "approved")' in tests[2]
    assert "h.skip(seconds=172801)" in tests[3]
    assert 'h.run_stage("review-deadline")' in tests[3]
    assert 'Claim(number=1, line="car", status=status)' in source


class Colour(Enum):
    RED = "red"


class Address(BaseModel):
    street: Annotated[str, Field(min_length=10)]
    colours: list[Colour]


class Parcel(Record, table="parcels", key="number"):
    number: UUID
    weight: Annotated[Decimal, Field(gt=500)]
    email: Annotated[str, Field(pattern=".+@.+")]
    receiver: Address
    sent: date | None
    colour: Colour
    lifecycle = Lifecycle("new -> sent")


def passing(source: str, **names: Any) -> int:
    """Run generated tests; return how many there are."""
    own = ("from claims", "from parcels", "from test_arrow_tests")
    lines = (line for line in source.splitlines() if not line.startswith(own))
    exec(compile("\n".join(lines), "generated", "exec"), names)
    return len([test() for name, test in list(names.items()) if name.startswith("test_")])


def test_generated_tests_pass_for_stages_and_deadlines() -> None:
    assert passing(arrow_tests("claims:app", claims()), app=claims(), Claim=Claim) == 5


def test_fields_get_values_that_they_accept() -> None:
    app = App("parcels", records=[Parcel])
    source = arrow_tests("parcels:app", app)
    assert "from uuid import UUID" in source
    assert "Address, Colour, Parcel" in source
    assert "colour=Colour.RED" in source
    made = {"app": app, "Parcel": Parcel, "Address": Address, "Colour": Colour}
    assert passing(source, **made) == 1


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    for name in ("examples/hello.py:app", "examples/existing_table.py:app", "media"):
        path = str(ROOT / name) if name.startswith("examples") else name
        module = Path(name.partition(":")[0]).stem
        (tmp_path / f"test_{module}.py").write_text(arrow_tests(path, load_app(path)), "utf-8")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT / 'examples'}\n")
    return tmp_path


def test_generated_tests_of_the_examples_pass_and_are_clean(generated: Path) -> None:
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("ESCLUSA_", "PYTEST"))}
    for command in (
        ["pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio"],
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

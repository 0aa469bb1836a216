"""mypy refuses a handler with a wrong signature, and accepts a right one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parent.parent.parent
SAMPLES = [Path(__file__).parent / name for name in ("handlers.py", "answers.py")]


@pytest.mark.parametrize("samples", SAMPLES, ids=lambda path: path.stem)
def test_mypy_finds_exactly_the_errors_that_the_samples_name(samples: Path) -> None:
    config = str(ROOT / "pyproject.toml")
    output, faults, _ = api.run(
        ["--config-file", config, "--show-error-codes", "--no-pretty", str(samples)]
    )
    found: dict[str, str] = {}  # the first error of each line; others follow from it
    for line, code in re.findall(rf"{samples.stem}\.py:(\d+): error: .*\[([\w-]+)\]\n", output):
        found.setdefault(line, code)
    expected = {
        str(number): line.partition("# error: ")[2]
        for number, line in enumerate(samples.read_text("utf-8").splitlines(), 1)
        if "# error: " in line
    }
    assert (found, faults) == (expected, ""), output

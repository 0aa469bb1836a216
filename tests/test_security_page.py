"""``docs/security.md``: every claim names a test, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "security.md"


def claims() -> list[tuple[str, list[str]]]:
    """Each claim with the names in its last cell."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return [
        (claim, re.findall(r"`(\w+)`", tests))
        for claim, tests in cells
        if claim not in ("claim", "---")
    ]


def test_every_claim_names_a_test_that_exists() -> None:
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(
            r"^(?:async )?def (test_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert len(claims()) > 40
    for claim, tests in claims():
        assert tests, f"without a test: {claim}"
        assert set(tests) <= defined, f"{claim}: {sorted(set(tests) - defined)}"

"""The pages of claims: every claim names a test, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def claims(page: str) -> list[tuple[str, list[str]]]:
    """Each row of the tables ``| claim | tests |``: the claim, and the names in its last cell."""
    found, inside = [], False
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("| claim | tests |"):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            claim, tests = (cell.strip() for cell in line.strip("|").split("|"))
            found.append((claim, re.findall(r"`(\w+)`", tests)))
    return found


@pytest.mark.parametrize(("page", "least"), [("security.md", 40), ("reliability.md", 30)])
def test_every_claim_names_a_test_that_exists(page: str, least: int) -> None:
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(
            r"^(?:async )?def (test_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert len(claims(page)) >= least
    for claim, tests in claims(page):
        assert tests, f"without a test: {claim}"
        assert set(tests) <= defined, f"{claim}: {sorted(set(tests) - defined)}"


def test_every_promise_has_a_section() -> None:
    """The promises of concepts.md are numbered; reliability.md has a section for each."""
    promises = re.findall(
        r"^\| (\d+) \| \*\*", (ROOT / "docs/concepts.md").read_text(), re.MULTILINE
    )
    sections = re.findall(r"^## (\d+)\. ", (ROOT / "docs/reliability.md").read_text(), re.MULTILINE)
    assert promises == sections == [str(n) for n in range(1, 13)]

"""The model of leases holds, and no rule of it can be left out. ``make model`` checks more."""

from __future__ import annotations

import pytest

from .check import CLAIMS, MUTANTS, Check, missing, run


def test_spin_is_installed() -> None:
    assert missing() is None


@pytest.mark.parametrize("check", CLAIMS, ids=lambda check: check.name)
def test_the_model_holds(check: Check) -> None:
    assert run(check).holds


@pytest.mark.parametrize("check", MUTANTS, ids=lambda check: check.name)
def test_a_mutant_of_the_model_fails(check: Check) -> None:
    assert not run(check).holds

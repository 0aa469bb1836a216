"""A short run of the faults with a fixed seed. ``make chaos`` runs them all, and measures."""

from __future__ import annotations

import pytest

from .cluster import Size
from .run import run

# The kill comes right before the crash: workers start while the server recovers.
FAULTS = ["lost-answer", "lock-records", "hang", "kill", "crash"]


@pytest.mark.promise(1)
@pytest.mark.promise(3)
@pytest.mark.promise(6)
@pytest.mark.promise(7)
@pytest.mark.promise(8)
@pytest.mark.promise(12)
async def test_the_invariants_hold_after_faults() -> None:
    report = await run(17, FAULTS, Size(workers=2, lease=3.0, questions=60), quiet=1.0)
    assert report.violations == [], report.explain()

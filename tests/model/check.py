"""Check the model of leases with Spin: ``make model``.

Every claim must hold, and every mutant of the model must break one. A mutant changes one rule, so
its failure shows that the rule is needed and that the check can fail.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("lease.pml")
ASSERTIONS = "assertions"


@dataclass(frozen=True)
class Check:
    """One run of Spin: the assertions, or a claim under weak fairness, for a variant of the model.

    ``rule``: what a mutant leaves out; its check must fail. None: the model itself.
    """

    name: str
    claim: str = ASSERTIONS
    defines: tuple[str, ...] = ()
    rule: str | None = None


@dataclass(frozen=True)
class Finding:
    """What Spin answered."""

    holds: bool
    states: int
    seconds: float
    why: str


CLAIMS = (
    Check("two records, one fault"),
    Check("three records, poison alone", defines=("RECORDS=3", "FAULTS=0")),
    Check("poison alone: every record ends", "finished", ("FAULTS=0",)),
)
"""Seconds each; the tests run them, too."""

LONG_CLAIMS = (
    Check("one fault: every record ends", "finished"),
    Check("a row locked for ever: the others end", "neighbours", ("LOCKED_FOR_EVER",)),
)
"""Minutes each."""

MUTANTS = (
    Check("NO_FENCE", rule="a settlement compares the fence"),
    Check("TAKES_OVER_ALL", rule="only an orphan that nobody else had is taken over"),
    Check("WORKS_AGAIN", rule="a process does not handle again what it still holds"),
    Check("ORPHANS_COUNT", rule="the claim of an orphan does not count"),
    Check("UNCOUNTED_IS_OVER", rule="a claim that does not count exhausts nothing"),
    Check("NOT_ALONE", rule="a suspect of two crashes runs alone"),
    Check("ALONE_UNTIL_ANSWERED", rule="it stays alone until its outcome is written"),
    Check("NO_LEASE_ROW", rule="the lease of a locked row is kept in esclusa.leases"),
    Check("CRASHES_NEVER_COUNT", "finished", rule="a crash counts for what ran alone"),
    Check("NO_SESSION_TIMEOUT", "finished", rule="the server ends idle transactions"),
    Check(
        "BATCH_WAITS",
        "neighbours",
        ("LOCKED_FOR_EVER",),
        rule="a locked row does not hold up its batch",
    ),
)


def missing() -> str | None:
    """Why Spin cannot run here; None if it can."""
    lacking = [program for program in ("spin", "gcc") if shutil.which(program) is None]
    return f"install the packages: {' '.join(lacking)}" if lacking else None


def run(check: Check) -> Finding:
    """Run Spin; RuntimeError if it gives no answer."""
    begun = time.monotonic()
    defines = [*check.defines, *([check.name] if check.rule else [])]
    with tempfile.TemporaryDirectory(prefix="esclusa-model-") as folder:

        def call(*command: str) -> str:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
            return done.stdout

        call("spin", *(f"-D{define}" for define in defines), "-a", str(MODEL))
        if check.claim == ASSERTIONS:
            call("gcc", "-O2", "-w", "-DCOLLAPSE", "-DSAFETY", "-DNOCLAIM", "-o", "pan", "pan.c")
            report = call("./pan", "-m1000000")
        else:
            call("gcc", "-O2", "-w", "-DCOLLAPSE", "-DNFAIR=3", "-o", "pan", "pan.c")
            report = call("./pan", "-m1000000", "-a", "-f", "-N", check.claim)
    errors = re.search(r"errors: (\d+)", report)
    states = re.search(r"(\d+) states, stored", report)
    if errors is None or states is None or "max search depth too small" in report:
        raise RuntimeError(f"{check.name}: Spin gave no answer:\n{report}")
    why = re.search(r"pan:1: (.*?) \(at depth", report)
    return Finding(
        errors[1] == "0", int(states[1]), time.monotonic() - begun, why[1] if why else ""
    )


def main() -> int:
    """Run all checks, two at a time, and print a line for each; return 1 if one is bad."""
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    checks = (*LONG_CLAIMS, *CLAIMS, *MUTANTS)
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for check, finding in zip(checks, pool.map(run, checks), strict=True):
            expected = finding.holds == (check.rule is None)
            failed += not expected
            answer = "holds" if finding.holds else "fails"
            print(
                f"{'ok  ' if expected else 'BAD '} {answer:5}  {check.claim:10}"
                f"  {finding.states:>9,} states {finding.seconds:6.1f} s  {check.name}"
                + (f": without the rule that {check.rule}" if check.rule else ""),
                flush=True,
            )
    print("the model holds, and every mutant fails" if not failed else f"{failed} checks are bad")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

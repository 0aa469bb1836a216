"""The pytest plugin: fixtures for async and plain tests, and no import of Esclusa without them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

PIPELINE = """
from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, To

class Order(Record, table="orders", key="number"):
    number: str
    lifecycle = Lifecycle("new -> paid")

app = App("shop")

@app.stage(Order, take="new", retry=Backoff(tries=None))
async def pay(order: Order, at: Attempt) -> Outcome:
    return To("paid")
"""

TESTS = """
from shop import Order

async def test_async(esclusa_harness):
    order = await esclusa_harness.insert(Order(number="1"))
    await esclusa_harness.run_due()
    await esclusa_harness.assert_state(order, "paid")

def test_plain(esclusa_sync_harness):
    order = esclusa_sync_harness.insert(Order(number="1"))
    esclusa_sync_harness.run_due()
    esclusa_sync_harness.assert_state(order, "paid")
"""

WITHOUT = """
import sys

def test_esclusa_is_not_imported():
    assert "esclusa_pytest" in sys.modules
    assert "esclusa" not in sys.modules
"""


def run_pytest(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("ESCLUSA_", "PYTEST"))}
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "esclusa_pytest"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "--strict-config", *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean,
    )


def test_fixtures_work_in_async_and_plain_tests(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        "pythonpath = .\nesclusa_app = shop:app\n"
    )
    (tmp_path / "shop.py").write_text(PIPELINE)
    (tmp_path / "test_shop.py").write_text(TESTS)
    done = run_pytest(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    done = run_pytest(tmp_path, "-k", "plain", "--esclusa-store", "mysql://x")
    assert "a store is sqlite:///path" in done.stdout


def test_other_projects_do_not_import_esclusa(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
    )
    (tmp_path / "test_other.py").write_text(WITHOUT)
    (tmp_path / "test_unset.py").write_text("def test_unset(esclusa_app): pass\n")
    done = run_pytest(tmp_path)
    assert "1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "which pipeline is under test?" in done.stdout


def test_plugin_is_an_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"esclusa_pytest": "esclusa_pytest"}

"""The guide documents every setting, route and command; the demo's parts exist."""

from __future__ import annotations

from pathlib import Path

from esclusa.model.options import options_of
from esclusa.pipelines.tenders import app, demo
from esclusa.pipelines.tenders.commands import CYCLES
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.settings import load
from esclusa.simulators import SIMULATORS

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/pipelines/tenders.md").read_text(encoding="utf-8")


def test_every_setting_and_command_is_in_the_guide() -> None:
    for each in options_of(TendersSettings, "TENDERS"):
        assert f"`{each.env[0]}`" in GUIDE, each.env[0]
    for name in (*CYCLES, "drop-exported", "devices import"):
        assert name in GUIDE, name


def test_the_demo_names_existing_cycles_and_simulators(tmp_path: Path) -> None:
    assert set(demo.SIMULATORS) <= set(SIMULATORS)
    environ = demo.environ(dict.fromkeys(demo.SIMULATORS, "http://127.0.0.1:1"), tmp_path)
    [plan] = load(environ=environ | {"ESCLUSA_PIPELINES": "tenders"}).plans
    assert {cycle.name for cycle in plan.cycles} == set(demo.CYCLES)
    assert app.name == "tenders"

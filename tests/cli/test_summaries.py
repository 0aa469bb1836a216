"""``esclusa --help`` prints the summaries of the commands without importing them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from esclusa import app
from esclusa.cli.root import COMMANDS, root
from esclusa.cli.session import Session
from esclusa.cli.summaries import SUMMARIES


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> click.Context:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESCLUSA_PIPELINES", raising=False)
    return click.Context(root, obj=Session(app.open_runtime, app.open_store))


def test_the_summaries_are_those_of_the_commands(context: click.Context) -> None:
    found = {name: root.get_command(context, name) for name in SUMMARIES}
    assert {n: c.get_short_help_str(90) for n, c in found.items() if c} == SUMMARIES
    assert {name for name in COMMANDS if name not in SUMMARIES} <= {"reference"}


def test_help_imports_neither_pydantic_nor_a_command(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom esclusa.app import main\ntry:\n    main(['--help'])\nfinally:\n"
        "    print([m for m in ('pydantic', 'asyncio', 'esclusa.cli.run') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": ""},
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "documents" in done.stdout


@pytest.mark.parametrize("source", ["file", "environment"])
def test_help_names_the_pipelines_that_are_set(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: click.Context
) -> None:
    if source == "file":
        (tmp_path / "esclusa.toml").write_text('pipelines = ["media"]\n')
    else:
        monkeypatch.setenv("ESCLUSA_PIPELINES", "media")
    assert context.obj.named_pipelines() == ("media",)
    help = root.get_help(context)
    assert "Pipelines:\n  media  " in help
    assert "tenders" not in help.partition("Pipelines:")[2]

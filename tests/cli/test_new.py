"""``esclusa new`` writes a project that passes its own tests and checks, and overwrites nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from esclusa.app import open_runtime, open_store
from esclusa.cli.new import write_project
from esclusa.cli.root import root
from esclusa.cli.session import Session
from esclusa.model.errors import BadQuery
from esclusa.settings import load


def call(*argv: str) -> str:
    session = Session(open_runtime, open_store)
    done = CliRunner().invoke(root, argv, obj=session, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def run(folder: Path, *argv: str) -> str:
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("ESCLUSA_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", *argv],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_project_passes_its_own_tests_and_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    next_steps = call("new", "my-shop").partition("Next:\n")[2]
    assert next_steps.split("\n")[:3] == ["  cd my-shop", "  esclusa dev", "  pytest"]
    folder = tmp_path / "my-shop"
    assert "2 passed" in run(folder, "pytest", "-q", "-p", "no:cacheprovider")
    run(folder, "mypy", "--cache-dir", str(tmp_path / "mypy"))
    run(folder, "ruff", "check", "--no-cache", ".")
    run(folder, "ruff", "format", "--no-cache", "--check", ".")


def test_the_project_runs_with_its_settings(tmp_path: Path) -> None:
    folder = tmp_path / "my-shop"
    write_project("my-shop", folder)
    run(folder, "esclusa", "run", "my-shop.collect")
    status = run(folder, "esclusa", "kinds")
    assert "my_shop_items" in status
    assert "new 5" in status
    assert (folder / "esclusa.db").exists()


def test_the_services_of_the_compose_file_have_valid_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "orders"
    write_project("orders", folder)
    monkeypatch.chdir(folder)
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert set(services) == {"database", "worker", "console"}
    for name in ("worker", "console"):
        service = services[name]
        written = service["environment"].items()
        environ = {n: re.sub(r"\$\{\w+:(?:-(\w+)|\?[^}]*)\}", r"\1", v) for n, v in written}
        settings = load(environ=environ)
        assert settings.pipelines == ("orders:app",)
        assert settings.store == "postgresql://postgres:local@database/postgres"
        assert service["command"] == ["worker" if name == "worker" else "serve"]
    assert services["console"]["ports"] == ["127.0.0.1:8082:8080"]  # the port of the image


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "bakery.py").write_text("mine = 1\n")
    with pytest.raises(BadQuery, match=r"bakery\.py exists, and nothing is overwritten"):
        write_project("bakery", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bakery.py"]
    assert (tmp_path / "bakery.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Shop", "lower case"),
        ("3d", "begin with a letter"),
        ("tenders", "a name of Esclusa"),
        ("store", "a name of Esclusa"),  # a setting
        ("queue", "a module of Python"),
        ("class", "a word or a module"),
        ("yaml", "a module of Python"),  # installed: it would be loaded instead
    ],
)
def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(BadQuery, match=why):
        write_project(name, tmp_path / name)
    assert list(tmp_path.iterdir()) == []

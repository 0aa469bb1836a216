"""Without the extras everything of the base works, and a missing one is named with its remedy."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from esclusa import App, extras
from esclusa.artifacts import open_artifacts
from esclusa.health import check_settings
from esclusa.loading import NoPipeline, load_app
from esclusa.model.errors import SettingsError
from esclusa.settings import load
from esclusa.web.auth.oidc import OidcVerifier

ROOT = Path(__file__).parents[2]
# A process in which the packages of the extras cannot be imported.
WITHOUT = """
import sys
from esclusa.extras import EXTRAS
class Hidden:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package in EXTRAS and package != "opentelemetry":  # FastAPI brings its API
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from esclusa.app import main
import esclusa.web.server, esclusa.stores.postgres.store, esclusa.embedding
main(sys.argv[1:])
"""
PIPELINE = """
from esclusa import App, Lifecycle, Record
class Post(Record, table="posts"):
    lifecycle = Lifecycle("new -> done")
app = App("hello", records=[Post])
"""


def test_every_package_belongs_to_a_declared_extra() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.EXTRAS.values()) == set(declared["optional-dependencies"])


def without_extras(folder: Path, *argv: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_base_works_without_any_extra(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(PIPELINE)
    named = ("--pipelines", "hello.py:app", "--store", "sqlite:///hello.db")
    assert without_extras(tmp_path, *named, "migrate", "--yes")[0] == 0
    code, text = without_extras(tmp_path, *named, "status")
    assert (code, "posts" in text) == (0, True), text
    code, text = without_extras(tmp_path, "--pipelines", "documents", "doctor")
    assert code == 3
    assert "it needs the extra esclusa[documents]: pip install 'esclusa[documents]'" in text


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    for pipeline in ("documents", "tenders"):
        with pytest.raises(NoPipeline, match=rf"pip install 'esclusa\[{pipeline}\]'"):
            load_app(pipeline)
    with pytest.raises(SettingsError, match=r"s3://: it needs the extra esclusa\[s3\]"):
        open_artifacts("s3://bucket")
    with pytest.raises(SettingsError, match=r"TICK_AUDIENCE: it needs the extra esclusa\[oidc\]"):
        OidcVerifier(["a"], "", "e", settings=("TICK_AUDIENCE", "TICK_SERVICE_ACCOUNT"))
    environ = {
        "ESCLUSA_PIPELINES": "shop",
        "ESCLUSA_TICK_AUDIENCE": "https://shop",
        "ESCLUSA_TICK_SERVICE_ACCOUNT": "s@shop",
    }
    settings = load(environ=environ, apps=lambda _: App("shop"))
    [missing] = [check for check in check_settings(settings) if check.verdict != "ok"]
    assert "ESCLUSA_TICK_AUDIENCE" in missing.text
    assert "pip install 'esclusa[oidc]'" in missing.do


def test_a_pipeline_that_imports_a_package_of_an_extra(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "raise ModuleNotFoundError(\"No module named 'sqlalchemy'\", name='sqlalchemy')"
    )
    with pytest.raises(NoPipeline, match=r"pip install 'esclusa\[sqlalchemy\]'"):
        load_app(f"{file}:app")


@pytest.mark.parametrize(
    ("statement", "extra"),
    [
        ("import esclusa.integrations.psycopg", "psycopg"),
        ("import esclusa.integrations.sqlalchemy", "sqlalchemy"),
        ("from esclusa.integrations.django import insert", "django"),
    ],
)
def test_an_integration_names_its_extra(statement: str, extra: str) -> None:
    hidden = f"import sys; sys.modules[{extra!r}] = None; {statement}"  # as if it were missing
    done = subprocess.run(
        [sys.executable, "-c", hidden], capture_output=True, text=True, check=False
    )
    assert f"it needs the extra esclusa[{extra}]: pip install 'esclusa[{extra}]'" in done.stderr

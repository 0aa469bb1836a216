"""Alembic's autogenerate, as a team runs it, does not touch what Esclusa added."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import make_url

import esclusa

from .orm import app

TESTS = Path(__file__).parents[1]
ENV = """
from alembic import context
from sqlalchemy import create_engine
from esclusa.integrations.alembic import include_object
from integrations.orm import Base, app

engine = create_engine(context.config.get_main_option("sqlalchemy.url"))
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        {hook}
    )
    with context.begin_transaction():
        context.run_migrations()
"""
HOOK = "include_object=include_object(app),"


def alembic(folder: Path, *argv: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "alembic", *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    return f"{done.returncode} {done.stdout}{done.stderr}"


async def test_autogenerate_keeps_the_columns_of_esclusa(postgres: str, tmp_path: Path) -> None:
    url = make_url(postgres).set(drivername="postgresql+psycopg")
    assert "Creating" in alembic(tmp_path, "init", "migrations")
    config = tmp_path / "alembic.ini"
    config.write_text(
        "[alembic]\nscript_location = migrations\nprepend_sys_path = .\n"
        f"sqlalchemy.url = {url.render_as_string(hide_password=False)}\n"
    )
    env = tmp_path / "migrations" / "env.py"
    env.write_text(ENV.replace("{hook}", HOOK))
    first = alembic(tmp_path, "revision", "--autogenerate", "-m", "first")
    assert first.startswith("0 "), first
    assert alembic(tmp_path, "upgrade", "head").startswith("0 ")

    await esclusa.migrate(app, store=postgres, foreign=True)
    engine = create_engine(url)
    names = {column["name"] for column in inspect(engine).get_columns("invoices")}
    engine.dispose()
    assert {"state", "esclusa_attempts", "esclusa_due_at"} < names

    # Without the hook it would drop them.
    env.write_text(ENV.replace("{hook}", ""))
    assert "esclusa_due_at" in alembic(tmp_path, "check")
    env.write_text(ENV.replace("{hook}", HOOK))
    check = alembic(tmp_path, "check")
    assert "No new upgrade operations detected" in check, check
    second = alembic(tmp_path, "revision", "--autogenerate", "-m", "second")
    assert second.startswith("0 "), second
    [script] = (tmp_path / "migrations" / "versions").glob("*_second.py")
    assert "op." not in script.read_text()

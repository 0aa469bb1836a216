"""The command in this process, in an empty folder, with the example pipeline, on each store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.command import CommandResult, RunCommand

from esclusa.app import open_runtime, open_store
from esclusa.cli import code_of
from esclusa.loading import load_app

EXAMPLE = Path(__file__).parents[2] / "examples" / "hello.py"


@pytest.fixture
def indexes() -> dict[str, Any]:
    """The example's index file."""
    from esclusa.stores.firestore import indexes_for

    app = load_app(f"{EXAMPLE}:app")
    return indexes_for([app.bind(app.settings())])


@pytest.fixture(params=["sqlite", "firestore"])
def esclusa(
    request: pytest.FixtureRequest,
    providers: Any,
    indexes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[RunCommand]:
    """Calls the command. On Firestore, what the index file does not serve is refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ESCLUSA_PIPELINES", f"{EXAMPLE}:app")
    monkeypatch.setenv("ESCLUSA_LOG_LEVEL", "error")

    def call(*argv: str) -> CommandResult:
        capsys.readouterr()
        code = code_of(argv, open_runtime=open_runtime, open_store=open_store)
        captured = capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)

    with ExitStack() as stack:
        if request.param == "firestore":
            from support.indexes import enforce_indexes

            monkeypatch.setenv(
                "ESCLUSA_STORE", asyncio.run(providers("firestore").database(empty=True)).url
            )
            stack.enter_context(enforce_indexes(indexes))
        yield call


@pytest.fixture
def greeted(esclusa: RunCommand) -> RunCommand:
    """After the example ran once: three greeted, alan waits for his next try, grace failed."""
    answer = esclusa("run", "hello.greet", "--json")
    assert answer.code == 5, answer.err
    assert answer.json["counters"] == {"taken": 5, "greeted": 3, "retried": 1, "failed": 1}
    return esclusa

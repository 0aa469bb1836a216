"""Pipelines whose routes or checks raise an error beside one that is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.processes import Esclusa, get

FRUIT = """
from typing import Any
from esclusa import App, RunContext

good, torn, odd = App("good"), App("torn"), App("odd")

@good.cycle()
async def nothing(run: RunContext) -> None:
    pass

@torn.routes
def broken_routes(runtime: Any) -> Any:
    raise KeyError("no route")

@odd.checks
def broken_check(settings: Any) -> Any:
    raise ValueError("no check")

@good.routes
def routes(runtime: Any) -> Any:
    from fastapi import APIRouter

    api = APIRouter()

    @api.get("/good")
    async def key() -> Any:
        return {"good": True}

    return api
"""


@pytest.fixture
def esclusa(tmp_path: Path) -> Esclusa:
    (tmp_path / "fruit.py").write_text(FRUIT)
    return Esclusa(tmp_path, ESCLUSA_PIPELINES="fruit.py:torn,fruit.py:odd,fruit.py:good")


@pytest.mark.promise(12)
def test_routes_and_checks_that_raise_stop_no_other_pipeline(esclusa: Esclusa) -> None:
    with esclusa.start("serve", "--port", "0") as server:
        address = server.address()
        assert get(f"{address}/good") == (200, {"good": True})
        status, answer = get(f"{address}/readyz")
        assert status == 503
        verdicts = {c["name"]: (c["verdict"], c["text"]) for c in answer["checks"]}
        assert verdicts["torn"] == ("fail", "its routes cannot be built (KeyError)")
        assert verdicts["odd"] == ("fail", "the check failed (ValueError)")
        assert verdicts["good"][0] == "ok"
        assert "broken_routes" in server.until_logged("the routes of pipeline torn")["stack_trace"]
        assert "broken_check" in server.until_logged("the check of pipeline odd")["stack_trace"]
        assert server.stop() == 0


def test_the_doctor_names_a_check_that_raises(esclusa: Esclusa) -> None:
    done = esclusa.call("doctor")
    assert done.returncode == 4
    assert "fail  odd: the check failed (ValueError: no check)" in done.stdout
    assert "ok    good: " in done.stdout

"""docs/python.md is what the docstrings say, has every public name, and its examples work."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from esclusa import App, Attempt, Outcome, To
from esclusa.model.stage_options import StageOptions
from tools.docs import python_reference as reference
from tools.docs.constants import NOTES
from tools.docs.stage_examples import CONTEXT, EXAMPLES, NAMES, Complaint, Order


def test_the_page_is_up_to_date() -> None:
    text = reference.PAGE.read_text(encoding="utf-8")
    assert text == reference.page(), "run: .venv/bin/python -m tools.docs reference"


def test_every_public_name_is_there_with_a_docstring() -> None:
    text = reference.PAGE.read_text(encoding="utf-8")
    for name in reference.MODULES:
        module = importlib.import_module(name)
        for public in reference.public_names(module):
            assert f"\n### `{public}`\n" in text, f"{name}.{public}"
            found = inspect.unwrap(getattr(module, public))  # of a cached function, itself
            described = inspect.isclass(found) or inspect.isfunction(found)
            about = NOTES.get(f"{name}.{public}") or (found.__doc__ if described else None)
            assert about, f"{name}.{public}: a docstring, or a note in tools/docs/constants.py"


def test_every_option_of_a_stage_is_explained_and_has_an_example() -> None:
    options = reference.options()
    assert set(options) == StageOptions.__required_keys__ | StageOptions.__optional_keys__
    assert set(EXAMPLES) == set(options) | {"batch", "cycle", "name"}
    assert set(CONTEXT) <= set(EXAMPLES)
    for name, (written, about) in options.items():
        assert written, name
        assert about.endswith("."), name
        assert f"{name}=" in EXAMPLES[name]


def handle(order: Order, at: Attempt) -> Outcome:
    return To("paid")


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_declares_a_stage(name: str) -> None:
    app = App("reference", records=[Order, Complaint])
    arguments = ", ".join(reference.example(name))
    declare: Any = eval(f"app.stage({arguments})", {**NAMES, "app": app, "Order": Order})
    declare(handle)

    class Settings(app.settings):  # type: ignore[misc, name-defined]
        at_a_time: int = 4

    app.settings = Settings
    plan = app.bind(Settings())
    assert len(plan.stages) == 1

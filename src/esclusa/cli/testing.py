"""Help for the tests of pipelines."""

from __future__ import annotations

import click

from esclusa.cli.root import Group
from esclusa.cli.session import Session


@click.group(cls=Group, name="testing")
def testing() -> None:
    """Tests of your own pipeline (esclusa.testing)."""


@testing.command("generate")
@click.argument("pipeline")
@click.pass_obj
def generate(session: Session, pipeline: str) -> None:
    """Print a test module with one test for each declared move: a start for your own.

    PIPELINE is written as in ESCLUSA_PIPELINES: module:app, path/to/file.py:app or a built-in name.
    The tests run as they are. They replace handlers by answers; fill in your own cases.
    """
    from esclusa.cli.arrow_tests import arrow_tests
    from esclusa.loading import load_app

    source = arrow_tests(pipeline, load_app(pipeline))
    session.show({"source": source}, lambda screen: screen.line(source.rstrip("\n")))

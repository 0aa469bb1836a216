"""The reference lists every setting and command, and is what the program itself says."""

from __future__ import annotations

from pathlib import Path

import click

from esclusa.cli.reference import replaced, tables
from esclusa.cli.root import COMMANDS, root
from esclusa.settings import SYSTEM_OPTIONS

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == replaced(page, tables()), (
        "run: .venv/bin/esclusa reference --write docs/reference.md"
    )


def test_every_setting_is_listed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for option in SYSTEM_OPTIONS:
        assert all(f"`{name}`" in page for name in option.env)
        assert f"`{option.field}`" in page


def test_every_command_and_option_has_help() -> None:
    ctx = click.Context(root)
    page = PAGE.read_text(encoding="utf-8")
    for name in COMMANDS:
        command = root.get_command(ctx, name)
        assert command is not None
        assert command.help, name
        assert command.hidden or f"`esclusa {name}" in page
        for each in [
            command,
            *(command.commands.values() if isinstance(command, click.Group) else []),
        ]:
            for param in each.params:
                assert not isinstance(param, click.Option) or param.help, f"{name} {param.name}"

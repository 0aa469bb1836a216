"""``python -m tools.docs``: make the Python reference, or the site of the documentation."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tools.docs import python_reference, site


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    match argv:
        case ["reference"]:
            python_reference.PAGE.write_text(python_reference.page(), encoding="utf-8")
            click.echo(f"written: {python_reference.PAGE.relative_to(python_reference.ROOT)}")
        case ["build", *rest] if len(rest) <= 1:
            folder = Path(rest[0]) if rest else site.FOLDER
            built = site.build(folder)
            click.echo(f"{len(built)} pages in {folder}; open {folder / 'index.html'}")
        case _:
            click.echo("usage: python -m tools.docs reference | build [FOLDER]", err=True)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

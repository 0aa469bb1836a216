"""``esclusa new``: a folder with a pipeline that runs, its test and its settings."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

import click

from esclusa.cli.output import Screen
from esclusa.cli.root import Command
from esclusa.cli.session import Session
from esclusa.loading import BUILT_IN
from esclusa.model.errors import BadQuery

_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}\Z")

# Each file of a new project, and its template. ``{module}`` is the pipeline's name with _ for -.
FILES = {
    "{module}.py": "pipeline.py.txt",
    "test_{module}.py": "test.py.txt",
    "esclusa.toml": "esclusa.toml.txt",
    "compose.yaml": "compose.yaml.txt",
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "--here", is_flag=True, help="Write into this folder instead of a new one with this name."
)
@click.pass_obj
def new(session: Session, name: str, here: bool) -> None:
    """Write a new pipeline with its test, settings and compose file. Overwrites nothing.

    NAME is the name of the pipeline and of the folder: lower case letters, digits and hyphens.
    """
    folder = Path() if here else Path(name)
    written = write_project(name, folder)
    steps = [*([] if here else [f"cd {name}"]), "esclusa dev", "pytest"]

    def draw(screen: Screen) -> None:
        screen.line(f"Written to {folder.absolute()}:")
        for file in written:
            screen.line(f"  {file}")
        screen.line("\nNext:")
        for step in steps:
            screen.line(f"  {step}")

    session.show({"folder": str(folder), "files": written, "next": steps}, draw)


def write_project(name: str, folder: Path) -> list[str]:
    """Write the files of a new project; return their names.

    Raises BadQuery for a name that cannot be a pipeline's or a module's, and for files that exist.
    """
    module = _module_name(name)
    texts = {
        file.format(module=module): _text(template, name, module)
        for file, template in FILES.items()
    }
    if taken := [file for file in texts if (folder / file).exists()]:
        raise BadQuery(
            f"{folder / taken[0]} exists, and nothing is overwritten: "
            "choose another name, or remove the file"
        )
    if folder.exists() and not folder.is_dir():
        raise BadQuery(f"{folder} exists and is not a folder: choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in texts.items():
        (folder / file).write_text(content, encoding="utf-8")
    return list(texts)


def _text(template: str, name: str, module: str) -> str:
    source = files("esclusa.cli").joinpath("project", template).read_text(encoding="utf-8")
    return Template(source).substitute(name=name, module=module)


def _module_name(name: str) -> str:
    """The name of the pipeline's module. Raises BadQuery if it cannot be one."""
    from esclusa.settings import SYSTEM_OPTIONS

    if not _NAME.match(name):
        raise BadQuery(
            f"{name!r} is not a pipeline name: use lower case letters, digits and hyphens, "
            "and begin with a letter"
        )
    if name in BUILT_IN or name in ("esclusa", *(option.field for option in SYSTEM_OPTIONS)):
        raise BadQuery(f"{name!r} is a name of Esclusa itself: choose another name")
    module = name.replace("-", "_")
    installed = module in sys.stdlib_module_names or _is_installed(module)
    if keyword.iskeyword(module) or keyword.issoftkeyword(module) or installed:
        raise BadQuery(f"{module!r} is a word or a module of Python already: choose another name")
    return module


def _is_installed(module: str) -> bool:
    spec = find_spec(module)
    return spec is not None and spec.origin is not None

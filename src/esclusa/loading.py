"""Loads pipelines by name: built in, from a module, or from a file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from esclusa import extras
from esclusa.model.errors import DeclarationError, EsclusaError
from esclusa.model.names import nearest

if TYPE_CHECKING:
    from esclusa.model.pipeline import App

BUILT_IN = ("replies", "tenders", "media", "documents")


class NoPipeline(EsclusaError):
    """A name in ``ESCLUSA_PIPELINES`` cannot be loaded as an App."""


def load_app(name: str) -> App:
    """The pipeline with this name: built in, ``module:app`` or ``path/to/file.py:app``.

    Raises NoPipeline.
    """
    from esclusa.model.pipeline import App  # noqa: PLC0415 - the names alone are loaded fast

    where, _, attribute = name.partition(":")
    if not attribute and not where.endswith(".py"):
        if name not in BUILT_IN:
            near = nearest(name, BUILT_IN)
            hint = f"; did you mean {near}?" if near else ""
            raise NoPipeline(
                f"{name!r} is neither one of {', '.join(BUILT_IN)}, "
                f"nor module:app, nor path/to/file.py:app{hint}"
            )
        if (needed := extras.missing_for(name)) is not None:
            raise NoPipeline(f"{name!r} cannot be loaded: {needed}")
        where = f"esclusa.pipelines.{name}"
    attribute = attribute or "app"
    _add_to_path(Path.cwd())  # module:app may be beside the settings file
    try:
        module = (
            _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        )
    except DeclarationError as error:
        raise NoPipeline(
            f"{name!r} is declared wrongly: {error.what}: {'; '.join(error.faults)}{_place(error)}"
        ) from error
    except Exception as error:  # a user's module may raise anything
        needed = extras.advice_for(error)
        hint = f"; {needed}" if needed else ""
        raise NoPipeline(
            f"{name!r} cannot be loaded: {type(error).__name__}: {error}{_place(error)}{hint}"
        ) from error
    found = getattr(module, attribute, None)
    if found is None:
        apps = [f"{where}:{each}" for each, value in vars(module).items() if isinstance(value, App)]
        hint = f"it has {', '.join(apps)}" if apps else "write: app = App(…)"
        raise NoPipeline(f"{name!r}: {where} has no {attribute!r}; {hint}")
    if not isinstance(found, App):
        raise NoPipeline(f"{name!r} is of the type {type(found).__name__}, not an App")
    return found


def _place(error: Exception) -> str:
    """The place in the user's code where it happened, in brackets; empty if there is none."""
    others = ("<", str(Path(__file__).parent), *sysconfig.get_paths().values())
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(others):
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""


def _add_to_path(folder: Path) -> None:
    """Import modules from there too; installed ones come first."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _load_file(path: Path) -> ModuleType:
    name = f"esclusa_file_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path.absolute()):
        return known  # settings may be loaded several times; keep the same App object
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"there is no file {path}")
    _add_to_path(path.absolute().parent)  # a pipeline may have several files
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module

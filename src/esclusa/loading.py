"""Finding pipelines by name: built-in ones, those of a module, those of a file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType

from esclusa.model.errors import DeclarationError, EsclusaError
from esclusa.model.pipeline import App

BUILT_IN = ("replies", "tenders", "media", "documents")


class NoPipeline(EsclusaError):
    """A name in ``ESCLUSA_PIPELINES`` that leads to no App; the message says why."""


def load_app(name: str) -> App:
    """The pipeline of this name: a built-in one, ``module:app``, or ``path/to/file.py:app``. Raises NoPipeline."""
    where, _, attribute = name.partition(":")
    if not attribute and not where.endswith(".py"):
        if name not in BUILT_IN:
            raise NoPipeline(
                f"{name!r} is none of {', '.join(BUILT_IN)}, nor module:app, nor path/to/file.py:app"
            )
        where = f"esclusa.pipelines.{name}"
    attribute = attribute or "app"
    _see(Path.cwd())  # module:app means a module beside the settings file, too
    try:
        module = (
            _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        )
    except DeclarationError as error:
        raise NoPipeline(
            f"{name!r} is declared wrongly: {error.what}: {'; '.join(error.faults)}{_place(error)}"
        ) from error
    except Exception as error:  # a pipeline is somebody's program: whatever it raises is told as a fault of this setting
        raise NoPipeline(
            f"{name!r} cannot be loaded: {type(error).__name__}: {error}{_place(error)}"
        ) from error
    found = getattr(module, attribute, None)
    if found is None:
        apps = [f"{where}:{each}" for each, value in vars(module).items() if isinstance(value, App)]
        raise NoPipeline(
            f"{name!r}: {where} has no {attribute!r}; {'it has ' + ', '.join(apps) if apps else 'write: app = App(…)'}"
        )
    if not isinstance(found, App):
        raise NoPipeline(f"{name!r} is of the type {type(found).__name__}, not an App")
    return found


def _place(error: Exception) -> str:
    """Where in somebody's own program it happened, in brackets; nothing if all of it is ours or a library's."""
    others = ("<", str(Path(__file__).parent), *sysconfig.get_paths().values())
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(others):
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""


def _see(folder: Path) -> None:
    """Find modules there too; installed ones win."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _load_file(path: Path) -> ModuleType:
    name = f"esclusa_file_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path.absolute()):
        return known  # the same App object, however often settings are loaded
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"there is no file {path}")
    _see(path.absolute().parent)  # a pipeline may be several files
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module

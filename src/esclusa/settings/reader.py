"""Reads the values of settings from a TOML file, the environment and the command line."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from esclusa.model.options import Option
from esclusa.stores import without_password

FILE = "esclusa.toml"
CONFIG = "ESCLUSA_CONFIG"


@dataclass(slots=True)
class Given:
    """A value and the place where it was given."""

    source: str
    value: Any


@dataclass(slots=True)
class SettingsReader:
    """Reads the layers and collects the faults."""

    environ: Mapping[str, str]
    overrides: Mapping[str, Any]
    file: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None
    faults: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=lambda: {CONFIG})

    def read_file(self, path: str | Path | None) -> None:
        """Read ``path``, or ``ESCLUSA_CONFIG``, or ``esclusa.toml`` if it exists."""
        source = "--config" if path else CONFIG
        chosen = Path(path or self.environ.get(CONFIG) or FILE)
        if not path and not self.environ.get(CONFIG) and not chosen.exists():
            return
        try:
            self.file = tomllib.loads(chosen.read_text(encoding="utf-8"))
            self.path = chosen
        except (OSError, UnicodeDecodeError) as error:
            self.faults.append(
                f"{source}: {str(chosen)!r} cannot be read: "
                f"{getattr(error, 'strerror', None) or error}"
            )
        except tomllib.TOMLDecodeError as error:
            self.faults.append(f"{chosen}: it is not TOML: {error}")

    def fill(
        self,
        model: type[BaseModel],
        options: Iterable[Option],
        table: Mapping[str, Any],
        prefix: str,
    ) -> Any:
        """The model with the valid values; the others become faults.

        None if a required setting is missing.
        """
        known, given = {o.field: o for o in options}, {}
        for name, opt in known.items():
            found = self._given(opt, table, prefix)
            if found is not None:
                given[name] = found
                self.sources[prefix + name] = found.source
        values = {
            name: _split(found.value) if known[name].many else found.value
            for name, found in given.items()
        }
        try:
            return model.model_validate(values)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                name = str(each["loc"][0]) if each["loc"] else ""
                self.faults.append(_fault(each, known.get(name), given.get(name), prefix))
                values.pop(name, None)
        try:  # go on without them, to find the faults of what depends on these settings
            return model.model_validate(values)
        except ValidationError:
            return None

    def _given(self, opt: Option, table: Mapping[str, Any], prefix: str) -> Given | None:
        """The value of the highest layer that has one."""
        found = None
        if opt.field in table:
            found = Given(f"{self.path}: {prefix}{opt.field}", table[opt.field])
        for name in opt.env:
            self.names |= {name, f"{name}_FILE"}
            text, file = self.environ.get(name), self.environ.get(f"{name}_FILE")
            if text and opt.secret:
                text = text.strip()  # as from a file: people paste blanks along
            if text and file:
                self.faults.append(f"{name} and {name}_FILE are both set; keep one of them")
            elif file:
                found = self._from_file(f"{name}_FILE", file) or found
            elif text:
                found = Given(name, text)
        if not prefix and opt.field in self.overrides:
            found = Given(f"--{opt.field.replace('_', '-')}", self.overrides[opt.field])
        return found

    def _from_file(self, source: str, file: str) -> Given | None:
        try:
            text = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            self.faults.append(
                f"{source}: {file!r} cannot be read: "
                f"{getattr(error, 'strerror', None) or 'it is not text'}"
            )
            return None
        if not text:
            self.faults.append(f"{source}: {file!r} is empty")
            return None
        return Given(source, text)

    def unknown_names(self) -> tuple[str, ...]:
        """Unknown names in the environment that look like settings, each with a suggestion."""
        return tuple(
            unknown_setting(name, name, self.names)
            for name in sorted(self.environ)
            if name.startswith("ESCLUSA_") and name not in self.names
        )


def _split(value: Any) -> Any:
    return (
        [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, str)
        else value
    )


def unknown_setting(where: str, name: str, names: Iterable[str]) -> str:
    """The fault of an unknown name, with the nearest known one."""
    near = difflib.get_close_matches(name, sorted(names), n=1)
    return f"{where} is not a setting" + (f"; did you mean {near[0]}?" if near else "")


def _fault(error: Any, opt: Option | None, given: Given | None, prefix: str) -> str:
    if given is None or opt is None:
        name = opt.env[-1] if opt else prefix.rstrip(".")
        if error["type"] == "missing" and opt:
            return (
                f"{name} is not set (in the file: {prefix}{opt.field}): {opt.help or opt.allowed}"
            )
        return f"{name}: {error['msg'].removeprefix('Value error, ')}"
    shown = without_password(given.value) if isinstance(given.value, str) else given.value
    value = "(secret)" if opt.secret else repr(shown)[:120]
    if error["type"] in ("value_error", "assertion_error"):
        return f"{given.source}: {value}: {error['msg'].split(', ', 1)[1]}"
    return f"{given.source}: {value} is not {opt.allowed}"

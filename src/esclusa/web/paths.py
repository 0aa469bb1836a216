"""Slashes inside an id: written ``%2F`` they are part of a value, and no route, the pipelines' own included, need think of it."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from starlette.convertors import PathConvertor, StringConvertor, register_url_convertor
from starlette.types import Scope

SLASH: Final = "\ufdd0"
"""Stands for such a slash until its route has been found: a noncharacter, which no text may carry."""


def keep(scope: Scope) -> None:
    """Keep the router from taking an escaped slash for the end of a value."""
    raw = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        parts = raw.split(b"?", 1)[0].decode("ascii", "replace").split("/")
        scope["path"] = "/".join(unquote(part).replace("/", SLASH) for part in parts)


def restore(text: str) -> str:
    """A value or a path as it was meant."""
    return text.replace(SLASH, "/")


class _Text(StringConvertor):
    def convert(self, value: str) -> str:
        return restore(value)


class _Path(PathConvertor):
    def convert(self, value: str) -> str:
        return restore(value)


register_url_convertor("str", _Text())
register_url_convertor("path", _Path())

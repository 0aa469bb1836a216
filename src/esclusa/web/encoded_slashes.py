"""Slashes inside an id: ``%2F`` in a path is part of a value and does not separate segments.

ASGI servers decode the path before routing, so a route cannot distinguish ``%2F`` from ``/``.
With this module every route, including those of pipelines, gets the right value.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from starlette.convertors import PathConvertor, StringConvertor, register_url_convertor
from starlette.types import Scope

# Replaces an encoded slash during routing: a noncharacter, which no valid text contains.
SLASH: Final = "\ufdd0"


def hide(scope: Scope) -> None:
    """Replace encoded slashes in the path by ``SLASH``, so that the router does not split there."""
    raw = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        parts = raw.split(b"?", 1)[0].decode("ascii", "replace").split("/")
        scope["path"] = "/".join(unquote(part).replace("/", SLASH) for part in parts)


def restore(text: str) -> str:
    """A path or a value of it with its slashes back."""
    return text.replace(SLASH, "/")


class _Text(StringConvertor):
    def convert(self, value: str) -> str:
        return restore(value)


class _Path(PathConvertor):
    def convert(self, value: str) -> str:
        return restore(value)


register_url_convertor("str", _Text())
register_url_convertor("path", _Path())

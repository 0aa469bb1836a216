"""The path of a request: its prefix behind a reverse proxy, and slashes inside ids.

``%2F`` in a path is part of a value and does not separate segments. ASGI servers decode the path
before routing, so a route cannot distinguish ``%2F`` from ``/``. With this module every route,
including those of pipelines, gets the right value.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from starlette.convertors import PathConvertor, StringConvertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

from esclusa.web.proxies import TrustedProxies, last_value

# Replaces an encoded slash during routing: a noncharacter, which no valid text contains.
SLASH: Final = "\ufdd0"
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+){1,8}\Z")


def hide_slashes(scope: Scope) -> None:
    """Replace encoded slashes in the path by ``SLASH``, so that the router does not split there."""
    raw = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        parts = raw.split(b"?", 1)[0].decode("ascii", "replace").split("/")
        scope["path"] = "/".join(unquote(part).replace("/", SLASH) for part in parts)


def restore_slashes(text: str) -> str:
    """A path, or a value from it, with its slashes restored."""
    return text.replace(SLASH, "/")


def as_pasted(scope: Scope, prefix: str, suffix: str = "") -> str:
    """The text between these parts of the path as it was sent, without decoding.

    A person may paste an id or a path with a ``%`` into an address, where it should be ``%25``.
    """
    raw = (scope.get("raw_path") or b"").split(b"?", 1)[0].decode("ascii", "replace")
    return raw.partition(prefix)[2].removesuffix(suffix)


class _Text(StringConvertor):
    def convert(self, value: str) -> str:
        return restore_slashes(value)


class _Path(PathConvertor):
    def convert(self, value: str) -> str:
        return restore_slashes(value)


register_url_convertor("str", _Text())
register_url_convertor("path", _Path())


class PrefixMiddleware:
    """The outermost middleware: sets ``root_path``, and hides encoded slashes from the router.

    ``X-Forwarded-Prefix`` is used only if a trusted proxy sent it; such a proxy has removed the
    prefix from the path. Otherwise ``root_path`` is the prefix, whether or not a proxy removed it.
    """

    def __init__(self, app: ASGIApp, trusted: TrustedProxies, root_path: str = "") -> None:
        self._app = app
        self._trusted = trusted
        self._root_path = root_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            hide_slashes(scope)
            self._set_prefix(scope)
        await self._app(scope, receive, send)

    def _set_prefix(self, scope: Scope) -> None:
        given = last_value(scope, "x-forwarded-prefix").rstrip("/")
        if (
            given
            and self._trusted.sent(scope)
            and _PREFIX.match(given)
            and not {".", ".."} & set(given.split("/"))
        ):
            prefix, removed = given, True
        else:
            prefix = self._root_path
            removed = not (scope["path"] == prefix or scope["path"].startswith(prefix + "/"))
        if prefix:
            scope["root_path"] = prefix
            if removed:
                scope["path"] = prefix + scope["path"]
            elif scope["path"] == prefix:
                scope["path"] += "/"  # the prefix itself is the console's first page

"""Trusted proxies: who called, by the ``X-Forwarded-*`` headers that a trusted proxy added."""

from __future__ import annotations

import ipaddress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from esclusa.model.errors import SettingsError


class TrustedProxies:
    """Proxies whose ``X-Forwarded-*`` headers are trusted.

    The text lists addresses and networks, separated by commas. ``*`` trusts every peer, but no
    other address in ``X-Forwarded-For``: the proxy adds the last one, and a caller can write the
    others. Proxies before that one are listed beside the ``*``.
    """

    def __init__(self, text: str) -> None:
        names = [name.strip() for name in text.split(",") if name.strip()]
        self._any_peer = "*" in names
        try:
            self._networks = [
                ipaddress.ip_network(name, strict=False) for name in names if name != "*"
            ]
        except ValueError as error:
            raise SettingsError(
                "settings", [f"ESCLUSA_PROXIES: {error}; name addresses or networks, or *"]
            ) from None

    def sent(self, scope: Scope) -> bool:
        """Whether a trusted proxy sent this request."""
        peer = scope["client"][0] if scope.get("client") else ""
        return self._any_peer or self._lists(_address(peer))

    def caller(self, forwarded_for: str) -> str | None:
        """The address that called the first proxy: the last one that is not a listed proxy.

        None if the header is empty.
        """
        hops = [_address(hop) for hop in forwarded_for.split(",") if hop.strip()]
        return next((hop for hop in reversed(hops) if not self._lists(hop)), next(iter(hops), None))

    def _lists(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)


class ForwardedMiddleware:
    """Sets the client and the scheme of a request that a trusted proxy sent."""

    def __init__(self, app: ASGIApp, trusted: TrustedProxies) -> None:
        self._app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._trusted.sent(scope):
            scheme = last_value(scope, "x-forwarded-proto").lower()
            if scheme in ("http", "https"):
                scope["scheme"] = scheme
            forwarded_for = ",".join(Headers(scope=scope).getlist("x-forwarded-for"))
            caller = self._trusted.caller(forwarded_for)
            if caller is not None:
                scope["client"] = (caller, 0)
        await self._app(scope, receive, send)


def last_value(scope: Scope, name: str) -> str:
    """The last value of a header: the proxy's own, if it adds to what the caller sent."""
    return ",".join(Headers(scope=scope).getlist(name)).rpartition(",")[2].strip()


def _address(hop: str) -> str:
    """An entry of ``X-Forwarded-For`` without its port; its beginning if it is no address."""
    hop = hop.strip()
    host = hop[1:].partition("]")[0] if hop.startswith("[") else hop
    if host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return hop[:64]
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)

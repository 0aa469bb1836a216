"""Authentication of every request. A route is closed unless it declares itself open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from fastapi import APIRouter
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from esclusa.settings import is_loopback
from esclusa.web.auth.oidc import OidcVerifier
from esclusa.web.auth.tokens import FailedAttempts, Token, bearer_secret, find_token, read_only
from esclusa.web.problems import problem, unauthorized

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
# `openapi_extra` of a route that checks its caller itself, such as a signed webhook.
SELF_AUTHENTICATED: Final[dict[str, Any]] = {"security": []}

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class SessionAuth(Protocol):
    """Authenticates visitors of the console by their session."""

    async def authenticate(self, scope: Scope, path: str) -> Response | bool:
        """True if a visitor may make this request; False if sessions do not apply to it.

        A response is sent instead of the route's, such as a redirect to the sign-in page. For a
        visitor, ``scope["state"]`` gets ``visitor`` and ``who``.
        """


class AuthMiddleware:
    """Authenticates a request and sets ``request.state.who``, the name in history and audit.

    With tokens, a request needs one whose role allows the method. Without tokens, only this machine
    is served. ``oidc`` maps a method and path to the verifier of OIDC tokens that are accepted
    there as well. ``request.state.open`` is set where no authentication was required.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Sequence[Token],
        self_authenticated: Iterable[Route] = (),
        failed_attempts: FailedAttempts | None = None,
        sessions: SessionAuth | None = None,
        oidc: Mapping[tuple[str, str], OidcVerifier] | None = None,
    ) -> None:
        self._app = app
        self._tokens = tuple(tokens)
        self._self_authenticated = tuple(self_authenticated)
        self._failed_attempts = failed_attempts or FailedAttempts()
        self._sessions = sessions
        self._oidc = dict(oidc or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["who"] = "api"
        await (await self._refusal(scope) or self._app)(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        """None if the request may go on, with ``who`` set; otherwise the response to send."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        authorization = Headers(scope=scope).get("authorization", "")
        secret = bearer_secret(authorization)
        verifier = self._oidc.get((scope.get("method", ""), path))
        if verifier is not None and secret.count(".") == 2:  # a JWT has three parts
            claims = await verifier.authenticate(secret, path)
            if isinstance(claims, Response):
                return claims
            scope["state"]["who"] = f"oidc:{claims.get('email', claims.get('sub', 'unknown'))}"
            return None
        if path in OPEN_PATHS or any(
            route.matches(scope)[0] == Match.FULL for route in self._self_authenticated
        ):
            scope["state"]["open"] = True
            return None
        refused = self._check_token(scope, secret) if self._tokens else self._check_local(scope)
        if self._sessions is None or authorization or (refused is not None and not self._tokens):
            return refused
        session = await self._sessions.authenticate(scope, path)
        if isinstance(session, Response):
            return session
        return None if session else refused

    def _check_token(self, scope: Scope, secret: str) -> Response | None:
        path = scope["path"]
        if not secret:
            return unauthorized(path, "this needs a token: send 'Authorization: Bearer …'")
        address = scope["client"][0] if scope.get("client") else ""
        wait = self._failed_attempts.wait(address)
        if wait > 0 and not self._failed_attempts.was_accepted(address, secret):
            seconds = str(math.ceil(wait))
            return problem(
                429,
                f"too many wrong tokens from this address; try again in {seconds} s",
                slug="too-many-attempts",
                instance=path,
                headers={"Retry-After": seconds},
            )
        token = find_token(self._tokens, secret)
        if token is None:
            self._failed_attempts.add_failure(address)
            return unauthorized(
                path, "this token is not in ESCLUSA_API_TOKENS", error="invalid_token"
            )
        self._failed_attempts.add_success(address, secret)
        scope["state"]["who"] = f"api:{token.name}"
        read_only.set(token.role == "read")
        if token.role == "read" and scope.get("method", "GET") not in _SAFE_METHODS:
            return problem(
                403,
                f"the token {token.name} has the role read; this call needs the role operate",
                slug="forbidden",
                title="Role operate required",
                instance=path,
                headers={
                    "WWW-Authenticate": 'Bearer realm="esclusa", error="insufficient_scope",'
                    ' scope="operate"'
                },
            )
        return None

    def _check_local(self, scope: Scope) -> Response | None:
        """Without tokens: only callers on this machine, and no form of another site's page."""
        headers, path = Headers(scope=scope), scope["path"]
        client, host = scope.get("client"), headers.get("host", "localhost")
        remote = client is not None and client[0] and not is_loopback(client[0])
        if remote or not is_loopback(_hostname(host)):
            return problem(
                403,
                "without ESCLUSA_API_TOKENS only this machine is served, under a loopback name;"
                " set a token to serve others",
                slug="forbidden",
                title="Loopback only",
                instance=path,
            )
        if scope.get("method", "GET") not in _SAFE_METHODS and is_cross_site(headers):
            return problem(
                403,
                "the request comes from a page of another site; without ESCLUSA_API_TOKENS only"
                " pages of this server may change anything",
                slug="forbidden",
                title="Cross-site request refused",
                instance=path,
            )
        return None


def is_cross_site(headers: Headers) -> bool:
    """Whether a page of another site made the browser send this request.

    Browsers say it in ``Sec-Fetch-Site``, which no page can change, or else in ``Origin``.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site not in ("same-origin", "none")
    return (
        origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()
    )


def _hostname(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def self_authenticated_routes(router: APIRouter) -> list[Route]:
    """The routes of this router that are marked with ``SELF_AUTHENTICATED``."""
    return [
        route
        for route in router.routes
        if isinstance(route, Route)
        and (getattr(route, "openapi_extra", None) or {}).get("security") == []
    ]

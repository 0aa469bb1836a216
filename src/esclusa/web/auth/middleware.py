"""Authentication of every request. A route is closed unless it declares itself open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Protocol

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from esclusa.model.value import value
from esclusa.settings import is_loopback
from esclusa.web.auth.oidc import OidcVerifier
from esclusa.web.auth.tokens import (
    FailedAttempts,
    Role,
    Token,
    bearer_secret,
    find_token,
    read_only,
    token_digest,
)
from esclusa.web.problems import problem, unauthorized

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
# `openapi_extra` of a route that checks its caller itself, such as a signed webhook.
SELF_AUTHENTICATED: Final[dict[str, Any]] = {"security": []}

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def own_credentials(*, anonymous: bool = False) -> dict[str, Any]:
    """``openapi_extra`` of a route whose callers may have a credential of the pipeline's own.

    API tokens of every role are accepted, too. The route decides by its ``CurrentCaller`` what a
    caller may do, and answers 401 to a wrong credential. ``anonymous``: also callers without any.
    """
    return {"security": [{"token": []}, {"credential": []}, *([{}] if anonymous else [])]}


@value
class Caller:
    """The caller of a route with ``own_credentials``.

    ``role``: that of its API token; None without one. ``credential``: the secret that it sent, if
    that is no API token. ``who``: its name in history and audit.
    """

    who: str
    role: Role | None
    credential: str


async def _caller(request: Request) -> Caller:
    state = request.state
    return Caller(state.who, getattr(state, "role", None), getattr(state, "credential", ""))


CurrentCaller = Annotated[Caller, Depends(_caller)]


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
    there as well. ``request.state.open`` is set where no authentication was required. ``origins``:
    sites whose pages may change something on a server without tokens.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Sequence[Token],
        routes: Iterable[Route] = (),
        failed_attempts: FailedAttempts | None = None,
        sessions: SessionAuth | None = None,
        oidc: Mapping[tuple[str, str], OidcVerifier] | None = None,
        origins: Iterable[str] = (),
    ) -> None:
        self._app = app
        self._tokens = tuple(tokens)
        declared = [(route, declared_security(route)) for route in routes]
        self._self_authenticated = [route for route, security in declared if security == []]
        self._own_credentials = [
            (route, {} in security)
            for route, security in declared
            if security and {"credential": []} in security
        ]
        self._origins = frozenset(origins)
        self._failed_attempts = failed_attempts or FailedAttempts()
        self._sessions = sessions
        self._oidc = dict(oidc or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["who"] = "api"
        refusal = await self._refusal(scope)

        async def judged(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                self._failed_attempts.add_failure(_address(scope))
            elif message["type"] == "http.response.start":
                self._failed_attempts.add_success(_address(scope), state["credential"])
            await send(message)

        await (refusal or self._app)(scope, receive, judged if state.get("credential") else send)

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
        own = next(
            (may for route, may in self._own_credentials if route.matches(scope)[0] == Match.FULL),
            None,
        )
        if own is not None and self._tokens and (secret or own):
            return self._check_credential(scope, secret)
        refused = self._check_token(scope, secret) if self._tokens else self._check_local(scope)
        if refused is None and not self._tokens:
            scope["state"]["role"] = "operate"
        if self._sessions is None or authorization or (refused is not None and not self._tokens):
            return refused
        session = await self._sessions.authenticate(scope, path)
        if isinstance(session, Response):
            return session
        if session:
            scope["state"]["role"] = "operate"  # a session refuses by itself what it may not do
        return None if session else refused

    def _check_credential(self, scope: Scope, secret: str) -> Response | None:
        """With tokens, on a route with own credentials: let it judge other secrets."""
        state = scope["state"]
        if not secret:
            state["open"] = True
            read_only.set(True)
            return None
        if (refused := self._too_many(scope, secret)) is not None:
            return refused
        if self._accept(scope, secret) is None:
            state |= {
                "credential": secret,
                "who": f"credential:{token_digest(secret).hex()[:16]}",
            }
            read_only.set(True)
        return None

    def _too_many(self, scope: Scope, secret: str) -> Response | None:
        address = _address(scope)
        wait = self._failed_attempts.wait(address)
        if wait <= 0 or self._failed_attempts.was_accepted(address, secret):
            return None
        seconds = str(math.ceil(wait))
        return problem(
            429,
            f"too many wrong tokens from this address; try again in {seconds} s",
            slug="too-many-attempts",
            instance=scope["path"],
            headers={"Retry-After": seconds},
        )

    def _accept(self, scope: Scope, secret: str) -> Token | None:
        """The API token with this secret, after which the request is named; None if it is none."""
        token = find_token(self._tokens, secret)
        if token is not None:
            self._failed_attempts.add_success(_address(scope), secret)
            scope["state"] |= {"who": f"api:{token.name}", "role": token.role}
            read_only.set(token.role == "read")
        return token

    def _check_token(self, scope: Scope, secret: str) -> Response | None:
        path = scope["path"]
        if not secret:
            return unauthorized(path, "this needs a token: send 'Authorization: Bearer …'")
        if (refused := self._too_many(scope, secret)) is not None:
            return refused
        token = self._accept(scope, secret)
        if token is None:
            self._failed_attempts.add_failure(_address(scope))
            return unauthorized(
                path, "this token is not in ESCLUSA_API_TOKENS", error="invalid_token"
            )
        if token.role == "read" and scope.get("method", "GET") not in SAFE_METHODS:
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
        allowed = headers.get("origin") in self._origins
        if scope.get("method", "GET") not in SAFE_METHODS and (
            is_cross_site(headers) and not allowed
        ):
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


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""


def declared_security(route: Route) -> list[Any] | None:
    """The security that the route declares in its ``openapi_extra``; None if it declares none."""
    declared = (getattr(route, "openapi_extra", None) or {}).get("security")
    return declared if isinstance(declared, list) else None

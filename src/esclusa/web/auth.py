"""Who is calling, and what they may do. Nothing is open that does not say so itself."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Final, Literal, Protocol

from fastapi import APIRouter
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from esclusa.model.errors import SettingsError
from esclusa.model.value import value
from esclusa.settings import ApiToken
from esclusa.web.problems import problem

Role = Literal["read", "operate"]

reads_only: ContextVar[bool] = ContextVar("reads_only", default=False)
"""Whether the caller may only read: then secrets in records are masked, and neither filtered nor ordered by."""

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
SIGNED: Final[dict[str, Any]] = {"security": []}
"""For a route that checks its caller itself, a signed webhook: ``@router.post("/hook", openapi_extra=SIGNED)``."""

_READING = frozenset({"GET", "HEAD", "OPTIONS"})


@value
class Token:
    """What the door knows of a token: whose it is, what it may do, and the hash by which it is recognised."""

    name: str
    role: Role
    digest: bytes


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def tokens_of(given: Iterable[ApiToken]) -> tuple[Token, ...]:
    """The tokens of ``ESCLUSA_API_TOKENS``, as the door knows them."""
    return tuple(
        Token(token.name, token.role, digest_of(token.secret.get_secret_value())) for token in given
    )


def recognise(tokens: Sequence[Token], secret: str) -> Token | None:
    """The token that this secret is. Every token is compared, so the time it takes tells nothing."""
    given, found = digest_of(secret), None
    for token in tokens:
        if hmac.compare_digest(token.digest, given):
            found = token
    return found


def is_loopback(host: str) -> bool:
    """Whether this host name or address is this machine alone."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name.split("%", 1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def refuse_open_door(host: str, tokens: Sequence[Token]) -> None:
    """Raise SettingsError if the server would listen beyond this machine with nobody asked who they are."""
    if not tokens and not is_loopback(host):
        raise SettingsError(
            "settings",
            [
                f"ESCLUSA_API_TOKENS: not set, so the server listens on loopback only, not on {host}; set a token, or use --host 127.0.0.1"
            ],
        )


class Guesses:
    """How often each address guessed wrongly: so many at once, then one every few seconds. Who was let in from there before
    is not shut out by another's guesses. Memory is bounded: what was quiet for longest is forgotten."""

    def __init__(
        self,
        burst: int = 20,
        seconds: float = 3.0,
        addresses: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst, self._seconds, self._addresses, self._clock = burst, seconds, addresses, clock
        self._until: OrderedDict[str, float] = OrderedDict()
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds until this address may guess again; 0 now."""
        free_at = self._until.get(_network(address), 0.0) - (self._burst - 1) * self._seconds
        return max(0.0, free_at - self._clock())

    def wrong(self, address: str) -> None:
        network = _network(address)
        self._until[network] = max(self._until.pop(network, 0.0), self._clock()) + self._seconds
        while len(self._until) > self._addresses:
            self._until.popitem(last=False)

    def right(self, address: str, secret: str) -> None:
        """This secret was let in from there."""
        self._known[_network(address), digest_of(secret)] = None
        self._known.move_to_end((_network(address), digest_of(secret)))
        while len(self._known) > self._addresses:
            self._known.popitem(last=False)

    def knows(self, address: str, secret: str) -> bool:
        return (_network(address), digest_of(secret)) in self._known

    def __len__(self) -> int:
        return len(self._until)


def _network(address: str) -> str:
    """An IPv6 caller has a whole /64 to guess from; it counts as one."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.split("%", 1)[0], 64), strict=False))
    except ValueError:
        return address


class SessionAuth(Protocol):
    """Who knows the visitors of the console."""

    def enter(self, scope: Scope, path: str) -> Response | bool:
        """True if this request comes from a visitor who may do this, and its state says who; False if it is none of the
        console's; an answer if it is to be sent elsewhere."""


class Accounts(Protocol):
    """Who knows service accounts by their OIDC tokens."""

    async def vouch(self, scope: Scope, path: str) -> Response | str | None:
        """The caller's name, if its token is good for this; an answer if it is refused; None if this is no such call."""


class AuthMiddleware:
    """The middleware that lets a request in: with tokens, whoever shows one that may do this; without, this machine alone.

    It leaves ``request.state.who``, the name that history and audit will show, and ``request.state.open`` where nobody was asked.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Sequence[Token],
        signed: Iterable[Route] = (),
        guesses: Guesses | None = None,
        porter: SessionAuth | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self._app = app
        self._tokens = tuple(tokens)
        self._signed = tuple(signed)
        self._guesses = guesses or Guesses()
        self._porter = porter
        self._accounts = accounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["who"] = "api"
        vouched = (
            None
            if self._accounts is None
            else await self._accounts.vouch(
                scope, scope["path"].removeprefix(scope.get("root_path", ""))
            )
        )
        if isinstance(vouched, Response):
            await vouched(scope, receive, send)
            return
        if vouched is not None:
            state["who"] = vouched
        elif self._open(scope):
            state["open"] = True
        else:
            refused = self._judge(scope, state) if self._tokens else self._judge_local(scope)
            if self._porter is not None and not Headers(scope=scope).get("authorization"):
                refused = self._received(scope, self._porter, refused)
            if refused is not None:
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _received(
        self, scope: Scope, porter: SessionAuth, refused: Response | None
    ) -> Response | None:
        """What the console's porter says of one who showed no token."""
        if refused is not None and not self._tokens:
            return refused
        answer = porter.enter(scope, scope["path"].removeprefix(scope.get("root_path", "")))
        if isinstance(answer, Response):
            return answer
        return None if answer else refused

    def _open(self, scope: Scope) -> bool:
        if scope["path"].removeprefix(scope.get("root_path", "")) in OPEN_PATHS:
            return True
        return any(route.matches(scope)[0] == Match.FULL for route in self._signed)

    def _judge(self, scope: Scope, state: dict[str, Any]) -> Response | None:
        path = scope["path"]
        scheme, _, secret = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            return _unauthorized(
                path, "this needs a token: send 'Authorization: Bearer …'", 'Bearer realm="esclusa"'
            )
        address = scope["client"][0] if scope.get("client") else ""
        secret = secret.strip()
        wait = self._guesses.wait(address)
        if wait > 0 and not self._guesses.knows(address, secret):
            again = str(math.ceil(wait))
            detail = f"too many wrong tokens came from this address; try again in {again} s"
            return problem(
                429, detail, slug="too-many-guesses", instance=path, headers={"Retry-After": again}
            )
        token = recognise(self._tokens, secret)
        if token is None:
            self._guesses.wrong(address)
            return _unauthorized(
                path,
                "this token is not one of ours; look at ESCLUSA_API_TOKENS",
                'Bearer realm="esclusa", error="invalid_token"',
            )
        self._guesses.right(address, secret)
        state["who"] = f"api:{token.name}"
        reads_only.set(token.role == "read")
        if token.role == "read" and scope.get("method", "GET") not in _READING:
            detail = f"the token {token.name} may read; this wants a token with the role operate"
            challenge = {
                "WWW-Authenticate": 'Bearer realm="esclusa", error="insufficient_scope", scope="operate"'
            }
            return problem(
                403,
                detail,
                slug="forbidden",
                title="This token may only read",
                instance=path,
                headers=challenge,
            )
        return None

    def _judge_local(self, scope: Scope) -> Response | None:
        """Without tokens: a caller on this machine, who asked for this machine, and not a page of another site in a browser."""
        headers, path = Headers(scope=scope), scope["path"]
        client, host = scope.get("client"), headers.get("host", "localhost")
        if (client is not None and client[0] and not is_loopback(client[0])) or not is_loopback(
            _hostname(host)
        ):
            detail = "without ESCLUSA_API_TOKENS only this machine is served, under its loopback name; set a token to serve others"
            return problem(
                403, detail, slug="forbidden", title="Only this machine is served", instance=path
            )
        if scope.get("method", "GET") in _READING:
            return None
        origin = headers.get("origin")
        if headers.get("sec-fetch-site") == "cross-site" or (
            origin is not None and origin.partition("://")[2].lower() != host.lower()
        ):
            detail = "this came from a page of another site; without ESCLUSA_API_TOKENS only pages of this server may act"
            return problem(
                403,
                detail,
                slug="forbidden",
                title="Another site's page may not act",
                instance=path,
            )
        return None


def _unauthorized(path: str, detail: str, challenge: str) -> Response:
    return problem(
        401,
        detail,
        slug="unauthorized",
        title="Who is calling?",
        instance=path,
        headers={"WWW-Authenticate": challenge},
    )


def _hostname(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def signed_routes(router: APIRouter) -> list[Route]:
    """The routes of a pipeline that check their callers themselves."""
    return [
        r
        for r in router.routes
        if isinstance(r, Route) and (getattr(r, "openapi_extra", None) or {}).get("security") == []
    ]

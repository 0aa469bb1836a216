"""Authentication by the application that Esclusa is mounted in: its users, its roles."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol, TypeAlias

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from esclusa.model.value import value
from esclusa.web.auth.middleware import OPEN_PATHS, SAFE_METHODS, declared_security, is_cross_site
from esclusa.web.auth.tokens import Role, read_only
from esclusa.web.problems import error_response, problem, unauthorized

# The key in the scope under which the host's own scope is passed on.
HOST_SCOPE: Final = "esclusa.host"


@value
class HostCaller:
    """A user of the host: the name in history and audit, and what they may do."""

    name: str
    role: Role = "read"


Answer: TypeAlias = HostCaller | Response | None
# Who makes a request. None: nobody is signed in. A response is sent instead, such as a redirect.
FindCaller: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]


class VisitedConsole(Protocol):
    """The console, as far as the authentication needs it."""

    def admit(self, scope: Scope, path: str, caller: HostCaller) -> Response | None:
        """Let a user of the host in; a response if they may not make this request."""


class HostAuthMiddleware:
    """Lets requests in for which ``caller`` finds somebody, with the role that it says.

    Routes that are open or check their callers themselves stay as they are. Requests that change
    something are refused if a page of another site made the browser send them.
    """

    def __init__(
        self, app: ASGIApp, caller: FindCaller, routes: Iterable[Route], console: VisitedConsole
    ) -> None:
        self._app = app
        self._caller = caller
        self._console = console
        self._open = [route for route in routes if declared_security(route) == []]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        host = scope.get(HOST_SCOPE, scope)
        scope["state"] = {**scope.get("state", {}), "who": "api"}
        refusal = await self._refusal(scope, host)
        await (refusal or self._app)(scope, receive, send)

    async def _refusal(self, scope: Scope, host: Scope) -> Response | None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path in OPEN_PATHS or any(r.matches(scope)[0] == Match.FULL for r in self._open):
            scope["state"]["open"] = True
            return None
        try:
            found = self._caller(Request(host))
            answer = await found if inspect.isawaitable(found) else found
        except HTTPException as error:
            return error_response(error, scope["path"])
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return unauthorized(scope["path"], "sign in to the application that this is part of")
        scope["state"] |= {"who": f"api:{answer.name}", "role": answer.role}
        read_only.set(answer.role == "read")
        changes, headers = scope.get("method", "GET") not in SAFE_METHODS, Headers(scope=scope)
        if changes and is_cross_site(headers) and "authorization" not in headers:
            return _forbidden(scope, "the request comes from a page of another site")
        if path in ("/", "/console") or path.startswith("/console/"):
            return self._console.admit(scope, path, answer)
        if changes and answer.role == "read":
            return _forbidden(scope, f"{answer.name} has the role read; this needs operate")
        return None


def _forbidden(scope: Scope, detail: str) -> Response:
    return problem(403, detail, slug="forbidden", instance=scope["path"])

"""What every page of the console needs: the visitor, the language, the menu, error pages."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.types import Scope

from esclusa.engine.operations import Operations
from esclusa.model.errors import EsclusaError, StoreUnavailable
from esclusa.model.system_records import Alert, DeadLetter
from esclusa.model.texts import text
from esclusa.runtime import Runtime
from esclusa.stores import without_password
from esclusa.web import problems
from esclusa.web.api.health import Readiness, within
from esclusa.web.auth.host import HostCaller
from esclusa.web.auth.tokens import FailedAttempts, Token, read_only
from esclusa.web.console import catalog, render, translate, zones
from esclusa.web.console.cache import AnswerCache, CountCache
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.extension import ConsoleExtension
from esclusa.web.console.forms import FormRefused, SubmittedForm, read_form
from esclusa.web.console.session import VISIT, EndedSessions, Sessions, Visitor

THEMES: Final = ("auto", "light", "dark")
# Paths to which a visitor with the role `read` may post.
READER_POSTS: Final = frozenset({"/console/preferences", "/console/sign-out"})
# The cookie with the message for the next page.
FLASH: Final = "esclusa_flash"
# Characters of that cookie; browsers drop a cookie of more than 4,096 bytes.
FLASH_LENGTH: Final = 3500
# Headers of every page. Without a referrer policy that sends the origin, forms would lack it.
HEADERS: Final = {"Content-Security-Policy": render.POLICY, "Referrer-Policy": "same-origin"}
# Numbers in the menu are counted up to here.
BADGE_CAP: Final = 1000
# Seconds that a page which only reads may take.
PAGE_TIMEOUT: Final = 20.0
_READING = frozenset({"GET", "HEAD"})


class ConsoleContext:
    """The shared parts of the console; one per server.

    It is also the console's ``SessionAuth``: it lets visitors in and sends others to sign in.
    """

    def __init__(
        self,
        runtime: Runtime,
        tokens: Sequence[Token],
        failed_attempts: FailedAttempts,
        *,
        form_key: bytes | None = None,
    ) -> None:
        self.runtime = runtime
        self.read_model = runtime.read_model
        self.tokens = tuple(tokens)
        self.readiness = Readiness(runtime)
        self.sessions = Sessions(tokens, form_key=form_key)
        engine = runtime.engine
        self._ended_sessions = EndedSessions(engine.records, engine.clock, engine.telemetry)
        self.failed_attempts = failed_attempts
        self.counts = CountCache(runtime.read_model, runtime.engine.telemetry)
        self.cache = AnswerCache(runtime.engine.telemetry)
        self.extensions: list[ConsoleExtension] = []
        for plan in self.read_model.pipelines():
            if plan.app.console_ is not None:
                self.extensions.append(ConsoleExtension(self, plan.name))
                plan.app.console_(self.extensions[-1])
        folders = [(e.pipeline, e.folder) for e in self.extensions if e.folder is not None]
        self.templates = render.environment(tuple((p, f / "templates") for p, f in folders))
        self.static_files = dict(_static_files([("", render.FOLDER), *folders]))
        languages = [catalog.FOLDER, *(folder / "languages" for _, folder in folders)]
        self._catalogs = {name: catalog.load(name, languages) for name in catalog.LANGUAGES}

    # sign-in

    async def authenticate(self, scope: Scope, path: str) -> Response | bool:
        """Whether this request comes from a visitor who may make it; see ``SessionAuth``."""
        console = path in ("/", "/console") or path.startswith("/console/")
        if not console and not self.sessions.needed:
            return False
        if path.startswith("/console/static/"):
            return True
        visitor = await self._signed_in(scope, console=console)
        if visitor is None:
            return self._signed_out(scope, path) if console else False
        reading = scope.get("method", "GET") in _READING
        if not console and not reading:
            return False  # a cookie alone must not act through the API
        return self._welcome(scope, path, visitor) or True

    def admit(self, scope: Scope, path: str, caller: HostCaller) -> Response | None:
        """Let a user of the application around this one in; a response if they may not."""
        nonce = cookie_parser(Headers(scope=scope).get("cookie", "")).get(VISIT, "")
        visitor = Visitor(caller.name, caller.role, nonce)
        return self._welcome(scope, path, visitor)

    def _welcome(self, scope: Scope, path: str, visitor: Visitor) -> Response | None:
        """Note who visits; a page that refuses if they may only read."""
        reading = scope.get("method", "GET") in _READING
        scope["state"] |= {"visitor": visitor, "who": visitor.who}
        read_only.set(visitor.role == "read")
        if visitor.role == "operate" or reading or path in READER_POSTS:
            return None
        request = Request(scope)
        self.prepare(request)
        refusal = (
            _("This token is read-only. Sign in with a token that may operate.")
            if self.sessions.needed
            else _("Your account may only read here.")
        )
        return self._error_page(request, 403, _("Read-only access"), refusal)

    async def _signed_in(self, scope: Scope, *, console: bool) -> Visitor | None:
        """The visitor, unless their session was ended.

        While the store does not answer, only pages are shown: they report the outage.
        """
        visitor = self.sessions.visitor(Headers(scope=scope).get("cookie", ""))
        if visitor is None or not self.sessions.needed:
            return visitor
        ended = await self._ended_sessions.has(visitor)
        return None if ended or (ended is None and not console) else visitor

    async def is_signed_in(self, request: Request) -> bool:
        """Whether the visitor of this request is signed in still."""
        return await self._signed_in(request.scope, console=True) is not None

    async def end_session(self, request: Request) -> None:
        """End the session of the visitor of this request, if there is one."""
        visitor = self.visitor(request)
        if visitor is not None and self.sessions.needed:
            await self._ended_sessions.add(visitor)

    def _signed_out(self, scope: Scope, path: str) -> Response | bool:
        """The answer to a request without a session; the sign-in page is open."""
        if path == "/console/sign-in":
            scope["state"]["open"] = True
            return True
        if path == "/console/live":
            return Response("signed out", 401)
        reading = scope.get("method") in _READING
        target = quote(requested_address(scope), safe="") if reading else ""
        return RedirectResponse(f"{scope.get('root_path', '')}/console/sign-in?next={target}", 303)

    def visitor(self, request: Request) -> Visitor | None:
        return cast("Visitor | None", getattr(request.state, "visitor", None))

    def operations(self, request: Request) -> Operations:
        """The operations, in the name of the visitor who makes this request."""
        return self.runtime.operations(str(request.state.who))

    # pages

    def prepare(self, request: Request) -> None:
        """Set the prefix, the time, the language and the zone of the page that is made now."""
        render.prefix.set(request.scope.get("root_path", ""))
        render.now.set(self.read_model.now())
        language = request.cookies.get("esclusa_language", "")
        if language not in self._catalogs:
            language = catalog.preferred(request.headers.get("accept-language", ""))
        catalog.current.set(self._catalogs[language])
        zones.current.set(zones.of_cookies(request.cookies))

    def render(
        self, request: Request, template: str, http_status: int = 200, **values: Any
    ) -> HTMLResponse:
        """A page in the visitor's language and theme. It does not ask the store."""
        visitor = self.visitor(request)
        nonce = visitor.nonce if visitor else ""
        # A visitor without a session gets a nonce of their own, for the forms of this page.
        new_nonce = (
            "" if nonce or (visitor is None and self.sessions.needed) else secrets.token_urlsafe(12)
        )
        theme = request.cookies.get("esclusa_theme", "auto")
        self.prepare(request)
        flash = unpack_flash(request.cookies.get(FLASH, ""))
        values = {
            "visitor": visitor,
            "may_act": visitor is not None and visitor.role == "operate",
            "sessions": self.sessions.needed,
            "form_token": self.sessions.form_token(nonce or new_nonce),
            "language": catalog.current.get().language,
            "is_utc": bool(request.cookies.get(zones.UTC_COOKIE)),
            "theme": theme if theme in THEMES else "auto",
            "now": render.now.get(),
            "store": _store_name(self.read_model.store_url),
            "static": self.static_url,
            "flash": flash,
            "query": request.url.query,
            "return_to": return_path(request),
            "badges": {},
            "here": "",
            **values,
        }
        response = HTMLResponse(
            self.templates.get_template(template).render(**values), http_status, HEADERS
        )
        if new_nonce:
            self.set_cookie(request, response, VISIT, new_nonce)
        if flash:
            response.delete_cookie(FLASH, path=render.prefix.get() or "/")
        return response

    async def page(
        self, request: Request, template: str, *, here: str, http_status: int = 200, **values: Any
    ) -> HTMLResponse:
        """A page with the numbers of its menu; ``here`` is the menu entry of the page."""
        return self.render(
            request, template, http_status, here=here, badges=await self.badges(), **values
        )

    def static_url(self, name: str) -> str:
        """The address of a static file: ``console.css``, or ``pipeline/name``."""
        version = render.file_version(self.static_files[name])
        return f"{render.prefix.get()}/console/static/{name}?v={version}"

    async def badges(self) -> dict[str, Any]:
        """How many dead letters, alerts and workers there are."""
        return await self.cache.get("badges", 2.0, self._badges)

    async def _badges(self) -> dict[str, Any]:
        count = self.read_model.count
        return {
            "dead_letters": await count(DeadLetter.kind.table, {"status": "open"}, cap=BADGE_CAP),
            "alerts": await count(Alert.kind.table, {"status": "raised"}, cap=BADGE_CAP),
            "workers": sum(w["alive"] for w in await self.read_model.workers()),
        }

    # forms

    async def form(self, request: Request) -> SubmittedForm:
        """The form that was sent; FormRefused if it was not made for this visitor."""
        form = await read_form(request)
        visitor = self.visitor(request)
        if visitor is None or not self.sessions.genuine(visitor.nonce, form.get("form_token")):
            raise FormRefused(
                403, _("This form has expired and nothing was changed. Reload the page and retry.")
            )
        return form

    def redirect(
        self,
        request: Request,
        to: str,
        message: str = "",
        *,
        kind: str = "good",
        details: Sequence[str] = (),
    ) -> Response:
        """Lead to another page after an action; the message is shown there."""
        response = RedirectResponse(to, 303)
        if message:
            self.set_cookie(request, response, FLASH, pack_flash(kind, message, details), 60)
        self.cache.clear()
        self.counts.clear()
        return response

    def set_cookie(
        self,
        request: Request,
        response: Response,
        name: str,
        value: str,
        age: int | None = None,
        *,
        readable: bool = False,
    ) -> None:
        """Set a cookie of the console; ``readable``: scripts of its pages may read it."""
        response.set_cookie(
            name,
            value,
            max_age=age,
            path=request.scope.get("root_path", "") or "/",
            httponly=not readable,
            samesite="lax",
            secure=request.url.scheme == "https",
        )

    # routes

    def router(self, prefix: str = "") -> APIRouter:
        """A router whose errors become pages."""
        return APIRouter(prefix=prefix, include_in_schema=False, route_class=self._route_class())

    def _route_class(self) -> type[APIRoute]:
        console = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                handle = super().get_route_handler()

                async def answer(request: Request) -> Response:
                    console.prepare(request)
                    try:
                        if request.method in _READING:
                            return await console._in_time(handle(request))
                        return await handle(request)
                    except (EsclusaError, RequestValidationError, HTTPException) as error:
                        return console.error_page(request, error)
                    except ClientDisconnect:
                        raise
                    except Exception as error:  # noqa: BLE001 - logged, and shown as a page
                        console.runtime.engine.telemetry.event(
                            "error",
                            f"console: {type(error).__name__}: {error}",
                            path=request.url.path,
                            exc_info=error,
                        )
                        return console.error_page(request, error)

                return answer

        return PageRoute

    async def _in_time(self, page: Coroutine[Any, Any, Response]) -> Response:
        """The page; StoreUnavailable if the store neither answers nor refuses in time."""
        try:
            return await within(PAGE_TIMEOUT, page)
        except TimeoutError:
            raise StoreUnavailable(
                text(
                    "store_unavailable",
                    store=without_password(self.read_model.store_url),
                    why=text("check_timeout", seconds=PAGE_TIMEOUT),
                )
            ) from None

    def error_page(self, request: Request, error: Exception) -> Response:
        """The page for an error: the same problem that the API would answer, in words."""
        problem = problems.error_response(error, request.url.path)
        body = json.loads(bytes(problem.body))
        detail = translate.problem(error, body)
        retry_after = problem.headers.get("retry-after", "")
        path = render.prefix.get() + requested_path(request.scope).removesuffix("/act")
        filtered = request.method in _READING and bool(request.url.query)
        return self._error_page(
            request,
            problem.status_code,
            _("Not done") if isinstance(error, FormRefused) else _(body["title"]),
            detail,
            store_away=isinstance(error, StoreUnavailable),
            retry_after=int(retry_after) if retry_after.isdigit() else None,
            unfiltered=path if filtered and problem.status_code in (400, 422) else None,
        )

    def _error_page(
        self,
        request: Request,
        status: int,
        title: str,
        detail: str,
        *,
        store_away: bool = False,
        retry_after: int | None = None,
        unfiltered: str | None = None,
    ) -> Response:
        """``unfiltered`` is the address of the same page without its filter."""
        return self.render(
            request,
            "error.html",
            status,
            code=status,
            title=title,
            detail=detail,
            store_away=store_away,
            retry_after=retry_after,
            unfiltered=unfiltered,
            form=None if request.method in _READING else render.prefix.get() + return_path(request),
            badges=self.cache.peek("badges", {}),
        )


def _static_files(folders: Sequence[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """Each static file by its name; those of a pipeline as ``pipeline/name``."""
    for pipeline, folder in folders:
        for file in folder.glob("static/*"):
            if file.suffix in render.MEDIA_TYPES:
                yield f"{pipeline}/{file.name}" if pipeline else file.name, file


def _store_name(url: str) -> str:
    """The store as the menu shows it: for SQLite, the file's name is enough."""
    name = url.rsplit("/", 1)[-1]
    return f"sqlite · {name}" if url.startswith("sqlite") else without_password(url)


def pack_flash(kind: str, message: str, details: Sequence[str]) -> str:
    """The message for the next page as a cookie, with as many details as fit."""
    texts = [render.short(detail, 200) for detail in details[:8]]
    while True:
        content = {"kind": kind, "text": render.short(message, 400), "details": texts}
        packed = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        cookie = base64.urlsafe_b64encode(packed).decode()
        if len(cookie) <= FLASH_LENGTH or not texts:
            return cookie
        texts.pop()


def unpack_flash(cookie: str) -> dict[str, Any] | None:
    """What ``pack_flash`` packed; None if the cookie is empty or malformed."""
    try:
        content = json.loads(base64.urlsafe_b64decode(cookie))
        return {
            "kind": str(content["kind"]),
            "text": str(content["text"]),
            "details": [str(detail) for detail in content["details"]],
        }
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None


def requested_path(scope: Scope) -> str:
    """The requested path, still escaped: an id may contain a slash or a percent sign."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0].decode("ascii", "replace")
    return path.removeprefix(scope.get("root_path", "")) or "/"


def requested_address(scope: Scope) -> str:
    """The requested path with its query."""
    query = scope.get("query_string", b"").decode("ascii", "replace")
    return requested_path(scope) + (f"?{query}" if query else "")


def return_path(request: Request) -> str:
    """The page to return to after a switch of language or theme.

    For a sent form it is the page that holds the form, because its target takes only POST.
    """
    if request.method in _READING:
        return requested_address(request.scope)
    return getattr(request.state, "page", "/")

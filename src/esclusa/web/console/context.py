"""The console's desk: what every page needs — who looks, in which language, what calls for attention — and its porter."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Scope

from esclusa.engine.outlook import Outlook
from esclusa.model.errors import EsclusaError, StoreUnavailable
from esclusa.model.query import query
from esclusa.model.system_records import Alert, DeadLetter
from esclusa.observability import redact
from esclusa.runtime import Runtime
from esclusa.settings import shown as without_password
from esclusa.web import problems
from esclusa.web.api.health import Readiness
from esclusa.web.auth.failed_attempts import FailedAttempts
from esclusa.web.auth.tokens import Token, read_only
from esclusa.web.console import catalog, render, translate
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.counts import Counts
from esclusa.web.console.session import VISIT, Sessions, Visitor
from esclusa.web.deadline import within

T = TypeVar("T")
THEMES: Final = ("auto", "light", "dark")
ALWAYS: Final = frozenset({"/console/preferences", "/console/sign-out"})
"""What a visitor may post who may only read."""
FLASH: Final = "esclusa_flash"
LONGEST: Final = 3500
"""Letters of that cookie; a browser drops one that has more than 4,096."""
HEADERS: Final = {"Content-Security-Policy": render.POLICY, "Referrer-Policy": "same-origin"}
"""Of every page. A page that sends no referrer would send its forms without their origin."""
STALE: Final = 20.0
"""Seconds past its time for which an answer is still better than waiting."""
PATIENCE: Final = 20.0
"""Seconds that a page has to be made."""
MANY: Final = 1000
_READING = frozenset({"GET", "HEAD"})


class Refused(HTTPException):
    """A form that is not answered, and why."""


class Form:
    """A form that came back, and is genuine."""

    def __init__(self, items: list[tuple[str, str]]) -> None:
        self.items = items

    def get(self, name: str, default: str = "") -> str:
        return next((value for key, value in self.items if key == name), default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.items if key == name]

    @property
    def reason(self) -> str:
        """Why the operator acts: it is kept, so it must be said."""
        said = self.get("reason").strip()
        if not said:
            raise Refused(422, _("Say why: the reason is kept in the history and the audit."))
        return said[:1000]

    @property
    def seen(self) -> int:
        """How many the preview said there were; none of them if it does not say."""
        said = self.get("matched")
        return int(said) if said.isdecimal() and len(said) < 16 else 0


class Desk:
    """One per server."""

    def __init__(
        self, runtime: Runtime, tokens: Sequence[Token], failed_attempts: FailedAttempts
    ) -> None:
        self.runtime = runtime
        self.read_model = runtime.read_model
        self.outlook = Outlook(runtime.engine, redact.secret_name, redact.text)
        self.tokens = tuple(tokens)
        self.readiness = Readiness(runtime)
        self.sessions = Sessions(tokens)
        self.failed_attempts = failed_attempts
        self.counts = Counts(runtime.store, runtime.engine.telemetry)
        self._kept: dict[str, tuple[float, Any]] = {}
        self._making: dict[str, asyncio.Task[Any]] = {}
        self._acts = 0

    # the porter

    def authenticate(self, scope: Scope, path: str) -> Response | bool:
        headers = Headers(scope=scope)
        ours = path in ("/", "/console") or path.startswith("/console/")
        visitor = self.sessions.visitor(headers.get("cookie", ""))
        if not ours and not self.sessions.needed:
            return False
        if visitor is None:
            return self._stranger(scope, path) if ours else False
        reading = scope.get("method", "GET") in _READING
        if not ours and not reading:
            return False  # the API is called with a token; a cookie alone must not act there
        scope["state"] |= {"visitor": visitor, "who": visitor.who}
        read_only.set(visitor.role == "read")
        if visitor.role == "read" and not reading and path not in ALWAYS:
            self.settle_in(Request(scope))
            detail = _("This token has the role read; sign in with one that may operate.")
            return self._told_wrong(Request(scope), 403, _("You may look, not act."), detail)
        return True

    def _stranger(self, scope: Scope, path: str) -> Response | bool:
        if path.startswith("/console/static/") or path == "/console/sign-in":
            return True
        if path == "/console/live":
            return Response("signed out", 401)
        place = scope.get("root_path", "")
        back = quote(
            asked(scope)
            + (
                f"?{scope['query_string'].decode('ascii', 'replace')}"
                if scope.get("query_string")
                else ""
            ),
            safe="",
        )
        return RedirectResponse(
            f"{place}/console/sign-in?next={back if scope.get('method') in _READING else ''}", 303
        )

    # pages

    def answer(
        self, request: Request, template: str, http: int = 200, **values: Any
    ) -> HTMLResponse:
        """A page, in the visitor's language and theme."""
        visitor = self.visitor(request)
        nonce = visitor.nonce if visitor else ""
        fresh = (
            "" if nonce or (visitor is None and self.sessions.needed) else secrets.token_urlsafe(12)
        )
        theme = request.cookies.get("esclusa_theme", "auto")
        self.settle_in(request)
        flash = _unpacked(request.cookies.get(FLASH, ""))
        values = {
            "visitor": visitor, "may_act": visitor is not None and visitor.role == "operate", "language": catalog.language.get(),
            "theme": theme if theme in THEMES else "auto", "form_token": self.sessions.form_token(nonce or fresh), "flash": flash,
            "again": page_of(request), "query": request.url.query, "sessions": self.sessions.needed,
            "store": _place(self.runtime.store.url), "badges": {}, "now": render.moment.get(), "here": "", **values,
        }  # fmt: skip
        response = HTMLResponse(render.page(template, **values), http, HEADERS)
        if fresh:
            self.set_cookie(request, response, VISIT, fresh)
        if flash:
            response.delete_cookie(FLASH, path=render.place.get() or "/")
        return response

    def settle_in(self, request: Request) -> None:
        """Where the page is, when, and in which language."""
        render.place.set(request.scope.get("root_path", ""))
        render.moment.set(self.runtime.engine.clock.now())
        chosen = request.cookies.get("esclusa_language", "")
        catalog.language.set(
            chosen
            if chosen in catalog.LANGUAGES
            else catalog.preferred(request.headers.get("accept-language", ""))
        )

    async def page(
        self, request: Request, template: str, *, here: str, http: int = 200, **values: Any
    ) -> HTMLResponse:
        """A page with its frame: what calls for attention is told in the menu."""
        return self.answer(request, template, http, here=here, badges=await self.badges(), **values)

    async def badges(self) -> dict[str, Any]:
        """How much of what calls for attention there is."""
        return await self.kept("badges", 2.0, self._badges)

    def badges_known(self) -> dict[str, Any]:
        """The same as far as it is known, for a page that does without the store."""
        known: dict[str, Any] = self._kept.get("badges", (0.0, {}))[1]
        return known

    async def _badges(self) -> dict[str, Any]:
        letters = await self.runtime.store.count(query(DeadLetter, {"status": "open"}), 1000)
        alerts = await self.runtime.store.count(query(Alert, {"status": "raised"}), 1000)
        workers = [w for w in await self.read_model.workers() if w["alive"]]
        return {"dead_letters": letters, "alerts": alerts, "workers": len(workers)}

    async def kept(self, name: str, seconds: float, make: Callable[[], Awaitable[T]]) -> T:
        """What was made lately, or made anew. A dear answer is kept longer, and for a while the old one is given while the new
        one is being made."""
        until, value = self._kept.get(name, (0.0, None))
        late = time.monotonic() - until
        if late < 0:
            return value  # type: ignore[no-any-return]
        if until and late < STALE:
            if name not in self._making:
                self._making[name] = asyncio.create_task(self._make(name, seconds, make))
                self._making[name].add_done_callback(lambda done: self._made(name, done))
            return value  # type: ignore[no-any-return]
        return await self._make(name, seconds, make)

    async def _make(self, name: str, seconds: float, make: Callable[[], Awaitable[T]]) -> T:
        begun, acts = time.monotonic(), self._acts
        made = await make()
        if acts == self._acts:  # nobody acted meanwhile
            if len(self._kept) > MANY:
                self._kept.clear()
            self._kept[name] = (
                time.monotonic() + max(seconds, (time.monotonic() - begun) * 20),
                made,
            )
        return made

    def _made(self, name: str, done: asyncio.Task[Any]) -> None:
        self._making.pop(name, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            self._kept.pop(name, None)  # whoever asks next is told
            self.runtime.engine.telemetry.event(
                "warning", f"console: {name}: {type(error).__name__}: {error}"
            )

    def forget(self) -> None:
        """After an act, pages show what is, not what was."""
        self._acts += 1
        self._kept.clear()
        self.counts.forget()

    def visitor(self, request: Request) -> Visitor | None:
        found = getattr(request.state, "visitor", None)
        return found if isinstance(found, Visitor) else None

    def go(
        self,
        request: Request,
        to: str,
        said: str = "",
        *,
        kind: str = "good",
        details: Sequence[str] = (),
    ) -> Response:
        """On to another page, with something to tell there."""
        response = RedirectResponse(to, 303)
        if said:
            self.set_cookie(request, response, FLASH, _packed(kind, said, details), lasts=60)
        self.forget()
        return response

    def set_cookie(
        self, request: Request, response: Response, name: str, value: str, lasts: int | None = None
    ) -> None:
        place = request.scope.get("root_path", "") or "/"
        secure = request.url.scheme == "https"
        response.set_cookie(
            name, value, max_age=lasts, path=place, httponly=True, samesite="lax", secure=secure
        )

    async def form(self, request: Request) -> Form:
        """The form that was sent; Refused if it is not one that this visitor was given."""
        form = await read_form(request)
        visitor = self.visitor(request)
        if visitor is None or not self.sessions.genuine(visitor.nonce, form.get("form_token")):
            raise Refused(
                403,
                _(
                    "This form is no longer valid. Go back, load the page again and send it once more; nothing was done."
                ),
            )
        return form

    def route(self) -> type[APIRoute]:
        """The route class of the console: what goes wrong is told on a page."""
        desk = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                handle = super().get_route_handler()

                async def guarded(request: Request) -> Response:
                    desk.settle_in(request)
                    try:
                        return await (
                            desk.in_time(handle(request))
                            if request.method in _READING
                            else handle(request)
                        )
                    except (EsclusaError, RequestValidationError, HTTPException) as error:
                        return desk.wrong(request, error)
                    except Exception as error:  # noqa: BLE001 - told in the log, and on a page
                        telemetry = desk.runtime.engine.telemetry
                        telemetry.event(
                            "error",
                            f"console: {type(error).__name__}: {error}",
                            path=request.url.path,
                            exc_info=error,
                        )
                        return desk.wrong(request, error)

                return guarded

        return PageRoute

    async def in_time(self, page: Coroutine[Any, Any, Response]) -> Response:
        """A page that only reads; StoreUnavailable if the store neither answers nor refuses."""
        try:
            return await within(PATIENCE, page)
        except TimeoutError as error:
            raise StoreUnavailable(f"{without_password(self.runtime.store.url)}: {error}") from None

    def wrong(self, request: Request, error: Exception) -> Response:
        """The page that an error is."""
        said = problems.error_response(error, request.url.path)
        body = json.loads(bytes(said.body))
        title = body["title"] if not isinstance(error, Refused) else _("This was not done")
        reading, again = request.method in _READING, said.headers.get("retry-after", "")
        bare = reading and request.url.query and said.status_code in (400, 422)
        more: dict[str, Any] = {
            "away": isinstance(error, StoreUnavailable), "wait": int(again) if again.isdigit() else None,
            "bare": render.place.get() + asked(request.scope).removesuffix("/act") if bare else None,
        }  # fmt: skip
        return self._told_wrong(
            request, said.status_code, _(title), translate.told(body["detail"]), **more
        )

    def _told_wrong(
        self,
        request: Request,
        status: int,
        title: str,
        detail: str,
        *,
        away: bool = False,
        wait: int | None = None,
        bare: str | None = None,
    ) -> Response:
        """``away``: the store does not answer. ``wait``: seconds after which it is worth trying again. ``bare``: the same without
        what was asked too much."""
        values: dict[str, Any] = {
            "code": status, "title": title, "detail": detail, "away": away, "wait": wait, "bare": bare,
            "form": None if request.method in _READING else render.place.get() + page_of(request), "badges": self.badges_known(),
        }  # fmt: skip
        return self.answer(request, "error.html", status, **values)


async def read_form(request: Request) -> Form:
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Refused(415, _("A form comes as application/x-www-form-urlencoded."))
    try:
        items = parse_qsl(
            (await request.body()).decode(), keep_blank_values=True, max_num_fields=5000
        )
    except ValueError:
        raise Refused(400, _("This form cannot be read.")) from None
    form = Form(items)
    request.state.page = local(form.get("next"))
    if any("\0" in part for item in items for part in item):
        raise Refused(400, _("This form cannot be read."))  # no store keeps a null character
    return form


def _place(url: str) -> str:
    """The store in a few words: a file's name is enough."""
    return (
        f"sqlite · {url.rsplit('/', 1)[-1]}" if url.startswith("sqlite") else without_password(url)
    )


def _packed(kind: str, said: str, details: Sequence[str]) -> str:
    """What the next page tells, as a cookie: as many of the details as it has room for."""
    told = {
        "kind": kind,
        "text": render.short(said, 400),
        "details": [render.short(detail, 200) for detail in details[:8]],
    }
    while True:
        packed = base64.urlsafe_b64encode(
            json.dumps(told, ensure_ascii=False).encode("utf-8", "replace")
        ).decode()
        if len(packed) <= LONGEST or not told["details"]:
            return packed
        told["details"] = told["details"][:-1]


def _unpacked(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        said = json.loads(base64.urlsafe_b64decode(text))
        return {
            "kind": str(said["kind"]),
            "text": str(said["text"]),
            "details": [str(d) for d in said["details"]],
        }
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None


def asked(scope: Scope) -> str:
    """The path that was asked for, escaped as it came: an id may hold a slash or a percent sign."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return (
        raw.partition(b"?")[0].decode("ascii", "replace").removeprefix(scope.get("root_path", ""))
        or "/"
    )


def page_of(request: Request) -> str:
    """The page to come back to after a switch of language or theme: the one that was asked for; where a form was sent, the page
    that has it, for what a form is sent to cannot be asked for."""
    if request.method in _READING:
        return asked(request.scope) + (f"?{request.url.query}" if request.url.query else "")
    return getattr(request.state, "page", "/")


def local(path: str) -> str:
    """A path of ours to go back to, or the map: never another site."""
    return (
        path
        if path.startswith("/")
        and not path.startswith(("//", "/\\"))
        and "\n" not in path
        and "\r" not in path
        else "/"
    )

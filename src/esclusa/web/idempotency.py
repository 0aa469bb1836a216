"""Idempotency-Key: a mutating call that is sent again is answered again, and does not act again."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from esclusa.engine.idempotency import Answer, Idempotency
from esclusa.model.errors import EsclusaError
from esclusa.web.problems import of_error, problem

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_KEY = re.compile(r"[\x21-\x7e]{1,200}\Z")

KEY_PARAMETER: Final[dict[str, Any]] = {
    "name": "Idempotency-Key", "in": "header", "required": False,
    "description": "The same key with the same path and body is answered as the first time, without acting again. Kept for two days; "
    "conflicts (409), too many calls (429) and server faults (5xx) are not kept.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[\\x21-\\x7e]{1,200}$"},
}  # fmt: skip


class IdempotencyMiddleware:
    """The middleware. What was answered is kept, but for what may turn out otherwise next time: a conflict (409), too many calls
    (429) and our own faults (5xx). A key belongs to its caller, path and body.

    Signed webhooks and the console's forms pass: they have ways of their own to be heard once.
    """

    def __init__(self, app: ASGIApp, calls: Idempotency) -> None:
        self._app = app
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = (
            Headers(scope=scope).get("idempotency-key")
            if scope["type"] == "http" and scope["method"] not in READING
            else None
        )
        state = scope.get("state", {})
        if key is None or "visitor" in state or "open" in state:
            await self._app(scope, receive, send)
            return
        if not _KEY.match(key):
            refused = problem(
                400,
                "an Idempotency-Key has 1 to 200 visible ASCII characters, without spaces",
                slug="bad-key",
                instance=scope["path"],
            )
            await refused(scope, receive, send)
            return
        try:
            await self._once(key, scope, receive, send)
        except (
            EsclusaError,
            HTTPException,
        ) as error:  # of the key or the body; what the route says it has answered itself
            await of_error(error, scope["path"])(scope, receive, send)

    async def _once(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read(receive)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        said = (
            f"{scope['method']} {path}?{scope['query_string'].decode('latin-1')}\n".encode(
                "utf-8", "surrogatepass"
            )
            + body
        )

        kept = _Kept(body, receive)

        async def act() -> Answer:
            await self._app(scope, kept.receive, kept.send)
            return kept.answer()

        answer = await self._calls.once(
            scope["state"]["who"], key, hashlib.sha256(said).hexdigest(), act, final=_final
        )
        if answer.again:
            again = Response(
                answer.body, answer.code, {"Idempotent-Replay": "true"}, answer.media_type or None
            )
            await again(scope, receive, send)
        for message in kept.sent:
            await send(message)


class _Kept:
    """One call of the app: its body given again, what it sends kept."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def answer(self) -> Answer:
        start = self.sent[0]
        body = b"".join(message.get("body", b"") for message in self.sent[1:])
        media_type = Headers(raw=start["headers"]).get("content-type", "")
        return Answer(start["status"], body.decode("utf-8", "replace"), media_type)


async def _read(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _final(answer: Answer) -> bool:
    return answer.code < 500 and answer.code not in (409, 429)

"""``Idempotency-Key``: a repeated call gets the first answer and does not take effect again."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from esclusa.engine.idempotency import Answer, Idempotency
from esclusa.model.errors import EsclusaError
from esclusa.web.problems import error_response, problem

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}\Z")

KEY_PARAMETER: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": (
        "A repeated call with the same key, path and body gets the first answer and does not take"
        " effect again. Answers are kept for two days, except conflicts (409), too many requests"
        " (429) and server errors (5xx)."
    ),
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": 200,
        "pattern": "^[\\x21-\\x7e]{1,200}$",
    },
}


class IdempotencyMiddleware:
    """Stores the answer to a call with a key, and replays it when the call is repeated.

    A key belongs to its caller, path and body. Conflicts (409), too many requests (429) and server
    errors (5xx) are not stored, because a repeated call may succeed. Self-authenticated webhooks
    and the console's forms are passed on: they detect repetition themselves.
    """

    def __init__(self, app: ASGIApp, idempotency: Idempotency) -> None:
        self._app = app
        self._idempotency = idempotency

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = (
            Headers(scope=scope).get("idempotency-key")
            if scope["type"] == "http" and scope["method"] not in _SAFE_METHODS
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
            await self._call(key, scope, receive, send)
        except (EsclusaError, HTTPException) as error:  # of the key or the body, not of the route
            await error_response(error, scope["path"])(scope, receive, send)

    async def _call(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        head = f"{scope['method']} {path}?{scope['query_string'].decode('latin-1')}\n"
        digest = hashlib.sha256(head.encode("utf-8", "surrogatepass") + body).hexdigest()
        recorder = _Recorder(body, receive)

        async def act() -> Answer:
            await self._app(scope, recorder.receive, recorder.send)
            return recorder.answer()

        answer = await self._idempotency.once(
            scope["state"]["who"],
            key,
            digest,
            act,
            final=lambda answer: answer.code < 500 and answer.code not in (409, 429),
        )
        if answer.again:
            replay = Response(
                answer.body, answer.code, {"Idempotent-Replay": "true"}, answer.media_type or None
            )
            await replay(scope, receive, send)
        for message in recorder.sent:
            await send(message)


class _Recorder:
    """Passes a body that was read already to the app, and keeps what the app sends."""

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
        return Answer(
            start["status"],
            body.decode("utf-8", "replace"),
            Headers(raw=start["headers"]).get("content-type", ""),
        )

"""Expo's push service: tickets, receipts, its errors, and a count of messages by device and tender.

Control routes besides those of every simulator:

- ``POST /_devices`` ``{"token": {…}}``, for each token: ``project``, ``ticket`` (the error of its
  ticket), ``receipt`` (the error of its receipt), ``times`` (how often, then it succeeds),
  ``silent`` (never a receipt).
- ``POST /_state``: ``token`` (the required access token), ``receipt_after`` (seconds until a
  receipt exists), ``rate`` (messages in any second before it answers 429).
- ``GET /_counts``: how often each ``token codigo_externo`` was accepted. ``GET /_state``: totals,
  and ``refused``: the times of the answers 429, in seconds since the first request.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import Counter, deque
from typing import Any

from aiohttp import web

from esclusa.simulators.base import Simulator

SEND = "/--/api/v2/push/send"
RECEIPTS = "/--/api/v2/push/getReceipts"
MAX_PAYLOAD = 4096
# Messages of other types are counted apart.
FIRST_TYPE = "new_licitacion"
# The members of a message.
MEMBERS = frozenset(
    (
        *("to", "data", "title", "subtitle", "body", "sound", "ttl", "expiration", "priority"),
        *("interruptionLevel", "badge", "channelId", "icon", "richContent", "categoryId"),
        *("mutableContent", "collapseId", "tag", "_contentAvailable"),
    )
)
_TOKEN = re.compile(r"Expo(nent)?PushToken\[.+\]\Z|\w{8}(-\w{4}){3}-\w{12}\Z")


class ExpoSimulator(Simulator):
    """Expo's ``send`` and ``getReceipts`` calls."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(SEND, self._send),
            web.post(RECEIPTS, self._receipts),
            web.post("/_devices", self._devices),
            web.get("/_counts", self._counted),
            web.route("*", "/_state", self._state),
        ]

    def reset(self) -> None:
        super().reset()
        self.token: str | None = None
        self.receipt_after, self.rate = 0.0, 0
        self.devices: dict[str, dict[str, Any]] = {}
        self.messages: Counter[str] = Counter()
        self.accepted, self.twice = 0, 0
        self.sent: dict[str, tuple[str, float]] = {}
        self.texts: dict[str, dict[str, Any]] = {}
        self.largest = {"send": 0, "receipts": 0}
        self.gzipped = 0
        self.refused: list[float] = []
        self._began, self._recent = 0.0, deque[tuple[float, int]]()

    def _device_error(self, token: str, kind: str) -> str | None:
        """The error that this device shall give, if any is left."""
        device = self.devices.get(token, {})
        code = device.get(kind)
        if code is None or device.get("times") == 0:
            return None
        if "times" in device:
            device["times"] -= 1
        return str(code)

    def _refused(self, request: web.Request) -> web.Response | None:
        if (
            self.token is not None
            and request.headers.get("Authorization") != f"Bearer {self.token}"
        ):
            return _error(401, "UNAUTHORIZED", "The request needs a valid access token.")
        return None

    async def _send(self, request: web.Request) -> web.Response:
        if (refused := self._refused(request)) is not None:
            return refused
        self.gzipped += request.headers.get("Content-Encoding") == "gzip"
        body = await request.json()
        messages = body if isinstance(body, list) else [body]
        self.largest["send"] = max(self.largest["send"], len(messages))
        if len(messages) > 100:
            return _error(
                400, "PUSH_TOO_MANY_NOTIFICATIONS", "At most 100 notifications in one request."
            )
        for message in messages:
            if (fault := _message_fault(message)) is not None:
                return _error(400, "VALIDATION_ERROR", fault)
        projects: dict[str, list[str]] = {}
        for message in messages:
            projects.setdefault(
                self.devices.get(message["to"], {}).get("project", "@pruebas/licitaciones"), []
            ).append(message["to"])
        if len(projects) > 1:
            return _error(
                400,
                "PUSH_TOO_MANY_EXPERIENCE_IDS",
                "All tokens must belong to one project.",
                details=projects,
            )
        if self._too_fast(len(messages)):
            text = f"Exceeded {self.rate} notifications per second, please try again."
            return _error(429, "TOO_MANY_REQUESTS", text, headers={"Retry-After": "1"})
        tickets = [self._ticket(message) for message in messages]
        return web.json_response({"data": tickets if isinstance(body, list) else tickets[0]})

    def _too_fast(self, count: int) -> bool:
        """Whether these messages are more than the rate allows in the second before them."""
        now = time.monotonic()
        self._began = self._began or now
        while self._recent and self._recent[0][0] <= now - 1.0:
            self._recent.popleft()
        used = sum(sent for _, sent in self._recent)
        if self.rate and used and used + count > self.rate:
            self.refused.append(round(now - self._began, 3))
            return True
        self._recent.append((now, count))
        return False

    def _ticket(self, message: dict[str, Any]) -> dict[str, Any]:
        token = message["to"]
        if (code := self._device_error(token, "ticket")) is not None:
            details = {"error": code} | (
                {"expoPushToken": token} if code == "DeviceNotRegistered" else {}
            )
            return {"status": "error", "message": f'"{token}" failed: {code}', "details": details}
        if len(json.dumps(message, ensure_ascii=False).encode()) > MAX_PAYLOAD:
            details = {"error": "MessageTooBig"}
            return {"status": "error", "message": "The message is too big", "details": details}
        id = str(uuid.uuid4())
        data = message.get("data", {})
        key = f"{token} {data.get('codigo_externo', '')}"
        if data.get("type", FIRST_TYPE) != FIRST_TYPE:
            key += f" {data['type']}"
        self.accepted += 1
        self.twice += key in self.messages
        self.messages[key] += 1
        self.sent[id] = (token, time.monotonic())
        self.texts[token] = message
        return {"status": "ok", "id": id}

    async def _receipts(self, request: web.Request) -> web.Response:
        if (refused := self._refused(request)) is not None:
            return refused
        ids = (await request.json()).get("ids", [])
        self.largest["receipts"] = max(self.largest["receipts"], len(ids))
        if len(ids) > 1000:
            return _error(400, "PUSH_TOO_MANY_RECEIPTS", "At most 1000 receipts in one request.")
        found: dict[str, Any] = {}
        for id in ids:
            token, at = self.sent.get(id, ("", 0.0))
            if (
                not token
                or self.devices.get(token, {}).get("silent")
                or time.monotonic() - at < self.receipt_after
            ):
                continue
            found[id] = self._receipt(token)
        return web.json_response({"data": found})

    def _receipt(self, token: str) -> dict[str, Any]:
        code = self._device_error(token, "receipt")
        if code is None:
            return {"status": "ok"}
        if code.startswith("fcm:"):  # an error of the device's own service
            details: dict[str, Any] = {
                "error": "ProviderError",
                "fault": "fcm",
                "fcm": {"error": code.removeprefix("fcm:")},
            }
        else:
            details = {"error": code}
        return {
            "status": "error",
            "message": f"the device's service answered {code}",
            "details": details,
        }

    async def _devices(self, request: web.Request) -> web.Response:
        self.devices |= await request.json()
        return web.json_response({"devices": len(self.devices)})

    async def _counted(self, request: web.Request) -> web.Response:
        return web.json_response(dict(self.messages))

    async def _state(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            body = await request.json()
            self.token = body.get("token", self.token)
            self.receipt_after, self.rate = (
                body.get("receipt_after", self.receipt_after),
                body.get("rate", self.rate),
            )
        return web.json_response(
            {
                "pairs": len(self.messages),
                "accepted": self.accepted,
                "twice": self.twice,
                "largest": self.largest,
                "gzipped": self.gzipped,
                "refused": self.refused,
            }
        )


def _message_fault(message: Any) -> str | None:
    """What is wrong with a message, or None."""
    if not isinstance(message, dict):
        return "A message must be an object."
    if not isinstance(message.get("to"), str) or not _TOKEN.match(message["to"]):
        return '"to" must be a push token.'
    if unknown := [name for name in message if name not in MEMBERS]:
        return f'"{unknown[0]}" is not allowed.'
    if not isinstance(message.get("data", {}), dict):
        return '"data" must be an object.'
    if not isinstance(message.get("ttl", 0), int) or message.get("ttl", 0) < 0:
        return '"ttl" must be a number of seconds.'
    return None


def _error(
    status: int,
    code: str,
    message: str,
    *,
    details: Any = None,
    headers: dict[str, str] | None = None,
) -> web.Response:
    error = {"code": code, "message": message} | (
        {"details": details} if details is not None else {}
    )
    return web.json_response({"errors": [error]}, status=status, headers=headers)

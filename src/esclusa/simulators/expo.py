"""Expo's push service: tickets, receipts, its errors, and a count of messages by device and tender.

Control routes besides those of every simulator:

- ``POST /_devices`` ``{"token": {…}}``, for each token: ``project``, ``ticket`` (the error of its
  ticket), ``receipt`` (the error of its receipt), ``times`` (how often, then it succeeds),
  ``silent`` (never a receipt).
- ``POST /_state``: ``token`` (the required access token), ``receipt_after`` (seconds until a
  receipt exists), ``rate`` (messages a second before it answers 429).
- ``GET /_counts``: how often each ``token codigo_externo`` was accepted. ``GET /_state``: totals.
"""

from __future__ import annotations

import re
import time
import uuid
from collections import Counter
from typing import Any

from aiohttp import web

from esclusa.simulators.base import Simulator

SEND = "/--/api/v2/push/send"
RECEIPTS = "/--/api/v2/push/getReceipts"
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
        self.sent: dict[str, tuple[str, float]] = {}
        self.texts: dict[str, dict[str, Any]] = {}
        self.largest = {"send": 0, "receipts": 0}
        self._second, self._in_second = 0, 0

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
        body = await request.json()
        messages = body if isinstance(body, list) else [body]
        self.largest["send"] = max(self.largest["send"], len(messages))
        if len(messages) > 100:
            return _error(
                400, "PUSH_TOO_MANY_NOTIFICATIONS", "At most 100 notifications in one request."
            )
        if not all(
            isinstance(m, dict) and isinstance(m.get("to"), str) and _TOKEN.match(m["to"])
            for m in messages
        ):
            return _error(400, "VALIDATION_ERROR", '"to" must be a push token.')
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
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
        if self.rate and self._in_second + count > max(
            self.rate, count if self._in_second == 0 else 0
        ):
            return True
        self._in_second += count
        return False

    def _ticket(self, message: dict[str, Any]) -> dict[str, Any]:
        token = message["to"]
        if (code := self._device_error(token, "ticket")) is not None:
            details = {"error": code} | (
                {"expoPushToken": token} if code == "DeviceNotRegistered" else {}
            )
            return {"status": "error", "message": f'"{token}" failed: {code}', "details": details}
        id = str(uuid.uuid4())
        self.messages[f"{token} {message.get('data', {}).get('codigo_externo', '')}"] += 1
        self.sent[id] = (token, time.monotonic())
        self.texts[token] = {name: message.get(name) for name in ("title", "body", "data")}
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
                "accepted": self.messages.total(),
                "twice": sum(count - 1 for count in self.messages.values()),
                "largest": self.largest,
            }
        )


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

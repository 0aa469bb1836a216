"""Expo's push service: tickets, receipts, and what each of its errors means for a delivery."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from esclusa import Failure, Text
from esclusa.http import retry_after
from esclusa.pipelines.tenders.http_body import parse_json, read_text
from esclusa.pipelines.tenders.settings import TendersSettings

if TYPE_CHECKING:
    import aiohttp

SEND = "/--/api/v2/push/send"
RECEIPTS = "/--/api/v2/push/getReceipts"
MAX_MESSAGES = 100
MAX_RECEIPTS = 1000
# Seconds; a longer Retry-After is cut to this.
MAX_RETRY_AFTER = 86_400.0

# Bodies are compressed from this size on, as Expo's own client does.
GZIP_BYTES = 1024

RefusalKind = Literal["unregistered", "throttled", "limited", "transient", "final", "stop"]

# What each error code means. Any other code is transient: it is retried and counts an attempt.
REFUSAL_KINDS: dict[str, RefusalKind] = {
    "DeviceNotRegistered": "unregistered",
    "MessageTooBig": "final",
    "MismatchSenderId": "final",
    "InvalidCredentials": "final",
    "DeveloperError": "final",
    "InvalidProviderToken": "final",
    "PUSH_TOO_MANY_NOTIFICATIONS": "final",
    "PUSH_TOO_MANY_RECEIPTS": "final",
    "MessageRateExceeded": "throttled",
    "TOO_MANY_REQUESTS": "limited",
    "UNAUTHORIZED": "stop",
}


@dataclass(frozen=True, slots=True)
class PushAccepted:
    """Expo accepted the message (``id`` is its ticket), or delivered it (``id`` is its receipt)."""

    id: str


@dataclass(frozen=True, slots=True)
class PushRefused:
    """Expo refused the message, or its answer says nothing about it.

    ``unregistered``: the device no longer exists. ``throttled``: too many messages for the device.
    ``limited``: too many messages of the project, so that none is accepted for a while.
    ``transient``: a retry may succeed. ``final``: a retry cannot succeed. ``stop``: no message will
    be accepted until the settings are corrected.
    """

    code: str
    message: str
    kind: RefusalKind
    after: float | None = None
    details: Mapping[str, Any] | None = None

    @property
    def text(self) -> Text:
        return Text("{code}: {message}", code=self.code, message=self.message)

    @property
    def failure(self) -> Failure:
        return Failure(self.message, type=self.code)


PushResult = PushAccepted | PushRefused


@dataclass(frozen=True, slots=True)
class EncodedBody:
    """The bytes of a request, and the headers that describe them."""

    content: bytes
    headers: Mapping[str, str]


def encode_body(value: Any) -> EncodedBody:
    """Return the body of a request, compressed if that is worth it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) < GZIP_BYTES:
        return EncodedBody(text, {})
    return EncodedBody(gzip.compress(text, 6), {"Content-Encoding": "gzip"})


class ExpoClient:
    """The client. Failures are returned as PushRefused; only cancellation is raised.

    ``turn``: held by the one of this process that waits for its turn in the project's pace.
    ``limited_until``: until when Expo accepts nothing, as far as this process knows.
    """

    def __init__(self, http: aiohttp.ClientSession, settings: TendersSettings) -> None:
        self.turn = asyncio.Lock()
        self.limited_until: datetime | None = None
        self._http = http
        self._origin = settings.expo_url
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if settings.expo_token:
            self._headers["Authorization"] = f"Bearer {settings.expo_token.get_secret_value()}"

    async def send(
        self, messages: Sequence[dict[str, Any]], body: EncodedBody | None = None
    ) -> list[PushResult]:
        """Send up to 100 messages; return a result for each, in order.

        ``body``: the messages as ``encode_body`` encoded them before, so that the request leaves
        at once. A request with messages of several projects is split by project. A request that is
        refused as a whole is halved until the refused message is found.
        """
        data = await self._post(SEND, body or encode_body(list(messages)))
        match data:
            case PushRefused(code="PUSH_TOO_MANY_EXPERIENCE_IDS") if len(messages) > 1:
                return await self._send_groups(
                    messages, _group_by_project(messages, data.details or {})
                )
            case PushRefused(kind="final") if len(messages) > 1:
                half = len(messages) // 2
                return await self._send_groups(
                    messages, [list(range(half)), list(range(half, len(messages)))]
                )
            case PushRefused():
                return [data] * len(messages)
        tickets = data if isinstance(data, list) else [data]
        if len(tickets) != len(messages):
            message = f"Expo answered {len(tickets)} tickets for {len(messages)} messages"
            return [PushRefused("ticket_mismatch", message, "transient")] * len(messages)
        return [
            _parse_result(ticket, ticket.get("id") if isinstance(ticket, dict) else None)
            for ticket in tickets
        ]

    async def receipts(self, tickets: Sequence[str]) -> dict[str, PushResult] | PushRefused:
        """Return the receipts of up to 1000 tickets.

        A ticket that is absent has no receipt yet, or its receipt has expired. A request that is
        refused as a whole is halved until the refused ticket is found.
        """
        data = await self._post(RECEIPTS, encode_body({"ids": list(tickets)}))
        match data:
            case PushRefused(kind="final") if len(tickets) > 1:
                half = len(tickets) // 2
                parts = [await self.receipts(part) for part in (tickets[:half], tickets[half:])]
                known = [part for part in parts if isinstance(part, dict)]
                if not known:
                    return data
                return {ticket: result for part in known for ticket, result in part.items()}
            case PushRefused():
                return data
            case dict():
                return {
                    ticket: _parse_result(receipt, ticket)
                    for ticket, receipt in data.items()
                    if isinstance(receipt, dict) and receipt.get("status") in ("ok", "error")
                }
        return PushRefused("bad_answer", "Expo's receipts are not an object", "transient")

    async def _send_groups(
        self, messages: Sequence[dict[str, Any]], groups: Sequence[Sequence[int]]
    ) -> list[PushResult]:
        results: dict[int, PushResult] = {}
        for group in groups:
            results |= dict(zip(group, await self.send([messages[n] for n in group]), strict=True))
        return [results[n] for n in range(len(messages))]

    async def _post(self, path: str, body: EncodedBody) -> Any:
        """Return ``data`` of the answer, or a PushRefused."""
        import aiohttp  # noqa: PLC0415 - slow to import, and only calls need it

        url, headers = self._origin + path, {**self._headers, **body.headers}
        try:
            async with self._http.post(url, data=body.content, headers=headers) as response:
                status, answer = response.status, parse_json(await read_text(response))
                after = retry_after(response.headers, time.time())
        except TimeoutError:
            return PushRefused("timeout", "Expo did not answer in time", "transient")
        except (OSError, aiohttp.ClientError) as error:
            return PushRefused(
                "connection_error",
                f"Expo could not be reached: {type(error).__name__} {error}",
                "transient",
            )
        errors = answer.get("errors") if isinstance(answer, dict) else None
        if status == 200 and isinstance(answer, dict) and "data" in answer and not errors:
            return answer["data"]
        return _parse_refusal(
            status, errors, None if after is None else min(after, MAX_RETRY_AFTER)
        )


def _parse_refusal(status: int, errors: Any, after: float | None) -> PushRefused:
    """Return what a request that failed as a whole means."""
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    has_code = isinstance(first.get("code"), str) and bool(first["code"])
    code = first["code"][:100] if has_code else "bad_answer" if status == 200 else f"http_{status}"
    message = str(first.get("message") or f"Expo answered HTTP {status}")[:500]
    kind: RefusalKind = REFUSAL_KINDS.get(code, "transient")
    # PUSH_TOO_MANY_EXPERIENCE_IDS for the tokens of one project is a mistake of Expo: retry it.
    if code not in REFUSAL_KINDS and code != "PUSH_TOO_MANY_EXPERIENCE_IDS":
        if status == 429:
            kind = "limited"
        elif status in (401, 403):
            kind = "stop"
        elif status in (400, 413, 422) or (has_code and 400 <= status < 500):
            kind = "final"  # other statuses without a code come from a gateway, and may pass
    details = first.get("details")
    return PushRefused(code, message, kind, after, details if isinstance(details, dict) else None)


def _parse_result(answer: Any, id: Any) -> PushResult:
    """Return the result in a ticket or a receipt."""
    if not isinstance(answer, dict):
        return PushRefused("bad_answer", f"Expo answered {answer!r:.100}", "transient")
    if answer.get("status") == "ok" and isinstance(id, str) and id:
        return PushAccepted(id)
    details = answer["details"] if isinstance(answer.get("details"), dict) else {}
    code = str(details.get("error") or "unknown")[:100]
    inner = details.get(str(details.get("fault")))  # the error of Apple's or Google's service
    if isinstance(inner, dict) and str(inner.get("error")) in REFUSAL_KINDS:
        code = str(inner["error"])
    message = str(answer.get("message") or code)[:500]
    return PushRefused(code, message, REFUSAL_KINDS.get(code, "transient"))


def _group_by_project(
    messages: Sequence[dict[str, Any]], details: Mapping[str, Any]
) -> list[list[int]]:
    """Return the positions of the messages, grouped by the project of their token.

    A token that Expo does not name is a group of its own. If no two projects are named, each
    message is.
    """
    project_by_token = {
        str(token): name
        for name, tokens in details.items()
        if isinstance(tokens, list)
        for token in tokens
    }
    groups: dict[str, list[int]] = {}
    for position, message in enumerate(messages):
        groups.setdefault(project_by_token.get(message["to"], f"?{position}"), []).append(position)
    if len(groups) > 1:
        return list(groups.values())
    return [[position] for position in range(len(messages))]

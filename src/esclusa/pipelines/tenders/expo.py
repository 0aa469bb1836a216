"""Expo's push service: tickets and receipts, and what each of its errors means for a delivery."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from esclusa import Failure
from esclusa.http import retry_after
from esclusa.model.value import value
from esclusa.pipelines.tenders.answers import json_of, text_of
from esclusa.pipelines.tenders.settings import TendersSettings

if TYPE_CHECKING:
    import aiohttp

SEND = "/--/api/v2/push/send"
RECEIPTS = "/--/api/v2/push/getReceipts"
MOST_MESSAGES = 100
MOST_RECEIPTS = 1000
LONGEST = 86_400.0
"""Seconds that a Retry-After may make us wait, whatever it says."""

How = Literal["gone", "throttled", "transient", "final", "stop"]

MEANING: dict[str, How] = {
    "DeviceNotRegistered": "gone",
    "MessageTooBig": "final", "MismatchSenderId": "final", "InvalidCredentials": "final", "DeveloperError": "final",
    "InvalidProviderToken": "final", "PUSH_TOO_MANY_NOTIFICATIONS": "final", "PUSH_TOO_MANY_RECEIPTS": "final",
    "MessageRateExceeded": "throttled", "TOO_MANY_REQUESTS": "throttled",
    "UNAUTHORIZED": "stop",
}  # fmt: skip
"""What an error says about trying again. One that is not here may pass: it is tried again, and counts."""


@value
class Accepted:
    """Expo took the message (``id`` is its ticket), or handed it on (its receipt)."""

    id: str


@value
class Refused:
    """It did not, or nothing is known of it. ``gone``: the device is. ``throttled``: too fast. ``transient``: it may go
    through later. ``final``: it never will. ``stop``: nothing will, before somebody mends the settings."""

    code: str
    message: str
    how: How
    after: float | None = None
    details: Mapping[str, Any] | None = None

    @property
    def failure(self) -> Failure:
        return Failure(self.message, type=self.code)


Answer = Accepted | Refused


class Expo:
    """The client. Whatever happens is an answer: nothing but a cancel is raised."""

    def __init__(self, session: aiohttp.ClientSession, settings: TendersSettings) -> None:
        self._session = session
        self._origin = settings.expo_url
        token = settings.expo_token.get_secret_value() if settings.expo_token else None
        self._headers = {"Accept": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )

    async def send(self, messages: Sequence[dict[str, Any]]) -> list[Answer]:
        """Send up to 100 messages; an answer for each, in order. A request of several projects is split by project; one
        that is refused as a whole is halved until the message is found that it is refused for."""
        body = await self._post(SEND, list(messages))
        match body:
            case Refused(code="PUSH_TOO_MANY_EXPERIENCE_IDS", details=details) if len(messages) > 1:
                return await self._in_groups(messages, _by_experience(messages, details or {}))
            case Refused(how="final") if len(messages) > 1:
                half = len(messages) // 2
                return await self._in_groups(
                    messages, [list(range(half)), list(range(half, len(messages)))]
                )
            case Refused():
                return [body] * len(messages)
        tickets = body if isinstance(body, list) else [body]
        if len(tickets) != len(messages):
            odd = Refused(
                "ticket_mismatch",
                f"Expo answered {len(tickets)} tickets for {len(messages)} messages",
                "transient",
            )
            return [odd] * len(messages)
        return [
            _read(ticket, ticket.get("id") if isinstance(ticket, dict) else None)
            for ticket in tickets
        ]

    async def receipts(self, tickets: Sequence[str]) -> dict[str, Answer] | Refused:
        """What became of up to 1000 tickets. One that is absent, or of which nothing is said that can be read, is not known
        yet, or not any more. A request that is refused as a whole is halved until the ticket is found that it is refused for."""
        body = await self._post(RECEIPTS, {"ids": list(tickets)})
        match body:
            case Refused(how="final") if len(tickets) > 1:
                half = len(tickets) // 2
                found = [await self.receipts(part) for part in (tickets[:half], tickets[half:])]
                known = [each for each in found if isinstance(each, dict)]
                return (
                    {ticket: answer for each in known for ticket, answer in each.items()}
                    if known
                    else body
                )
            case Refused():
                return body
            case dict():
                told = {
                    ticket: receipt for ticket, receipt in body.items() if isinstance(receipt, dict)
                }
                return {
                    ticket: _read(receipt, ticket)
                    for ticket, receipt in told.items()
                    if receipt.get("status") in ("ok", "error")
                }
        return Refused("bad_answer", "Expo's receipts are no object", "transient")

    async def _in_groups(
        self, messages: Sequence[dict[str, Any]], groups: Sequence[Sequence[int]]
    ) -> list[Answer]:
        answers: dict[int, Answer] = {}
        for group in groups:
            answers |= dict(zip(group, await self.send([messages[n] for n in group]), strict=True))
        return [answers[n] for n in range(len(messages))]

    async def _post(self, path: str, body: Any) -> Any:
        """``data`` of the answer, or why there is none."""
        import aiohttp  # noqa: PLC0415 - heavy, and only needed where something is called

        try:
            async with self._session.post(
                self._origin + path, json=body, headers=self._headers
            ) as answer:
                status, said = answer.status, json_of(await text_of(answer))
                after = retry_after(answer.headers, time.time())
        except TimeoutError:
            return Refused("timeout", "Expo did not answer in time", "transient")
        except (OSError, aiohttp.ClientError) as error:
            return Refused(
                "connection_error",
                f"Expo could not be reached: {type(error).__name__} {error}",
                "transient",
            )
        errors = said.get("errors") if isinstance(said, dict) else None
        if status == 200 and isinstance(said, dict) and "data" in said and not errors:
            return said["data"]
        return _whole_request(status, errors, None if after is None else min(after, LONGEST))


def _whole_request(status: int, errors: Any, after: float | None) -> Refused:
    """What a request that failed as a whole means."""
    first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
    told = isinstance(first.get("code"), str) and bool(first["code"])
    code = first["code"][:100] if told else "bad_answer" if status == 200 else f"http_{status}"
    message = str(first.get("message") or f"Expo answered HTTP {status}")[:500]
    how: How = MEANING.get(code, "transient")
    if code == "PUSH_TOO_MANY_EXPERIENCE_IDS":
        how = "transient"  # one project's tokens alone cannot be too many projects: an odd answer, it may pass
    elif code not in MEANING:
        if status == 429:
            how = "throttled"
        elif status in (401, 403):
            how = "stop"
        elif status in (400, 413, 422) or (told and 400 <= status < 500):
            how = "final"  # what was sent is wrong; other codes without a word of Expo's are some gateway's, and may pass
    details = first.get("details")
    return Refused(code, message, how, after, details if isinstance(details, dict) else None)


def _read(said: Any, id: Any) -> Answer:
    """A ticket or a receipt."""
    if not isinstance(said, dict):
        return Refused("bad_answer", f"Expo answered {said!r:.100}", "transient")
    if said.get("status") == "ok" and isinstance(id, str) and id:
        return Accepted(id)
    details: Any = said.get("details")
    details = details if isinstance(details, dict) else {}
    code = str(details.get("error") or "unknown")[:100]
    inner = details.get(str(details.get("fault")))  # a provider's fault names its own error inside
    if isinstance(inner, dict) and str(inner.get("error")) in MEANING:
        code = str(inner["error"])
    return Refused(code, str(said.get("message") or code)[:500], MEANING.get(code, "transient"))


def _by_experience(
    messages: Sequence[dict[str, Any]], details: Mapping[str, Any]
) -> list[list[int]]:
    """The places of the messages by the project that Expo says their token belongs to; each unnamed one by itself."""
    owner = {
        str(token): name
        for name, tokens in details.items()
        if isinstance(tokens, list)
        for token in tokens
    }
    groups: dict[str, list[int]] = {}
    for place, message in enumerate(messages):
        groups.setdefault(owner.get(message["to"], f"?{place}"), []).append(place)
    if len(groups) > 1:
        return list(groups.values())
    return [[place] for place in range(len(messages))]  # it names no two projects: one by one

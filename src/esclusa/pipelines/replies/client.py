"""Information Tracer over HTTP. The token goes into bodies and queries, as the provider wants it, and never into a message."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from esclusa import Failure, Permanent, Throttled
from esclusa import http as outside
from esclusa.model.value import value
from esclusa.pipelines.replies import answers
from esclusa.pipelines.replies.answers import Standing, Usage
from esclusa.pipelines.replies.settings import RepliesSettings

if TYPE_CHECKING:
    import aiohttp

LARGEST = 256 << 20
"""Bytes of an answer after which it is given up."""
_AT_ONCE = 1 << 20
"""An answer that is larger than this is read by a thread, so that others are not kept waiting."""


class Hiccup(Failure):
    """The network or the provider failed in a way that may be over next time."""


class KeyRefused(Failure):
    """The provider does not accept the token."""


class SubmitFailed(Failure):
    """No job came of a submit. ``spent``: for all we know the provider counted it."""

    def __init__(
        self,
        message: str,
        *,
        kind: Literal["rate_limit", "quota", "error"],
        code: int | None,
        spent: bool,
    ) -> None:
        super().__init__(message, type=kind if kind != "error" else "submit_error")
        self.kind, self.code, self.spent = kind, code, spent


@value
class Search:
    """What a submit asks for."""

    post_id: str
    platform: str
    most: int
    sort_by: str
    since: date
    until: date

    def body(self) -> dict[str, Any]:
        return {
            "query": f"reply:{self.post_id}", "start_date": self.since.isoformat(), "end_date": self.until.isoformat(),
            "platform_to_collect": [self.platform], "max_post": self.most, "sort_by": self.sort_by, "timeline_only": False,
        }  # fmt: skip


@value
class Answer:
    """What came back: the status code, the bytes, and what they say as JSON. ``whole`` is false where they are no JSON."""

    code: int
    body: bytes
    said: Any
    whole: bool


class Client:
    """The provider's calls, each with its own time limit."""

    def __init__(self, session: aiohttp.ClientSession, settings: RepliesSettings) -> None:
        self._session = session
        self._settings = settings
        self._token = settings.api_key.get_secret_value().strip() if settings.api_key else ""

    async def submit(self, search: Search) -> tuple[str, int]:
        """The id of a new job, and the status code. Raises SubmitFailed; nothing else that the outside can cause."""
        try:
            answer = await self._call(
                "POST",
                "/submit",
                self._settings.submit_seconds,
                body=search.body() | {"token": self._token},
            )
        except Hiccup as error:
            raise SubmitFailed(str(error), kind="error", code=None, spent=True) from None
        said = answers.message_of(answer.said) or ("" if answer.whole else "it is no JSON")
        told = self.hidden(f"the provider refused the search: {answer.code} {said}".strip())
        if answer.code == 429:
            raise SubmitFailed(told, kind="rate_limit", code=429, spent=False)
        if answer.code >= 300:
            quota = answer.code == 403 or answers.speaks_of_quota(said)
            raise SubmitFailed(
                told, kind="quota" if quota else "error", code=answer.code, spent=answer.code >= 500
            )
        job = answer.said.get("id_hash256") if isinstance(answer.said, dict) else None
        if (
            isinstance(job, str) and job.strip() and job.isprintable()
        ):  # anything else could not be asked after again
            return job.strip(), answer.code
        told = self.hidden(f"the provider's answer names no job: {said or 'it is empty'}")
        raise SubmitFailed(
            told,
            kind="quota" if answers.speaks_of_quota(said) else "error",
            code=answer.code,
            spent=True,
        )

    async def status(self, job_id: str) -> tuple[Standing, str, int]:
        """Where the job stands, in words too, and the status code. Raises Hiccup, Throttled."""
        query = {"id_hash256": job_id, "include_partial_results": "0"}
        answer = self._expected(
            await self._call("GET", "/status", self._settings.request_seconds, query=query)
        )
        if not answer.whole and answer.code < 400:
            raise Hiccup(
                f"the status of the job is no JSON ({len(answer.body)} bytes)", type="bad_answer"
            )
        found, words = answers.standing(answer.said)
        if answer.code >= 400:
            return (
                "failed",
                self.hidden(f"the provider answers {answer.code}: {words}"),
                answer.code,
            )
        return found, self.hidden(words), answer.code

    async def result(self, job_id: str, platform: str) -> Answer:
        """The replies. ``said`` is None where there is no answer. Raises Hiccup, Throttled."""
        query = {"id": job_id, "source": platform.lower()}
        answer = self._expected(
            await self._call("GET", "/rawdata", self._settings.result_seconds, query=query)
        )
        if not answer.whole and answer.body.strip() and answer.code < 400:
            raise Hiccup(
                f"the result of the job is no JSON ({len(answer.body)} bytes)", type="bad_answer"
            )
        return answer

    async def usage(self) -> Usage:
        """What the account has used today. Raises Hiccup, Throttled, KeyRefused."""
        answer = await self._call("GET", "/account_stat", self._settings.request_seconds)
        if answer.code in (401, 403):
            raise KeyRefused(
                f"the provider refuses INFORMATION_TRACER_API_KEY ({answer.code})",
                type="key_refused",
            )
        found = answers.usage(self._expected(answer).said)
        if found is None:
            raise Hiccup(
                f"the provider's answer has no usage in it ({answer.code})", type="bad_answer"
            )
        return found

    def _expected(self, answer: Answer) -> Answer:
        """A fault of the provider's server, or of our key, is no answer about a job."""
        if answer.code >= 500 or 300 <= answer.code < 400 or answer.code in (401, 403, 408):
            raise Hiccup(f"the provider answers {answer.code}", type="http_error")
        return answer

    async def _call(
        self,
        method: str,
        path: str,
        seconds: float,
        *,
        query: Mapping[str, str] | None = None,
        body: dict[str, Any] | None = None,
    ) -> Answer:
        import aiohttp  # noqa: PLC0415 - heavy, and only needed where something is called

        params = None if body is not None else {**(query or {}), "token": self._token}
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.request(
                method,
                self._settings.api_url + path,
                params=params,
                json=body,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                raw = await self._read(response)
                if response.status == 429 and path != "/submit":
                    after = (
                        outside.retry_after(response.headers, time.time())
                        or self._settings.recheck_seconds
                    )
                    raise Throttled(f"the provider asks to slow down ({path})", after=after)
                code = response.status
        except TimeoutError:
            raise Hiccup(
                f"the provider did not answer {path} within {seconds:g} s", type="timeout"
            ) from None
        except (
            aiohttp.ClientError,
            OSError,
        ) as error:  # its text may hold the address, and the address the token
            raise Hiccup(
                f"the provider could not be reached ({path}): {type(error).__name__}",
                type="connection_error",
            ) from None
        try:
            said = (
                await asyncio.to_thread(json.loads, raw) if len(raw) > _AT_ONCE else json.loads(raw)
            )
        except (ValueError, RecursionError):
            return Answer(code, raw, None, whole=False)
        return Answer(code, raw, said, whole=True)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        parts, size = [], 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > LARGEST:
                raise Permanent(
                    f"the provider's answer is larger than {LARGEST >> 20} MB", type="too_large"
                )
            parts.append(part)
        return b"".join(parts)

    def hidden(self, text: str) -> str:
        """A text without the token, should the provider repeat it."""
        return text.replace(self._token, "(secret)") if self._token else text


@asynccontextmanager
async def connected(settings: RepliesSettings) -> AsyncIterator[Client]:
    """A client for as long as the block lasts."""
    async with outside.session(connections=settings.check_concurrency + 4) as session:
        yield Client(session, settings)

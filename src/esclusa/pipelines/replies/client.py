"""Information Tracer over HTTP.

The provider takes the token in bodies and query strings; no message or error contains it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from esclusa import Failure, Permanent, Text, Throttled
from esclusa.http import retry_after, session
from esclusa.pipelines.replies import answers
from esclusa.pipelines.replies.answers import JobStatus, SearchUsage
from esclusa.pipelines.replies.settings import RepliesSettings

if TYPE_CHECKING:
    import aiohttp

# A larger answer fails the job.
MAX_BYTES = 256 << 20
# A larger answer is parsed in a thread, so that it does not block the event loop.
_THREAD_BYTES = 1 << 20


class TransientError(Failure):
    """The network or the provider failed in a way that may be over at the next attempt."""


class KeyRefused(Failure):
    """The provider does not accept the token."""


class SubmitFailed(Failure):
    """A submit returned no job. ``spent``: the provider may have counted the search."""

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

    @property
    def about_post(self) -> bool:
        """Whether the provider refused this post, and not the account, its rate or its key."""
        client_error = self.code is not None and 400 <= self.code < 500
        return (
            self.kind == "error"
            and client_error
            and self.code not in (401, 408)
            and not answers.mentions_account(str(self))
        )


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The search that a submit asks for."""

    post_id: str
    platform: str
    max_replies: int
    sort_by: str
    since: date
    until: date

    def body(self) -> dict[str, Any]:
        return {
            "query": f"reply:{self.post_id}",
            "start_date": self.since.isoformat(),
            "end_date": self.until.isoformat(),
            "platform_to_collect": [self.platform],
            "max_post": self.max_replies,
            "sort_by": self.sort_by,
            "timeline_only": False,
            "enable_ai": False,
            "comment_depth": 1,  # the provider's default also returns replies to replies
        }


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """The provider's response. ``data`` is None where the body is not JSON."""

    code: int
    body: bytes
    data: Any
    is_json: bool


class InformationTracerClient:
    """The provider's calls, each with its own time limit."""

    def __init__(self, session: aiohttp.ClientSession, settings: RepliesSettings) -> None:
        self._session = session
        self._settings = settings
        self._token = settings.api_key.get_secret_value().strip() if settings.api_key else ""

    async def submit(self, search: SearchRequest) -> tuple[str, int]:
        """Return the id of the new job and the HTTP status.

        Raises SubmitFailed for every failure of the network or the provider.
        """
        try:
            response = await self._call(
                "POST",
                "/submit",
                self._settings.submit_seconds,
                body=search.body() | {"token": self._token},
            )
        except TransientError as error:
            raise SubmitFailed(error.message, kind="error", code=None, spent=True) from None
        code = response.code
        detail = answers.error_message(response.data) or ("" if response.is_json else "not JSON")
        why = self.mask(f"{code} {detail}".strip())
        refused = Text("the provider refused the search: {why}", why=why)
        about_quota = answers.mentions_quota(detail)
        if code == 429:
            raise SubmitFailed(refused, kind="rate_limit", code=code, spent=False)
        if code >= 300:
            kind: Literal["quota", "error"] = "quota" if code == 403 or about_quota else "error"
            raise SubmitFailed(refused, kind=kind, code=code, spent=code >= 500)
        job_id = response.data.get("id_hash256") if isinstance(response.data, dict) else None
        # An id that is not printable could not be sent in a status request.
        if isinstance(job_id, str) and job_id.strip() and job_id.isprintable():
            return job_id.strip(), code
        raise SubmitFailed(
            Text("the provider's answer has no job id: {answer}", answer=self.mask(detail))
            if detail
            else Text("the provider's answer is empty and has no job id"),
            kind="quota" if about_quota else "error",
            code=code,
            spent=True,
        )

    async def status(self, job_id: str) -> tuple[JobStatus, str, int]:
        """Return the job's status, a message about it and the HTTP status.

        Raises TransientError and Throttled.
        """
        query = {"id_hash256": job_id, "include_partial_results": "0"}
        response = self._checked(
            await self._call("GET", "/status", self._settings.request_seconds, query=query)
        )
        if not response.is_json and response.code < 400:
            raise TransientError(
                Text("the status of the job is not JSON ({size} bytes)", size=len(response.body)),
                type="bad_answer",
            )
        status, message = answers.job_status(response.data, self.mask)
        if response.code >= 400:
            status = "failed"
            message = Text("the provider answers {code}: {why}", code=response.code, why=message)
        return status, message, response.code

    async def result(self, job_id: str, platform: str) -> ProviderResponse:
        """Return the replies that a job found. Raises TransientError and Throttled."""
        query = {"id": job_id, "source": platform.lower()}
        response = self._checked(
            await self._call("GET", "/rawdata", self._settings.result_seconds, query=query)
        )
        if not response.is_json and response.body.strip() and response.code < 400:
            raise TransientError(
                Text("the result of the job is not JSON ({size} bytes)", size=len(response.body)),
                type="bad_answer",
            )
        return response

    async def usage(self) -> SearchUsage:
        """Return the searches of the day. Raises TransientError, Throttled and KeyRefused."""
        response = await self._call("GET", "/account_stat", self._settings.request_seconds)
        if response.code in (401, 403):
            raise KeyRefused(
                Text(
                    "the provider refuses INFORMATION_TRACER_API_KEY ({code})", code=response.code
                ),
                type="key_refused",
            )
        usage = answers.search_usage(self._checked(response).data)
        if usage is None:
            raise TransientError(
                Text("the provider's answer has no usage ({code})", code=response.code),
                type="bad_answer",
            )
        return usage

    def mask(self, text: str) -> str:
        """Return the text without the token, in case the provider repeats it."""
        return text.replace(self._token, "(secret)") if self._token else text

    def _checked(self, response: ProviderResponse) -> ProviderResponse:
        """Return the response; raise TransientError if it is not about the job."""
        code = response.code
        if code >= 500 or 300 <= code < 400 or code in (401, 403, 408):
            raise TransientError(Text("the provider answers {code}", code=code), type="http_error")
        return response

    async def _call(
        self,
        method: str,
        path: str,
        seconds: float,
        *,
        query: Mapping[str, str] | None = None,
        body: dict[str, Any] | None = None,
    ) -> ProviderResponse:
        import aiohttp  # noqa: PLC0415 - slow to import, and only calls need it

        try:
            async with self._session.request(
                method,
                self._settings.api_url + path,
                params=None if body is not None else {**(query or {}), "token": self._token},
                json=body,
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                raw = await _read(response)
                code = response.status
                if code == 429 and path != "/submit":
                    raise Throttled(
                        Text("the provider asks to slow down ({path})", path=path),
                        after=retry_after(response.headers, time.time())
                        or self._settings.recheck_seconds,
                        stage=False,  # one job's error never stops the others
                    )
        except TimeoutError:
            raise TransientError(
                Text(
                    "the provider did not answer {path} within {seconds:g} s",
                    path=path,
                    seconds=seconds,
                ),
                type="timeout",
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            # Only the type: the error's text may contain the URL, and the URL contains the token.
            raise TransientError(
                Text(
                    "the provider could not be reached ({path}): {why}",
                    path=path,
                    why=type(error).__name__,
                ),
                type="connection_error",
            ) from None
        try:
            if len(raw) > _THREAD_BYTES:
                data = await asyncio.to_thread(json.loads, raw)
            else:
                data = json.loads(raw)
        except (ValueError, RecursionError):
            return ProviderResponse(code, raw, None, is_json=False)
        return ProviderResponse(code, raw, data, is_json=True)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_BYTES:
            raise Permanent(
                Text("the provider's answer is larger than {size} MB", size=MAX_BYTES >> 20),
                type="too_large",
            )
        parts.append(part)
    return b"".join(parts)


@asynccontextmanager
async def open_client(settings: RepliesSettings) -> AsyncIterator[InformationTracerClient]:
    """Open a client for the duration of the block."""
    async with session(connections=settings.check_concurrency + 4) as http:
        yield InformationTracerClient(http, settings)

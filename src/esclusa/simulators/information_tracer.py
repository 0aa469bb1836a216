"""Information Tracer: submit, status, rawdata and account_stat, with a real quota.

Control routes besides those of every simulator:

- ``POST /_behave`` ``{"post_id": "42", "finish_after": 2, "result": "empty_list"}``, or a list of
  them: how the searches of a post go. All members but ``post_id`` are optional: ``submit`` (one of
  SUBMITS), ``submit_times`` (how often, 1), ``seconds`` (for ``slow``), ``finish_after`` (the
  number of the check that finds it finished, 1), ``word`` (the status of a running job,
  ``started``), ``end`` (one of ENDS), ``end_times`` (how many searches end so; later ones finish),
  ``result`` (one of RESULTS), ``later`` (the result from the second download on), ``replies`` (how
  many, 3), ``replied_on`` (their day, ``2025-11-20``: a search of other days finds none),
  ``same_id`` (a second search has the id of the first).
- ``POST /_quota`` ``{"used": 390, "limit": 400, "period_start": "2026-01-01", "refusal": "generic"
  | "403", "token": "…", "seconds": 0.1, "every_job": true}``: ``seconds`` is the duration of a
  status call; ``every_job`` accepts the ids of jobs that were never submitted; ``offset`` shifts
  the provider's clock, so that its days pass.
- ``GET /_state``: searches used, searches refused by the quota, how often each post was submitted,
  its jobs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from typing import Any

from aiohttp import web

from esclusa.simulators.base import Simulator

PLATFORMS = ("twitter", "facebook", "instagram", "reddit", "youtube", "threads", "weibo", "bluesky")
SUBMITS = ("ok", "429", "403", "500", "400", "no_id", "error_object", "quota_text", "slow", "hang")
ENDS = ("finished", "failed", "no_status", "dead_text", "never")
RESULTS = (
    "data",
    "dict",
    "empty_list",
    "empty_dict",
    "blank_dict",
    "null",
    "no_body",
    "error_object",
    "text",
    "500",
    "404",
)


@dataclass
class PostBehaviour:
    """How the searches of a post go."""

    submit: str = "ok"
    submit_times: int = 1
    seconds: float = 1.0
    finish_after: int = 1
    word: str = "started"
    end: str = "finished"
    end_times: int | None = None
    result: str = "data"
    later: str | None = None
    replies: int = 3
    replied_on: str | None = None
    same_id: bool = False


@dataclass
class SimulatedSearch:
    """A job in the provider's state."""

    id: str
    post_id: str
    platform: str
    number: int = 1
    start_date: str = ""
    end_date: str = "9999-12-31"
    max_post: int | None = None
    comment_depth: int = 2
    checks: int = 0
    downloads: int = 0


class InformationTracerSimulator(Simulator):
    """Information Tracer's four calls."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/submit", self._submit),
            web.get("/status", self._status),
            web.get("/rawdata", self._rawdata),
            web.get("/account_stat", self._account),
            web.post("/_behave", self._behave),
            web.post("/_quota", self._set_quota),
            web.get("/_state", self._state),
        ]

    def reset(self) -> None:
        super().reset()
        self.behaviours: dict[str, PostBehaviour] = {}
        self.searches: dict[str, SimulatedSearch] = {}
        self.submitted: Counter[str] = Counter()
        self.used, self.limit, self.refused = 0, 400, 0
        self.period_start: str | None = None
        self.offset = 0.0
        self.searched_on: str | None = None
        self.refusal = "generic"
        self.token: str | None = None
        self.every_job = False
        self.seconds = 0.0
        self.at_once, self.most_at_once = 0, 0

    def behave(self, post_id: str, **options: Any) -> None:
        """Set the behaviour of a post from the same process."""
        behaviour = PostBehaviour(**options)
        if (
            behaviour.submit not in SUBMITS
            or behaviour.end not in ENDS
            or behaviour.result not in RESULTS
        ):
            raise ValueError(
                f"submit is one of {SUBMITS}, end one of {ENDS}, result one of {RESULTS}"
            )
        self.behaviours[post_id] = behaviour

    def _of(self, post_id: str) -> PostBehaviour:
        return self.behaviours.get(post_id) or PostBehaviour()

    # The provider's routes

    async def _submit(self, request: web.Request) -> web.Response:
        body = await request.json()
        fault = self._fault(body)
        if fault is not None:
            return web.json_response({"error": fault[1]}, status=fault[0])
        post_id, platform = body["query"].removeprefix("reply:"), body["platform_to_collect"][0]
        behaviour = self._of(post_id)
        refused = await self._misbehave(behaviour)
        if refused is not None:
            return refused
        if self.searched_on not in (None, self._day()):  # the counter is reset with a new day
            self.used = 0
        self.searched_on = self._day()
        if self.used >= self.limit:  # the provider does not name the reason
            self.refused += 1
            return web.json_response(
                {"message": "Submission failed"}, status=403 if self.refusal == "403" else 200
            )
        self.used += 1
        self.period_start = None
        self.submitted[post_id] += 1
        number = 1 if behaviour.same_id else self.submitted[post_id]
        id = hashlib.sha256(f"{platform} {post_id} {number}".encode()).hexdigest()
        depth = body.get("comment_depth", 2)
        self.searches[id] = SimulatedSearch(
            id,
            post_id,
            platform,
            self.submitted[post_id],
            body["start_date"],
            body["end_date"],
            body.get("max_post"),
            depth if depth in (1, 2) else 2,
        )
        return web.json_response({"id_hash256": id})

    def _fault(self, body: Any) -> tuple[int, str] | None:
        if (
            not isinstance(body, dict)
            or not body.get("token")
            or (self.token is not None and body["token"] != self.token)
        ):
            return 401, "invalid token"
        lacks = [
            name
            for name in ("query", "start_date", "end_date", "platform_to_collect")
            if not body.get(name)
        ]
        if lacks:
            return 400, f"missing {', '.join(lacks)}"
        try:
            for name in ("start_date", "end_date"):
                date.fromisoformat(body[name])
        except (TypeError, ValueError):
            return 400, "dates are YYYY-MM-DD"
        unknown = [name for name in body["platform_to_collect"] if name not in PLATFORMS]
        return (400, f"unsupported platform {unknown[0]}") if unknown else None

    async def _misbehave(self, behaviour: PostBehaviour) -> web.Response | None:
        order = behaviour.submit
        if order == "ok" or behaviour.submit_times <= 0:
            return None
        behaviour.submit_times -= 1
        if order in ("slow", "hang"):
            await asyncio.sleep(behaviour.seconds if order == "slow" else 3600)
            return None
        if order.isdigit():
            return web.json_response({"error": HTTPStatus(int(order)).phrase}, status=int(order))
        texts = {
            "no_id": {},
            "error_object": {"error": "could not start the job"},
            "quota_text": {"message": "Daily quota exceeded"},
        }
        return web.json_response(texts[order])

    async def _status(self, request: web.Request) -> web.Response:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
            return self._job_status(request)
        finally:
            self.at_once -= 1

    def _search(self, id: str) -> SimulatedSearch | None:
        """The job of this id. With ``every_job``, an unknown id is a job of twitter."""
        if self.every_job and id not in self.searches:
            self.searches[id] = SimulatedSearch(id, id, "twitter")
        return self.searches.get(id)

    def _job_status(self, request: web.Request) -> web.Response:
        search = self._search(request.query.get("id_hash256", ""))
        if search is None:
            return web.json_response({"message": "we cannot locate this job"})
        behaviour = self._of(search.post_id)
        search.checks += 1
        if search.checks < behaviour.finish_after or behaviour.end == "never":
            return web.json_response(
                {
                    "status": behaviour.word,
                    "status_percentage": "10",
                    "status_text": "Collecting cross-platform posts...",
                    "tweet_preview": [],
                }
            )
        ends: dict[str, Any] = {
            "finished": {"status": "finished", "status_percentage": "100", "status_text": "Done"},
            "failed": {"status": "failed", "status_percentage": "40", "status_text": "Job failed"},
            "no_status": {"status_percentage": "0"},
            "dead_text": {"status": "unknown", "status_text": "we cannot locate this job"},
        }
        over = behaviour.end_times is not None and search.number > behaviour.end_times
        return web.json_response(ends["finished" if over else behaviour.end])

    async def _rawdata(self, request: web.Request) -> web.Response:
        search = self._search(request.query.get("id", ""))
        if search is None or request.query.get("source") != search.platform:
            return web.json_response({"message": "we cannot locate this job"})
        behaviour = self._of(search.post_id)
        search.downloads += 1
        result = (
            behaviour.later
            if behaviour.later is not None and search.downloads > 1
            else behaviour.result
        )
        if result == "no_body":
            return web.Response(body=b"", content_type="application/json")
        if result.isdigit():
            return web.json_response({"message": "we cannot locate this job"}, status=int(result))
        posts = self._replies(search, behaviour)
        bodies: dict[str, Any] = {
            "data": posts,
            "dict": {"posts": posts, "next": None},
            "empty_list": [],
            "empty_dict": {},
            "blank_dict": {"posts": [], "note": "  ", "meta": {}, "next": None},
            "null": None,
            "error_object": {"message": "we cannot locate this job"},
            "text": "nothing here",
        }
        return web.json_response(bodies[result])

    def _replies(self, search: SimulatedSearch, behaviour: PostBehaviour) -> list[dict[str, Any]]:
        """The replies within the days and the maximum of a search."""
        day = behaviour.replied_on
        if day is not None and not search.start_date <= day <= search.end_date:
            return []
        most = behaviour.replies if search.max_post is None else search.max_post
        found = [reply(search, number) for number in range(min(behaviour.replies, most))]
        if search.platform == "instagram" and search.comment_depth == 2:
            found += [child | {"parent_comment_pk": child["pk"]} for child in found]
        return found

    def _day(self) -> str:
        return f"{datetime.now(UTC) + timedelta(seconds=self.offset):%Y-%m-%d}"

    async def _account(self, request: web.Request) -> web.Response:
        if self.token is not None and request.query.get("token") != self.token:
            return web.json_response({"error": "invalid token"}, status=401)
        today = datetime.now(UTC) + timedelta(seconds=self.offset)
        # Before the first search of a day, the numbers are those of the day before.
        period = self.period_start or self.searched_on or f"{today:%Y-%m-%d}"
        day = {"searches_used": self.used, "period_start": period}
        month = {"searches_used": self.used, "period_start": f"{today:%Y-%m}-01"}
        return web.json_response(
            {
                "usage": {"day": day, "month": month},
                "limits": {"max_searches_per_day": self.limit, "max_records_per_month": 510_000},
                "last_activity_at": today.isoformat(),
            }
        )

    # Control routes

    async def _behave(self, request: web.Request) -> web.Response:
        body = await request.json()
        try:
            for item in body if isinstance(body, list) else [body]:
                self.behave(**item)
        except (TypeError, ValueError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response({"posts": len(self.behaviours)})

    async def _set_quota(self, request: web.Request) -> web.Response:
        for name, value in (await request.json()).items():
            if name not in (
                "used",
                "limit",
                "period_start",
                "refusal",
                "token",
                "seconds",
                "every_job",
                "offset",
            ):
                return web.json_response({"error": f"there is no {name}"}, status=400)
            setattr(self, name, value)
        return web.json_response({"used": self.used, "limit": self.limit})

    async def _state(self, request: web.Request) -> web.Response:
        jobs = {
            search.id: {"post_id": search.post_id, "checks": search.checks}
            for search in self.searches.values()
        }
        state = {
            "used": self.used,
            "limit": self.limit,
            "refused": self.refused,
            "submitted": dict(self.submitted),
            "most_at_once": self.most_at_once,
        }
        return web.json_response(state | ({"jobs": jobs} if request.query.get("jobs") else {}))


def reply(search: SimulatedSearch, number: int) -> dict[str, Any]:
    """A reply with the field names of its platform."""
    if search.platform == "instagram":
        return {
            "pk": f"{search.post_id}{number}",
            "original_post_pk": search.post_id,
            "text": f"respuesta {number}",
            "like_count": number,
        }
    return {
        "id_str": f"{search.post_id}{number}",
        "created_at": "Mon Jan 05 12:00:00 +0000 2026",
        "full_text": f"respuesta número {number}",
        "lang": "es",
        "user": {
            "id_str": str(number),
            "screen_name": f"user{number}",
            "followers_count": number,
            "verified": False,
        },
        "reply_count": 0,
        "retweet_count": 0,
        "favorite_count": number,
        "in_reply_to_status_id_str": search.post_id,
    }

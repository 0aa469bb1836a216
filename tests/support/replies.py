"""Shared by the tests of ``replies``: its settings, and a served runtime with its provider."""

from __future__ import annotations

import json
from operator import attrgetter
from pathlib import Path
from typing import Any

import aiohttp

from esclusa.pipelines.replies.records import Job, Post
from esclusa.runtime import Runtime
from esclusa.simulators.information_tracer import InformationTracerSimulator

TOKEN = "tok-3f9a-very-secret"


def environ(store: str, folder: Path, provider: str, **more: str) -> dict[str, str]:
    """The settings of a test. Time limits are long, because the machine may be busy."""
    return {
        "ESCLUSA_STORE": store,
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_PIPELINES": "replies",
        "ESCLUSA_LOG_LEVEL": "error",
        "ESCLUSA_GRACE_SECONDS": "2",
        "INFORMATION_TRACER_API_KEY": TOKEN,
        "INFORMATION_TRACER_API_URL": provider,
        "REPLIES_REQUEST_SECONDS": "60",
        "REPLIES_SUBMIT_SECONDS": "60",
        **more,
    }


class Trial:
    """A served runtime with the pipeline, and the simulator of its provider."""

    def __init__(
        self,
        runtime: Runtime,
        sim: InformationTracerSimulator,
        url: str,
        web: aiohttp.ClientSession,
        folder: Path,
    ) -> None:
        self.runtime, self.sim, self.url, self.web = runtime, sim, url, web
        self.files = folder / "artifacts"
        self.records = runtime.engine.records

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The JSON of an answer that must be 200."""
        status, answer = await self.ask(method, path, body, **options)
        assert status == 200, answer
        return answer

    async def ask(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        if body is not None:
            options["json"] = body
        async with self.web.request(method, self.url + path, **options) as answer:
            return answer.status, json.loads(await answer.text())

    async def posts(self, *ids: str, **fields: Any) -> None:
        """Add posts, oldest first, of twitter unless the fields say otherwise."""
        rows = [
            {
                "platform": "twitter",
                "post_id": id,
                "country": "hn",
                "candidate_id": "c1",
                "replies_count": 5,
                **_at(number),
                **fields,
            }
            for number, id in enumerate(ids)
        ]
        assert (await self.call("POST", "/posts", rows))["created"] == len(ids)

    async def jobs(self, *ids: str, **fields: Any) -> list[Job]:
        """Add posts and submit them; return their jobs."""
        await self.posts(*ids, **fields)
        assert (await self.submit())["counters"]["submitted"] == len(ids)
        return [await self.job(id) for id in ids]

    async def submit(self, **params: Any) -> Any:
        return await self.call("POST", "/process-posts", params=params)

    async def check(self, **params: Any) -> Any:
        return await self.call("POST", "/process-jobs", params=params)

    async def scheduled(self, cycle: str) -> Any:
        """Run a cycle as the schedule would."""
        return (await self.runtime.engine.run_cycle(f"replies.{cycle}", person=False)).answer()

    async def later(self, seconds: float) -> None:
        """Advance the store's clock."""
        store: Any = self.runtime.store  # every store has an offset for tests, but not the port
        store.clock_offset += seconds
        await self.runtime.engine.clock.sync()

    async def post(self, post_id: str, platform: str = "twitter") -> Post:
        found = await self.records.get(Post, platform, post_id)
        assert found is not None
        return found

    async def job(self, post_id: str) -> Job:
        """The newest job of a post."""
        found = [job async for job in self.records.each(Job, {"post_id": post_id})]
        assert found, f"post {post_id} has no job"
        return max(found, key=attrgetter("created_at"))

    async def states(self, post_id: str) -> tuple[str, str]:
        """The states of a post and of its newest job."""
        return (await self.post(post_id)).status, (await self.job(post_id)).status

    def file(self, post_id: str, platform: str = "twitter") -> Path:
        return self.files / "raw" / "hn" / platform / "c1" / f"{post_id}.json"

    def save(self, post_id: str, content: Any) -> None:
        """Write a file of replies, as another program would."""
        self.file(post_id).parent.mkdir(parents=True, exist_ok=True)
        self.file(post_id).write_text(json.dumps(content))

    def log(self, cycle: str, which: str) -> list[dict[str, Any]]:
        """The lines of the run logs of a cycle."""
        found = sorted((self.files / "logs" / "replies" / cycle).rglob(f"*.{which}.ndjson"))
        return [json.loads(line) for file in found for line in file.read_text().splitlines()]

    def submitted(self) -> list[str]:
        """The queries submitted to the provider, in order."""
        return [json.loads(c["body"])["query"] for c in self.sim.calls if c["path"] == "/submit"]


def _at(number: int) -> dict[str, str]:
    return {"created_at": f"2026-01-02T00:{number // 60:02}:{number % 60:02}Z"}

"""Raw answers as artifacts: a part that was paid for is not asked again.

An answer's path follows from the document, its reading, the processor and the pages. A call goes on
when its attempt is cancelled, because it is paid for; the next attempt waits for it or finds its
answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from esclusa import ArtifactMissing, Artifacts, Attempt, Budget, Throttled, segment
from esclusa.pipelines.documents.records import Documento

Answer = dict[str, Any]


class PendingCalls:
    """The calls of this process that are under way, by the path of their answer."""

    def __init__(self, concurrent: int) -> None:
        self._tasks: dict[str, asyncio.Task[Answer]] = {}
        self._limit = asyncio.Semaphore(concurrent)

    def get(self, path: str) -> asyncio.Task[Answer] | None:
        return self._tasks.get(path)

    def start(
        self, path: str, call: Callable[[], Awaitable[Answer]], artifacts: Artifacts
    ) -> asyncio.Task[Answer]:
        """Start a call whose answer is stored, whatever happens to the attempt."""

        async def ask() -> Answer:
            async with self._limit:
                answer = await call()
            body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
            await artifacts.put(path, body, content_type="application/json")
            return answer

        task = asyncio.create_task(ask())
        self._tasks[path] = task
        task.add_done_callback(lambda done: self._end(path, done))
        return task

    def _end(self, path: str, task: asyncio.Task[Answer]) -> None:
        self._tasks.pop(path, None)
        if not task.cancelled():
            task.exception()  # an attempt that waited for it has raised it

    async def close(self, seconds: float) -> None:
        """Wait for the calls under way, for so long; then cancel them."""
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()


class AnswerStore:
    """The answers of one reading of one document. ``named`` are those that were used."""

    def __init__(self, at: Attempt, doc: Documento, calls: PendingCalls) -> None:
        self._at = at
        self._calls = calls
        self._budget: Budget | None = at.settings.page_budget
        self._folder = f"documents/answers/{segment(doc.id)}/{doc.reading}"
        self.operation = doc.operation
        self.named: list[dict[str, Any]] = []

    def path(self, processor: str, part: str) -> str:
        """Return where the answer of a processor about a part of the document is stored."""
        digest = hashlib.sha256(processor.encode()).hexdigest()[:12]
        return f"{self._folder}/{digest}-{part}.json"

    async def ask(
        self, path: str, pages: int, call: Callable[[], Awaitable[Answer]], **about: Any
    ) -> Answer:
        """Return the answer at a path; call the processor only if there is none."""
        answer = await self.load(path)
        if answer is None:
            answer = await asyncio.shield(
                self._calls.get(path) or await self._start(path, pages, call)
            )
        self.named.append({"path": path, **about})
        return answer

    async def _start(
        self, path: str, pages: int, call: Callable[[], Awaitable[Answer]]
    ) -> asyncio.Task[Answer]:
        if self._budget is not None:
            await self._at.spend(self._budget, min(pages, self._budget.windows[0].limit))
        started = self._calls.get(path)  # by another attempt meanwhile
        return started or self._calls.start(path, call, self._at.artifacts)

    async def keep(self, path: str, answer: Answer, **about: Any) -> None:
        """Store an answer that came by another way."""
        body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
        await self._at.artifacts.put(path, body, content_type="application/json")
        self.named.append({"path": path, **about})

    async def load(self, path: str) -> Answer | None:
        """Return a stored answer; None if there is none, or it cannot be read."""
        try:
            answer = json.loads(await self._at.artifacts.get(path))
        except (ArtifactMissing, ValueError):
            return None
        return answer if isinstance(answer, dict) else None

    async def save_operation(self, name: str | None) -> None:
        """Note the batch operation that is under way."""
        await self._at.save(operation=name)
        self.operation = name


async def gather_all(calls: list[Awaitable[Answer]]) -> list[Answer]:
    """Wait for all calls; then raise the first error that another attempt cannot fix, or any."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise min(errors, key=_urgency)
    return [result for result in results if not isinstance(result, BaseException)]


def _urgency(error: BaseException) -> int:
    if getattr(error, "permanent", False):
        return 0
    return 2 if isinstance(error, Throttled) else 1

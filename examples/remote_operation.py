"""An operation of another service that takes minutes: submit, save its name, wait, collect.

export ESCLUSA_PIPELINES=examples/remote_operation.py:app
esclusa worker
"""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Permanent, Record, To
from esclusa.waiting import remote_operation


class Service(Protocol):
    async def submit(self, text: str, key: str) -> str: ...
    async def result(self, job: str) -> str | None: ...


class Slow:
    """Plays the service: each job is done when it is asked for the third time."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    async def submit(self, text: str, key: str) -> str:
        self.asked.setdefault(f"job-{key}", 0)
        return f"job-{key}"

    async def result(self, job: str) -> str | None:
        self.asked[job] = self.asked.get(job, 0) + 1
        return "translated" if self.asked[job] >= 3 else None


class Translation(Record, table="translations", key="name"):
    name: str
    text: str
    job: str | None = None
    submitted_at: datetime | None = None
    result: str | None = None

    lifecycle = Lifecycle("""
        new -> done | failed
        failed -> new
    """)


app = App("translate")


@app.lifespan
async def service(settings: object) -> AsyncIterator[Service]:
    yield Slow()


@app.stage(Translation, take="new", exhausted="failed", retry=Backoff(tries=3))
async def translate(record: Translation, at: Attempt) -> Outcome:
    service: Service = at.context

    async def submit(record: Translation) -> str:
        return await service.submit(record.text, key=record.id)

    async def collect(job: str) -> Outcome | None:
        result = await service.result(job)
        if result == "refused":
            raise Permanent("the service refuses the text")
        return To("done", result=result) if result is not None else None

    return await remote_operation(
        record,
        at,
        handle="job",
        submit=submit,
        collect=collect,
        every="30s",
        begun="submitted_at",
        within="1h",
    )

"""Kinds and stages of the conformance suite. Together they use every option of a record."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, PrivateAttr

from esclusa.model.columns import track
from esclusa.model.kind import Kind
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import not_null
from esclusa.model.record import Record
from esclusa.model.stage import Stage, make_stage

STATES = """
    pending -> working -> done | failed
    working -> pending
    failed -> pending
"""


class Post(Record, table="t_posts", key=("platform", "post_id")):
    """A parent: jobs move it, add to it and wake it."""

    platform: str
    post_id: str
    jobs: int = 0
    failures: int | None = None
    note: str | None = None

    lifecycle = Lifecycle("""
        waiting -> collecting -> done | failed
        collecting -> waiting
        failed -> waiting
    """)


class Job(Record, table="t_jobs", index=[("post", "status")]):
    """A child with a hold state. Its id is given or generated."""

    post: str | None = None
    lane: str = "a"
    rank: int | None = None
    result: str | None = None

    lifecycle = Lifecycle(STATES)


class Note(Record, table="t_notes", key="name"):
    """Its stage has no hold state."""

    name: str
    url: str | None = None
    text: str | None = None
    number: int | None = None

    lifecycle = Lifecycle("""
        fresh -> read | lost
        fresh -> parked -> fresh
    """)


class Quiet(Record, table="t_quiet", key="name", history=False):
    """Keeps no history."""

    name: str

    lifecycle = Lifecycle(STATES)


class Old(Record, table="t_old", key="name", archive=True):
    """Has an archive."""

    name: str
    size: int = 0
    ended_on: date | None = None
    data: dict[str, Any] = {}

    lifecycle = Lifecycle(STATES)


class Sample(Record, table="t_samples", key="name"):
    """One field of each type, all nullable."""

    name: str
    text: str | None = None
    number: int | None = None
    ratio: float | None = None
    flag: bool | None = None
    moment: datetime | None = None
    day: date | None = None
    price: Decimal | None = None
    data: dict[str, Any] | None = None
    items: list[Any] | None = None
    blob: bytes | None = None

    lifecycle = Lifecycle("kept -> gone")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class City(BaseModel):
    city: str
    seen: datetime | None = None


class Typed(Record, table="t_typed", key="name"):
    """Fields of types that no column has (enums, models, sets), and a private attribute."""

    name: str
    colour: Colour | None = None
    level: Level = Level.LOW
    size: Literal["s", "m"] = "s"
    token: UUID | None = None
    place: City | None = None
    places: list[City] = []
    tags: set[str] = set()
    pair: tuple[int, str] | None = None
    times: dict[str, datetime] = {}
    _seen: list[int] = PrivateAttr(default_factory=list)

    lifecycle = Lifecycle(STATES)


class Traced(
    Record,
    table="t_traced",
    key="name",
    attach=False,
    track=track(
        leased_at="taken_at",
        finished_at="ended_at",
        error_type="error_kind",
        error_message="error_text",
        attempts="tries",
    ),
):
    """Mapped tracking in a table that Esclusa creates; its fields read the extras."""

    name: str
    taken_at: datetime | None = None
    ended_at: datetime | None = None
    error_kind: str | None = None

    lifecycle = Lifecycle(STATES)


def stage(name: str, kind: Kind, **options: Any) -> Stage:
    """A stage whose handler is never called."""
    defaults: dict[str, Any] = dict.fromkeys(
        ("hold", "retry_to", "exhausted", "where", "retry", "batch", "budget", "timeout", "lease")
    )
    defaults |= {"order": (), "concurrency": 1, "cost": 1}
    return make_stage(name, kind, lambda record, at: None, **(defaults | options))


COLLECT = stage("collect", Post.kind, take="waiting", hold="collecting", exhausted="failed")
WORK = stage("work", Job.kind, take="pending", hold="working", exhausted="failed")
CALL = stage(
    "call", Job.kind, take="pending", hold="working", exhausted="failed", per="post", at_once=2
)
"""At most two records of one post."""

RANK = stage(
    "rank",
    Note.kind,
    take="fresh",
    exhausted="lost",
    order=("-name",),
    per="number",
    at_once=1,
)
"""Without a hold state, by a number, in an order of its own."""

READ = stage("read", Note.kind, take="fresh", exhausted="lost", where={"url": not_null})
TYPE = stage("type", Typed.kind, take="pending", hold="working", exhausted="failed")
HUSH = stage("hush", Quiet.kind, take="pending", hold="working", exhausted="failed")
AGE = stage("age", Old.kind, take="pending", hold="working", exhausted="failed")
TRACE = stage("trace", Traced.kind, take="pending", hold="working", exhausted="failed")

KINDS: tuple[Kind, ...] = (
    Post.kind,
    Job.kind,
    Note.kind,
    Quiet.kind,
    Old.kind,
    Sample.kind,
    Typed.kind,
    Traced.kind,
)
STAGES: tuple[Stage, ...] = (COLLECT, WORK, CALL, RANK, READ, HUSH, AGE, TYPE, TRACE)

"""The shapes of requests and answers: what the OpenAPI document promises."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from esclusa.model.storable import storage_fault

T = TypeVar("T")

RecordJson = dict[str, Any]


class Listed(BaseModel, Generic[T]):
    """One page of a list; ``next`` is the cursor of the following page (``?after=``), null at the end."""

    items: list[T]
    next: str | None = None


class Count(BaseModel):
    state: str
    count: int
    exact: bool


class LifecycleShape(BaseModel):
    initial: str
    states: list[str]
    terminal: list[str]
    moves: list[tuple[str, str]]


class KindShape(BaseModel):
    """A kind of record: its fields, its lifecycle, and how many records are in each state."""

    table: str
    kind: str
    pipeline: str
    key: list[str]
    fields: dict[str, str]
    lifecycle: LifecycleShape
    counts: list[Count]


class StepShape(BaseModel):
    """One move of a record, or one attempt that left it where it was."""

    model_config = ConfigDict(populate_by_name=True)

    frm: Annotated[str, Field(alias="from")]
    to: str
    at: datetime
    who: str
    run: str | None
    attempt: int | None
    reason: str | None
    reason_code: str | None
    error: dict[str, Any] | None


class ReasonShape(BaseModel):
    code: str
    text: str
    until: datetime | None


class WhyShape(BaseModel):
    """Why a record is not moving, in words, and when it can move next (null: not by itself)."""

    state: str
    answer: str
    reasons: list[ReasonShape]
    next: datetime | None


class RunShape(BaseModel):
    """How a run went."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "run": "media.download:2026-11-16T02%3A15",
                "cycle": "media.download",
                "outcome": "partial",
                "counters": {"taken": 12, "success": 11, "error": 1},
                "message": None,
            }
        }
    )

    run: str
    cycle: str
    outcome: Literal["ok", "blocked", "partial", "error"]
    counters: dict[str, int]
    message: str | None


class Passed(BaseModel):
    id: str
    why: str


class ActedShape(BaseModel):
    """What a bulk act did or, with ``dry_run``, would do. ``exact`` false: at least ``matched`` records match."""

    verb: str
    table: str
    matched: int
    exact: bool
    moved: int
    dry_run: bool
    passed: list[Passed]


class RowFault(BaseModel):
    row: int
    error: str


class InsertedShape(BaseModel):
    """What became of the rows; the first row is row 1."""

    created: int
    known: int
    errors: list[RowFault]


class CycleShape(BaseModel):
    cycle: str
    schedule: str
    singleton: bool
    state: Literal["idle", "running", "paused"]
    next: datetime | None
    last: RecordJson | None


class WindowShape(BaseModel):
    budget: str
    per: str
    limit: int
    used: int
    left: int
    start: datetime
    reset: datetime
    spenders: dict[str, int]
    projected: int
    runs_out_at: datetime | None
    barred: datetime | None


class BudgetShape(BaseModel):
    budget: str
    pipeline: str
    windows: list[WindowShape]


class SeriesShape(BaseModel):
    """What a stage did, minute by minute from ``first`` on, and in all."""

    stage: str
    first: datetime
    minutes: int
    moved: list[int]
    retried: list[int]
    waited: list[int]
    exhausted: list[int]
    lost: list[int]
    total: dict[str, int]
    error_share: float | None
    p50: float | None
    p90: float | None
    p99: float | None


class LeaseShape(BaseModel):
    """A record that is held now. ``orphan``: the lease ran out and nobody has taken it over yet."""

    stage: str
    table: str
    id: str
    status: str
    worker: str | None
    attempt: int
    until: datetime | None
    orphan: bool


class RelatedItem(BaseModel):
    id: str
    status: str
    title: str
    created_at: datetime | None


class RelationShape(BaseModel):
    """Records related by one declared reference. ``way``: ``to`` if this record names them, ``from`` if they name it."""

    way: Literal["to", "from"]
    field: str
    table: str
    items: list[RelatedItem]
    more: bool


class FoundShape(BaseModel):
    """Records of one kind that a search found."""

    table: str
    items: list[RelatedItem]


class ViewShape(BaseModel):
    """A view that a pipeline declares. ``count``: the records it is about (``exact`` false: at least so many), null if it tells
    something else."""

    view: str = Field(examples=["media.errors"])
    title: dict[str, str] = Field(
        examples=[{"en": "Media that could not be had, the newest first"}]
    )
    table: str | None
    count: int | None
    exact: bool


class ViewPage(ViewShape):
    """One page of a view."""

    columns: list[str]
    items: list[RecordJson]
    next: str | None


class GroupShape(BaseModel):
    """Open dead letters of one table with the same error."""

    table: str
    error_type: str
    count: int
    message: str
    newest: datetime | None
    oldest: datetime | None
    example: str


class GroupsShape(BaseModel):
    """``exact`` false: only the newest dead letters were grouped."""

    items: list[GroupShape]
    next: None = None
    exact: bool


class ArchiveShape(BaseModel):
    """The archive of a kind. ``exact`` false: at least so many rows."""

    table: str
    rows: int
    exact: bool
    not_exported: int
    not_exported_exact: bool
    exports: int
    exported_rows: int
    bytes: int
    unverified: int
    dropped: int


class StageShape(BaseModel):
    """A stage: what is due, and how it went in the last five minutes."""

    model_config = ConfigDict(extra="allow")

    stage: str
    table: str
    take: list[str]
    hold: str | None
    due: int
    due_exact: bool
    oldest_due_at: datetime | None
    next_due_at: datetime | None
    oldest_due_seconds: float | None
    per_minute: float
    error_share: float | None
    p50: float | None
    p99: float | None
    drain_seconds: float | None


class StatusShape(BaseModel):
    """The whole house at a glance."""

    model_config = ConfigDict(extra="allow")

    now: datetime
    store: str
    kinds: list[KindShape]
    stages: list[StageShape]
    cycles: list[CycleShape]
    budgets: list[BudgetShape]
    workers: list[RecordJson]
    dead_letters: int


class Body(BaseModel):
    """What a mutating call says. A misspelt member is refused, for it would change what is done."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _can_be_kept(cls, said: Any) -> Any:
        fault = storage_fault(said)
        if fault is not None:
            raise ValueError(f"a value in it cannot be kept: {fault}")
        return said


class Choice(Body):
    """Which records: by their ids, or by a filter."""

    ids: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = None
    filter: dict[str, Any] | None = None
    reason: Annotated[str, Field(max_length=1000)] = ""
    dry_run: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> Choice:
        if (self.ids is None) == (not self.filter):
            raise ValueError(
                "say which records: either 'ids' or a 'filter' that is not empty, and not both"
            )
        return self


class MoveBody(Choice):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "ids": ["twitter:42"],
                    "to": "pending",
                    "reason": "the service is back",
                    "dry_run": False,
                },
                {
                    "filter": {"status": "error", "attempts": {"gte": 3}},
                    "to": "pending",
                    "reason": "token renewed",
                    "dry_run": True,
                },
            ]
        }
    )

    to: str
    fields: dict[str, Any] = {}


class RetryBody(Choice):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"filter": {"status": "error"}, "reason": "token renewed"}]}
    )


class RedriveBody(Choice):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"filter": {"error_type": "timeout"}, "reason": "the service is back"}]
        }
    )

    fields: dict[str, Any] = {}


class DiscardBody(Choice):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"ids": ["0199a…"], "reason": "the account is gone"}]}
    )


class RunBody(Body):
    """How to run the cycle: at most ``limit`` records, with ``params`` for a cycle that takes some."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"limit": 100}]})

    limit: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    params: dict[str, Any] = {}


class SwitchBody(Body):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"reason": "maintenance at the provider"}]}
    )

    reason: Annotated[str, Field(max_length=1000)] = ""


class LimitBody(Body):
    """The limit of the budget's open window, until it resets."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"per": "day", "limit": 500, "reason": "the provider raised it today"}]
        }
    )

    per: Literal["second", "minute", "hour", "day", "month"]
    limit: Annotated[int, Field(ge=0, le=1_000_000_000_000)]
    reason: Annotated[str, Field(max_length=1000)] = ""

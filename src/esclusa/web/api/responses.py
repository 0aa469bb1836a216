"""What routes answer: response models that several resources share, and records as JSON.

For a caller with the role read, secrets are masked.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from esclusa.model.query import Page
from esclusa.model.record import Record
from esclusa.observability import redact
from esclusa.web.auth.tokens import read_only

T = TypeVar("T")

RecordJson = dict[str, Any]


class ListOut(BaseModel, Generic[T]):
    """One page of a list. ``next`` is the cursor of the next page (``?after=``), or null."""

    items: list[T]
    next: str | None = None


class SkippedOut(BaseModel):
    """A record that a bulk action left unchanged, and why."""

    id: str
    why: str


class ActionOut(BaseModel):
    """What a bulk action did or, with ``dry_run``, would do.

    If ``exact`` is false, at least ``matched`` records match.
    """

    verb: str
    table: str
    matched: int
    exact: bool
    moved: int
    dry_run: bool
    passed: list[SkippedOut]


def mask_fields(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record, with secrets masked if the caller has the role read."""
    return redact.fields(values) if read_only.get() else values


def mask_text(text: str) -> str:
    """A text, with anything that looks like a secret masked if the caller has the role read."""
    return redact.text(text) if read_only.get() else text


def record_json(record: Record) -> dict[str, Any]:
    """A record as the API answers it."""
    return mask_fields(record.kind.as_json(record))


def run_json(run: Record) -> dict[str, Any]:
    """A run as the API lists it: its row, and the member names that a started run answers with."""
    outcome = None if run.status == "running" else run.status
    return record_json(run) | {"run": run.id, "outcome": outcome}


def page_json(page: Page[Any]) -> dict[str, Any]:
    """A page of records as the API answers it."""
    return {"items": [record_json(record) for record in page.items], "next": page.next}

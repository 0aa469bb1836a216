"""Models that several resources share: lists, bulk actions, request bodies."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from esclusa.model.storable import storage_fault

T = TypeVar("T")

RecordJson = dict[str, Any]


class ListOut(BaseModel, Generic[T]):
    """One page of a list. ``next`` is the cursor of the next page (``?after=``), null at the end."""

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


class RequestBody(BaseModel):
    """A request body. Unknown members are refused: a misspelt one would change what is done."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, given: Any) -> Any:
        fault = storage_fault(given)
        if fault is not None:
            raise ValueError(f"a value cannot be stored: {fault}")
        return given


class SelectionBody(RequestBody):
    """The records to act on: by their ids, or by a filter."""

    ids: Annotated[list[str], Field(min_length=1, max_length=1000)] | None = None
    filter: dict[str, Any] | None = None
    reason: Annotated[str, Field(max_length=1000)] = ""
    dry_run: bool = False

    @model_validator(mode="after")
    def _ids_or_filter(self) -> SelectionBody:
        if (self.ids is None) == (not self.filter):
            raise ValueError("give either 'ids' or a 'filter' that is not empty, and not both")
        return self

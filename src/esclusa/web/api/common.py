"""Parameters, request bodies, dependencies and answers that several resources share.

For a caller with the role read, secrets in an answer are masked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Generic, TypeVar, cast

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query as QueryInfo
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, model_validator

from esclusa.engine.read_model import ReadModel
from esclusa.model.errors import BadQuery
from esclusa.model.kind import Kind
from esclusa.model.names import unknown
from esclusa.model.paths import value_at
from esclusa.model.query import Page, check_states, one_of
from esclusa.model.record import Record
from esclusa.model.storable import storage_fault
from esclusa.observability import redact
from esclusa.runtime import Runtime
from esclusa.web.api.filters import OPERATORS, RESERVED, filter_from_json
from esclusa.web.auth.tokens import read_only
from esclusa.web.paths import as_pasted

T = TypeVar("T")

RecordJson = dict[str, Any]

# Seconds for which a signal waits while a worker holds its record.
WAKE_WAIT: Final = 5.0


def operation_id(route: APIRoute) -> str:
    """The OpenAPI id of an operation: the name of its function."""
    return route.name


async def refuse_unknown(request: Request) -> None:
    """Refuse a parameter that the route does not have.

    A misspelt filter must not widen what is answered or changed. Every ``GET`` may have ``limit``
    and ``after``. A route with ``FILTER_PARAMETER`` checks its filter itself.
    """
    route = request.scope["route"]
    known = {
        p.alias for p in get_flat_params(route.dependant) if isinstance(p.field_info, QueryInfo)
    }
    paging = {"limit", "after"} if request.method in ("GET", "HEAD") else set()
    given = set(request.query_params)
    if FILTER_PARAMETER in (route.openapi_extra or {}).get("parameters", ()):
        given &= RESERVED  # the others are fields
    if others := sorted(given - known - paging):
        names = ", ".join(others)
        raise BadQuery(unknown("no_parameter", others[0], known, names=names))


async def refuse_unknown_states(runtime: Runtime, kind: Kind, where: dict[str, Any]) -> None:
    """Refuse a filter by a state that neither the lifecycle nor a record has.

    Call it if nothing matches: the state is probably misspelt.
    """
    if "status" in where:
        check_states(kind, where, await runtime.read_model.states(kind.table))


# The dependency of routes that refuse parameters which they do not have.
STRICT_PARAMETERS: Final = Depends(refuse_unknown)


def api_router(tag: str) -> APIRouter:
    """A router for routes below ``/api``."""
    return APIRouter(
        prefix="/api",
        tags=[tag],
        dependencies=[STRICT_PARAMETERS],
        generate_unique_id_function=operation_id,
    )


async def _runtime(request: Request) -> Runtime:
    return cast("Runtime", request.app.state.runtime)


async def _who(request: Request) -> str:
    return str(request.state.who)


CurrentRuntime = Annotated[Runtime, Depends(_runtime)]
# The name of the caller, for history and audit.
Who = Annotated[str, Depends(_who)]

Limit = Annotated[int, Query(ge=1, le=10_000, description="Maximum number of items on a page")]
After = Annotated[str | None, Query(description="`next` of the previous page")]
Archived = Annotated[bool, Query(description="Read the archive instead of the table")]
System = Annotated[bool, Query(description="Include Esclusa's own kinds, stages and cycles")]
Table = Annotated[
    str, Path(description="The kind's table, as listed by `GET /api/kinds`", examples=["orders"])
]


async def _record_id(
    request: Request,
    runtime: CurrentRuntime,
    table: Table,
    id: Annotated[str, Path(description="The record's id", examples=["acme:42"])],
) -> str:
    return await pasted_id(request, runtime.read_model, table, id)


async def pasted_id(request: Request, read_model: ReadModel, table: str, id: str) -> str:
    """The id of a record in the path. A ``%`` in it need not be encoded as ``%25``."""
    route = request.scope["route"].path.partition("{id:path}")[2]
    pasted = as_pasted(request.scope, f"/records/{table}/", route)
    if pasted in ("", id) or "%" not in pasted:
        return id
    found = await read_model.records(table, {"id": one_of(id, pasted)}, limit=2)
    ids = {record.id for record in found.items}
    return pasted if pasted in ids and id not in ids else id


RecordId = Annotated[str, Depends(_record_id)]

FILTER_NOTE: Final = (
    "Any other parameter filters by a field of the kind: `?platform=twitter`, or with an operator"
    f" `?attempts__gte=3` ({', '.join(f'`__{name}`' for name in OPERATORS)})."
    " A field that is given twice may have either value. A name may lead into a JSON field"
    " (`last_error.type`, or `error_type`), and a time may be relative (`updated_at__gte=-2h`)."
)
# The OpenAPI parameter of a route that filters.
FILTER_PARAMETER: Final[dict[str, Any]] = {
    "name": "filter",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": FILTER_NOTE,
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}


class RequestBody(BaseModel):
    """A request body. Unknown members are refused: a misspelt one would change what is done."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, given: Any) -> Any:
        if (fault := storage_fault(given)) is not None:
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

    def selection(self, kind: Kind) -> dict[str, Any]:
        """The arguments that every operation on many records takes."""
        return {
            "ids": self.ids,
            "where": None if self.filter is None else filter_from_json(kind, self.filter),
            "reason": self.reason,
            "dry_run": self.dry_run,
        }


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
    return record_json(run) | {
        "run": run.id,
        "outcome": None if run.status == "running" else run.status,
    }


def page_json(page: Page[Any], names: Iterable[str] = ()) -> dict[str, Any]:
    """A page of records as the API answers it; ``names``: only these members."""
    items = [record_json(record) for record in page.items]
    if names := tuple(names):
        items = [mask_fields({name: value_at(item, name) for name in names}) for item in items]
    return {"items": items, "next": page.next}

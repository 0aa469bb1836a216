"""The pipeline's own routes: devices, tenders, deliveries, runs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from esclusa import NotFound, Runtime
from esclusa.pipelines.tenders.app_routes import add_app
from esclusa.pipelines.tenders.callers import AUTHENTICATED
from esclusa.pipelines.tenders.choices import Choices, add_choices
from esclusa.pipelines.tenders.device_routes import add_devices, add_previews
from esclusa.pipelines.tenders.records import Delivery, Licitacion
from esclusa.pipelines.tenders.result_routes import add_results
from esclusa.pipelines.tenders.run_list import list_runs, worker_names
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.tender_lookup import find_tender
from esclusa.web import (
    FILTER_NOTE,
    FILTER_PARAMETER,
    STRICT_PARAMETERS,
    ActionOut,
    After,
    Limit,
    ListOut,
    RecordJson,
    Who,
    filter_from_query,
    operation_id,
    own_credentials,
    page_json,
    problem_responses,
    record_json,
    refuse_unknown_states,
    strict_filter_from_query,
)

Archived = Annotated[bool, Query(description="Search the archive")]


def build(runtime: Runtime) -> APIRouter:
    """Return every route of the pipeline."""
    router = APIRouter(
        tags=["tenders"],
        dependencies=[STRICT_PARAMETERS, AUTHENTICATED],
        generate_unique_id_function=operation_id,
    )
    add_devices(runtime, router)
    add_previews(runtime, router)
    choices = Choices(runtime)
    add_choices(runtime, router, choices)
    add_results(runtime, router)
    _add_tenders(runtime, router)
    _add_deliveries(runtime, router)
    _add_runs(runtime, router)
    add_app(runtime, router, choices)
    return router


def _add_tenders(runtime: Runtime, api: APIRouter) -> None:
    settings: TendersSettings = runtime.settings_of("tenders")
    for_apps = own_credentials(anonymous=settings.open_to_apps)

    @api.get(
        "/licitaciones",
        response_model=ListOut[RecordJson],
        responses=problem_responses(400),
        summary="Tenders, the newest first",
        description=FILTER_NOTE,
        openapi_extra=for_apps | {"parameters": [FILTER_PARAMETER]},
    )
    async def tenders(
        request: Request, limit: Limit = 100, after: After = None, *, archived: Archived = False
    ) -> Any:
        page = await runtime.records.find(
            Licitacion,
            filter_from_query(Licitacion.kind, request.query_params.multi_items()),
            order="-fecha_publicacion",
            limit=limit,
            after=after,
            archived=archived,
        )
        return page_json(page)

    @api.get(
        "/licitaciones/{codigo}",
        response_model=RecordJson,
        responses=problem_responses(404),
        summary="One tender, archived or not",
        openapi_extra=for_apps,
    )
    async def tender(
        codigo: Annotated[str, Path(description="Its codigo_externo", examples=["1019-102-LE26"])],
    ) -> Any:
        found = await find_tender(runtime.records, codigo)
        if found is None:
            raise NotFound(f"there is no tender {codigo!r:.200}")
        return record_json(found)


def _add_deliveries(runtime: Runtime, api: APIRouter) -> None:
    @api.get(
        "/deliveries",
        response_model=ListOut[RecordJson],
        responses=problem_responses(400),
        summary="Deliveries; with a filter on one state, the latest first",
        description=FILTER_NOTE,
        openapi_extra={"parameters": [FILTER_PARAMETER]},
    )
    async def deliveries(
        request: Request, limit: Limit = 100, after: After = None, *, archived: Archived = False
    ) -> Any:
        where = filter_from_query(Delivery.kind, request.query_params.multi_items())
        is_one_state = getattr(where.get("status"), "op", None) == "eq" and not archived
        page = await runtime.records.find(
            Delivery,
            where,
            order="-updated_at" if is_one_state else (),  # an index has this order per state
            limit=limit,
            after=after,
            archived=archived,
        )
        if not page.items:
            await refuse_unknown_states(runtime, Delivery.kind, where)
        return page_json(page)

    @api.post(
        "/deliveries/retry",
        response_model=ActionOut,
        responses=problem_responses(400),
        summary="Retry failed deliveries, from their first attempt",
        description=f"All failed deliveries, or those that match the filter. {FILTER_NOTE}",
        openapi_extra={"parameters": [FILTER_PARAMETER]},
    )
    async def retry_deliveries(
        request: Request,
        who: Who,
        reason: Annotated[str, Query(max_length=1000, description="Why, for the history")] = "",
        *,
        dry_run: Annotated[bool, Query(description="Only count, change nothing")] = False,
    ) -> Any:
        where = strict_filter_from_query(
            Delivery.kind, request.query_params.multi_items(), other={"reason", "dry_run"}
        )
        acted = await runtime.operations(who).retry(
            Delivery.kind.table,
            reason=reason or "retry",
            where=where or {"status": "failed"},
            dry_run=dry_run,
        )
        if not acted.matched:
            await refuse_unknown_states(runtime, Delivery.kind, where)
        return acted.answer()


def _add_runs(runtime: Runtime, api: APIRouter) -> None:
    @api.get(
        "/worker-runs",
        response_model=ListOut[RecordJson],
        responses=problem_responses(404),
        summary="Runs, the newest first",
    )
    async def worker_runs(
        worker: Annotated[
            str | None, Query(description="A cycle's short or full name", examples=["dispatch"])
        ] = None,
        limit: Limit = 50,
        after: After = None,
    ) -> Any:
        """The rows of the table `worker_runs`, those of the team's own worker included.

        `outcome` is null while a run is under way, and `died` if its process ended before it.
        """
        return await list_runs(runtime, worker_names(worker), limit, after)

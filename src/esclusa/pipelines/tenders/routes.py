"""The pipeline's own routes: devices, tenders, deliveries, runs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from esclusa import Inserted, NotFound, Runtime
from esclusa.pipelines.tenders.delivery import wake_quiet
from esclusa.pipelines.tenders.devices import DeviceBody, PreferencesBody
from esclusa.pipelines.tenders.devices import register as register_devices
from esclusa.pipelines.tenders.records import (
    Delivery,
    DeviceInstallation,
    Licitacion,
    NotificationPreferences,
)
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
    page_json,
    problem_responses,
    record_json,
    run_json,
    strict_filter_from_query,
)

InstallationId = Annotated[str, Path(description="The installation's id")]
Archived = Annotated[bool, Query(description="Search the archive")]


def build(runtime: Runtime) -> APIRouter:
    """Return every route of the pipeline."""
    router = APIRouter(
        tags=["tenders"],
        dependencies=[STRICT_PARAMETERS],
        generate_unique_id_function=operation_id,
    )
    _add_devices(runtime, router)
    _add_tenders(runtime, router)
    _add_deliveries(runtime, router)
    _add_runs(runtime, router)
    return router


def _add_devices(runtime: Runtime, api: APIRouter) -> None:
    table = DeviceInstallation.kind.table

    @api.post(
        "/devices",
        response_model=RecordJson,
        responses=problem_responses(400, 422),
        summary="Register a device, or register it again",
    )
    async def register(body: DeviceBody, who: Who) -> Any:
        """Posting again replaces the preferences and makes the device active."""
        now = await runtime.engine.clock.sync()
        device, preferences = body.records(now)
        before = await runtime.records.get(NotificationPreferences, body.installation_id)
        [put] = await register_devices(runtime.records, [body], now, who)
        await runtime.operations(who).note(
            "register", table, 1, {"installation_id": body.installation_id}
        )
        if before is not None and before.quiet_hours != preferences.quiet_hours:
            await wake_quiet(runtime.records, body.installation_id, before, who)
        # The device may have been deleted meanwhile.
        stored = await runtime.records.get(DeviceInstallation, put.id) or device.but(id=put.id)
        return record_json(stored) | {
            "preferences": _preferences_json(preferences),
            "created": isinstance(put, Inserted),
        }

    @api.delete(
        "/devices/{installation_id}",
        status_code=204,
        responses=problem_responses(404),
        summary="Delete a device and its preferences",
    )
    async def forget(installation_id: InstallationId, who: Who) -> None:
        removed, _ = await runtime.records.remove(
            installation_id, DeviceInstallation, NotificationPreferences
        )
        if not removed:
            raise NotFound(f"there is no device {installation_id!r:.200}")
        await runtime.operations(who).note("forget", table, 1, {"installation_id": installation_id})

    @api.get(
        "/devices/{installation_id}",
        response_model=RecordJson,
        responses=problem_responses(404),
        summary="A device and its preferences",
    )
    async def device(installation_id: InstallationId) -> Any:
        found = await runtime.records.get(DeviceInstallation, installation_id)
        if found is None:
            raise NotFound(f"there is no device {installation_id!r:.200}")
        preferences = await runtime.records.get(NotificationPreferences, installation_id)
        return record_json(found) | {"preferences": _preferences_json(preferences)}


def _preferences_json(preferences: NotificationPreferences | None) -> dict[str, Any] | None:
    if preferences is None:
        return None
    values = record_json(preferences)
    return {name: values[name] for name in PreferencesBody.model_fields}


def _add_tenders(runtime: Runtime, api: APIRouter) -> None:
    @api.get(
        "/licitaciones",
        response_model=ListOut[RecordJson],
        responses=problem_responses(400),
        summary="Tenders, the newest first",
        description=FILTER_NOTE,
        openapi_extra={"parameters": [FILTER_PARAMETER]},
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
    )
    async def tender(
        codigo: Annotated[str, Path(description="Its codigo_externo", examples=["1019-102-LE26"])],
    ) -> Any:
        found = await find_tender(runtime.records, codigo)
        if found is None:
            raise NotFound(f"there is no tender {codigo!r:.200}")
        return record_json(found)


async def find_tender(records: Any, name: str) -> Licitacion | None:
    """Return the tender with this id or code, archived or not."""
    found: Licitacion | None = await records.get(Licitacion, name)
    for field, archived in (("codigo_externo", False), ("id", True), ("codigo_externo", True)):
        if found is None:
            page = await records.find(Licitacion, {field: name}, limit=1, archived=archived)
            found = page.items[0] if page.items else None
    return found


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
        names = [name for name in runtime.engine.cycles if name.startswith("tenders.")]
        if worker is not None:
            full = worker if "." in worker else f"tenders.{worker}"
            full = {"tenders.receipts": "tenders.receipt"}.get(full, full)
            if full not in names:
                known = ", ".join(name.removeprefix("tenders.") for name in names)
                raise NotFound(f"there is no cycle {worker!r:.100}; there are: {known}")
            names = [full]
        page = await runtime.read_model.runs(
            {"cycle": names if len(names) > 1 else names[0]}, limit=limit, after=after
        )
        return {
            "items": [
                run_json(run) | {"worker_name": getattr(run, "cycle", None)} for run in page.items
            ],
            "next": page.next,
        }

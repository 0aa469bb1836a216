"""The pipeline's own HTTP routes: devices, tenders, deliveries, runs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from esclusa import Inserted
from esclusa.model.errors import NotFound
from esclusa.pipelines.tenders.devices import DeviceBody
from esclusa.pipelines.tenders.records import (
    Delivery,
    DeviceInstallation,
    Licitacion,
    NotificationPreferences,
)
from esclusa.runtime import Runtime
from esclusa.web import (
    FILTER_NOTE,
    FILTER_PARAMETER,
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

OWN = frozenset({"reason", "dry_run"})


def router(runtime: Runtime) -> APIRouter:
    """The routes over an opened house."""
    whole = APIRouter(tags=["tenders"])
    for part in (_devices, _tenders, _deliveries, _runs):
        whole.include_router(part(runtime))
    return whole


def _devices(runtime: Runtime) -> APIRouter:
    api = APIRouter(generate_unique_id_function=operation_id)
    records, engine = runtime.engine.records, runtime.engine

    @api.post(
        "/devices",
        response_model=RecordJson,
        responses=problem_responses(400, 422),
        summary="Register a device, or register it again",
    )
    async def register(body: DeviceBody, who: Who) -> Any:
        """Posting again replaces the preferences and makes the device active."""
        wanted, device = body.records(await engine.clock.sync())
        made = (await records.put([wanted, device], who=who))[1]
        await runtime.operations(who).note(
            "register", DeviceInstallation.kind.table, 1, {"installation_id": body.installation_id}
        )
        kept = await records.get(DeviceInstallation, made.id) or device.but(
            id=made.id
        )  # another may have forgotten it since
        return record_json(kept) | {
            "preferences": _preferences(wanted),
            "created": isinstance(made, Inserted),
        }

    @api.delete(
        "/devices/{installation_id}",
        status_code=204,
        responses=problem_responses(404),
        summary="Forget a device and its preferences",
    )
    async def forget(
        installation_id: Annotated[str, Path(description="The installation's id")], who: Who
    ) -> None:
        gone, _ = await records.remove(
            DeviceInstallation.kind.id_of(installation_id),
            DeviceInstallation,
            NotificationPreferences,
        )
        if not gone:
            raise NotFound(f"there is no device {installation_id!r:.200}")
        await runtime.operations(who).note(
            "forget", DeviceInstallation.kind.table, 1, {"installation_id": installation_id}
        )

    @api.get(
        "/devices/{installation_id}",
        response_model=RecordJson,
        responses=problem_responses(404),
        summary="A device and its preferences",
    )
    async def device(
        installation_id: Annotated[str, Path(description="The installation's id")],
    ) -> Any:
        id = DeviceInstallation.kind.id_of(installation_id)
        found = await records.get(DeviceInstallation, id)
        if found is None:
            raise NotFound(f"there is no device {installation_id!r:.200}")
        return record_json(found) | {
            "preferences": _preferences(await records.get(NotificationPreferences, id))
        }

    return api


def _tenders(runtime: Runtime) -> APIRouter:
    api = APIRouter(generate_unique_id_function=operation_id)
    records = runtime.engine.records

    @api.get(
        "/licitaciones",
        response_model=ListOut[RecordJson],
        responses=problem_responses(400),
        summary="Tenders, the newest first",
        description=FILTER_NOTE,
        openapi_extra={"parameters": [FILTER_PARAMETER]},
    )
    async def tenders(
        request: Request,
        limit: Limit = 100,
        after: After = None,
        *,
        archived: Annotated[bool, Query(description="Look in the archive")] = False,
    ) -> Any:
        where = filter_from_query(Licitacion.kind, request.query_params.multi_items())
        page = await records.find(
            Licitacion,
            where,
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
        summary="One tender",
    )
    async def tender(
        codigo: Annotated[str, Path(description="Its codigo_externo", examples=["1019-102-LE26"])],
    ) -> Any:
        id = Licitacion.kind.id_of(codigo)
        found = await records.get(Licitacion, id)
        if found is None:
            found = next(
                iter((await records.find(Licitacion, {"id": id}, limit=1, archived=True)).items),
                None,
            )
        if found is None:
            raise NotFound(f"there is no tender {codigo!r:.200}")
        return record_json(found)

    return api


def _deliveries(runtime: Runtime) -> APIRouter:
    api = APIRouter(generate_unique_id_function=operation_id)
    records = runtime.engine.records

    @api.get(
        "/deliveries",
        response_model=ListOut[RecordJson],
        responses=problem_responses(400),
        summary="Deliveries; those in one state the latest first",
        description=FILTER_NOTE,
        openapi_extra={"parameters": [FILTER_PARAMETER]},
    )
    async def deliveries(
        request: Request,
        limit: Limit = 100,
        after: After = None,
        *,
        archived: Annotated[bool, Query(description="Look in the archive")] = False,
    ) -> Any:
        where = filter_from_query(Delivery.kind, request.query_params.multi_items())
        one_state = getattr(where.get("status"), "op", None) == "eq" and not archived
        order = "-updated_at" if one_state else ()  # as the index has them
        page = await records.find(
            Delivery, where, order=order, limit=limit, after=after, archived=archived
        )
        return page_json(page)

    @api.post(
        "/deliveries/retry",
        response_model=ActionOut,
        responses=problem_responses(400),
        summary="Give failed deliveries a new ladder of tries",
        description=f"Those that failed and match the filter, or all that failed. {FILTER_NOTE}",
        openapi_extra={"parameters": [FILTER_PARAMETER]},
    )
    async def retry_deliveries(
        request: Request,
        who: Who,
        reason: Annotated[str, Query(max_length=1000, description="Why, for the history")] = "",
        *,
        dry_run: Annotated[bool, Query(description="Only count")] = False,
    ) -> Any:
        where = strict_filter_from_query(
            Delivery.kind, request.query_params.multi_items(), other=OWN
        ) or {"status": "failed"}
        acted = await runtime.operations(who).retry(
            Delivery.kind.table, reason=reason or "retry", where=where, dry_run=dry_run
        )
        return acted.answer()

    return api


def _runs(runtime: Runtime) -> APIRouter:
    api = APIRouter(generate_unique_id_function=operation_id)
    engine = runtime.engine

    @api.get(
        "/worker-runs",
        response_model=ListOut[RecordJson],
        responses=problem_responses(404),
        summary="Runs, the newest first",
    )
    async def worker_runs(
        worker: Annotated[
            str | None,
            Query(description="A cycle, by its short or its full name", examples=["dispatch"]),
        ] = None,
        limit: Limit = 50,
        after: After = None,
    ) -> Any:
        names = [c.name for c in engine.cycles.values() if c.name.startswith("tenders.")]
        if worker is not None:
            full = worker if "." in worker else f"tenders.{worker}"
            full = {"tenders.receipts": "tenders.receipt"}.get(full, full)
            if full not in names:
                raise NotFound(
                    f"there is no cycle {worker!r:.100}; there are: {', '.join(n.removeprefix('tenders.') for n in names)}"
                )
            names = [full]
        page = await runtime.read_model.runs(
            {"cycle": names if len(names) > 1 else names[0]}, limit=limit, after=after
        )
        items = [run_json(run) | {"worker_name": getattr(run, "cycle", None)} for run in page.items]
        return {"items": items, "next": page.next}

    return api


def _preferences(wanted: NotificationPreferences | None) -> dict[str, Any] | None:
    if wanted is None:
        return None
    own = (
        "enabled",
        "regions",
        "categories",
        "buyers",
        "amount_min",
        "amount_max",
        "keywords",
        "quiet_hours",
    )
    return {name: value for name, value in record_json(wanted).items() if name in own}

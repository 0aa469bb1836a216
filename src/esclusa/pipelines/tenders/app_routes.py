"""The calls of the team's app, as its own API server answers them."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from esclusa import EsclusaError, NotFound, Runtime
from esclusa.pipelines.tenders.app_feed import Feed, SortMode
from esclusa.pipelines.tenders.app_installations import (
    legacy_register,
    legacy_unregister,
    sync,
)
from esclusa.pipelines.tenders.app_json import (
    AppPreferences,
    SyncBody,
    TokenBody,
    app_preferences_json,
    installation_json,
    tender_json,
)
from esclusa.pipelines.tenders.callers import CurrentApp
from esclusa.pipelines.tenders.choices import Choices
from esclusa.pipelines.tenders.devices import Name
from esclusa.pipelines.tenders.installations import change_preferences, find_device
from esclusa.pipelines.tenders.records import (
    AMOUNT_LIMIT,
    DeviceInstallation,
    NotificationPreferences,
)
from esclusa.pipelines.tenders.regions import REGIONS
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.tender_lookup import find_tender
from esclusa.web import SELF_AUTHENTICATED, error_response, own_credentials, problem_responses

# The longest body that the app's calls accept.
MAX_BODY = 1024 * 1024
InstallationId = Annotated[Name, Path(description="The installation's id")]
Amount = Annotated[Decimal | None, Query(ge=0, lt=AMOUNT_LIMIT, allow_inf_nan=False)]
Text = Annotated[str | None, Query(max_length=200)]


class ErrorOut(BaseModel):
    """An error, as the app reads it."""

    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: documented | {"model": ErrorOut}
    for status, documented in problem_responses(400, 404, 409, 413).items()
}
# The answers that stay problems, because they come from before the route.
_PROBLEMS = (401, 403, 429)


class AppRoute(APIRoute):
    """A route whose errors are ``{"error": text}``, and that answers ``x-request-id``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler that words errors for the app."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                length = request.headers.get("content-length", "0")
                if length.isdigit() and int(length) > MAX_BODY:
                    raise HTTPException(413, "the body is larger than 1 MB")
                response = await handle(request)
            except (EsclusaError, RequestValidationError, HTTPException) as error:
                response = _app_error(error)
            if id := request.headers.get("x-request-id"):
                response.headers["x-request-id"] = id[:200]
            return response

        return answer


def _app_error(error: Exception) -> Response:
    problem = error_response(error)
    if problem.status_code >= 500 or problem.status_code in _PROBLEMS:
        raise error
    status = 400 if problem.status_code == 422 else problem.status_code
    return JSONResponse({"error": json.loads(bytes(problem.body))["detail"]}, status)


def add_app(runtime: Runtime, api: APIRouter, choices: Choices) -> None:
    """Add the calls of the app."""
    settings: TendersSettings = runtime.settings_of("tenders")
    for_apps = own_credentials(anonymous=settings.open_to_apps)

    def route(
        method: str, path: str, summary: str, extra: dict[str, Any] = for_apps
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(endpoint: Callable[..., Any]) -> Callable[..., Any]:
            api.add_api_route(
                path,
                endpoint,
                methods=[method],
                summary=summary,
                responses=ERRORS,
                openapi_extra=extra,
                route_class_override=AppRoute,
            )
            return endpoint

        return add

    _add_installations(runtime, route)
    _add_tenders(runtime, route, choices)
    for path in ("/api/health", "/health/live", "/health/ready"):
        name = path.rpartition("/")[2]
        route("GET", path, "Whether the server answers", SELF_AUTHENTICATED)(
            _health(runtime, f"app_{name}")
        )


Route = Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]


def _health(runtime: Runtime, name: str) -> Callable[..., Any]:
    async def health() -> dict[str, str]:
        await runtime.engine.clock.sync()
        return {"status": "ok"}

    health.__name__ = name
    return health


def _add_installations(runtime: Runtime, route: Route) -> None:
    records = runtime.records

    async def existing(installation_id: str, caller: CurrentApp) -> DeviceInstallation:
        found = await find_device(records, installation_id)
        if found is None:
            raise NotFound(f"there is no installation {installation_id!r:.200}")
        caller.require_registration(found, None)
        return found

    async def preferences_of(installation_id: str) -> dict[str, Any]:
        await records.insert([NotificationPreferences(installation_id=installation_id)])
        stored = await records.get(NotificationPreferences, installation_id)
        return app_preferences_json(
            stored or NotificationPreferences(installation_id=installation_id)
        )

    @route("PUT", "/api/installations/{installation_id}/sync", "Report an installation")
    async def app_sync(
        installation_id: InstallationId, body: SyncBody, caller: CurrentApp
    ) -> dict[str, Any]:
        """The token of another installation goes to a new one; a known one is refused it."""
        former = await find_device(records, installation_id)
        caller.require_registration(former, body.pushToken)
        now = await runtime.engine.clock.sync()
        if not await sync(runtime, installation_id, body.fields(now), now, caller.who):
            raise HTTPException(409, "the push token belongs to another installation")
        stored = await records.get(DeviceInstallation, installation_id)
        if stored is None:  # deleted meanwhile
            raise NotFound(f"there is no installation {installation_id!r:.200}")
        return {
            "data": installation_json(stored),
            "preferences": await preferences_of(installation_id),
        }

    @route("POST", "/api/devices/register", "Register a token, for early versions of the app")
    async def app_register(body: TokenBody, caller: CurrentApp) -> dict[str, bool]:
        now = await runtime.engine.clock.sync()
        await legacy_register(
            runtime, body.expoPushToken, body.installation_id, body.platform, now, caller.who
        )
        return {"ok": True}

    @route("DELETE", "/api/devices/unregister", "Switch off the device with a token")
    async def app_unregister(body: TokenBody, caller: CurrentApp) -> dict[str, bool]:
        now = await runtime.engine.clock.sync()
        await legacy_unregister(runtime, body.expoPushToken, now, caller.who)
        return {"ok": True}

    @route("GET", "/api/installations/{installation_id}/preferences", "The filters of the app")
    async def app_preferences(
        installation_id: InstallationId, caller: CurrentApp
    ) -> dict[str, Any]:
        await existing(installation_id, caller)
        return {"data": await preferences_of(installation_id)}

    @route("PUT", "/api/installations/{installation_id}/preferences", "Replace the filters")
    async def app_put_preferences(
        installation_id: InstallationId, body: AppPreferences, caller: CurrentApp
    ) -> dict[str, Any]:
        await existing(installation_id, caller)
        await change_preferences(runtime, installation_id, body.fields(), caller.who)
        return {"data": await preferences_of(installation_id)}


def _add_tenders(runtime: Runtime, route: Route, choices: Choices) -> None:
    records = runtime.records

    @route("GET", "/api/licitaciones/regions", "The regions of tenders")
    async def app_regions() -> dict[str, Any]:
        names = await choices.regions.get() or [region.name for region in REGIONS]
        return {"data": [{"name": name} for name in names]}

    @route("GET", "/api/rubros", "Categories")
    async def app_rubros() -> dict[str, Any]:
        found = await choices.rubros.get()
        return {
            "data": [
                {"code": r["code"], "name": r["name"], "parentCode": r["parent_code"]}
                for r in found
            ]
        }

    @route("GET", "/api/licitaciones", "Tenders of the last days")
    async def app_tenders(
        limit: Annotated[int, Query(ge=1, le=50)] = 20,
        windowDays: Annotated[int, Query(ge=1, le=365)] = 90,  # noqa: N803 - the app's name
        cursor: Annotated[str | None, Query(max_length=2000)] = None,
        rubro: Text = None,
        tipo: Text = None,
        region: Text = None,
        montoMin: Amount = None,  # noqa: N803 - the app's name
        montoMax: Amount = None,  # noqa: N803 - the app's name
        sortMode: SortMode | None = None,  # noqa: N803 - the app's name
    ) -> dict[str, Any]:
        feed = Feed(limit, windowDays, cursor, rubro, tipo, region, montoMin, montoMax, sortMode)
        now = await runtime.engine.clock.sync()
        return await feed.answer(records, await choices.regions.get() if region else [], now)

    @route("GET", "/api/licitaciones/{id}", "One tender, by its id or code")
    async def app_tender(
        id: Annotated[str, Path(description="Its id or code")],
    ) -> dict[str, Any]:
        found = await find_tender(records, id)
        if found is None:
            raise NotFound(f"there is no tender {id!r:.200}")
        return {"data": tender_json(found)}

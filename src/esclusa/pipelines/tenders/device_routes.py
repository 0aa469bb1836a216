"""The routes of devices: registration, changes, credentials, and what a device would have got."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query
from pydantic import BaseModel

from esclusa import NotFound, Runtime
from esclusa.pipelines.tenders.callers import AppCaller, CurrentApp
from esclusa.pipelines.tenders.credentials import issue_credential, new_credential
from esclusa.pipelines.tenders.devices import DeviceBody, DevicePatch, PreferencesBody
from esclusa.pipelines.tenders.installations import (
    change,
    find_device,
    forget,
    is_new,
)
from esclusa.pipelines.tenders.installations import register as register_devices
from esclusa.pipelines.tenders.preview import MAX_DAYS, preview_matches
from esclusa.pipelines.tenders.records import DeviceInstallation, NotificationPreferences
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.web import RecordJson, own_credentials, problem_responses, record_json

InstallationId = Annotated[str, Path(description="The installation's id")]
Days = Annotated[int, Query(ge=1, le=MAX_DAYS, description="How many days back")]
Shown = Annotated[int, Query(ge=1, le=500, description="Maximum number of tenders in the answer")]


class CredentialOut(BaseModel):
    """A credential that was issued. It is not stored, so that it is answered only once."""

    credential: str


class PreviewOut(BaseModel):
    """The tenders that a device would have got. ``exact`` is false if there were too many to read.

    ``items`` are the newest of the ``matched`` ones among ``tenders``.
    """

    since: str
    tenders: int
    matched: int
    exact: bool
    items: list[RecordJson]


def add_devices(runtime: Runtime, api: APIRouter) -> None:
    """Add the routes of devices."""
    settings: TendersSettings = runtime.settings_of("tenders")
    table, records = DeviceInstallation.kind.table, runtime.records
    by_device = own_credentials()

    async def shown(installation_id: str, caller: CurrentApp) -> dict[str, Any]:
        found = await _existing(records, installation_id)
        preferences = await records.get(NotificationPreferences, installation_id)
        return device_json(found, caller) | {"preferences": preferences_json(preferences)}

    @api.post(
        "/devices",
        response_model=RecordJson,
        responses=problem_responses(400, 422),
        summary="Register a device, or register it again",
        openapi_extra=own_credentials(anonymous=settings.open_to_apps),
    )
    async def register(body: DeviceBody, caller: CurrentApp) -> Any:
        """Posting again replaces the preferences and makes the device active.

        The answer to the first registration has a `credential`, good for this device alone.
        """
        id = body.installation_id
        former = await records.get(DeviceInstallation, id)
        present = await find_device(records, id)
        caller.require_registration(present, body.push_token)
        now = await runtime.engine.clock.sync()
        known = present is not None and present.credential_hash is not None
        credential = None
        if not known or (caller.device is None and not caller.is_operator):
            credential = new_credential()
        [put] = await register_devices(runtime, [body], now, caller.who, credential)
        await runtime.operations(caller.who).note("register", table, 1, {"installation_id": id})
        device, preferences = body.records(now)
        # The device may have been deleted meanwhile.
        stored = await find_device(records, id) or device.but(id=id)
        answer = device_json(stored, caller) | {
            "preferences": preferences_json(preferences),
            "created": is_new(put, former),
        }
        return answer | ({"credential": credential} if credential else {})

    @api.patch(
        "/devices/{installation_id}",
        response_model=RecordJson,
        responses=problem_responses(404, 422),
        summary="Change a device; what is not named stays",
        openapi_extra=by_device,
    )
    async def patch(installation_id: InstallationId, body: DevicePatch, caller: CurrentApp) -> Any:
        """A new push token alone keeps the preferences. It is taken from the device that has it."""
        caller.require_device(installation_id)
        device = await _existing(records, installation_id)
        stored = await records.get(NotificationPreferences, installation_id)
        try:
            preferences = body.preference_fields(stored)
        except ValueError as error:
            raise HTTPException(422, f"body.preferences: {error}") from None
        now = await runtime.engine.clock.sync()
        await change(runtime, device, body.device_fields(), preferences, now, caller.who)
        await runtime.operations(caller.who).note(
            "change", table, 1, {"installation_id": installation_id}
        )
        return await shown(installation_id, caller)

    @api.delete(
        "/devices/{installation_id}",
        status_code=204,
        responses=problem_responses(404),
        summary="Delete a device and its preferences",
        openapi_extra=by_device,
    )
    async def delete(installation_id: InstallationId, caller: CurrentApp) -> None:
        """What it was not sent yet ends as `invalid`."""
        caller.require_device(installation_id)
        device = await _existing(records, installation_id)
        await forget(runtime, device, await runtime.engine.clock.sync(), caller.who)
        await runtime.operations(caller.who).note(
            "forget", table, 1, {"installation_id": installation_id}
        )

    @api.get(
        "/devices/{installation_id}",
        response_model=RecordJson,
        responses=problem_responses(404),
        summary="A device and its preferences",
        openapi_extra=by_device,
    )
    async def device(installation_id: InstallationId, caller: CurrentApp) -> Any:
        caller.require_device(installation_id, write=False)
        return await shown(installation_id, caller)

    @api.post(
        "/devices/{installation_id}/credential",
        response_model=CredentialOut,
        responses=problem_responses(404),
        summary="Give a device a new credential; its former one ends",
        openapi_extra=by_device,
    )
    async def renew_credential(installation_id: InstallationId, caller: CurrentApp) -> Any:
        caller.require_device(installation_id)
        await _existing(records, installation_id)
        return {"credential": await issue_credential(records, installation_id, caller.who)}


def add_previews(runtime: Runtime, api: APIRouter) -> None:
    """Add the routes that say what preferences would have matched."""
    settings: TendersSettings = runtime.settings_of("tenders")
    records = runtime.records

    @api.get(
        "/devices/{installation_id}/preview",
        response_model=PreviewOut,
        responses=problem_responses(404),
        summary="The tenders that a device would have got in the last days",
        openapi_extra=own_credentials(),
    )
    async def preview_device(
        installation_id: InstallationId, caller: CurrentApp, days: Days = 7, limit: Shown = 50
    ) -> Any:
        """By its present preferences, without its quiet hours and daily cap."""
        caller.require_device(installation_id, write=False)
        await _existing(records, installation_id)
        preferences = await records.get(NotificationPreferences, installation_id)
        return await preview_matches(runtime, preferences, days, limit)

    @api.post(
        "/preview",
        response_model=PreviewOut,
        responses=problem_responses(422),
        summary="The tenders that preferences would have matched in the last days",
        openapi_extra=own_credentials(anonymous=settings.open_to_apps),
    )
    async def preview(body: PreferencesBody, days: Days = 7, limit: Shown = 50) -> Any:
        wanted = NotificationPreferences(installation_id="preview", **body.model_dump())
        return await preview_matches(runtime, wanted, days, limit)


async def _existing(records: Any, installation_id: str) -> DeviceInstallation:
    found = await find_device(records, installation_id)
    if found is None:
        raise NotFound(f"there is no device {installation_id!r:.200}")
    return found


def device_json(device: DeviceInstallation, caller: AppCaller) -> dict[str, Any]:
    """Return a device as the routes answer it: without what is stored of its credential.

    Its push token is masked for a caller with the role read, as in every list.
    """
    values = record_json(device)
    del values["credential_hash"]
    if caller.role != "read":
        values["push_token"] = device.push_token
    return values | {"platform": None if device.platform == "unknown" else device.platform}


def preferences_json(preferences: NotificationPreferences | None) -> dict[str, Any] | None:
    """Return the preferences of a device as the routes answer them."""
    if preferences is None:
        return None
    values = record_json(preferences)
    return {name: values[name] for name in PreferencesBody.model_fields}

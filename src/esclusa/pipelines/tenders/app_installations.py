"""Installations as the team's app reports them, also by its early versions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from esclusa import Record, Runtime
from esclusa.pipelines.tenders.installations import (
    UNREGISTERED,
    end_mirror,
    find_device,
    take_tokens,
)
from esclusa.pipelines.tenders.records import (
    REGISTERED,
    DeviceInstallation,
    NotificationPreferences,
)


async def sync(
    runtime: Runtime, installation_id: str, fields: dict[str, Any], now: datetime, who: str
) -> bool:
    """Store an installation as the app reports it; return whether it was.

    An unknown installation with the token of another one replaces it: it gets its preferences, its
    credential, and what it was not sent yet. A known one with such a token is not stored.
    """
    records, token = runtime.records, fields["push_token"]
    former = await find_device(records, installation_id)
    owner = await records.first(DeviceInstallation, {"push_token": token}) if token else None
    if owner is None or owner.installation_id == installation_id:
        kept = None if former is None else former.credential_hash
        new = DeviceInstallation(installation_id=installation_id, credential_hash=kept, **fields)
        owners = {token: installation_id} if token else {}
        await take_tokens(runtime, owners, now, who, lambda: records.put([new], who=who))
        return True
    if former is not None:
        return False
    wanted = await records.get(NotificationPreferences, owner.id)
    if owner.credential_hash:
        await records.edit(
            DeviceInstallation,
            owner.id,
            among=[REGISTERED],
            who=who,
            reason="its credential moved with its token",
            credential_hash=None,
        )
    drafts: list[Record] = [
        DeviceInstallation(
            installation_id=installation_id, credential_hash=owner.credential_hash, **fields
        )
    ]
    if wanted is not None:
        values = {f.name: getattr(wanted, f.name) for f in NotificationPreferences.kind.fields}
        drafts.append(NotificationPreferences(**values | {"installation_id": installation_id}))
    owners = {token: installation_id}
    await take_tokens(runtime, owners, now, who, lambda: records.put(drafts, who=who))
    return True


async def legacy_register(
    runtime: Runtime,
    token: str,
    installation_id: str,
    platform: str | None,
    now: datetime,
    who: str,
) -> None:
    """Make the device with this token active; without one, a device with this id."""
    records = runtime.records
    fields: dict[str, Any] = {
        "push_capable": True,
        "permission_status": "granted",
        "active": True,
        "invalidated_at": None,
        "invalid_reason": None,
        "last_seen_at": now,
    } | ({"platform": platform} if platform else {})
    owner = await records.first(DeviceInstallation, {"push_token": token})
    if owner is None:
        new = DeviceInstallation(
            installation_id=installation_id,
            push_token=token,
            environment="production",
            **fields,
        )
        owners = {token: installation_id}
        await take_tokens(runtime, owners, now, who, lambda: records.put([new], who=who))
        return
    await records.edit(
        DeviceInstallation, owner.id, among=[REGISTERED], who=who, reason="registered", **fields
    )


async def legacy_unregister(runtime: Runtime, token: str, now: datetime, who: str) -> None:
    """Switch off the device with this token, if there is one."""
    owner = await runtime.records.first(DeviceInstallation, {"push_token": token})
    if owner is None:
        return
    await runtime.records.edit(
        DeviceInstallation,
        owner.id,
        among=[REGISTERED],
        who=who,
        reason=UNREGISTERED,
        active=False,
        invalidated_at=now,
        invalid_reason=UNREGISTERED,
    )
    await end_mirror(runtime, owner, UNREGISTERED, who)

"""Registering, changing and deleting devices: tokens, preferences, deliveries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

from esclusa import (
    BadRecord,
    Create,
    Duplicate,
    Exists,
    Failure,
    Inserted,
    Move,
    Record,
    Runtime,
    StoreConflict,
    Text,
    To,
    above,
    not_null,
    null,
    one_of,
)
from esclusa.pipelines.tenders.credentials import credential_hash
from esclusa.pipelines.tenders.devices import DeviceBody
from esclusa.pipelines.tenders.records import (
    REGISTERED,
    Delivery,
    DeviceInstallation,
    DeviceToken,
    NotificationPreferences,
)
from esclusa.pipelines.tenders.targeting import quiet_until
from esclusa.pipelines.tenders.worker_records import KEPT

T = TypeVar("T")

# How often a token is taken over that other calls register at the same time.
TAKE_ATTEMPTS = 10
# Why an installation ended: another one registered its token, it was deleted or switched off.
MOVED_AWAY, DELETED, UNREGISTERED = "token-moved", "deleted", "legacy-unregister"
# Why an installation ended by its token; a new token makes it active again.
TOKEN_REASONS = (MOVED_AWAY, "missing-token", "DeviceNotRegistered", "InvalidExpoPushToken")
# Deliveries that no message was sent for yet, and that no worker has under way.
UNSENT: dict[str, Any] = {
    "status": one_of("pending", "retryable"),
    "completed_at": null,
    "locked_at": null,
    "provider_ticket_id": null,
}


async def find_device(records: Any, installation_id: str) -> DeviceInstallation | None:
    """Return the device with this id, unless it was deleted."""
    found: DeviceInstallation | None = await records.get(DeviceInstallation, installation_id)
    return None if found is None or found.invalid_reason == DELETED else found


async def register(
    runtime: Runtime,
    bodies: Sequence[DeviceBody],
    now: datetime,
    who: str,
    credential: str | None = None,
) -> list[Inserted | Duplicate]:
    """Put these devices with their preferences; return whether each device is new.

    A token belongs to the installation that registered it last: another one that has it ends, and
    what it was not sent yet is sent to the new one. ``credential``: a new one of the device.
    """
    records = runtime.records
    ids = [body.installation_id for body in bodies]
    former: dict[str, DeviceInstallation | None] = dict(
        zip(ids, await records.get_many(DeviceInstallation, ids), strict=True)
    )
    before = await records.get_many(NotificationPreferences, ids)
    owners = {body.push_token: body.installation_id for body in bodies}
    drafts: list[Record] = []
    for body in bodies:
        device, preferences = body.records(now)
        if (known := former[body.installation_id]) is not None and known.invalid_reason != DELETED:
            device = device.but(
                app_version=known.app_version, credential_hash=known.credential_hash
            )
        if credential is not None:
            device = device.but(credential_hash=credential_hash(credential))
        if owners[body.push_token] != body.installation_id:
            device = device.but(**_ended(now, MOVED_AWAY))
        drafts += [device, preferences]
    put = await take_tokens(runtime, owners, now, who, lambda: records.put(drafts, who=who))
    for given, stored in zip(bodies, before, strict=True):
        hours = given.preferences.quiet_hours
        await wake_changed(records, stored, hours.model_dump() if hours else None, who)
    return list(put[::2])


def is_new(put: Inserted | Duplicate, former: DeviceInstallation | None) -> bool:
    """Whether a device that was put did not exist, or was deleted."""
    return isinstance(put, Inserted) or (former is not None and former.invalid_reason == DELETED)


async def wake_changed(
    records: Any,
    before: NotificationPreferences | None,
    hours: dict[str, str] | None,
    who: str,
) -> None:
    """Make the deliveries due that quiet hours hold which have changed to ``hours``.

    A delivery whose new quiet hours hold it too waits again.
    """
    if before is None or not before.quiet_hours or before.quiet_hours == hours:
        return
    for state in ("pending", "retryable"):
        where = {
            "installation_id": before.installation_id,
            "status": state,
            "due_at": not_null,
        }
        async for delivery in records.each(Delivery, where):
            due = delivery.due_at
            with suppress(LookupError, TypeError, ValueError, OSError):
                if due == quiet_until(before.quiet_hours, due - timedelta(minutes=1)):
                    await records.edit(
                        Delivery, delivery.id, among=[state], who=who, reason="quiet hours changed"
                    )


def _ended(now: datetime, reason: str) -> dict[str, Any]:
    """Return the fields of an installation that gets no messages any more."""
    return {
        "push_token": None,
        "active": False,
        "invalidated_at": now,
        "invalid_reason": reason,
    }


async def take_tokens(
    runtime: Runtime,
    owners: dict[str, str],
    now: datetime,
    who: str,
    write: Callable[[], Awaitable[T]],
) -> T:
    """Write the owners of these tokens. Other installations that have one of them end.

    What those were not sent yet goes to the owner. If another call registers a token at the same
    time, its installation ends, too.
    """
    moved = dict[str, str]()
    for left in reversed(range(TAKE_ATTEMPTS)):
        moved |= await _release_tokens(runtime, owners, now, who)
        try:
            written = await write()
            break
        except (BadRecord, StoreConflict):  # a token that was registered meanwhile
            if not left:
                raise
    for old, new in moved.items():
        if old not in owners.values():  # otherwise it has another token now
            await move_deliveries(runtime, old, new, who)
    return written


async def _release_tokens(
    runtime: Runtime, owners: dict[str, str], now: datetime, who: str
) -> dict[str, str]:
    """End the installations that have one of these tokens and are not its owner.

    An installation that gets another token meanwhile keeps it. Returns the new owner of the token
    by the installation that ended.
    """
    if not owners:
        return {}
    records, table = runtime.records, DeviceInstallation.kind.table
    found = [d async for d in records.each(DeviceInstallation, {"push_token": one_of(*owners)})]
    others = {d.id: d for d in found if owners.get(d.push_token or "", d.id) != d.id}
    if not others:
        return {}

    async def end(device: DeviceInstallation) -> To | str:
        ended = Move(
            DeviceInstallation,
            device.id,
            REGISTERED,
            frm=REGISTERED,
            unless=_seen_since(others[device.id]),
            reason="its token was registered again",
            **_ended(now, MOVED_AWAY),
        )
        return To(REGISTERED, also=[ended])

    where = {"installation_id": one_of(*others)}
    await runtime.operations(who).apply(MOVED_AWAY, table, end, where=where)
    left = await records.get_many(DeviceInstallation, list(others))
    return {d.id: owners[others[d.id].push_token or ""] for d in left if d and not d.push_token}


def _seen_since(device: DeviceInstallation) -> Exists:
    """Whether a device was registered again, or got another token, since it was read."""
    since = not_null if device.last_seen_at is None else above(device.last_seen_at)
    return Exists(DeviceInstallation, installation_id=device.id, last_seen_at=since)


async def move_deliveries(runtime: Runtime, old: str, new: str, who: str) -> None:
    """Give what one installation was not sent yet to another, each in one transaction."""

    async def choose(delivery: Delivery) -> To | str:
        copy = Delivery(notification_event_id=delivery.notification_event_id, installation_id=new)
        why = Failure(Text("its token was registered by {id}", id=new), type=MOVED_AWAY)
        return To("invalid", fault=why, also=[Create(copy)], attempts=delivery.attempts)

    where = UNSENT | {"installation_id": old}
    await runtime.operations(who).apply("move", Delivery.kind.table, choose, where=where)


async def change(
    runtime: Runtime,
    device: DeviceInstallation,
    fields: dict[str, Any],
    preferences: dict[str, Any],
    now: datetime,
    who: str,
) -> None:
    """Change these fields of a device and of its preferences; everything else stays."""
    records, id = runtime.records, device.installation_id
    token, owners = fields.get("push_token"), dict[str, str]()
    if token is not None and token != device.push_token:
        owners = {token: id}
        if device.invalid_reason in TOKEN_REASONS:
            fields = {"active": True} | fields
    if fields.get("active"):
        fields |= {"invalidated_at": None, "invalid_reason": None}

    async def edit() -> None:
        changed = fields | {"last_seen_at": now}
        await records.edit(
            DeviceInstallation, id, among=[REGISTERED], who=who, reason="changed", **changed
        )

    await take_tokens(runtime, owners, now, who, edit)
    if preferences:
        await change_preferences(runtime, id, preferences, who)


async def change_preferences(
    runtime: Runtime, installation_id: str, fields: dict[str, Any], who: str
) -> None:
    """Change these fields of the preferences of a device; everything else stays."""
    records = runtime.records
    before = await records.get(NotificationPreferences, installation_id)
    if before is None:
        new = NotificationPreferences(installation_id=installation_id, **fields)
        await records.put([new], who=who)
        return
    await records.edit(
        NotificationPreferences,
        installation_id,
        among=[KEPT],
        who=who,
        reason="changed",
        **fields,
    )
    await wake_changed(records, before, fields.get("quiet_hours", before.quiet_hours), who)


async def forget(runtime: Runtime, device: DeviceInstallation, now: datetime, who: str) -> None:
    """Delete a device with its preferences; what it was not sent yet ends as ``invalid``.

    While it has deliveries its row stays, without token and preferences: they refer to it, and the
    table would delete them with it.
    """
    records, id = runtime.records, device.installation_id
    await end_mirror(runtime, device, DELETED, who)
    if await records.first(Delivery, {"installation_id": id}) is None:
        await records.remove(id, DeviceInstallation, NotificationPreferences)
        return
    ended = _ended(now, DELETED) | {"credential_hash": None}
    blank = NotificationPreferences(installation_id=id, enabled=False)
    values = {
        f.name: getattr(blank, f.name) for f in blank.kind.fields if f.name not in blank.kind.key
    }
    emptied = Move(NotificationPreferences, id, KEPT, frm=KEPT, **values)

    async def empty(found: DeviceInstallation) -> To | str:
        return To(REGISTERED, also=[emptied], **ended)

    async def invalidate(delivery: Delivery) -> To | str:
        why = Failure(Text("the installation was deleted"), type="installation_inactive")
        return To("invalid", fault=why, attempts=delivery.attempts)

    operations, where = runtime.operations(who), {"installation_id": id}
    await operations.apply("forget", DeviceInstallation.kind.table, empty, where=where)
    await operations.apply("forget", Delivery.kind.table, invalidate, where=UNSENT | where)


async def end_mirror(runtime: Runtime, device: DeviceInstallation, reason: str, who: str) -> None:
    """Make an installation inactive in the app's earlier list of tokens."""
    mirrors = [{"installation_id": device.installation_id}]
    mirrors += [{"expo_push_token": device.push_token}] if device.push_token else []
    for where in mirrors:
        async for row in runtime.records.each(DeviceToken, where | {"active": True}):
            await runtime.records.edit(
                DeviceToken, row.id, among=[KEPT], who=who, reason=reason, active=False
            )

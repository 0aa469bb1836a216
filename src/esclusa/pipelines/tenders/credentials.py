"""Credentials of devices: secrets that are good for one device alone. Only hashes are stored."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from esclusa.pipelines.tenders.records import REGISTERED, DeviceInstallation


def credential_hash(credential: str) -> str:
    """Return what is stored of a credential."""
    return hashlib.sha256(credential.encode("utf-8", "surrogatepass")).hexdigest()


def new_credential() -> str:
    """Return a credential for one device."""
    return f"device-{secrets.token_urlsafe(32)}"


async def issue_credential(records: Any, installation_id: str, who: str) -> str:
    """Give a device a new credential, which is good for it alone; the former one ends."""
    credential = new_credential()
    await records.edit(
        DeviceInstallation,
        installation_id,
        among=[REGISTERED],
        who=who,
        reason="credential issued",
        credential_hash=credential_hash(credential),
    )
    return credential


async def device_of_credential(records: Any, credential: str) -> DeviceInstallation | None:
    """Return the device that has this credential."""
    where = {"credential_hash": credential_hash(credential)}
    found: DeviceInstallation | None = await records.first(DeviceInstallation, where)
    return found

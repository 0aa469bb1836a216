"""Who calls a route for apps: an operator, a reader, a device by its credential, or anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, HTTPException

from esclusa.pipelines.tenders.credentials import device_of_credential
from esclusa.pipelines.tenders.records import DeviceInstallation
from esclusa.web import CurrentCaller, CurrentRuntime

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="esclusa", error="invalid_token"'}


@dataclass(frozen=True, slots=True)
class AppCaller:
    """A caller: the role of its API token, or the device whose credential it has, or neither."""

    who: str
    role: str | None
    device: DeviceInstallation | None

    @property
    def is_operator(self) -> bool:
        """Whether it may change every device."""
        return self.role == "operate"

    def require_device(self, installation_id: str, *, write: bool = True) -> None:
        """Raise 403 unless it may change this device or, without ``write``, see it."""
        if self.is_operator or (not write and self.role == "read"):
            return
        if self.device is None or self.device.installation_id != installation_id:
            whose = "of another device" if self.device else "no credential of a device"
            raise HTTPException(
                403, f"the token is {whose}; use that of the device, or a token to operate"
            )

    def require_registration(
        self, former: DeviceInstallation | None, push_token: str | None
    ) -> None:
        """Raise 403 unless it may register this installation again.

        Proof is the device's credential or its present push token; for anybody its id, while the
        device has no credential.
        """
        if self.is_operator or former is None or (push_token and push_token == former.push_token):
            return
        if self.device is not None or self.role is not None or former.credential_hash:
            self.require_device(former.installation_id)


async def authenticate(runtime: CurrentRuntime, caller: CurrentCaller) -> AppCaller:
    """Return who calls. Raises 401 for a wrong credential."""
    if not caller.credential:
        return AppCaller(caller.who, caller.role, None)
    device = await device_of_credential(runtime.records, caller.credential)
    if device is None:
        raise HTTPException(
            401,
            "this is neither a token of ESCLUSA_API_TOKENS nor the credential of a device",
            CHALLENGE,
        )
    return AppCaller(f"device:{device.installation_id}", None, device)


AUTHENTICATED = Depends(authenticate)
CurrentApp = Annotated[AppCaller, AUTHENTICATED]

"""``POST /tick``: run what is due now, for platforms without a permanent worker (Cloud Run)."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel

from esclusa.settings import Settings
from esclusa.web.api.common import CurrentRuntime, operation_id
from esclusa.web.api.cycles import RunOut
from esclusa.web.auth.oidc import OidcVerifier

PATH: Final = "/tick"

router = APIRouter(tags=["work"], generate_unique_id_function=operation_id)


class TickOut(BaseModel):
    """What a tick did. If ``complete`` is false, time ran out and the next tick continues."""

    runs: list[RunOut]
    complete: bool
    seconds: float


@router.post(
    PATH,
    response_model=TickOut,
    summary="Run what is due, within a time limit",
)
async def run_what_is_due(
    runtime: CurrentRuntime,
    seconds: Annotated[
        float | None,
        Query(
            ge=1,
            le=3500,
            allow_inf_nan=False,
            description="Time limit; ESCLUSA_TICK_SECONDS by default",
        ),
    ] = None,
) -> Any:
    """Run every due cycle and drain every always-on stage, until nothing is due or time is up.

    Calls may overlap. The caller needs a token with the role operate, or an OIDC token of the
    service account in `ESCLUSA_TICK_SERVICE_ACCOUNT` for an audience in `ESCLUSA_TICK_AUDIENCE`,
    such as Cloud Scheduler sends.
    """
    return (await runtime.engine.tick(seconds or runtime.settings.tick_seconds)).answer()


def oidc_verifiers(settings: Settings) -> dict[tuple[str, str], OidcVerifier]:
    """The verifier for callers of ``/tick``, by method and path; empty without an audience."""
    if not settings.tick_audience or settings.tick_service_account is None:
        return {}
    return {
        ("POST", PATH): OidcVerifier(
            settings.tick_audience,
            settings.oidc_certs_url,
            settings.tick_service_account,
            settings=("ESCLUSA_TICK_AUDIENCE", "ESCLUSA_TICK_SERVICE_ACCOUNT"),
        )
    }

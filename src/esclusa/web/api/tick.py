"""``POST /tick``: a scheduler outside keeps the time, and calls; for places where no worker stays, such as Cloud Run."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from esclusa.engine.tick import tick
from esclusa.model.errors import SettingsError
from esclusa.runtime import Runtime
from esclusa.settings import Settings
from esclusa.web.api import schemas
from esclusa.web.api.records import by_name
from esclusa.web.oidc import Forbidden, KeysUnavailable, Tokens, Unauthorized
from esclusa.web.problems import of_error, problem, responses

PATH = "/tick"
Seconds = Annotated[
    float | None,
    Query(
        ge=1,
        le=3500,
        allow_inf_nan=False,
        description="How long it may take; ESCLUSA_TICK_SECONDS by default",
    ),
]


class TickShape(BaseModel):
    """What a tick did. ``complete`` false: time ran out, and the next tick goes on where this one ended."""

    runs: list[schemas.RunShape]
    complete: bool
    seconds: float


def ticking(runtime: Runtime) -> APIRouter:
    """The route. A token with the role operate may call it, and the service account that the settings name."""
    api = APIRouter(tags=["work"], generate_unique_id_function=by_name)
    default = runtime.settings.tick_seconds

    @api.post(
        PATH,
        response_model=TickShape,
        responses=responses(422),
        summary="Run what is due, within a time budget",
        description=(
            "Runs every cycle whose slot has come and drains every stage that is always served, until nothing is due or time is up."
            " Calls may overlap. Besides a token with the role operate, an OIDC token of the service account in"
            " `ESCLUSA_TICK_SERVICE_ACCOUNT` for an audience in `ESCLUSA_TICK_AUDIENCE` may call it: Cloud Scheduler sends one."
        ),
    )
    async def run_what_is_due(seconds: Seconds = None) -> Any:
        return (await tick(runtime.engine, default if seconds is None else seconds)).answer()

    return api


class Accounts:
    """Knows the service account that may call ``/tick``, by its OIDC token; every other caller and path is the door's."""

    def __init__(self, settings: Settings) -> None:
        account = settings.tick_service_account
        if settings.tick_audience and find_spec("jwt") is None:
            raise SettingsError(
                "settings",
                [
                    "ESCLUSA_TICK_AUDIENCE: tokens are verified with PyJWT: pip install 'esclusa[google]'"
                ],
            )
        names = ("ESCLUSA_TICK_AUDIENCE", "ESCLUSA_TICK_SERVICE_ACCOUNT")
        self._tokens = (
            Tokens(settings.tick_audience, settings.oidc_certs_url, account, settings=names)
            if settings.tick_audience
            else None
        )

    async def vouch(self, scope: Scope, path: str) -> Response | str | None:
        """The caller's name; an answer if it is refused; None if this is no such call."""
        if self._tokens is None or path != PATH or scope.get("method") != "POST":
            return None
        scheme, _, secret = Headers(scope=scope).get("authorization", "").partition(" ")
        if (
            scheme.lower() != "bearer" or secret.count(".") != 2
        ):  # a JWT has three parts; an API token is the door's
            return None
        try:
            claims = await self._tokens.verify(secret.strip())
        except Unauthorized as error:
            challenge = {"WWW-Authenticate": 'Bearer realm="esclusa", error="invalid_token"'}
            return problem(
                401,
                str(error),
                slug="unauthorized",
                title="Who is calling?",
                instance=path,
                headers=challenge,
            )
        except Forbidden as error:
            return problem(
                403,
                str(error),
                slug="forbidden",
                title="This account may not call here",
                instance=path,
            )
        except KeysUnavailable as error:
            return of_error(error, path)
        return f"oidc:{claims.get('email', claims.get('sub', 'unknown'))}"

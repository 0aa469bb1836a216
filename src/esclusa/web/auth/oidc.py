"""Verifies OIDC tokens of Google's push services (Eventarc, Pub/Sub, Cloud Scheduler)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from esclusa.http import session
from esclusa.model.errors import EsclusaError, StoreUnavailable
from esclusa.web.problems import error_response, problem, unauthorized

if TYPE_CHECKING:
    from jwt import PyJWK

ISSUERS: Final = ("accounts.google.com", "https://accounts.google.com")
# Seconds for which fetched keys are used.
KEY_LIFETIME: Final = 3600.0
# Least seconds between two fetches for an unknown key, so that forged tokens cannot cause many.
FETCH_PAUSE: Final = 30.0
LEEWAY: Final = 10


class InvalidOidcToken(EsclusaError):
    """The token is missing, or its signature, issuer or times are wrong."""


class OidcTokenRefused(EsclusaError):
    """The token is genuine, but made for another audience or account."""


class KeysUnavailable(StoreUnavailable):
    """The issuer's keys cannot be fetched now; the caller may try again."""


class OidcVerifier:
    """Verifies tokens for one or more audiences, and optionally for one service account.

    Keys are fetched once an hour, and when a token names an unknown key. ``settings`` are the names
    of the settings for audience and account, for error messages. ``realm`` is for the challenge.
    """

    def __init__(
        self,
        audiences: Sequence[str],
        certs_url: str,
        email: str | None = None,
        *,
        settings: tuple[str, str],
        realm: str = "esclusa",
    ) -> None:
        self._audience_setting, self._email_setting = settings
        self._audiences = {
            form
            for audience in audiences
            for form in (audience.rstrip("/"), audience.rstrip("/") + "/")
        }
        self._certs_url, self._email, self._realm = certs_url, email, realm
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at = float("-inf")
        self._lock = asyncio.Lock()

    async def authenticate(self, token: str, path: str) -> dict[str, Any] | Response:
        """The claims of a request's token; a problem response if the token is refused."""
        try:
            return await self.verify(token)
        except InvalidOidcToken as error:
            return unauthorized(
                path,
                str(error),
                realm=self._realm,
                error="invalid_token" if token else None,
            )
        except OidcTokenRefused as error:
            return problem(
                403, str(error), slug="forbidden", title="Account not allowed", instance=path
            )
        except KeysUnavailable as error:
            return error_response(error, path)

    async def verify(self, token: str) -> dict[str, Any]:
        """The claims of the token. Raises InvalidOidcToken, OidcTokenRefused or KeysUnavailable."""
        import jwt  # noqa: PLC0415 - only where tokens are verified

        if not token:
            raise InvalidOidcToken(
                "this needs an OIDC token of the caller's service account:"
                " send 'Authorization: Bearer …'"
            )
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") != "RS256":
                raise InvalidOidcToken("the token is not signed with RS256")
            claims: dict[str, Any] = jwt.decode(
                token,
                (await self._key(str(header.get("kid") or ""))).key,
                algorithms=["RS256"],
                leeway=LEEWAY,
                options={"verify_aud": False, "require": ["exp", "iat", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise InvalidOidcToken(f"the token cannot be verified: {error}") from None
        self._check(claims)
        return claims

    def _check(self, claims: dict[str, Any]) -> None:
        if claims["iss"] not in ISSUERS:
            raise InvalidOidcToken(f"the token's issuer is not {ISSUERS[0]}")
        audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if not self._audiences.intersection(audiences):
            raise OidcTokenRefused(
                f"the token is for another audience; check {self._audience_setting}"
            )
        if self._email is not None and (
            claims.get("email") != self._email or not claims.get("email_verified")
        ):
            raise OidcTokenRefused(
                f"the token belongs to another account; check {self._email_setting}"
            )

    async def _key(self, kid: str) -> PyJWK:
        async with self._lock:
            age = time.monotonic() - self._fetched_at
            if age > KEY_LIFETIME or (kid not in self._keys and age > FETCH_PAUSE):
                await self._fetch()
        if kid not in self._keys:
            raise InvalidOidcToken("the token is signed with a key that its issuer does not have")
        return self._keys[kid]

    async def _fetch(self) -> None:
        import aiohttp  # noqa: PLC0415
        import jwt  # noqa: PLC0415

        try:
            async with session(total=10.0) as http, http.get(self._certs_url) as answer:
                answer.raise_for_status()
                keys = jwt.PyJWKSet.from_dict(await answer.json(content_type=None)).keys
        except (
            aiohttp.ClientError,
            TimeoutError,
            jwt.PyJWTError,
            ValueError,
            TypeError,
            AttributeError,
        ) as error:
            if not self._keys:
                raise KeysUnavailable(
                    "the keys of the token's issuer cannot be fetched:"
                    f" {error or type(error).__name__}"
                ) from None
            return  # old keys are better than none
        self._keys = {str(key.key_id): key for key in keys}
        self._fetched_at = time.monotonic()

"""Verifies OIDC tokens of Google's push services (Eventarc, Pub/Sub, Cloud Scheduler)."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from esclusa import extras
from esclusa.http import session
from esclusa.model.errors import EsclusaError, SettingsError
from esclusa.observability import log
from esclusa.web.problems import problem, unauthorized

if TYPE_CHECKING:
    from jwt import PyJWK

ISSUERS: Final = ("accounts.google.com", "https://accounts.google.com")
# Seconds for which fetched keys are used.
KEY_LIFETIME: Final = 3600.0
# Least seconds between two fetches, so that forged tokens cannot cause many; fewer if one failed.
FETCH_PAUSE: Final = 30.0
RETRY_PAUSE: Final = 5.0
LEEWAY: Final = 10


class InvalidOidcToken(EsclusaError):
    """The token is missing, or its signature, issuer or times are wrong."""


class OidcTokenRefused(EsclusaError):
    """The token is genuine, but made for another audience or account."""


class KeysUnavailable(EsclusaError):
    """The issuer's keys cannot be fetched now; the caller may try again."""


class OidcVerifier:
    """Verifies tokens of one service account, for one or more audiences.

    The account is required: anybody can get a genuine token for any audience. Keys are fetched once
    an hour, and when a token names an unknown key. ``settings`` are the names of the settings for
    audience and account, for error messages. ``realm`` is for the challenge.
    """

    def __init__(
        self,
        audiences: Sequence[str],
        certs_url: str,
        email: str,
        *,
        settings: tuple[str, str],
        realm: str = "esclusa",
    ) -> None:
        self._audience_setting, self._email_setting = settings
        if extras.is_missing("jwt"):
            raise SettingsError("settings", [f"{settings[0]}: {extras.advice('jwt')}"])
        self._audiences = {
            form
            for audience in audiences
            for form in (audience.rstrip("/"), audience.rstrip("/") + "/")
        }
        self._certs_url, self._email, self._realm = certs_url, email, realm
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at = self._fetch_after = float("-inf")
        self._lock = asyncio.Lock()
        self._log = log.get("esclusa.http")

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
            return problem(
                503,
                str(error),
                slug="keys-unavailable",
                title="Keys of the token's issuer unavailable",
                instance=path,
                headers={"Retry-After": str(math.ceil(RETRY_PAUSE))},
            )

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
        if claims.get("email") != self._email or claims.get("email_verified") is not True:
            raise OidcTokenRefused(
                f"the token belongs to another account; check {self._email_setting}"
            )

    async def _key(self, kid: str) -> PyJWK:
        async with self._lock:
            now = time.monotonic()
            wanted = kid not in self._keys or now - self._fetched_at > KEY_LIFETIME
            if wanted and now >= self._fetch_after:
                await self._fetch()
        if not self._keys:
            raise KeysUnavailable("the keys of the token's issuer cannot be fetched now")
        if kid not in self._keys:
            raise InvalidOidcToken("the token is signed with a key that its issuer does not have")
        return self._keys[kid]

    async def _fetch(self) -> None:
        """Fetch the keys. On a failure the old ones stay: they are better than none."""
        import aiohttp  # noqa: PLC0415
        import jwt  # noqa: PLC0415

        self._fetch_after = time.monotonic() + FETCH_PAUSE
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
            self._fetch_after = time.monotonic() + RETRY_PAUSE
            message = f"the keys of {self._certs_url} cannot be fetched: {error!r}"
            self._log.write("warning", message, {})
            return
        self._keys = {str(key.key_id): key for key in keys}
        self._fetched_at = time.monotonic()

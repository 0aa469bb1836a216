"""OIDC tokens of Google's push services (Eventarc, Pub/Sub, Cloud Scheduler), verified against the issuer's cached keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from esclusa.http import session
from esclusa.model.errors import EsclusaError, StoreUnavailable

if TYPE_CHECKING:
    from jwt import PyJWK

ISSUERS = ("accounts.google.com", "https://accounts.google.com")
FRESH = 3600.0
"""Seconds for which keys are used without asking again."""
PAUSE = 30.0
"""Seconds between two looks for a key that nobody knows, so that forged tokens cannot make us ask without end."""
LEEWAY = 10


class Unauthorized(EsclusaError):
    """There is no token, or it is not one of the issuer's."""


class Forbidden(EsclusaError):
    """The token is real, but is not meant for us or not for this caller."""


class KeysUnavailable(StoreUnavailable):
    """The issuer's keys cannot be had now: try again."""


class Tokens:
    """Verifies tokens for one or more audiences. Keys are fetched once an hour, and when a token names a new one.

    ``settings`` are the names under which a person set the audience and the account: who is refused is sent there.
    """

    def __init__(
        self,
        audiences: Sequence[str],
        certs_url: str,
        email: str | None = None,
        *,
        settings: tuple[str, str],
    ) -> None:
        self._audience_setting, self._email_setting = settings
        self._audiences = {
            form
            for audience in audiences
            for form in (audience.rstrip("/"), audience.rstrip("/") + "/")
        }
        self._certs_url, self._email = certs_url, email
        self._keys: dict[str, PyJWK] = {}
        self._asked = float("-inf")
        self._lock = asyncio.Lock()

    async def verify(self, token: str) -> dict[str, Any]:
        """Its claims. Raises Unauthorized, Forbidden, KeysUnavailable."""
        import jwt  # noqa: PLC0415 - only where tokens are verified

        if not token:
            raise Unauthorized(
                "this needs an OIDC token of the caller's service account: send 'Authorization: Bearer …'"
            )
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") != "RS256":
                raise Unauthorized("the token is not signed with RS256")
            key = await self._key(str(header.get("kid") or ""))
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=["RS256"],
                leeway=LEEWAY,
                options={"verify_aud": False, "require": ["exp", "iat", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise Unauthorized(f"the token cannot be verified: {error}") from None
        self._judge(claims)
        return claims

    def _judge(self, claims: dict[str, Any]) -> None:
        if claims["iss"] not in ISSUERS:
            raise Unauthorized("the token was issued by somebody else")
        said = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if not self._audiences.intersection(said):
            raise Forbidden(f"the token is for another audience; look at {self._audience_setting}")
        if self._email is not None and (
            claims.get("email") != self._email or not claims.get("email_verified")
        ):
            raise Forbidden(f"the token belongs to another account; look at {self._email_setting}")

    async def _key(self, kid: str) -> PyJWK:
        async with self._lock:
            age = time.monotonic() - self._asked
            if age > FRESH or (kid not in self._keys and age > PAUSE):
                await self._fetch()
        if kid not in self._keys:
            raise Unauthorized("the token is signed with a key that its issuer does not have")
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
                    f"the keys of the tokens' issuer cannot be had: {error or type(error).__name__}"
                ) from None
            return  # the ones we have are better than none
        self._keys = {str(key.key_id): key for key in keys}
        self._asked = time.monotonic()

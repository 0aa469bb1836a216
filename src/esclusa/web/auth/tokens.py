"""API tokens of ``ESCLUSA_API_TOKENS``: their roles, and recognising the secret of a request."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Literal

from esclusa.model.errors import SettingsError
from esclusa.model.value import value
from esclusa.settings import ApiToken, is_loopback

Role = Literal["read", "operate"]

# Whether the caller has the role read: secrets are masked, and no filter or order can use them.
read_only: ContextVar[bool] = ContextVar("read_only", default=False)


@value
class Token:
    """An API token in memory. Its secret is kept only as a hash."""

    name: str
    role: Role
    digest: bytes


def token_digest(secret: str) -> bytes:
    """The SHA-256 hash of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def hash_tokens(given: Iterable[ApiToken]) -> tuple[Token, ...]:
    """The tokens of the settings, with their secrets hashed."""
    return tuple(
        Token(token.name, token.role, token_digest(token.secret.get_secret_value()))
        for token in given
    )


def bearer_secret(authorization: str) -> str:
    """The secret in an ``Authorization: Bearer …`` header; empty if it has another form."""
    scheme, _, secret = authorization.partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def find_token(tokens: Sequence[Token], secret: str) -> Token | None:
    """The token with this secret, or None.

    Every token is compared in constant time, so the response time reveals nothing.
    """
    given, found = token_digest(secret), None
    for token in tokens:
        if hmac.compare_digest(token.digest, given):
            found = token
    return found


def require_tokens(host: str, tokens: Sequence[Token]) -> None:
    """Raise SettingsError if the server would listen beyond loopback without any token."""
    if not tokens and not is_loopback(host):
        fault = (
            f"ESCLUSA_API_TOKENS: not set, so the server listens on loopback only, not on {host};"
            " set a token, or use --host 127.0.0.1"
        )
        raise SettingsError("settings", [fault])

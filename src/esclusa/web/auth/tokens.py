"""API tokens of ``ESCLUSA_API_TOKENS``: roles, comparison with a secret, and a rate limit."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
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
    given = token_digest(secret)
    found = [token for token in tokens if hmac.compare_digest(token.digest, given)]
    return found[-1] if found else None


def require_tokens(host: str, tokens: Sequence[object]) -> None:
    """Raise SettingsError if the server would listen beyond loopback without any token."""
    if not tokens and not is_loopback(host):
        fault = (
            "ESCLUSA_API_TOKENS: not set, so the server listens on loopback only, not on"
            f" {host}; set a token, or use --host 127.0.0.1"
        )
        raise SettingsError("settings", [fault])


class FailedAttempts:
    """Counts wrong tokens per address: a burst is allowed, then one attempt every few seconds.

    A secret that was accepted from an address before is not blocked by other callers' failures.
    Memory is bounded: the addresses that were quiet the longest are dropped.
    """

    def __init__(
        self,
        burst: int = 20,
        seconds: float = 3.0,
        addresses: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst, self._seconds, self._addresses, self._clock = burst, seconds, addresses, clock
        self._until: OrderedDict[str, float] = OrderedDict()
        self._accepted: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds until this address may try again; 0 if it may try now."""
        free_at = self._until.get(_network(address), 0.0) - (self._burst - 1) * self._seconds
        return max(0.0, free_at - self._clock())

    def add_failure(self, address: str) -> None:
        """Count a wrong token from this address."""
        network = _network(address)
        self._until[network] = max(self._until.pop(network, 0.0), self._clock()) + self._seconds
        while len(self._until) > self._addresses:
            self._until.popitem(last=False)

    def add_success(self, address: str, secret: str) -> None:
        """Remember that this secret was accepted from this address."""
        key = (_network(address), token_digest(secret))
        self._accepted[key] = None
        self._accepted.move_to_end(key)
        while len(self._accepted) > self._addresses:
            self._accepted.popitem(last=False)

    def was_accepted(self, address: str, secret: str) -> bool:
        """Whether this secret was accepted from this address before."""
        return (_network(address), token_digest(secret)) in self._accepted

    def __len__(self) -> int:
        return len(self._until)


def _network(address: str) -> str:
    """The /64 network of an IPv6 address, because one caller has all of it; else the address."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.split("%", 1)[0], 64), strict=False))
    except ValueError:
        return address

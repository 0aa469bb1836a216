"""Rate limit for callers that send wrong tokens."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from esclusa.web.auth.tokens import token_digest


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

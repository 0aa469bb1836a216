"""Which addresses a download may connect to: public ones, and those that a setting allows."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Self

from esclusa.model.value import value

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Networks that `ipaddress` may call global, though they can lead to a private address.
_EMBEDDING: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # IETF protocol assignments
        "192.88.99.0/24",  # 6to4 relays
        "::/96",  # IPv4-compatible IPv6
        "::ffff:0:0/96",  # IPv4-mapped IPv6
        "::ffff:0:0:0/96",  # IPv4-translated IPv6
        "64:ff9b::/96",  # NAT64: ends with any IPv4 address
        "64:ff9b:1::/48",  # NAT64, local use
        "2001::/32",  # Teredo: contains an IPv4 address
        "2002::/16",  # 6to4: contains an IPv4 address
        "fec0::/10",  # site-local, deprecated
    )
)


def is_public(address: str) -> bool:
    """Whether the address belongs to the public internet. False for text that is not an address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if any(found in network for network in _EMBEDDING if network.version == found.version):
        return False
    return found.is_global and not (
        found.is_multicast
        or found.is_reserved
        or found.is_unspecified
        or found.is_loopback
        or found.is_link_local
    )


@value
class AllowedHosts:
    """Exceptions: hosts by name, with or without a port, and networks."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Self:
        """Read ``host``, ``host:port``, addresses and networks (``10.0.0.0/8``).

        Raises ValueError with the first entry that is none of these.
        """
        hosts: set[tuple[str, int | None]] = set()
        networks: list[Network] = []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
                continue
            except ValueError:
                if "/" in entry and "://" not in entry:
                    raise ValueError(
                        f"{entry!r} is not a network; write for example 10.0.0.0/8"
                    ) from None
            hosts.add(_parse_host(entry))
        return cls(frozenset(hosts), tuple(networks))

    def allows_host(self, name: str, port: int | None) -> bool:
        """Whether this host may be called at any address."""
        plain = _normalize(name)
        return (plain, None) in self.hosts or (plain, port) in self.hosts

    def allows_address(self, address: str) -> bool:
        """Whether the address is in one of the allowed networks."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(
            found in network for network in self.networks if network.version == found.version
        )


def _parse_host(entry: str) -> tuple[str, int | None]:
    name, colon, port = entry.rpartition(":")
    if not colon or entry.endswith("]"):
        name, port = entry, ""
    if (
        (colon and not name)
        or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536))
        or not _normalize(name)
        or any(c in name for c in "/@?# *\\;='\"")
        or (":" in name and not name.startswith("["))
    ):
        raise ValueError(f"{entry!r} is neither host, host:port, an address nor a network")
    return _normalize(name), int(port) if port else None


def _normalize(name: str) -> str:
    return name.strip("[]").rstrip(".").lower()

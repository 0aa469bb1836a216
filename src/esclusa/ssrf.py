"""Which addresses may be called on behalf of somebody else's link: the public ones, and those that a setting allows."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Self

from esclusa.model.value import value

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_HIDDEN: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",  # protocols' own
        "192.88.99.0/24",  # relays of 6to4
        "::/96",  # IPv4 in IPv6, the old way
        "::ffff:0:0/96",  # IPv4 in IPv6
        "::ffff:0:0:0/96",  # IPv4 translated
        "64:ff9b::/96",  # NAT64: its end is an IPv4 address, of any kind
        "64:ff9b:1::/48",  # NAT64, local
        "2001::/32",  # Teredo: an IPv4 address inside
        "2002::/16",  # 6to4: the same
        "fec0::/10",  # site-local, of old
    )
)
"""Addresses that ``ipaddress`` may call global, but which lead to another one."""


def public(address: str) -> bool:
    """Whether this address is one of the open internet. What cannot be read as an address is not."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if any(found in network for network in _HIDDEN if network.version == found.version):
        return False
    odd = (
        found.is_multicast
        or found.is_reserved
        or found.is_unspecified
        or found.is_loopback
        or found.is_link_local
    )
    return found.is_global and not odd


@value
class AllowedHosts:
    """Exceptions: hosts by name (with or without a port), whatever their address, and networks."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, said: Iterable[str]) -> Self:
        """From ``host``, ``host:port``, an address or a network (``10.0.0.0/8``). ValueError names the one that is none."""
        hosts: set[tuple[str, int | None]] = set()
        networks: list[Network] = []
        for text in said:
            try:
                networks.append(ipaddress.ip_network(text.strip("[]"), strict=False))
                continue
            except ValueError:
                if "/" in text and "://" not in text:
                    raise ValueError(
                        f"{text!r} is not a network; write for example 10.0.0.0/8"
                    ) from None
            hosts.add(_host(text))
        return cls(frozenset(hosts), tuple(networks))

    def host(self, name: str, port: int | None) -> bool:
        """Whether this host may be called, whatever its address."""
        plain = _plain(name)
        return (plain, None) in self.hosts or (plain, port) in self.hosts

    def address(self, address: str) -> bool:
        """Whether this very address may be called."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(
            found in network for network in self.networks if network.version == found.version
        )


def _host(text: str) -> tuple[str, int | None]:
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port = text, ""
    if (
        (colon and not name)
        or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536))
        or not _plain(name)
    ):
        raise ValueError(f"{text!r} is neither host, host:port, an address nor a network")
    if any(c in name for c in "/@?# *\\;='\"") or (":" in name and not name.startswith("[")):
        raise ValueError(f"{text!r} is neither host, host:port, an address nor a network")
    return _plain(name), int(port) if port else None


def _plain(name: str) -> str:
    return name.strip("[]").rstrip(".").lower()

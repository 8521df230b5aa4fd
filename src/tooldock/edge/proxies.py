"""Who is really calling when a reverse proxy stands in between.

`X-Forwarded-For` and `X-Forwarded-Proto` are believed only from peers in `TRUSTED_PROXIES`; from anybody
else they are the caller's own claim and are ignored.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from tooldock.errors import SettingsError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_MAX_CACHED = 4096


class Networks:
    """A list of addresses and CIDR ranges that answers "is this one of them"."""

    __slots__ = ("_answers", "_networks")

    def __init__(self, ranges: Iterable[str | Network], setting: str) -> None:
        self._networks = [_network(text, setting) for text in ranges]
        self._answers: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: object) -> bool:
        if not isinstance(address, str):
            return False
        known = self._answers.get(address)
        if known is None:
            if len(self._answers) >= _MAX_CACHED:
                self._answers.clear()
            known = self._answers[address] = self._look(address)
        return known

    def _look(self, address: str) -> bool:
        parsed = parse_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)


class Proxies:
    """The reverse proxies whose forwarding headers are believed."""

    __slots__ = ("_trusted",)

    def __init__(self, trusted: Iterable[str | Network] = ()) -> None:
        self._trusted = Networks(trusted, "TRUSTED_PROXIES")

    def __bool__(self) -> bool:
        return bool(self._trusted)

    def resolve(self, peer: str, scheme: str, headers: dict[bytes, bytes]) -> tuple[str, str]:
        """The client's address and scheme, given the peer that connected to us."""
        if peer not in self._trusted:
            return peer, scheme
        proto = headers.get(b"x-forwarded-proto", b"").decode("latin-1").rsplit(",", 1)[-1].strip().lower()
        if proto in ("http", "https"):
            scheme = proto
        address = peer
        # From the right: each hop was written by the proxy to its right, so the first one that is not ours
        # is the client, and anything further left is only what that client claimed.
        for hop in reversed(headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")):
            parsed = parse_address(_without_port(hop.strip()))
            if parsed is None:
                break
            address = str(parsed)
            if address not in self._trusted:
                break
        return address, scheme


def parse_address(text: str) -> _Address | None:
    """An address, with IPv4 written as IPv6 (`::ffff:10.0.0.1`) turned back; None when it is not one."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, _ = text.partition(":")
    return host if colon and text.count(":") == 1 else text


def _network(text: str | Network, setting: str) -> Network:
    if not isinstance(text, str):
        return text
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise SettingsError(
            f"{setting}: {text!r} is neither an address nor a range. Write it like 10.0.0.0/8 or 127.0.0.1/32.",
            setting=setting,
        ) from None

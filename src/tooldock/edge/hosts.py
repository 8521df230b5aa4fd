"""Which Host headers are ours.

A page on the web can make its own name resolve to 127.0.0.1 and so talk to a gateway on somebody's machine,
but it cannot change the Host header its visitors' browsers send. So a listener on a loopback address
answers only to loopback names, and to what `ALLOWED_HOSTS` adds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tooldock.edge.http import HttpError
from tooldock.edge.proxies import parse_address
from tooldock.errors import MalformedRequest

_MAX_KNOWN = 1024
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?\Z")


class WrongHost(HttpError):
    code = "wrong_host"
    status = 421


class Hosts:
    """Decides by Host header; names it found good are remembered, so that a call pays for one lookup."""

    __slots__ = ("_any", "_good", "_names", "_suffixes")

    def __init__(self, bind: str, allowed: Iterable[str] = ()) -> None:
        names = {name.strip().lower() for name in allowed if name.strip()}
        self._any = "*" in names or (not names and not is_loopback(bind))
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._names = frozenset(name for name in names if "*" not in name)
        self._good: set[bytes] = set()

    def check(self, host: bytes | None, http_version: str = "1.1") -> None:
        if host in self._good:
            return
        if host is None:
            if http_version == "1.0":
                return
            raise MalformedRequest("The request has no Host header, which HTTP/1.1 requires.")
        match = _HOST.match(host.decode("latin-1"))
        if match is None:
            raise MalformedRequest("The Host header is not a host name with an optional port.")
        if not self._allows(match["name"].lower(), match["port"]):
            raise WrongHost(
                f"This gateway does not answer to the host name {match['name'][:100]!r}. "
                "If it is yours, add it to ALLOWED_HOSTS.",
                host=match["name"][:100],
            )
        if len(self._good) >= _MAX_KNOWN:
            self._good.clear()
        self._good.add(host)

    def _allows(self, name: str, port: str | None) -> bool:
        bare = name.strip("[]").rstrip(".")
        return (
            self._any
            # A loopback name is safe on any bind: no foreign page can carry one as its own name.
            or is_loopback(bare)
            or bare in self._names
            or name in self._names
            or (port is not None and f"{name}:{port}" in self._names)
            or bare.endswith(self._suffixes)
        )


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = parse_address(name)
    return address is not None and address.is_loopback

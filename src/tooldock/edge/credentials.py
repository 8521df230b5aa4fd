"""Who is calling: bearer tokens to callers, and the second lock on the reload endpoint.

Tokens are compared as keyed digests. The key is drawn at start, so nothing about a stored token can be
learnt from how long a lookup takes, and the table holds no token at all.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from hashlib import blake2b

from tooldock.edge.http import ANONYMOUS, Request
from tooldock.edge.proxies import Networks
from tooldock.errors import NotAllowed, NotAuthenticated
from tooldock.model import Caller

_MAX_SEEN = 4096


class Credentials:
    """The bearer tokens that are accepted, and whom each one stands for."""

    __slots__ = ("_callers", "_key", "_seen")

    def __init__(self, tokens: Mapping[str, Caller]) -> None:
        self._key = secrets.token_bytes(32)
        self._callers: dict[bytes, tuple[bytes, Caller]] = {}
        self._seen: dict[tuple[bytes, str], Caller] = {}
        for token, caller in tokens.items():
            if token:
                digest = self._digest(token.encode())
                self._callers[digest] = (digest, caller)

    def _digest(self, token: bytes) -> bytes:
        return blake2b(token, digest_size=32, key=self._key).digest()

    def caller(self, authorization: bytes | None, address: str) -> Caller:
        """The caller a header stands for; `ANONYMOUS` when there is none or it is not known."""
        if authorization is None:
            return ANONYMOUS
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            return ANONYMOUS
        digest = blake2b(token.strip(), digest_size=32, key=self._key).digest()
        found = self._callers.get(digest)
        if found is None or not hmac.compare_digest(found[0], digest):
            return ANONYMOUS
        seen = (digest, address)
        caller = self._seen.get(seen)
        if caller is None:
            if len(self._seen) >= _MAX_SEEN:
                self._seen.clear()
            caller = self._seen[seen] = Caller(found[1].name, found[1].role, address)
        return caller


def missing(authorization: bytes | None) -> NotAuthenticated:
    """Why a request was refused, without repeating what it carried."""
    if authorization is None:
        return NotAuthenticated(
            "This needs a token. Send the header 'Authorization: Bearer TOKEN'; /docs has a form for it."
        )
    if authorization.partition(b" ")[0].lower() != b"bearer":
        return NotAuthenticated("The Authorization header must have the form 'Bearer TOKEN'.")
    if authorization.partition(b" ")[2].lstrip().startswith(b"${"):
        return NotAuthenticated(
            "The client sent the name of a variable instead of a token: the variable is not set where the client was "
            "started, or the client does not fill it in. `tooldock client-config --show-token` writes the token itself."
        )
    return NotAuthenticated(
        "The bearer token is not one of this gateway's. `tooldock up` makes one and keeps it in "
        "state/keys/bearer_token of the data directory; otherwise it is what BEARER_TOKEN was set to."
    )


class ManagerGuard:
    """The manager's own door: its token, and an address it may come from."""

    __slots__ = ("_cidrs", "_token")

    def __init__(self, token: str, cidrs: Networks) -> None:
        self._token = token.encode()
        self._cidrs = cidrs

    def check(self, request: Request) -> None:
        if request.address not in self._cidrs:
            raise NotAllowed(
                f"{request.method} {request.path} is not open to the address {request.address or 'unknown'}. "
                "Addresses that may use it are listed in INTERNAL_ALLOWED_CIDRS.",
                address=request.address,
            )
        given = request.headers.get(b"x-manager-token", b"")
        if not self._token or not hmac.compare_digest(given, self._token):
            raise NotAuthenticated(
                "This needs the manager's token in the header 'X-Manager-Token'. "
                "Check MANAGER_INTERNAL_TOKEN on both sides."
            )

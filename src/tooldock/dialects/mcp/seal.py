"""Sealed state: a short text a client carries from one request to the next and can neither read nor change.

    v1.<base64url of  nonce (12) | AES-256-GCM of  expiry in ms (8) | ticket (16) >

Who may use it for what is not inside but bound to it: it opens only for the same caller, namespace, method, name and
arguments it was made for. The seal does not know what a ticket stands for, nor whether it was used: whoever made the
ticket forgets it when it comes back, and that is what makes a state good for one use.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import structlog

from tooldock.dialects.mcp.jsonrpc import INVALID_PARAMS, RpcError

TICKET_BYTES = 16
ROTATE_SECONDS = 30 * 86_400.0
"""How old the newest key in a file may be when it is opened."""
KEEP_SECONDS = 3600.0
"""How long states of the key before the newest are still opened. Longer than any state lives."""

_VERSION = "v1."
_KEY_BYTES = 32
_NONCE_BYTES = 12
_MAX_TOKEN = 512

_log = structlog.get_logger("tooldock.mcp")


class InvalidState(RpcError):
    """Whatever is wrong with a state, the client learns only that it is: anything more would help forging one."""

    def __init__(self) -> None:
        super().__init__(
            INVALID_PARAMS,
            "Invalid or expired requestState. Repeat the request without requestState and inputResponses.",
            {"reason": "invalid_request_state"},
        )


class Seal:
    """Seals with the first key, opens with any."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = tuple(keys) or (secrets.token_bytes(_KEY_BYTES),)

    @classmethod
    def open(cls, path: Path, rotate_seconds: float = ROTATE_SECONDS, keep_seconds: float = KEEP_SECONDS) -> Seal:
        """With the keys in a file of its owner's alone, which is made when there is none.

        Where that cannot be, the key lives as long as the process: states do not survive it then.
        """
        try:
            return cls(_ring(path, rotate_seconds, keep_seconds))
        except OSError as error:
            _log.warning("seal_key_not_kept", path=str(path), reason=error.strerror)
            return cls()

    def seal(self, ticket: bytes, binding: bytes, seconds: float) -> str:
        expiry = int((time.time() + seconds) * 1000)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = _cipher(self._keys[0]).encrypt(nonce, expiry.to_bytes(8, "big") + ticket, binding)
        return _VERSION + base64.urlsafe_b64encode(nonce + sealed).decode().rstrip("=")

    def unseal(self, token: Any, binding: bytes) -> bytes:
        """The ticket; raises `InvalidState`."""
        plain = self._open(_bytes_of(token), binding)
        if int.from_bytes(plain[:8], "big") < time.time() * 1000:
            raise InvalidState
        return plain[8:]

    def _open(self, sealed: bytes, binding: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        for key in self._keys:
            with contextlib.suppress(InvalidTag):
                return bytes(_cipher(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], binding))
        raise InvalidState


def binding(caller: str, namespace: str, method: str, params: dict[str, Any]) -> bytes:
    """A digest of everything that must be the same when a state comes back."""
    told = [caller, namespace, method, params.get("name"), params.get("uri"), params.get("arguments") or {}]
    try:
        text = orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # integers beyond 64 bits
        text = json.dumps(told, sort_keys=True).encode()
    return hashlib.sha256(text).digest()


def _cipher(key: bytes) -> Any:
    # Imported when it is needed: most calls ask nothing, and starting up should not wait for it.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _bytes_of(token: Any) -> bytes:
    if type(token) is not str or len(token) > _MAX_TOKEN or not token.startswith(_VERSION):
        raise InvalidState
    text = token[len(_VERSION) :]
    try:
        sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidState from None
    if len(sealed) != _NONCE_BYTES + 8 + TICKET_BYTES + 16:
        raise InvalidState
    return sealed


def _ring(path: Path, rotate_seconds: float, keep_seconds: float) -> list[bytes]:
    """The keys in the file, newest first; a line for each: when it was made, and the key."""
    known = _read(path)
    now = time.time()
    if not known:
        return _create(path, now)
    newest, *older = known
    if now - newest[0] > rotate_seconds:
        older, newest = [newest], (now, secrets.token_bytes(_KEY_BYTES))
        _write(path, [newest, *older], replace=True)
    if now - newest[0] > keep_seconds:
        older = []
    return [newest[1], *(key for _, key in older[:1])]


def _create(path: Path, now: float) -> list[bytes]:
    made = (now, secrets.token_bytes(_KEY_BYTES))
    try:
        _write(path, [made], replace=False)
    except FileExistsError:
        # Another process was first, or what is there is no key.
        known = _read(path)
        if known:
            return [known[0][1]]
        _log.warning("seal_key_replaced", path=str(path), reason="the file holds no key")
        _write(path, [made], replace=True)
    return [made[1]]


def _read(path: Path) -> list[tuple[float, bytes]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return []
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if mode & 0o077:
            os.fchmod(descriptor, 0o600)
        lines = file.read(4096).decode("ascii", "replace").splitlines()
    keys: list[tuple[float, bytes]] = []
    for line in lines:
        made, _, text = line.partition(" ")
        with contextlib.suppress(ValueError):
            key = base64.urlsafe_b64decode(text.encode())
            if len(key) == _KEY_BYTES:
                keys.append((float(made), key))
    return keys


def _write(path: Path, keys: Sequence[tuple[float, bytes]], *, replace: bool) -> None:
    """Whole or not at all; without `replace`, only where nothing is yet."""
    text = "".join(f"{made:.0f} {base64.urlsafe_b64encode(key).decode()}\n" for made, key in keys)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(descriptor)
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)

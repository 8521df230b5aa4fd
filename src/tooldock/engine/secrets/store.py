"""Reading `secrets.enc`: which values a namespace gets, and whose worker must restart when they change.

    {"version": 1, "kdf": {"name": "pbkdf2-hmac-sha256", "iterations": 600000},
     "salt": base64, "nonce": base64 (the token's IV), "ciphertext": Fernet token, "created_at": ISO 8601}

The token holds `{"global": {NAME: value}, "namespaces": {ns: {NAME: value}}}`. The metadata beside it
(`secrets.meta.yaml`: names and status, never values) arrives parsed. Deriving the key takes a noticeable part
of a second by design: call `read` and `seal` in a thread. Who may write, and asking people for values, is the
manager's business; `seal` is only the safe way to put a payload on disk.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import secrets as randomness
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

from cryptography.fernet import Fernet, InvalidToken

from tooldock.errors import ConfigError

VERSION = 1
KDF_NAME = "pbkdf2-hmac-sha256"
ITERATIONS = 600_000
FEWEST_ITERATIONS = 100_000
"""Fewer would make the passphrase guessable; whoever can write the file must not be able to weaken it."""
MOST_ITERATIONS = 5_000_000
"""More would only keep the gateway from starting."""
MAX_BYTES = 16 * 1024 * 1024

SecretStatus = Literal["set", "placeholder", "missing"]
Values = Mapping[str, str]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_DIGEST_KEY = randomness.token_bytes(32)
"""Of this process: digests can be compared while it lives, and mean nothing to anybody else."""


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """Every value, by scope; prints names only."""

    shared: Values = field(default_factory=dict)
    by_namespace: Mapping[str, Values] = field(default_factory=dict)
    shared_placeholders: frozenset[str] = frozenset()
    placeholders_by_namespace: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def for_namespace(self, namespace: str) -> dict[str, str]:
        """What its worker gets: global values, the namespace's own over them."""
        return {**self.shared, **self.by_namespace.get(namespace, {})}

    def values_for(self, namespace: str) -> tuple[tuple[str, str], ...]:
        """The same as pairs, for redaction."""
        return tuple(self.for_namespace(namespace).items())

    def status(self, namespace: str, name: str) -> SecretStatus:
        if name in self.by_namespace.get(namespace, {}) or name in self.shared:
            return "set"
        own = self.placeholders_by_namespace.get(namespace, frozenset())
        return "placeholder" if name in own or name in self.shared_placeholders else "missing"

    def missing(self, namespace: str, declared: Iterable[str]) -> tuple[str, ...]:
        """The declared names without a value, placeholders included."""
        return tuple(name for name in declared if self.status(namespace, name) != "set")

    def digest(self, namespace: str) -> str:
        """Equal as long as the namespace's values are; says nothing about them."""
        canonical = json.dumps(sorted(self.for_namespace(namespace).items())).encode()
        return hmac.new(_DIGEST_KEY, canonical, hashlib.sha256).hexdigest()

    def __repr__(self) -> str:
        own = {namespace: sorted(values) for namespace, values in self.by_namespace.items()}
        return f"Secrets(shared={sorted(self.shared)}, by_namespace={own})"


def read(path: Path, key: str | None, meta: Mapping[str, Any] | None = None) -> Secrets:
    """The secrets in `path`; none if there is no such file. `ConfigError` says what is wrong with one."""
    shared_placeholders, placeholders = _placeholders(meta or {})
    payload: Mapping[str, Any] = {}
    try:
        # Non-blocking, because opening a pipe somebody put there would wait for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                _damaged(path.name, "it is not a regular file")
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        data = b""
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read ({error.strerror}).", file=path.name) from error
    else:
        payload = _open(data, key, path.name)
    shared, by_namespace = _scopes(payload, path.name)
    return Secrets(shared, by_namespace, shared_placeholders, placeholders)


def seal(payload: Mapping[str, Any], key: str, path: Path, *, iterations: int = ITERATIONS) -> None:
    """Encrypt `payload` and put it in place of `path` at once, readable by its owner alone."""
    _scopes(payload, path.name)
    salt = randomness.token_bytes(16)
    token = Fernet(_derive(key, salt, iterations)).encrypt(json.dumps(payload).encode())
    envelope = {
        "version": VERSION,
        "kdf": {"name": KDF_NAME, "iterations": iterations},
        "salt": base64.b64encode(salt).decode(),
        "nonce": base64.b64encode(_nonce(token)).decode(),
        "ciphertext": token.decode(),
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    _replace(path, json.dumps(envelope, indent=2).encode() + b"\n")


def _open(data: bytes, key: str | None, file: str) -> Mapping[str, Any]:
    if not key:
        raise ConfigError(f"{file} cannot be opened without its key; set SECRETS_KEY.", file=file)
    if len(data) > MAX_BYTES:
        _damaged(file, f"it is larger than {MAX_BYTES} bytes")
    envelope = _json_object(data, file)
    if envelope.get("version") != VERSION:
        raise ConfigError(
            f"{file} has version {str(envelope.get('version'))[:20]!r}, and this ToolDock reads only "
            f"version {VERSION}; upgrade ToolDock or restore an older file.",
            file=file,
        )
    salt, token = _bytes(envelope, "salt", file), _ciphertext(envelope, file)
    derived = _derive(key, salt, _iterations(envelope, file))
    try:
        plain = Fernet(derived).decrypt(token)
    except InvalidToken:
        raise ConfigError(
            f"{file} cannot be opened: SECRETS_KEY is not the one it was written with, or it was changed.",
            file=file,
        ) from None
    return _json_object(plain, file)


def _iterations(envelope: Mapping[str, Any], file: str) -> int:
    kdf = envelope.get("kdf")
    if not isinstance(kdf, dict) or kdf.get("name") != KDF_NAME:
        raise ConfigError(f"{file} does not derive its key with {KDF_NAME}; upgrade ToolDock.", file=file)
    iterations = kdf.get("iterations")
    if not isinstance(iterations, int) or not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise ConfigError(
            f"{file} asks for a number of key iterations outside {FEWEST_ITERATIONS} to {MOST_ITERATIONS}; "
            "it was not written by ToolDock, so restore it from a backup.",
            file=file,
        )
    return iterations


def _ciphertext(envelope: Mapping[str, Any], file: str) -> bytes:
    token = envelope.get("ciphertext")
    if not isinstance(token, str) or not token.isascii():
        _damaged(file, "its ciphertext is missing")
    try:
        nonce = _nonce(token.encode())
    except (binascii.Error, ValueError):
        _damaged(file, "its ciphertext is not complete")
    if nonce != _bytes(envelope, "nonce", file):
        _damaged(file, "its nonce belongs to another ciphertext")
    return token.encode()


def _nonce(token: bytes) -> bytes:
    """A token is a version byte, eight bytes of time, sixteen of IV, and so on."""
    return base64.urlsafe_b64decode(token)[9:25]


def _bytes(envelope: Mapping[str, Any], name: str, file: str) -> bytes:
    try:
        value = base64.b64decode(envelope.get(name) or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        value = b""
    if len(value) < 16:
        _damaged(file, f"its {name} is missing or too short")
    return value


def _json_object(data: bytes, file: str) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        _damaged(file, "it is not the JSON it should be")
    return value


def _damaged(file: str, how: str) -> NoReturn:
    raise ConfigError(f"{file} is damaged: {how}; restore it from a backup.", file=file)


def _derive(key: str, salt: bytes, iterations: int) -> bytes:
    derived = hashlib.pbkdf2_hmac("sha256", key.encode(), salt, iterations, dklen=32)
    return base64.urlsafe_b64encode(derived)


def _scopes(payload: Mapping[str, Any], file: str) -> tuple[Values, Mapping[str, Values]]:
    namespaces = payload.get("namespaces") or {}
    if not isinstance(namespaces, dict):
        _damaged(file, "its namespaces are not a mapping")
    shared = _values(payload.get("global") or {}, file)
    return shared, {str(name): _values(values, file) for name, values in namespaces.items()}


def _values(values: Any, file: str) -> Values:
    if not isinstance(values, dict):
        _damaged(file, "a scope is not a mapping of names to values")
    for name, value in values.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            _damaged(file, "the name of a secret is not one an environment variable can have")
        if not isinstance(value, str) or "\0" in value:
            _damaged(file, f"the value of {name} is not text an environment can carry")
    return values


def _placeholders(meta: Any) -> tuple[frozenset[str], Mapping[str, frozenset[str]]]:
    if not isinstance(meta, Mapping):
        raise _bad_meta()
    namespaces = meta.get("namespaces") or {}
    if not isinstance(namespaces, Mapping):
        raise _bad_meta()
    return _unset(meta.get("global") or {}), {str(name): _unset(names or {}) for name, names in namespaces.items()}


def _unset(names: Any) -> frozenset[str]:
    if not isinstance(names, Mapping):
        raise _bad_meta()
    return frozenset(str(name) for name, about in names.items() if not _says_set(about))


def _says_set(about: Any) -> bool:
    if not isinstance(about, Mapping) or about.get("status") not in ("set", "placeholder"):
        raise _bad_meta()
    return bool(about["status"] == "set")


def _bad_meta() -> ConfigError:
    return ConfigError(
        "secrets.meta.yaml must map 'global' and each of 'namespaces' to names with a status, like\n"
        "  global:\n    GITHUB_TOKEN: {status: set}",
        file="secrets.meta.yaml",
    )


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{randomness.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The new name must survive a power cut as surely as the new content.
        os.fsync(directory)
    finally:
        os.close(directory)

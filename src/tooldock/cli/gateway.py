"""The running gateway, seen from the command line: where it is, the credential for it, one request at a time.

It speaks plain HTTP with the standard library, because an HTTP client package would take longer to import
than the call itself. Credentials go into headers and nowhere else.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tooldock.cli.failure import ExitCode, Failure
from tooldock.cli.place import data_paths, load_settings

if TYPE_CHECKING:
    import ssl

    from tooldock.paths import Paths

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""For questions about the gateway itself; calls and reloads have bounds of their own."""
LONGEST_SECONDS = 86_400.0
"""No call runs longer; the gateway ends it at its own, much shorter, deadline."""

_MAX_ANSWER = 1 << 30
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, never bound
_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    retry_after: str | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise Failure(
                f"The answer (status {self.status}) is not JSON, so ToolDock probably did not give it.",
                next_step="look at `tooldock doctor`.",
            ) from None


class Gateway:
    """One connection to one gateway; `find` looks for it."""

    def __init__(self, url: str, paths: Paths, *, told: str = "") -> None:
        self.url = url
        self._paths = paths
        self._told = told
        """Who named the address, when it was not the data directory."""
        scheme, host, port, path = _address(url, told or str(paths.run_dir("core") / "core.json"))
        self._host = _EVERYWHERE.get(host, host)
        self._prefix = path
        self._secure = scheme == "https"
        self._port = port or (443 if self._secure else 80)
        self._connection: http.client.HTTPConnection | None = None

    @classmethod
    def find(cls) -> Gateway:
        """The gateway of this data directory, or the one CORE_URL names."""
        paths = data_paths()
        named = os.environ.get("CORE_URL", "").strip()
        if named:
            return cls(named, paths, told="CORE_URL")
        record = running_core(paths)
        if record is None:
            raise not_running(paths)
        return cls(str(record["url"]), paths)

    def get(self, path: str, *, seconds: float = ANSWER_SECONDS) -> Any:
        """A question about the gateway: the answer's JSON, or the failure it stands for."""
        answer = self.request("GET", path, seconds=seconds)
        if not answer.ok:
            raise self.failure(answer)
        return answer.json()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        seconds: float = ANSWER_SECONDS,
        manager: bool = False,
        extra: Mapping[str, str] | None = None,
    ) -> Answer:
        headers = {"Accept": "application/json", "User-Agent": "tooldock-cli", **(extra or {})}
        token = self._sendable("bearer_token")
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if manager:
            headers["X-Manager-Token"] = self._sendable("manager_internal_token")
        if body is not None:
            headers["Content-Type"] = "application/json"
        deadline = time.monotonic() + seconds
        try:
            connection = self._connect(min(CONNECT_SECONDS, seconds))
        except OSError as error:
            raise self._unreachable(error) from None
        try:
            return self._exchange(connection, method, path, body, headers, deadline)
        except TimeoutError:
            self.close()
            raise Failure(
                f"No answer within {seconds:g} seconds.",
                code=ExitCode.TIMEOUT,
                next_step="allow more time with --timeout, or look at `tooldock namespaces`."
                if path.startswith("/ns/")
                else "look at `tooldock doctor`.",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Failure(
                f"The gateway at {self.url} ended the connection before it had answered ({_reason(error)}).",
                code=ExitCode.UNREACHABLE,
                next_step="look at `tooldock doctor`, and at what the gateway printed.",
            ) from None

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        deadline: float,
    ) -> Answer:
        def bound() -> None:
            if connection.sock is not None:
                connection.sock.settimeout(max(0.001, deadline - time.monotonic()))

        bound()
        connection.request(method, self._prefix + path, body, headers)
        bound()
        response = connection.getresponse()
        chunks: list[bytes] = []
        size = 0
        while True:
            bound()
            chunk = response.read1(1 << 20)
            if not chunk:
                break
            size += len(chunk)
            if size > _MAX_ANSWER:
                raise http.client.HTTPException("the answer is too large")
            chunks.append(chunk)
        response.read()  # nothing is left; this is what sets the connection free for the next request
        return Answer(response.status, b"".join(chunks), response.headers.get("Retry-After"))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self, seconds: float) -> http.client.HTTPConnection:
        if self._connection is not None:
            return self._connection
        connection: http.client.HTTPConnection
        if self._secure:
            context = _tls_context(self._host)
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=context)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        connection.connect()
        self._connection = connection
        return connection

    def _sendable(self, name: str) -> str:
        """A credential that fits into a header: refused there, its text would be in the error."""
        value = self._credential(name) or ""
        if not (value.isascii() and value.isprintable()):
            raise Failure(
                f"The token in {name.upper()}, or in {self._paths.token(name)}, holds characters that no token has.",
                next_step=f"set {name.upper()} to the token of this gateway.",
            )
        return value

    def _credential(self, name: str) -> str | None:
        """Environment, then `config.yaml`, then the file the gateway made; as the gateway itself looks."""
        value = os.environ.get(name.upper(), "").strip()
        if value:
            return value
        if self._paths.config_file.exists():
            configured: str | None = getattr(load_settings(), name)
            if configured:
                return configured
        return stored_credential(self._paths.token(name))

    def _unreachable(self, error: OSError) -> Failure:
        if self._told:
            return Failure(
                f"ToolDock cannot be reached at {self.url}, which {self._told} names ({_reason(error)}).",
                code=ExitCode.UNREACHABLE,
                next_step=f"start it there, or unset {self._told} to use the one of this data directory.",
            )
        if self._secure and "CERTIFICATE" in str(error).upper():
            return Failure(
                f"The certificate of {self.url} is not trusted ({_reason(error)}).",
                code=ExitCode.UNREACHABLE,
                next_step="set SSL_CERT_FILE to the certificate of its authority.",
            )
        return not_running(self._paths)

    def failure(self, answer: Answer, *, namespace: str = "", tool: str = "") -> Failure:
        """An error answer as what a person reads."""
        from tooldock.cli.problem import explain

        return explain(answer, namespace=namespace, tool=tool)


def _address(url: str, told: str) -> tuple[str, str, int | None, str]:
    """Scheme, host, port and path of an address somebody wrote down."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and url.isprintable() and " " not in url:
            return parts.scheme, parts.hostname, parts.port, parts.path.rstrip("/")
    except ValueError:
        pass  # brackets that do not match, or a port that is no number
    raise Failure(f"{told} must be an address like http://127.0.0.1:8000.", code=ExitCode.USAGE)


def running_core(paths: Paths) -> dict[str, Any] | None:
    """What the running core wrote about itself; None when there is none, or it is no longer alive."""
    file = paths.run_dir("core") / "core.json"
    try:
        record = json.loads(file.read_bytes())
        if not isinstance(record["url"], str) or not alive(int(record["pid"])):
            return None
    except PermissionError:
        raise Failure(
            f"Whether ToolDock runs for {paths.data_dir} cannot be seen: {paths.state} belongs to another user.",
            next_step="run this as the user who started ToolDock, or set CORE_URL and BEARER_TOKEN.",
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found: dict[str, Any] = record
    return found


def alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # there, and somebody else's
    return True


def not_running(paths: Paths) -> Failure:
    return Failure(
        f"ToolDock is not running for {paths.data_dir}.",
        code=ExitCode.UNREACHABLE,
        next_step="start it with `tooldock up`, or choose another directory with --data-dir.",
    )


def stored_credential(file: Path) -> str | None:
    """What the gateway generated; None when it generated none."""
    try:
        return file.read_text("ascii").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a credential"
        raise Failure(
            f"The credential in {file} cannot be read ({reason}).",
            next_step=f"run this as the user who started ToolDock, or set {file.name.upper()}.",
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def _tls_context(host: str) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context()
    if host in _LOCAL:
        # A certificate names the host others use, not loopback. Nothing is lost: the address is this
        # machine's own, from a file only its owner can write, and plain HTTP is trusted there just as well.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

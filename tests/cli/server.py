"""A small HTTP server that answers as it is told, for what a healthy gateway would never do."""

from __future__ import annotations

import json
import os
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

TOKEN = "token-of-the-test-server"
MANAGER_TOKEN = "manager-token-of-the-test-server"

HELLO = {
    "namespace": "shared",
    "name": "hello",
    "title": "hello",
    "description": "Greet someone by name.\n\nAt length.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "World"},
            "times": {"type": "integer"},
            "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "loud": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "extra": {"$ref": "#/$defs/Extra"},
        },
        "$defs": {"Extra": {"type": "object"}},
    },
}


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Server:
    """`answers[("GET", "/path")]` is a status and a value; bytes are sent as they are."""

    data: Path
    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    certificate: Path | None = None
    hold: threading.Event = field(default_factory=threading.Event)
    """Clear it, and requests to a path with /slow in it wait until it is set or the test ends."""

    def __post_init__(self) -> None:
        self.hold.set()
        self.answers[("GET", "/ns/shared/tools/hello/schema")] = (200, HELLO)
        self.answers[("GET", "/ns/shared/tools")] = (200, {"namespace": "shared", "tools": [HELLO]})
        self.answers[("POST", "/ns/shared/tools/hello")] = (200, "Hello, World!")

    def __enter__(self) -> Server:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.seen.append(Seen(self.command, self.path, headers, json.loads(body) if body else None))
                if "/slow" in self.path:
                    outer.hold.wait(30)
                status, value = outer.answers.get((self.command, self.path), (404, _missing(self.path)))
                if status == 0:
                    self.close_connection = True
                    return
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                if status == 503:
                    self.send_header("Retry-After", "7")
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    pass  # the client gave up, which is what some tests are about

            do_GET = do_POST = answer

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.url = f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hold.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def announce(self, *, pid: int | None = None, url: str | None = None) -> None:
        """Leave in the data directory what a running core leaves there."""
        run = self.data / "state" / "run" / "core"
        run.mkdir(parents=True, exist_ok=True)
        record = {"pid": pid or os.getpid(), "url": url or self.url, "tls": False}
        (run / "core.json").write_text(json.dumps(record))
        keys = self.data / "state" / "keys"
        keys.mkdir(parents=True, exist_ok=True)
        for name, value in (("bearer_token", TOKEN), ("manager_internal_token", MANAGER_TOKEN)):
            (keys / name).write_text(value + "\n")
            (keys / name).chmod(0o600)

    def calls(self) -> list[Any]:
        return [seen.body for seen in self.seen if seen.method == "POST"]


def _missing(path: str) -> dict[str, Any]:
    return problem("no_such_path", f"There is nothing at {path}.")


def problem(code: str, message: str, **details: Any) -> dict[str, Any]:
    """An error as the REST wire has it."""
    return {"error": {"code": code, "message": message, "details": details, "request_id": "r-1"}}

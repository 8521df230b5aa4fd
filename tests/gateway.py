"""A real gateway for tests: `tooldock core` as a process of its own, in a directory of its own.

Waiting is always for an event, under a deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx

T = TypeVar("T")

TOKEN = "test-token-0123456789abcdef"
MANAGER_TOKEN = "test-manager-token-0123456789"
START_SECONDS = 60.0
STOP_SECONDS = 20.0

ECHO = '''
from fastmcp.tools import tool

@tool
async def echo(text: str) -> str:
    """Give back what was given."""
    return text
'''


def until(what: str, probe: Callable[[], T | None], seconds: float = 10.0) -> T:
    """The first true value of `probe`; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


class Gateway:
    """One data directory, and the core that serves it while `running`."""

    def __init__(self, data: Path, venvs: Path, **settings: str) -> None:
        self.data = data
        self.settings = settings
        self._venvs = venvs
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.http = httpx.Client(timeout=30)
        self.log = data / "core.log"
        data.mkdir(parents=True, exist_ok=True)

    # Files.

    def write(self, namespace: str, file: str, text: str) -> Path:
        path = self.data / "tools" / namespace / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
        return path

    def audit(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        for path in sorted((self.data / "logs").glob("*.jsonl")):
            lines += [json.loads(line) for line in path.read_bytes().splitlines()]
        return lines

    def worker_log(self, namespace: str) -> str:
        path = self.data / "logs" / "workers" / f"{namespace}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    # The process.

    def start(self) -> Gateway:
        environ = {
            **{name: value for name, value in os.environ.items() if name.isupper()},
            "BEARER_TOKEN": TOKEN,
            "MANAGER_INTERNAL_TOKEN": MANAGER_TOKEN,
            "VENVS_DIR": str(self._venvs),
            "LOG_FORMAT": "json",
            **self.settings,
        }
        announced = self.data / "state" / "run" / "core" / "core.json"
        announced.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tooldock", "core", "--data-dir", str(self.data), "--port", "0"],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        process = self.process

        def listening() -> str | None:
            if process.poll() is not None:
                raise AssertionError(f"core ended with {process.returncode}:\n{self.log.read_text()[-4000:]}")
            with contextlib.suppress(OSError, ValueError, KeyError, httpx.TransportError):
                url = str(json.loads(announced.read_bytes())["url"])
                if self.http.get(f"{url}/health").status_code == 200:
                    return url
            return None

        self.url = until("core listens", listening, START_SECONDS)
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the core and wait for it. Returns its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"core did not stop:\n{self.log.read_text()[-4000:]}") from None

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def close(self) -> None:
        self.http.close()
        if self.process is not None and self.process.poll() is None:
            self.stop()

    # Talking to it.

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {TOKEN}"}

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**self.headers, **options.pop("headers", {})}
        return self.http.request(method, self.url + path, headers=headers, **options)

    def call(self, namespace: str, tool: str, /, **arguments: Any) -> httpx.Response:
        return self.request("POST", f"/ns/{namespace}/tools/{tool}", json=arguments)

    def value(self, namespace: str, tool: str, /, **arguments: Any) -> Any:
        response = self.call(namespace, tool, **arguments)
        assert response.status_code == 200, response.text
        return response.json()

    def reload(self) -> dict[str, Any]:
        response = self.request("POST", "/reload", headers={"X-Manager-Token": MANAGER_TOKEN}, timeout=120)
        assert response.status_code == 200, response.text
        done: dict[str, Any] = response.json()
        return done

    def namespaces(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.request("GET", "/namespaces").json()}

    def settled(self, seconds: float = 60) -> dict[str, dict[str, Any]]:
        """The namespaces, once none of them is being built or started any more."""

        def probe() -> dict[str, dict[str, Any]] | None:
            rows = self.namespaces()
            busy = [row for row in rows.values() if row["status"] in ("building", "starting")]
            return None if busy else rows

        return until("namespaces have settled", lambda: probe() or None, seconds)

    def worker_pid(self, namespace: str) -> int:
        def probe() -> int | None:
            row = self.namespaces().get(namespace)
            return None if row is None else row["pid"]

        return until(f"{namespace} has a worker", probe)


def descendants(pid: int) -> set[int]:
    """Every living process below `pid`, strays adopted by a subreaper included."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        parent = todo.pop()
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                for child in map(int, (task / "children").read_text().split()):
                    if child not in found:
                        found.add(child)
                        todo.append(child)
    return found


def is_alive(pid: int) -> bool:
    """Running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def running(data: Path, venvs: Path, **settings: str) -> Iterator[Gateway]:
    gateway = Gateway(data, venvs, **settings)
    try:
        yield gateway
    finally:
        gateway.close()

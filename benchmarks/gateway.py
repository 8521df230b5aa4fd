"""The gateway seen from outside: its control requests, for measurements that do more than call a tool."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.contender import Contender, Server, poll_pause, running
from benchmarks.environments import NotMeasurable
from benchmarks.servers import gateway_headers, write_namespace
from benchmarks.wire import Answer, ask, request

PATIENCE = 120.0
"""The longest a reload or a first call may take; installing for the first time downloads packages."""


class Gateway:
    """A running server of ours."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.site = server.site

    @property
    def pid(self) -> int:
        return self.server.child.pid

    def write(self, namespace: str, files: Mapping[str, str]) -> None:
        write_namespace(self.site, namespace, files)

    def reload(self) -> Any:
        headers = {**gateway_headers(self.site), "X-Manager-Token": self.site.manager_token}
        answer = ask(self.site.port, request(self.site.port, "POST", "/reload", headers), PATIENCE)
        if answer.status != 200 or not answer.json().get("reloaded"):
            raise NotMeasurable(f"reload was answered with {answer.status}: {answer.body[:300]!r}")
        return answer.json()

    def call(self, namespace: str, tool: str, **arguments: object) -> Answer:
        body = json.dumps(arguments).encode()
        headers = gateway_headers(self.site, namespace)
        return ask(self.site.port, request(self.site.port, "POST", f"/tools/{tool}", headers, body), PATIENCE)

    def call_until_answered(self, namespace: str, tool: str, expected: object, **arguments: object) -> None:
        """Repeat a call until it gives the expected value."""
        started = time.monotonic()
        while True:
            answer = self.call(namespace, tool, **arguments)
            if answer.status == 200 and answer.json() == expected:
                return
            if time.monotonic() - started > PATIENCE:
                raise NotMeasurable(f"{namespace}/{tool} was answered with {answer.status}: {answer.body[:300]!r}")
            time.sleep(poll_pause(started))

    def workers(self) -> dict[str, int]:
        """The pid of each namespace's worker, for those that have one."""
        answer = ask(self.site.port, request(self.site.port, "GET", "/namespaces", gateway_headers(self.site)))
        if answer.status != 200:
            raise NotMeasurable(f"the list of namespaces was answered with {answer.status}: {answer.body[:300]!r}")
        listed = answer.json()
        entries = listed["namespaces"] if isinstance(listed, dict) else listed
        return {entry["name"]: int(entry["pid"]) for entry in entries if entry.get("pid")}


@contextmanager
def running_gateway(row: Contender, directory: Path) -> Iterator[Gateway]:
    with running(row, directory) as server:
        yield Gateway(server)

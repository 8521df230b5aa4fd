"""What proves that a fault was handled: the answer, the audit, the processes, and the neighbours."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx

from tests.gateway import Gateway, descendants, until

CALM = "calm"
"""The namespace that must not notice anything."""
CALM_SECONDS = 1.0
"""The longest a neighbour may wait while something else goes wrong, on a machine that is busy with tests."""


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error in an answer that says no, in the one shape errors have."""
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["code"] == code, error
    assert error["message"]
    assert error["request_id"] == response.headers["x-request-id"]
    assert "Traceback" not in response.text
    return error


def unavailable(response: httpx.Response, reason: str) -> dict[str, Any]:
    """The error in an answer that says later."""
    error = refused(response, 503, "unavailable")
    assert error["details"]["reason"] == reason
    assert int(response.headers["retry-after"]) >= 1
    return error


def records(gateway: Gateway, response: httpx.Response) -> list[dict[str, Any]]:
    wanted = response.headers["x-request-id"]
    return [record for record in gateway.audit() if record["request_id"] == wanted]


def recorded(gateway: Gateway, response: httpx.Response, error: str | None) -> dict[str, Any]:
    """The one audit record of a call; `error` is the code it must carry, None for a call that went well."""
    found = records(gateway, response)
    assert len(found) == 1, found
    assert found[0]["status"] == ("ok" if error is None else "fail")
    assert found[0]["error"] == error
    return found[0]


@contextlib.contextmanager
def undisturbed(gateway: Gateway) -> Iterator[None]:
    """While the block runs, the calm namespace answers every call, and soon."""
    over = threading.Event()
    answers: list[tuple[int, float]] = []

    def ask() -> None:
        with httpx.Client(headers=gateway.headers, timeout=30) as http:
            while True:
                began = time.monotonic()
                response = http.post(f"{gateway.url}/ns/{CALM}/tools/echo", json={"text": "hm"})
                answers.append((response.status_code, time.monotonic() - began))
                if over.wait(0.02):
                    return

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert {status for status, _ in answers} == {200}
    assert max(seconds for _, seconds in answers) < CALM_SECONDS


def no_strays(gateway: Gateway, seconds: float = 8.0) -> None:
    """Below the core run its launcher and the workers it shows, nothing else."""

    def strays() -> set[int]:
        shown = {row["pid"] for row in gateway.namespaces().values() if row["pid"] is not None}
        return descendants(gateway.pid) - shown - children(gateway.pid)

    until("no stray process is left", lambda: not strays(), seconds)


def children(pid: int) -> set[int]:
    """Those it started itself: of a core, its launcher."""
    below = descendants(pid)
    return below - {grandchild for child in below for grandchild in descendants(child)}

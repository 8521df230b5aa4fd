from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.server import Server
from tooldock.cli.checks import python_version
from tooldock.engine.secrets import store
from tooldock.paths import Paths


def lines(cli: Cli, *, code: int = 0) -> dict[str, dict[str, str]]:
    result = cli("doctor", "--json")
    assert result.exit_code == code, result.stdout
    return {row["name"]: row for row in json.loads(result.stdout)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(autouse=True)
def quiet_ports(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORE_PORT", str(free_port()))
    monkeypatch.setenv("MANAGER_PORT", str(free_port()))


def test_a_healthy_place_has_no_failures(cli: Cli) -> None:
    found = lines(cli)
    assert {row["status"] for row in found.values()} <= {"ok", "warn"}
    assert found["python"]["status"] == found["uv"]["status"] == found["data"]["status"] == "ok"
    assert found["gateway"]["text"].startswith("not running")


def test_every_warning_and_failure_says_what_to_do(cli: Cli, data: Path) -> None:
    Paths(data).prepare()
    (data / "state" / "keys" / "bearer_token").write_text("x")
    (data / "state" / "keys" / "bearer_token").chmod(0o644)
    found = lines(cli, code=1)
    assert all(row["advice"] for row in found.values() if row["status"] != "ok")
    shown = cli("doctor").stdout
    assert "FAIL  tokens" in shown
    assert "→ remove it to have a new one made, or run: chmod 600" in shown


def test_looking_changes_nothing(cli: Cli, data: Path) -> None:
    before = sorted(data.rglob("*"))
    lines(cli)
    assert sorted(data.rglob("*")) == before
    Paths(data).prepare()
    before = sorted(data.rglob("*"))
    lines(cli)
    assert sorted(data.rglob("*")) == before


def test_an_old_python_fails() -> None:
    assert python_version((3, 10, 9)).status == "fail"
    assert python_version((3, 11, 0)).status == "ok"


def test_settings_that_cannot_be_used_fail_with_their_own_words(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORE_PORT", "many")
    assert "CORE_PORT must be a whole number" in lines(cli, code=1)["settings"]["text"]


def test_a_taken_port_names_its_holder(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        port = holder.stdout.readline().strip()
        monkeypatch.setenv("CORE_PORT", port)
        row = lines(cli)[f"port {port}"]
        holder.communicate()
    assert row["status"] == "warn"
    if sys.platform == "linux":
        assert f"(pid {holder.pid})" in row["text"]
    assert "CORE_PORT" in row["advice"]


def test_a_directory_that_cannot_be_made_fails(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "file" / "data"))
    assert lines(cli, code=1)["data"]["status"] == "fail"


def test_state_open_to_others_is_a_warning(cli: Cli, data: Path) -> None:
    Paths(data).prepare()
    (data / "state").chmod(0o755)
    assert lines(cli)["data"]["advice"].startswith("run: chmod 700")


def test_secrets_are_tried_with_the_key(cli: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "the-right-key-0123456789"
    (data / "secrets.enc").write_bytes(b"{}")
    assert "no key" in lines(cli, code=1)["secrets"]["text"]
    store.seal({"global": {"A": "value"}}, key, data / "secrets.enc")
    monkeypatch.setenv("SECRETS_KEY", key)
    assert lines(cli)["secrets"]["status"] == "ok"
    monkeypatch.setenv("SECRETS_KEY", "the-wrong-key-0123456789")
    assert lines(cli, code=1)["secrets"]["status"] == "fail"


def test_a_running_gateway_is_asked(cli: Cli, server: Server) -> None:
    server.answers[("GET", "/health")] = (200, {"status": "ok", "version": "9.9"})
    assert f"version 9.9 answers at {server.url}" in lines(cli)["gateway"]["text"]
    server.answers[("GET", "/health")] = (200, {"status": "degraded", "version": "9.9"})
    assert lines(cli)["gateway"]["status"] == "warn"
    server.answers[("GET", "/health")] = (0, None)
    assert lines(cli, code=1)["gateway"]["status"] == "fail"

"""The wiring in one process: everything is built, used, and closed in order."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import json
import logging
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.gateway import is_alive
from tooldock import app
from tooldock.app import Gateway, configure_logging, gateway, http_face, serve
from tooldock.engine.secrets import store
from tooldock.errors import ConfigError, SettingsError
from tooldock.model import Call, Caller, Namespace
from tooldock.paths import Paths
from tooldock.settings import Settings

pytestmark = pytest.mark.process

KEY = "a-key-for-tests-0123456789"
TOOLS = """
import os
from fastmcp.tools import tool

@tool
async def token() -> str:
    return os.environ.get("TOKEN", "none")[::-1]
"""


class Listener:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.is_ready = asyncio.Event()
        self.url = ""
        self.changes: list[Sequence[Namespace]] = []
        self.stops: list[int] = []

    def progress(self, namespace: str, text: str) -> None:
        return None

    def ready(self, url: str, namespaces: Sequence[Namespace]) -> None:
        self.url = url
        self.is_ready.set()

    def changed(self, namespaces: Sequence[Namespace]) -> None:
        self.changes.append(namespaces)

    def stopping(self, calls: int) -> None:
        self.stops.append(calls)


def prepared(tmp_path: Path, venvs: Path, **flags: str) -> tuple[Settings, Paths]:
    paths = Paths(tmp_path, venvs)
    paths.prepare()
    tools = paths.tools / "math" / "a.py"
    tools.parent.mkdir(exist_ok=True)
    tools.write_text(textwrap.dedent(TOOLS))
    return Settings.load({"secrets_key": KEY, "bearer_token": "b" * 20, **flags}, {}, {}), paths


@contextlib.asynccontextmanager
async def started(settings: Settings, paths: Paths) -> AsyncIterator[Gateway]:
    async with gateway(settings, paths, role="core", reporter=Listener()) as running:
        await asyncio.wait_for(asyncio.shield(running.first_load), 60)
        yield running


async def token(running: Gateway) -> Any:
    outcome = await running.engine.call(Call("math", "token", {}, Caller("ann"), "r-1", "rest"))
    assert outcome.error is None, outcome.error
    return json.loads(outcome.body)


async def test_it_serves_and_leaves_nothing_running(tmp_path: Path, venvs: Path) -> None:
    settings, paths = prepared(tmp_path, venvs)
    async with started(settings, paths) as running:
        assert await token(running) == "enon"
        assert running.calls_in_flight() == 0
        (row,) = running.reloader.status()
        assert row.pid is not None
        assert (await running.health(detailed=False)) == {"status": "ok"}
        report = await running.health(detailed=True)
        assert report["namespaces"] == {"math": "ready"}
        assert (report["tools"], report["errors"], report["dependencies"]) == (1, {}, {})
        assert report["audit"] == {"enabled": True, "writable": True, "problem": None}
    assert not is_alive(row.pid)
    (line,) = [json.loads(text) for file in paths.logs.glob("*.jsonl") for text in file.read_text().splitlines()]
    assert line["tool"] == "token"


async def test_a_broken_namespace_or_store_makes_health_degraded(tmp_path: Path, venvs: Path) -> None:
    settings, paths = prepared(tmp_path, venvs)
    (paths.tools / "math" / "a.py").write_text("def broken(:\n")
    paths.secrets_enc.write_bytes(b"damaged")
    async with started(settings, paths) as running:
        report = await running.health(detailed=True)
        assert report["status"] == "degraded"
        assert "a.py" in report["errors"]["math"]
        assert report["secrets"] == {"readable": False}


async def test_only_one_core_uses_a_data_directory_and_the_next_may_follow(tmp_path: Path, venvs: Path) -> None:
    settings, paths = prepared(tmp_path, venvs)
    async with started(settings, paths):
        with pytest.raises(SettingsError, match=rf"process {os.getpid()}.*DATA_DIR"):
            async with gateway(settings, paths, role="core", reporter=Listener()):
                raise AssertionError
        async with gateway(settings, paths, role="bridge", reporter=Listener()):
            pass
    async with started(settings, paths) as running:
        assert await token(running) == "enon"


async def test_a_pipe_clears_up_after_dead_ones_and_not_after_one_whose_number_means_nothing_here(
    tmp_path: Path, venvs: Path
) -> None:
    settings, paths = prepared(tmp_path, venvs)
    dead, elsewhere = (paths.run_dir(f"stdio-{number}") for number in (2**31 - 1, 2**31 - 2))
    for run in (dead, elsewhere):
        run.mkdir(parents=True)
        (run / "lock").touch()
    incoming = os.open(os.devnull, os.O_RDONLY)
    outgoing = os.open(os.devnull, os.O_WRONLY)
    try:
        with (elsewhere / "lock").open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            served = app.serve_stdio(
                settings, paths, namespace="math", incoming=incoming, outgoing=outgoing, reporter=Listener()
            )
            async with asyncio.timeout(60):
                assert await served == 0
            assert (dead.exists(), elsewhere.exists()) == (False, True)
    finally:
        os.close(incoming)
        os.close(outgoing)


async def test_secrets_reach_the_worker_and_a_new_value_comes_with_the_next_reload(tmp_path: Path, venvs: Path) -> None:
    settings, paths = prepared(tmp_path, venvs)
    store.seal({"global": {"TOKEN": "first"}}, KEY, paths.secrets_enc)
    async with started(settings, paths) as running:
        assert await token(running) == "tsrif"
        assert (await running.reload())["workers_restarted"] == []
        store.seal({"global": {"TOKEN": "second"}}, KEY, paths.secrets_enc)
        assert (await running.reload())["workers_restarted"] == ["math"]
        assert await token(running) == "dnoces"


def test_the_store_is_read_again_only_when_it_changed(
    tmp_path: Path, venvs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, paths = prepared(tmp_path, venvs)
    reads: list[Path] = []
    real = store.read

    def counted(path: Path, *rest: Any) -> store.Secrets:
        reads.append(path)
        return real(path, *rest)

    monkeypatch.setattr(store, "read", counted)
    reader = app._SecretsReader(settings, paths)
    reader()
    reader()
    assert len(reads) == 1
    paths.secrets_meta.write_text("- not a mapping\n")
    with pytest.raises(ConfigError):
        reader()
    paths.secrets_meta.unlink()
    assert reader().shared == {}


async def test_what_happened_can_be_counted(tmp_path: Path, venvs: Path) -> None:
    settings, paths = prepared(tmp_path, venvs)
    async with started(settings, paths) as running:
        await token(running)
        async with app.mcp_face(running, "core") as mcp:
            families = {family.name: family for family in app._collect(running, mcp)}
        (count,) = families["tooldock_calls"].samples
        assert (count.labels, count.value) == ({"namespace": "math", "tool": "token", "status": "ok"}, 1)
        buckets = [sample for sample in families["tooldock_call_seconds"].samples if sample.name.endswith("_bucket")]
        assert buckets[-1].labels["le"] == "+Inf"
        assert buckets[-1].value == 1
        assert sorted(sample.value for sample in buckets) == [sample.value for sample in buckets]
        assert families["tooldock_audit_writable"].samples[0].value == 1
        assert families["tooldock_mcp_sessions"].samples[0].value == 0
        async with app.mcp_face(running, "core") as mcp:
            assert http_face(running, mcp, host="127.0.0.1") is not None


async def test_old_logs_go_while_it_runs_and_a_log_that_cannot_go_is_no_end(
    tmp_path: Path, venvs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, paths = prepared(tmp_path, venvs, log_retention_days="3")
    old = paths.logs / "2001-01-01.jsonl"
    old.mkdir()  # cannot be unlinked
    monkeypatch.setattr(app, "_HOUSEKEEPING_SECONDS", 0.01)
    async with started(settings, paths):
        with structlog.testing.capture_logs() as said:
            async with asyncio.timeout(10):
                while "logs_not_expired" not in [row["event"] for row in said]:
                    await asyncio.sleep(0.01)
        old.rmdir()
        old.write_text("{}\n")
        async with asyncio.timeout(10):
            while old.exists():
                await asyncio.sleep(0.01)


@pytest.fixture
def thawed() -> Iterator[None]:
    """`serve` freezes what the collector knows; the tests after it start from where they were."""
    yield
    gc.unfreeze()


async def test_it_is_announced_while_it_serves_and_obeys_signals(tmp_path: Path, venvs: Path, thawed: None) -> None:
    settings, paths = prepared(tmp_path, venvs)
    listener = Listener()
    announced = paths.run_dir("core") / "core.json"
    task = asyncio.create_task(
        serve(settings, paths, role="core", host="127.0.0.1", port=0, reporter=listener), name="serve"
    )
    await asyncio.wait_for(listener.is_ready.wait(), 60)
    facts = json.loads(announced.read_bytes())
    assert (facts["pid"], facts["url"], facts["tls"]) == (os.getpid(), listener.url, False)
    assert announced.stat().st_mode & 0o777 == 0o600
    (paths.tools / "math" / "b.py").write_text(TOOLS.replace("token()", "other()"))
    seen = len(listener.changes)
    os.kill(os.getpid(), signal.SIGHUP)
    async with asyncio.timeout(20):
        while len(listener.changes) == seen:
            await asyncio.sleep(0.01)
    assert listener.changes[-1][0].tools == 2
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(task, 20) == 0
    assert listener.stops == [0]
    assert not announced.exists()


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root, server = logging.getLogger(), logging.getLogger("uvicorn.error")
    handlers, level = root.handlers[:], server.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    server.setLevel(level)


@pytest.mark.parametrize("shape", ["json", "pretty", "auto"])
def test_log_lines_have_the_asked_shape(
    shape: str, capsys: pytest.CaptureFixture[str], logging_as_before: None
) -> None:
    configure_logging(Settings.load({"log_format": shape, "log_level": "info"}, {}, {}))
    log = structlog.get_logger("tooldock")
    log.debug("hidden")
    log.info("shown", number=7)
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")
    out, err = capsys.readouterr()
    assert out == ""
    assert "hidden" not in err
    if shape == "pretty":
        assert "shown" in err
        assert "ValueError: why" in err
        return
    shown, failed = map(json.loads, err.splitlines())
    assert (shown["event"], shown["number"], shown["level"]) == ("shown", 7, "info")
    assert "ValueError: why" in failed["exception"]


def test_what_libraries_log_has_the_same_shape(capsys: pytest.CaptureFixture[str], logging_as_before: None) -> None:
    for _ in range(2):
        configure_logging(Settings.load({"log_format": "json"}, {}, {}))
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.getLogger("asyncio").info("hidden")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in %s application", "ASGI")
    [line] = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["event"], line["logger"], line["level"]) == ("library_message", "uvicorn.error", "error")
    assert line["text"] == "Exception in ASGI application"
    assert "ValueError: why" in line["exception"]


def test_a_log_that_cannot_be_written_harms_nobody(monkeypatch: pytest.MonkeyPatch, logging_as_before: None) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        configure_logging(Settings.load({"log_format": "json"}, {}, {}))
        structlog.get_logger("tooldock").error("lost")
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


def test_it_runs_on_the_fast_loop() -> None:
    async def which() -> int:
        return 7 if type(asyncio.get_running_loop()).__module__.startswith("uvloop") else 0

    assert app.run(which()) == 7


@pytest.mark.parametrize(
    ("host", "shown"),
    [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "[::1]"), ("example.test", "example.test")],
)
def test_the_address_shown_is_one_a_person_can_use(host: str, shown: str) -> None:
    assert app._shown(host) == shown

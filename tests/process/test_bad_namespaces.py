"""Folders that are broken, change, or go: the last good version serves, and only what changed is touched."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway import ECHO, Gateway, is_alive, until
from tests.process.evidence import children, no_strays, recorded, refused, unavailable, undisturbed
from tooldock.engine.secrets import store

pytestmark = pytest.mark.process

KEY = "a-key-for-tests-0123456789"

REMOTE_SCHEMA = """
from typing import Annotated
from fastmcp.tools import tool
from pydantic import WithJsonSchema

@tool
def fetch(what: Annotated[str, WithJsonSchema({"$ref": "http://example.invalid/x"})]) -> str:
    return what
"""

SPELLS = """
import os
from fastmcp.tools import tool

@tool
def spell() -> str:
    return os.environ.get("WORD", "nothing")
"""

SYNTAX_ERROR = """
from fastmcp.tools import tool

@tool
def broken(:
    pass
"""

TWICE = """
from fastmcp.tools import tool

@tool
def same() -> str:
    return "{0}"
"""

WAITS = """
import asyncio
from fastmcp.tools import tool

@tool
async def version() -> str:
    await asyncio.sleep({seconds})
    return "{version}"
"""


@pytest.fixture(scope="module")
def core(stage: Callable[..., Gateway]) -> Gateway:
    gateway = stage(DRAIN_SECONDS="3", WORKER_GRACE_SECONDS="0.3", SECRETS_KEY=KEY)
    gateway.write("calm", "echo.py", ECHO)
    gateway.start().settled()
    return gateway


def reload(core: Gateway) -> dict[str, Any]:
    """A reload that the calm namespace does not notice: neither in its answers nor by its worker."""
    pid = core.worker_pid("calm")
    with undisturbed(core):
        done = core.reload()
    assert core.worker_pid("calm") == pid
    assert "calm" not in done["workers_restarted"]
    assert core.namespaces()["calm"]["restarts"] == 0
    return done


def add(core: Gateway, name: str, text: str, file: str = "tools.py") -> dict[str, Any]:
    """Write one file and reload; the namespace's row."""
    core.write(name, file, text)
    reload(core)
    row: dict[str, Any] = core.namespaces()[name]
    return row


def failed(core: Gateway, row: dict[str, Any], file: str | None, line: int | None) -> str:
    """The error of a namespace that never worked; health says so, too."""
    assert row["status"] == "failed", row
    assert (row["error_file"], row["error_line"]) == (file, line)
    response = core.call(row["name"], "anything")
    assert row["error"] in refused(response, 500, "dependency_error")["message"]
    recorded(core, response, "dependency_error")
    health = core.request("GET", "/health").json()
    assert health["status"] == "degraded"
    assert health["errors"][row["name"]] == row["error"]
    no_strays(core)
    error: str = row["error"]
    return error


# Broken from the start.


def test_syntax_error_is_shown_with_its_place(core: Gateway) -> None:
    row = add(core, "typo", SYNTAX_ERROR)
    failed(core, row, "tools.py", 5)


def test_schema_that_refers_elsewhere_is_refused_and_not_fetched(core: Gateway) -> None:
    error = failed(core, add(core, "remote", REMOTE_SCHEMA), None, None)
    assert "'fetch'" in error
    assert "example.invalid" in error


def test_broken_settings_file_is_shown_with_line_and_column(core: Gateway) -> None:
    core.write("unset", "tools.py", ECHO)
    row = add(core, "unset", "description: fine\nlimits: {timeout_seconds: soon}\n", "tooldock.yaml")
    error = failed(core, row, "tools/unset/tooldock.yaml", 2)
    assert "timeout_seconds" in error


def test_settings_file_that_is_not_yaml_is_shown_with_its_line(core: Gateway) -> None:
    core.write("noyaml", "tools.py", ECHO)
    row = add(core, "noyaml", "description: [open\nversion: 1\n", "tooldock.yaml")
    assert row["status"] == "failed"
    assert row["error_line"] is not None


def test_same_tool_in_two_files_is_refused_by_both_names(core: Gateway) -> None:
    core.write("twins", "a.py", TWICE.format("a"))
    row = add(core, "twins", TWICE.format("b"), "b.py")
    assert row["status"] == "failed"
    assert "a.py" in row["error"]
    assert row["error_file"] == "b.py"


def test_folder_with_a_bad_name_is_shown_and_not_served(core: Gateway) -> None:
    row = add(core, "Bad_Name", ECHO)
    assert "Bad_Name" in failed(core, row, None, None)


def test_link_that_leads_out_is_refused(core: Gateway) -> None:
    outside = core.data / "outside.py"
    outside.write_text("TOKEN = 'mine'\n")
    core.write("linked", "tools.py", ECHO)
    (core.data / "tools" / "linked" / "_more.py").symlink_to(outside)
    reload(core)
    failed(core, core.namespaces()["linked"], "_more.py", None)


def test_link_to_nowhere_is_refused(core: Gateway) -> None:
    core.write("dangling", "tools.py", ECHO)
    (core.data / "tools" / "dangling" / "_more.py").symlink_to("_missing.py")
    reload(core)
    assert core.namespaces()["dangling"]["status"] == "failed"


def test_file_that_never_finishes_loading_is_given_up(gateway: Callable[..., Gateway]) -> None:
    core = gateway(WORKER_READY_TIMEOUT_SECONDS="1", DRAIN_SECONDS="2")
    core.write("calm", "echo.py", ECHO)
    core.write("eternal", "tools.py", "import time\ntime.sleep(1000)\n")
    core.start().settled()
    error = failed(core, core.namespaces()["eternal"], None, None)
    assert "WORKER_READY_TIMEOUT_SECONDS" in error
    assert core.value("calm", "echo", text="a") == "a"


@pytest.mark.network
def test_requirements_that_do_not_resolve_are_refused(core: Gateway) -> None:
    core.write("greedy", "tools.py", ECHO)
    row = add(core, "greedy", "tooldock-no-such-package==99.0\n", "requirements.txt")
    assert "tooldock-no-such-package" in failed(core, row, "requirements.txt", None)


@pytest.mark.network
def test_incompatible_pydantic_is_refused_by_name(core: Gateway) -> None:
    core.write("dated", "tools.py", ECHO)
    row = add(core, "dated", "pydantic<2\n", "requirements.txt")
    assert "pydantic" in failed(core, row, "requirements.txt", None)


@pytest.fixture
def deaf_index() -> Iterator[socket.socket]:
    """A package index that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        yield listener


def installing(core: Gateway, index: socket.socket) -> set[int]:
    """The installer's processes, once they wait for the index."""
    core.write("waiting", "tools.py", ECHO)
    core.write("waiting", "requirements.txt", "tooldock-no-such-package==99.0\n")
    core.write("calm", "echo.py", ECHO)
    core.start()
    index.accept()[0].detach()  # stays open, and silent, as long as this process
    found = {pid for pid in children(core.pid) if "/uv" in Path(f"/proc/{pid}/cmdline").read_text()}
    assert found
    return found


def test_installer_ends_with_a_stopped_core(gateway: Callable[..., Gateway], deaf_index: socket.socket) -> None:
    address = f"http://127.0.0.1:{deaf_index.getsockname()[1]}/simple"
    core = gateway(UV_DEFAULT_INDEX=address, DRAIN_SECONDS="2")
    installer = installing(core, deaf_index)
    until("the others are served meanwhile", lambda: core.namespaces()["calm"]["status"] == "ready")
    assert core.value("calm", "echo", text="a") == "a"
    response = core.call("waiting", "echo", text="a")
    unavailable(response, "building")
    recorded(core, response, "unavailable")
    began = time.monotonic()
    assert core.stop() == 0
    assert time.monotonic() - began < 2 + 5
    assert not any(map(is_alive, installer))


# Broken later: the last good version goes on.


def test_broken_change_leaves_the_last_version_serving(core: Gateway) -> None:
    add(core, "steady", ECHO)
    pid = core.worker_pid("steady")
    row = add(core, "steady", SYNTAX_ERROR)
    assert (row["status"], row["pid"], row["restarts"]) == ("ready", pid, 0)
    assert (row["error_file"], row["error_line"]) == ("tools.py", 5)
    assert core.value("steady", "echo", text="a") == "a"
    row = add(core, "steady", ECHO)
    assert (row["error"], row["pid"]) == (None, pid)


def test_half_written_file_is_never_served(core: Gateway) -> None:
    whole = WAITS.format(seconds=0, version="2")
    add(core, "writing", WAITS.format(seconds=0, version="1"))
    for last in ("from fastmcp", "def version(", "asyncio.sleep(", 'return "'):
        half = whole[: whole.index(last) + len(last)]
        row = add(core, "writing", half)
        assert row["error_line"] == half.count("\n") + 1
        assert core.value("writing", "version") == "1"
    add(core, "writing", whole)
    assert core.value("writing", "version") == "2"


def test_last_version_serves_after_a_restart_of_the_core(gateway: Callable[..., Gateway]) -> None:
    core = gateway(DRAIN_SECONDS="3")
    core.write("steady", "tools.py", ECHO)
    core.start().settled()
    assert core.value("steady", "echo", text="a") == "a"
    core.write("steady", "tools.py", SYNTAX_ERROR)
    core.reload()
    for _ in range(2):
        core.restart()
        row = core.settled()["steady"]
        assert (row["error_file"], row["error_line"], row["tool_count"]) == ("tools.py", 5, 1)
        response = core.call("steady", "echo", text="b")
        assert response.json() == "b"
        recorded(core, response, None)
    core.write("steady", "tools.py", ECHO)
    core.reload()
    assert core.namespaces()["steady"]["error"] is None


# Switched off.


def test_disabled_namespace_is_hidden_and_its_worker_ends(core: Gateway) -> None:
    add(core, "switch", ECHO)
    pid = core.worker_pid("switch")
    row = add(core, "switch", "enabled: false\n", "tooldock.yaml")
    assert (row["status"], row["pid"]) == ("disabled", None)
    refused(core.call("switch", "echo", text="a"), 404, "namespace_not_found")
    until("its worker is gone", lambda: not is_alive(pid))
    add(core, "switch", "enabled: true\n", "tooldock.yaml")
    assert core.value("switch", "echo", text="a") == "a"


def test_disabled_tool_is_hidden_alone(core: Gateway) -> None:
    core.write("partial", "tools.py", ECHO + WAITS.format(seconds=0, version="1"))
    row = add(core, "partial", "tools:\n  version: {enabled: false}\n", "tooldock.yaml")
    assert row["tool_count"] == 1
    refused(core.call("partial", "version"), 404, "tool_not_found")
    assert core.value("partial", "echo", text="a") == "a"
    listed = core.request("GET", "/ns/partial/tools").json()["tools"]
    assert [tool["name"] for tool in listed] == ["echo"]


def test_missing_secret_is_shown(core: Gateway) -> None:
    core.write("wanting", "tools.py", ECHO)
    row = add(core, "wanting", "secrets: [API_TOKEN]\n", "tooldock.yaml")
    assert row["missing_secrets"] == ["API_TOKEN"]
    assert core.value("wanting", "echo", text="a") == "a"


# Changed and gone.


def test_deleted_namespace_is_gone_with_its_worker(core: Gateway) -> None:
    add(core, "brief", ECHO)
    pid = core.worker_pid("brief")
    shutil.rmtree(core.data / "tools" / "brief")
    reload(core)
    assert "brief" not in core.namespaces()
    response = core.call("brief", "echo", text="a")
    refused(response, 404, "namespace_not_found")
    recorded(core, response, "namespace_not_found")
    until("its worker is gone", lambda: not is_alive(pid))
    no_strays(core)


def test_reload_touches_only_what_changed(core: Gateway) -> None:
    for name in ("one", "two", "three"):
        core.write(name, "tools.py", ECHO)
    core.reload()
    pids = {name: core.worker_pid(name) for name in ("one", "two", "three")}
    core.write("two", "tools.py", ECHO + "\n# changed\n")
    assert reload(core)["workers_restarted"] == ["two"]
    now = {name: core.worker_pid(name) for name in pids}
    assert {name for name in pids if pids[name] != now[name]} == {"two"}
    assert reload(core)["workers_restarted"] == []


def test_touched_file_of_the_same_content_restarts_nothing(core: Gateway) -> None:
    file = core.write("touched", "tools.py", ECHO)
    core.reload()
    pid = core.worker_pid("touched")
    file.write_text(file.read_text())
    assert reload(core)["workers_restarted"] == []
    assert core.worker_pid("touched") == pid


@pytest.mark.network
def test_changed_requirements_rebuild_only_that_namespace(core: Gateway) -> None:
    core.write("needy", "tools.py", ECHO)
    core.write("content", "tools.py", ECHO)
    core.reload()
    needy, content = core.worker_pid("needy"), core.worker_pid("content")
    core.write("needy", "requirements.txt", "iniconfig\n")
    done = reload(core)
    assert (done["workers_restarted"], done["deps_synced"]) == (["needy"], ["needy"])
    assert core.worker_pid("content") == content
    assert core.worker_pid("needy") != needy
    assert core.value("needy", "echo", text="a") == "a"


@pytest.mark.network
def test_an_environment_nobody_uses_any_more_is_let_go(core: Gateway) -> None:
    def held() -> set[str]:
        links = {str(path.readlink()) for path in Path(f"/proc/{core.pid}/fd").iterdir() if path.is_symlink()}
        return {Path(link).stem for link in links if link.endswith(".lock") and "/core/" not in link}

    core.write("fickle", "tools.py", ECHO)
    core.write("fickle", "requirements.txt", "iniconfig==2.1.0\n")
    core.reload()
    before = held()
    core.write("fickle", "requirements.txt", "iniconfig==2.0.0\n")
    core.reload()
    # The new one instead of the old one, and the base environment as ever.
    until("the old environment is let go", lambda: len(before - held()) == 1)
    assert {key for key in before if key.startswith("base-")} <= held()


def test_changed_secret_restarts_only_the_namespace_that_has_it(core: Gateway) -> None:
    core.write("speller", "tools.py", SPELLS)
    core.write("deaf", "tools.py", SPELLS)
    core.reload()
    pids = {name: core.worker_pid(name) for name in ("speller", "deaf")}
    file = core.data / "secrets.enc"
    for word in ("first-word", "second-word"):
        payload = {"namespaces": {"speller": {"WORD": word}}}
        store.seal(payload, KEY, file, iterations=store.FEWEST_ITERATIONS)
        assert reload(core)["workers_restarted"] == ["speller"]
        digest = "".join(core.value("speller", "spell"))
        assert digest != "nothing"
        assert word not in digest  # a secret never leaves, not even when it is the answer
    assert core.worker_pid("deaf") == pids["deaf"]
    assert core.value("deaf", "spell") == "nothing"


def test_unreadable_secrets_keep_the_ones_in_use(gateway: Callable[..., Gateway]) -> None:
    core = gateway(SECRETS_KEY=KEY)
    core.write("speller", "tools.py", SPELLS)
    file = core.data / "secrets.enc"
    payload = {"namespaces": {"speller": {"WORD": "first-word"}}}
    store.seal(payload, KEY, file, iterations=store.FEWEST_ITERATIONS)
    core.start().settled()
    pid = core.worker_pid("speller")
    file.write_text("{}")
    assert core.reload()["workers_restarted"] == []
    assert core.worker_pid("speller") == pid
    assert core.value("speller", "spell") != "nothing"
    health = core.request("GET", "/health").json()
    assert (health["status"], health["secrets"]) == ("degraded", {"readable": False})


def test_call_in_flight_finishes_on_the_version_it_began_with(core: Gateway) -> None:
    add(core, "versions", WAITS.format(seconds=1, version="old"))
    old = core.worker_pid("versions")
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(core.call("versions", "version")))
    thread.start()
    until(
        "the call is running",
        lambda: 'tooldock_calls_running{namespace="versions"} 1.0' in core.request("GET", "/metrics").text,
    )
    core.write("versions", "tools.py", WAITS.format(seconds=0, version="new"))
    reload(core)
    assert core.value("versions", "version") == "new"
    assert answers == []  # the old one is still at it
    thread.join()
    assert answers[0].json() == "old"
    recorded(core, answers[0], None)
    until("the old worker is gone", lambda: not is_alive(old))


def test_reload_whose_caller_leaves_is_finished(core: Gateway) -> None:
    add(core, "patient", WAITS.format(seconds=0, version="old"))
    old = core.worker_pid("patient")
    slow = "import time\ntime.sleep(1)\n" + WAITS.format(seconds=0, version="new")
    core.write("patient", "tools.py", slow)
    with pytest.raises(httpx.ReadTimeout):
        core.request("POST", "/reload", headers={"X-Manager-Token": "test-manager-token-0123456789"}, timeout=0.5)
    until("the new version is served", lambda: core.value("patient", "version") == "new")
    until("the old worker is gone", lambda: not is_alive(old))
    no_strays(core)

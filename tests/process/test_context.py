"""What a running tool can reach: other tools, its caller, its own directories, and nothing of the gateway's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway import ECHO, TOKEN, Gateway, is_alive, until
from tests.process.evidence import no_strays, recorded, records, refused

pytestmark = pytest.mark.process

KEY = "a-key-for-tests-0123456789"

CALLING = """
from fastmcp import Context
from fastmcp.tools import tool

@tool
async def through(namespace: str, tool: str, arguments: dict, ctx: Context) -> object:
    return await ctx.call_tool(namespace, tool, arguments)

@tool
def through_on_a_thread(namespace: str, tool: str, arguments: dict, ctx: Context) -> object:
    return ctx.sync.call_tool(namespace, tool, arguments)

@tool
async def again(ctx: Context) -> str:
    return await ctx.call_tool("calling", "again", {})

@tool
async def who(ctx: Context) -> dict:
    return {"request_id": ctx.request_id, "caller": ctx.caller, "namespace": ctx.namespace}

@tool
async def hidden_failure(ctx: Context) -> str:
    try:
        await ctx.call_tool("calm", "nothing", {})
    except Exception as error:
        return f"{type(error).__name__}: {error.code}"
    return "no error"
"""

TALKING = """
from fastmcp import Context
from fastmcp.tools import tool

@tool
async def talks(ctx: Context) -> str:
    for n in range(100):
        await ctx.report_progress(n, 100, "going")
        await ctx.info("step", extra={"n": n})
    await ctx.warning("nearly")
    return "done"

@tool
def talks_on_a_thread(ctx: Context) -> str:
    ctx.sync.report_progress(1, 2)
    ctx.sync.error("oh")
    return "done"

@tool
async def asks(ctx: Context) -> str:
    return str(await ctx.elicit("Sure?", bool))

@tool
def asks_on_a_thread(ctx: Context) -> str:
    return str(ctx.sync.elicit("Sure?", bool))

@tool
async def announces(ctx: Context) -> str:
    await ctx.send_notification("notifications/tools/list_changed")
    await ctx.send_notification({"method": "notifications/resources/updated", "params": {"uri": "data://now"}})
    await ctx.close_sse_stream()
    return "done"

@tool
def announces_on_a_thread(ctx: Context) -> str:
    ctx.sync.send_notification("notifications/prompts/list_changed")
    ctx.sync.close_sse_stream()
    return "done"

@tool
async def announces_nonsense(ctx: Context) -> str:
    await ctx.send_notification("notifications/tools/nonsense")

@tool
async def can_be_asked(ctx: Context) -> bool:
    return await ctx.client_supports("elicitation")

@tool
async def samples(ctx: Context) -> str:
    return (await ctx.sample("Say something")).text
"""

PLACES = """
import importlib.util, os, subprocess, sys, tempfile
from pathlib import Path
from fastmcp.tools import tool

STATE = Path(os.environ["TOOLDOCK_STATE_DIR"])

@tool
def count() -> int:
    file = STATE / "count"
    number = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(number))
    return number

@tool
def scratch() -> dict:
    handle, name = tempfile.mkstemp()
    os.close(handle)
    folder = Path(name).parent
    modes = {"mode": folder.stat().st_mode, "files": os.stat(name).st_mode}
    return {"folder": str(folder), **{key: oct(mode & 0o777) for key, mode in modes.items()}}

@tool
def environment() -> dict[str, str]:
    return dict(os.environ)

@tool
def environment_of_a_child() -> str:
    return subprocess.check_output(["env"], text=True)

@tool
def parent_environment() -> str:
    try:
        return Path(f"/proc/{os.getpid()}/environ").read_bytes().decode(errors="replace")
    except OSError as error:
        return str(error)

@tool
def importable(names: list[str]) -> list[str]:
    return [name for name in names if importlib.util.find_spec(name) is not None]

@tool
def descriptors() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass  # the one that read the directory
    return found
"""

HEALTH = """
async def health():
    return {"database": "reachable"}
"""

BROKEN_HEALTH = """
def health():
    raise RuntimeError("no database")
"""

HANGING_HEALTH = """
import asyncio

async def health():
    await asyncio.Event().wait()
"""


@pytest.fixture(scope="module")
def core(stage: Callable[..., Gateway]) -> Gateway:
    gateway = stage(DRAIN_SECONDS="5", TOOL_CALL_TIMEOUT_SECONDS="5", SECRETS_KEY=KEY)
    gateway.write("calm", "echo.py", ECHO)
    gateway.write("calling", "tools.py", CALLING)
    gateway.write("talking", "tools.py", TALKING)
    gateway.write("places", "tools.py", PLACES)
    gateway.write("other", "tools.py", PLACES)
    gateway.start().settled()
    return gateway


# Tools that call tools.


@pytest.mark.parametrize("tool", ["through", "through_on_a_thread"])
def test_call_of_another_namespace_is_recorded_as_its_own(core: Gateway, tool: str) -> None:
    response = core.call("calling", tool, namespace="calm", tool="echo", arguments={"text": "hi"})
    assert response.json() == "hi"
    inner, outer = records(core, response)
    assert [(line["namespace"], line["tool"], line["depth"], line["protocol"]) for line in (inner, outer)] == [
        ("calm", "echo", 1, "tool/calling"),
        ("calling", tool, 0, "rest"),
    ]
    assert inner["caller"] == outer["caller"] == "default"
    assert inner["status"] == outer["status"] == "ok"


def test_inner_call_sees_the_request_and_caller_of_the_outer(core: Gateway) -> None:
    response = core.call("calling", "through", namespace="calling", tool="who", arguments={})
    assert response.json() == {
        "request_id": response.headers["x-request-id"],
        "caller": "default",
        "namespace": "calling",
    }


def test_inner_call_is_checked_like_any_other(core: Gateway) -> None:
    response = core.call("calling", "through", namespace="calm", tool="echo", arguments={"text": 1})
    error = refused(response, 500, "tool_error")
    assert error["details"]["cause"] == "invalid_arguments"
    assert [line["error"] for line in records(core, response)] == ["invalid_arguments", "tool_error"]


def test_inner_failure_can_be_handled_by_the_tool(core: Gateway) -> None:
    response = core.call("calling", "hidden_failure")
    assert response.json() == "AskFailed: tool_not_found"
    assert [line["error"] for line in records(core, response)] == ["tool_not_found", None]


def test_integer_beyond_64_bits_survives_an_inner_call(core: Gateway) -> None:
    core.write("numbers", "tools.py", "from fastmcp.tools import tool\n@tool\ndef same(n: int) -> int:\n    return n\n")
    core.reload()
    response = core.call("calling", "through", namespace="numbers", tool="same", arguments={"n": 2**200})
    assert response.status_code == 200, response.text
    assert json.loads(response.content) == 2**200


def test_tools_that_call_each_other_for_ever_are_stopped(core: Gateway) -> None:
    response = core.call("calling", "again")
    error = refused(response, 500, "tool_error")
    assert "loop" in error["message"]
    lines = records(core, response)
    assert sorted(line["depth"] for line in lines) == list(range(len(lines)))
    assert lines[0]["error"] == "policy_denied"
    assert {line["error"] for line in lines[1:]} == {"tool_error"}
    assert core.value("calling", "who")


# Talking to the caller, over a wire that only answers.


@pytest.mark.parametrize("tool", ["talks", "talks_on_a_thread", "announces", "announces_on_a_thread"])
def test_what_a_tool_says_that_nobody_hears_is_harmless(core: Gateway, tool: str) -> None:
    response = core.call("talking", tool)
    assert response.json() == "done"
    recorded(core, response, None)


@pytest.mark.parametrize("tool", ["asks", "asks_on_a_thread", "samples"])
def test_question_to_a_caller_who_cannot_answer_fails_by_name(core: Gateway, tool: str) -> None:
    response = core.call("talking", tool)
    error = refused(response, 500, "tool_error")
    assert error["details"]["cause"] == "no_back_channel"
    recorded(core, response, "tool_error")


def test_a_notification_nobody_knows_fails_the_tool_by_name(core: Gateway) -> None:
    response = core.call("talking", "announces_nonsense")
    error = refused(response, 500, "tool_error")
    assert error["details"]["cause"] == "invalid_arguments"
    assert "notifications/tools/list_changed" in error["message"]


def test_a_caller_who_only_gets_answers_cannot_be_asked(core: Gateway) -> None:
    assert core.value("talking", "can_be_asked") is False


# Its own places.


def test_state_outlives_the_worker_and_the_core(gateway: Callable[..., Gateway]) -> None:
    core = gateway(DRAIN_SECONDS="2")
    core.write("places", "tools.py", PLACES)
    core.start().settled()
    assert core.value("places", "count") == 1
    core.write("places", "tools.py", PLACES + "\n# changed\n")
    core.reload()
    assert core.value("places", "count") == 2
    core.restart()
    core.settled()
    assert core.value("places", "count") == 3


def test_scratch_is_private_and_not_shared(core: Gateway) -> None:
    mine, theirs = core.value("places", "scratch"), core.value("other", "scratch")
    assert mine["folder"] != theirs["folder"]
    assert mine["folder"] != "/tmp"
    assert Path(mine["folder"]).is_relative_to(core.data)
    assert (mine["mode"], mine["files"]) == ("0o700", "0o600")


@pytest.mark.parametrize("tool", ["environment", "environment_of_a_child", "parent_environment"])
def test_environment_holds_nothing_of_the_gateways(core: Gateway, tool: str) -> None:
    text = str(core.value("places", tool))
    for name in ("BEARER_TOKEN", "SECRETS_KEY", "MANAGER_INTERNAL_TOKEN", "DATA_DIR"):
        assert name not in text
    for value in (TOKEN, KEY):
        assert value not in text


def test_worker_holds_no_file_of_the_gateways(core: Gateway) -> None:
    held = core.value("places", "descriptors")
    assert not [name for name in held if name.startswith(str(core.data))]
    # Its pipe to the log, its socket to the gateway, and what its own event loop needs.
    assert len([name for name in held if name.startswith("socket:")]) <= 3


def test_packages_of_the_gateway_cannot_be_imported(core: Gateway) -> None:
    names = ["tooldock", "uvicorn", "orjson", "structlog", "cryptography", "click", "pydantic", "json"]
    assert core.value("places", "importable", names=names) == ["pydantic", "json"]


# Health of its own.


def test_own_health_check_is_part_of_the_report(core: Gateway) -> None:
    core.write("vital", "echo.py", ECHO)
    core.write("vital", "_health.py", HEALTH)
    core.write("ailing", "echo.py", ECHO)
    core.write("ailing", "_health.py", BROKEN_HEALTH)
    core.reload()
    dependencies = core.request("GET", "/health").json()["dependencies"]
    assert dependencies["vital"] == {"database": "reachable"}
    assert dependencies["ailing"]["status"] == "error"
    assert "no database" in dependencies["ailing"]["reason"]
    assert "calm" not in dependencies


def test_details_of_health_need_a_token(core: Gateway) -> None:
    report = core.http.get(f"{core.url}/health").json()
    assert set(report) == {"status", "version"}


def test_hanging_health_check_is_unknown_and_holds_nobody_up(core: Gateway) -> None:
    core.write("comatose", "echo.py", ECHO)
    core.write("comatose", "_health.py", HANGING_HEALTH)
    core.reload()
    for _ in range(2):
        report = core.request("GET", "/health").json()
        assert report["dependencies"]["comatose"]["status"] == "unknown"
    pid = core.worker_pid("comatose")
    assert core.value("comatose", "echo", text="a") == "a"
    (core.data / "tools" / "comatose" / "_health.py").unlink()
    core.reload()
    until("its worker is gone at once, not after the drain", lambda: not is_alive(pid), 3)
    no_strays(core)

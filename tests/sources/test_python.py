"""Python tools behind a supervised worker: what calls see while workers come and go."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.manager.world import ADD, World, running
from tooldock.errors import ExecutionTimeout, InvalidArguments, ResourceNotFound, ToolFailed, Unavailable
from tooldock.model import Call, Caller, Outcome
from tooldock.sources.python import PythonSource, _outcome
from tooldock.workers.rpc import Answer

pytestmark = pytest.mark.process

TOOLS = (
    ADD
    + """
import os, time
from fastmcp.tools.tool import ToolResult

@tool
def stuck() -> None:
    while True:
        time.sleep(60)

@tool
async def pid() -> int:
    return os.getpid()

@tool
async def die() -> None:
    os._exit(1)

@tool
async def long() -> str:
    return "x" * 100_000

@tool
async def blocks() -> ToolResult:
    return ToolResult(content=[{"type": "text", "text": "hi"}], structured_content={"n": 1}, meta={"m": 2})
"""
)


async def source_of(world: World) -> PythonSource:
    world.write("math", "a.py", TOOLS)
    await world.start()
    source = world.engine.registry.catalogue.entry("math").offer("add").source
    assert isinstance(source, PythonSource)
    return source


async def test_results_keep_their_kind(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs, max_output_size="2048") as world:
        await source_of(world)
        assert await world.value("math", "add", a=1, b=2) == b"3"
        blocks = await world.call("math", "blocks")
        assert blocks.content == ({"type": "text", "text": "hi"},)
        assert (blocks.body, blocks.meta) == (b'{"n":1}', {"m": 2})
        long = await world.call("math", "long")
        assert long.truncated == 100_000 - 2048


async def test_calls_that_come_while_the_worker_restarts_wait_for_it(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        source = await source_of(world)
        await world.value("math", "add", a=1, b=2)
        assert source.pid is not None
        os.kill(source.pid, 9)
        results = await asyncio.gather(*(world.value("math", "add", a=n, b=0) for n in range(20)))
        assert results == [b"%d" % n for n in range(20)]


async def test_the_call_that_killed_its_worker_is_told_so_and_not_tried_again(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        source = await source_of(world)
        outcome = await world.call("math", "die")
        assert isinstance(outcome.error, Unavailable)
        assert outcome.error.details["reason"] == "worker_lost"
        await world.value("math", "add", a=1, b=2)
        assert source.supervisor.restarts == 1


async def test_a_tool_that_hangs_gets_its_worker_replaced(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs, worker_grace_seconds="0.2", tool_call_timeout_seconds="1") as world:
        source = await source_of(world)
        first = await world.value("math", "pid")
        assert isinstance((await world.call("math", "stuck")).error, ExecutionTimeout)
        async with asyncio.timeout(20):
            while await world.value("math", "pid") == first:
                await asyncio.sleep(0.01)
        assert source.supervisor.restarts == 1


async def test_an_idle_worker_is_ended_and_the_next_call_starts_one(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs, worker_idle_seconds="1") as world:
        source = await source_of(world)
        await world.value("math", "add", a=1, b=2)
        async with asyncio.timeout(20):
            while source.pid is not None:
                await asyncio.sleep(0.01)
        assert await source.health(1) is None
        assert world.status["math"].status == "idle"
        assert await world.value("math", "add", a=1, b=2) == b"3"


async def test_health_of_a_worker_that_is_going_is_not_available(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        source = await source_of(world)
        worker = source.supervisor.current
        assert worker is not None
        worker._connection.close()
        await asyncio.wait_for(asyncio.shield(worker._connection.lost), 5)
        with pytest.raises(Unavailable):
            await source.health(1)


READABLE = """
from fastmcp import Context
from fastmcp.prompts import prompt
from fastmcp.resources import resource
from fastmcp.tools import tool

@tool
async def can(ctx: Context) -> list:
    return [name for name in ("elicitation", "sampling", "roots") if await ctx.client_supports(name)]

@resource("data://now", tags={"time"})
def now() -> str:
    return "now"

@resource("data://{day}")
def then(day: int) -> bytes:
    return bytes([day])

@prompt
async def greet(name: str, ctx: Context) -> str:
    return f"{ctx.caller} greets {name}"
"""


async def test_resources_and_prompts_come_from_the_same_worker(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", READABLE)
        await world.start()
        entry = world.engine.registry.catalogue.entry("math")
        assert [resource.tags for resource in entry.resources.values()] == [("time",)]
        assert [[item.name for item in template.arguments] for template in entry.templates.values()] == [["day"]]
        assert [[item.required for item in prompt.arguments] for prompt in entry.prompts.values()] == [[True]]

        async def have(kind: Any, name: str, /, **arguments: str) -> Outcome:
            return await world.engine.call(Call("math", name, arguments, Caller("ann"), "r", "mcp", kind=kind))

        read = await have("resource", "data://7")
        assert read.body == b'{"contents":[{"uri":"data://7","mimeType":"text/plain","blob":"Bw=="}]}'
        rendered = await have("prompt", "greet", name="Bob")
        assert b"ann greets Bob" in rendered.body
        assert isinstance((await have("resource", "data://soon")).error, InvalidArguments)
        assert isinstance((await have("prompt", "greet")).error, InvalidArguments)
        assert isinstance((await have("resource", "other://7")).error, ResourceNotFound)


async def test_a_tool_is_told_what_the_client_can_do(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", READABLE)
        await world.start()
        meta = {"client_capabilities": {"sampling": {}, "roots": {"listChanged": True}}}
        outcome = await world.engine.call(Call("math", "can", {}, Caller("ann"), "r", "mcp", meta=meta))
        assert outcome.body == b'["sampling","roots"]'
        assert await world.value("math", "can") == b"[]"


@pytest.mark.parametrize(
    ("frame", "status", "message"),
    [
        ({"content": [{"type": "text", "text": "no"}], "is_error": True}, "error", "no"),
        ({"content": [{"type": "image"}], "is_error": True}, "error", "The tool reported an error without a text."),
        ({"content": [], "meta": {"a": 1}}, "ok", None),
    ],
)
def test_an_answer_that_says_it_failed_is_a_failure(frame: dict[str, Any], status: str, message: str | None) -> None:
    outcome = _outcome(Answer(b"null", frame))
    assert outcome.status == status
    if message is None:
        assert outcome.error is None
    else:
        assert isinstance(outcome.error, ToolFailed)
        assert outcome.error.message == message

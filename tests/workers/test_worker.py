"""One real worker process at a time: called, asked, hung, killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import is_alive
from tooldock.engine.secrets.redact import Redactor
from tooldock.errors import (
    DependencyError,
    ExecutionTimeout,
    InvalidArguments,
    NoBackChannel,
    PromptNotFound,
    ResourceNotFound,
    ToolFailed,
    Unavailable,
)
from tooldock.model import AskKind, Channel, LogLevel, SilentChannel
from tooldock.paths import Paths
from tooldock.workers import worker as room
from tooldock.workers.launcher import open_launcher, plain_environment
from tooldock.workers.rpc import NotStarted
from tooldock.workers.venvs import Environments, copy_runtime
from tooldock.workers.worker import Worker, WorkerSpec, worker_environment

pytestmark = pytest.mark.process

SECRET = "s3cr3t-value-0001"
TOOLS = """
import asyncio, os, sys, time
from fastmcp import Context
from fastmcp.tools import tool

@tool
async def echo(text: str) -> str:
    return text

@tool
async def fail() -> str:
    raise ValueError("broken")

@tool
async def wait() -> None:
    await asyncio.Event().wait()

@tool
async def slow() -> str:
    await asyncio.sleep(1)
    return "done"

@tool
def stuck() -> None:
    while True:
        time.sleep(60)

@tool
def freeze() -> None:
    import ctypes
    ctypes.PyDLL(None).sleep(60)  # keeps the interpreter's lock

@tool
async def die() -> None:
    print("last words", flush=True)
    os._exit(7)

@tool
async def talk(ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half")
    await ctx.info("hello", extra={"n": 1})
    return str(await ctx.call_tool("other", "tool", {"n": 1}))

@tool
async def chatty(ctx: Context) -> int:
    return sum([await ctx.call_tool("other", "tool", {}) for _ in range(20)])

@tool
async def environment() -> dict[str, str]:
    return dict(os.environ)

@tool
async def thrice(ctx: Context) -> list:
    import asyncio
    name, said, roots = await asyncio.gather(ctx.elicit("Name?", str), ctx.sample("Hello"), ctx.list_roots())
    return [name.action, said.text, len(roots)]

@tool
async def confirm_then_wait(ctx: Context) -> str:
    await ctx.elicit("Sure?", bool)
    await asyncio.sleep(60)
    return "never"
"""
READABLE = """
import asyncio
from fastmcp import Context
from fastmcp.prompts import prompt
from fastmcp.resources import resource

@resource("data://day/{number}")
async def day(number: int) -> str:
    return f"day {number}"

@resource("data://never")
async def never() -> str:
    await asyncio.Event().wait()

@prompt
def greet(name: str) -> str:
    return f"Hello {name}"
"""
HEALTH = "async def health():\n    return {'database': 'ok'}\n"

Start = Callable[..., Awaitable[Worker]]


@pytest.fixture
async def start(tmp_path: Path, venvs: Path) -> AsyncIterator[Start]:
    paths = Paths(tmp_path / "data", venvs)
    paths.prepare()
    runtime = copy_runtime(paths)
    environments = Environments(paths)
    base = await environments.base()
    launcher = open_launcher("auto", python=base.python, runtime=runtime)
    made: list[Worker] = []

    async def run(text: str = TOOLS, **changes: Any) -> Worker:
        folder = tmp_path / "ns"
        folder.mkdir(exist_ok=True)
        (folder / "tools.py").write_text(text)
        (folder / "_health.py").write_text(HEALTH)
        spec = WorkerSpec(
            namespace="math",
            python=base.python,
            folder=folder,
            env=worker_environment(plain_environment(), {"OWN": "value"}, base.python, runtime),
            cwd=tmp_path,
            log_file=tmp_path / "math.log",
            shared_environment=True,
            threads=4,
            max_output=10_000,
            max_frame=1 << 20,
            ready_seconds=20,
            grace_seconds=0.2,
            ping_seconds=30,
        )
        worker = await Worker.start(launcher, replace(spec, **changes), Redactor([("T", SECRET)]).stream())
        made.append(worker)
        return worker

    yield run
    await asyncio.gather(*(asyncio.wait_for(worker.stop(), 10) for worker in made))
    await launcher.close()
    environments.close()


def soon(seconds: float = 10) -> float:
    return asyncio.get_running_loop().time() + seconds


async def call(
    worker: Worker, tool: str, seconds: float = 10, channel: Channel | None = None, /, **arguments: Any
) -> Any:
    answer = await worker.call(tool, arguments, {}, soon(seconds), channel or SilentChannel())
    return answer.body


async def over(worker: Worker) -> None:
    await asyncio.wait_for(asyncio.shield(worker.ended), 10)


async def test_it_serves_calls_and_ends_when_stopped(start: Start) -> None:
    worker = await start()
    assert worker.served == 0
    assert "echo" in [tool["name"] for tool in worker.described["tools"]]
    assert await call(worker, "echo", text="hi") == b'"hi"'
    assert worker.served == 1
    assert not worker.busy
    pid = worker.pid
    await worker.stop()
    assert worker.ended.done()
    assert not is_alive(pid)
    with pytest.raises(NotStarted):
        await call(worker, "echo", text="hi")


async def test_a_worker_on_an_environment_of_its_own_is_started_the_same(start: Start) -> None:
    worker = await start(shared_environment=False)
    assert await call(worker, "echo", text="hi") == b'"hi"'


async def test_its_environment_is_what_it_was_given(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEARER_TOKEN", "ours-alone")
    said = await call(await start(), "environment")
    assert b'"OWN":"value"' in said
    assert b"ours-alone" not in said
    assert b"PYTHONPATH" not in said


async def test_a_failing_tool_fails_its_call_alone(start: Start) -> None:
    worker = await start()
    with pytest.raises(ToolFailed, match="broken"):
        await call(worker, "fail")
    assert await call(worker, "echo", text="hi") == b'"hi"'


async def test_health_is_passed_on(start: Start) -> None:
    assert await (await start()).health(10) == {"database": "ok"}


# Starting.


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("x = = 1\n", "tools.py", 1),
        ("import nothing_like_this\n", "nothing_like_this", 1),
        ("\n1 / 0\n", "division", 2),
    ],
)
async def test_files_that_do_not_load_say_where(start: Start, text: str, said: str, line: int) -> None:
    with pytest.raises(DependencyError, match=said) as caught:
        await start(text)
    assert (caught.value.details["file"], caught.value.details["line"]) == ("tools.py", line)


async def test_one_that_dies_while_loading_says_how_with_its_last_words(start: Start) -> None:
    with pytest.raises(DependencyError, match=r"exit code 9.*last words"):
        await start("import os\nprint('last words', flush=True)\nos._exit(9)\n")


async def test_one_that_loads_for_too_long_is_ended(start: Start, tmp_path: Path) -> None:
    slow = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    with pytest.raises(DependencyError, match="WORKER_READY_TIMEOUT_SECONDS"):
        await start(slow, ready_seconds=1)
    pid = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(10):
        while is_alive(pid):
            await asyncio.sleep(0.01)


async def test_a_start_nobody_waits_for_leaves_nothing_running(start: Start, tmp_path: Path) -> None:
    slow = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"

    async def begin() -> None:
        await start(slow)

    starting = asyncio.create_task(begin())
    async with asyncio.timeout(20):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.01)
    starting.cancel()
    await asyncio.wait([starting])
    pid = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(10):
        while is_alive(pid):
            await asyncio.sleep(0.01)


# Ending.


async def test_when_it_dies_the_call_it_ran_is_lost_and_the_reason_is_known(start: Start) -> None:
    worker = await start()
    with pytest.raises(Unavailable) as caught:
        await call(worker, "die")
    assert caught.value.details["reason"] == "worker_lost"
    await over(worker)
    assert "exit code 7" in worker.describe_end()
    with pytest.raises(NotStarted):
        await call(worker, "echo", text="hi")


async def test_when_it_is_killed_the_signal_is_named(start: Start) -> None:
    worker = await start()
    os.kill(worker.pid, signal.SIGKILL)
    await over(worker)
    assert "SIGKILL" in worker.describe_end()


async def test_a_stopped_worker_finishes_its_calls_first(start: Start) -> None:
    worker = await start()
    calling = asyncio.create_task(call(worker, "slow"))
    await asyncio.sleep(0)
    assert worker.busy
    await worker.stop()
    assert await calling == b'"done"'


async def test_one_whose_stopping_is_cut_short_is_ended_with_the_calls_it_had(start: Start) -> None:
    worker = await start()
    calling = asyncio.create_task(call(worker, "wait", 60))
    assert await call(worker, "echo", text="") == b'""'
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    stopping.cancel()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(calling, 10)
    await asyncio.wait([stopping])
    await over(worker)


# Deadlines and hangs.


async def test_a_call_past_its_deadline_is_answered_then_and_its_tool_stopped(start: Start) -> None:
    worker = await start()
    given_up: list[Worker] = []
    worker.on_given_up = given_up.append
    with pytest.raises(ExecutionTimeout, match=r"'wait'.*TOOL_CALL_TIMEOUT_SECONDS"):
        await call(worker, "wait", 0.05)
    async with asyncio.timeout(10):
        while worker.busy:
            await asyncio.sleep(0.01)
    assert given_up == []
    assert not worker.given_up


async def test_a_caller_who_leaves_stops_the_tool(start: Start) -> None:
    worker = await start()
    calling = asyncio.create_task(call(worker, "wait"))
    await call(worker, "echo", text="")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    async with asyncio.timeout(10):
        while worker.busy:
            await asyncio.sleep(0.01)


async def test_a_tool_that_does_not_yield_gets_its_worker_given_up_while_others_finish(start: Start) -> None:
    worker = await start()
    given_up: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
    worker.on_given_up = given_up.set_result
    other = asyncio.create_task(call(worker, "slow"))
    with pytest.raises(ExecutionTimeout):
        await call(worker, "stuck", 0.05)
    assert await asyncio.wait_for(given_up, 10) is worker
    assert worker.given_up
    with pytest.raises(NotStarted):
        await call(worker, "echo", text="too late")
    assert await other == b'"done"'


async def test_a_worker_that_answers_no_pings_is_given_up_and_what_it_never_began_goes_elsewhere(start: Start) -> None:
    worker = await start(ping_seconds=0.2)
    given_up: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
    worker.on_given_up = given_up.set_result
    frozen = asyncio.create_task(call(worker, "freeze", 30))
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        while not worker._begun.value:
            await asyncio.sleep(0.01)
    waiting = asyncio.create_task(call(worker, "echo", 30, text="hi"))
    await asyncio.wait_for(given_up, 20)
    with pytest.raises(NotStarted):
        await asyncio.wait_for(waiting, 10)
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(Unavailable):
        await asyncio.wait_for(frozen, 10)


# Talking.


class Heard:
    def __init__(self, answer: Any = None, error: Exception | None = None) -> None:
        self.said: list[Any] = []
        self._answer = answer
        self._error = error

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.said.append((progress, total, message))

    async def log(self, level: LogLevel, message: str, logger: str | None, data: Any) -> None:
        self.said.append((level, message, data))

    async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
        self.said.append((kind, params))
        if self._error is not None:
            raise self._error
        return self._answer


async def test_what_a_tool_says_reaches_its_caller_and_the_answer_the_tool(start: Start) -> None:
    heard = Heard(answer=42)
    assert await call(await start(), "talk", 10, heard) == b'"42"'
    assert heard.said == [
        (1.0, 2, "half"),
        ("info", "hello", {"n": 1}),
        ("call_tool", {"namespace": "other", "tool": "tool", "arguments": {"n": 1}}),
    ]


@pytest.mark.parametrize(
    ("error", "said"), [(NoBackChannel("no way"), "no way"), (RuntimeError("inner detail"), "could not be passed on")]
)
async def test_a_question_that_fails_fails_the_tool(start: Start, error: Exception, said: str) -> None:
    with pytest.raises(ToolFailed, match=said) as caught:
        await call(await start(), "talk", 10, Heard(error=error))
    assert "inner detail" not in caught.value.message


async def test_what_it_prints_is_in_its_log_without_secrets(start: Start, tmp_path: Path) -> None:
    worker = await start(f"print('token', {SECRET!r}, flush=True)\n" + TOOLS)
    await worker.stop()
    async with asyncio.timeout(10):
        while "redacted" not in (
            log := (tmp_path / "math.log").read_text() if (tmp_path / "math.log").exists() else ""
        ):
            await asyncio.sleep(0.01)
    assert "token [redacted:T]" in log
    assert SECRET not in log


async def test_many_workers_come_and_go_without_leaving_descriptors(start: Start) -> None:
    first = await start()
    await first.stop()

    async def settled() -> int:
        counts = [len(os.listdir("/proc/self/fd"))]
        async with asyncio.timeout(10):
            while len(counts) < 2 or counts[-1] > target:
                await asyncio.sleep(0.02)
                counts.append(len(os.listdir("/proc/self/fd")))
        return counts[-1]

    target = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await (await start()).stop()
    assert await settled() <= target


async def test_no_more_questions_wait_at_once_than_allowed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_MAX_ASKS", 1)
    worker = await start()
    answer = asyncio.Event()

    class Slow(Heard):
        async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
            self.said.append("asked")
            await answer.wait()
            return 1

    heard = Slow()
    first = asyncio.create_task(call(worker, "talk", 10, heard))
    async with asyncio.timeout(10):
        while "asked" not in heard.said:
            await asyncio.sleep(0)
    with pytest.raises(ToolFailed, match="Too many questions"):
        await call(worker, "talk", 10, Heard())
    answer.set()
    assert await first == b'"1"'


async def test_a_tool_may_ask_any_number_of_questions_one_after_another(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_MAX_ASKS", 2)
    assert await call(await start(), "chatty", 10, Heard(answer=1)) == b"20"


async def test_what_a_tool_says_beyond_the_bound_is_dropped_and_the_call_goes_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_MAX_EVENTS", 0)
    heard = Heard(answer=42)
    assert await call(await start(), "talk", 10, heard) == b'"42"'
    assert [said[0] for said in heard.said] == ["call_tool"]


async def test_a_question_open_when_its_caller_leaves_is_withdrawn(start: Start) -> None:
    worker = await start()
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    begun = asyncio.Event()

    class Waiting(Heard):
        async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                gone.set_result(None)

    calling = asyncio.create_task(call(worker, "talk", 10, Waiting()))
    await asyncio.wait_for(begun.wait(), 10)
    calling.cancel()
    await asyncio.wait([calling])
    await asyncio.wait_for(gone, 10)
    assert await call(worker, "echo", text="fine") == b'"fine"'
    assert not worker.given_up


@pytest.mark.parametrize(
    ("status", "how"),
    [(None, "lost its connection"), (0, "exit code 0"), (-9, "signal SIGKILL"), (-99, "signal 99")],
)
def test_an_end_is_described_for_people(status: int | None, how: str) -> None:
    assert how in room._how(status)


# Resources and prompts.


async def test_resources_are_read_and_prompts_rendered_like_tools_are_called(start: Start) -> None:
    worker = await start(READABLE)
    described = {
        part: [item["name"] for item in worker.described[part]] for part in ("resources", "templates", "prompts")
    }
    assert described == {"resources": ["never"], "templates": ["day"], "prompts": ["greet"]}
    silent = SilentChannel()
    answer = await worker.call("data://day/7", {}, {}, soon(), silent, b"resources.read")
    assert answer.body == b'{"contents":[{"uri":"data://day/7","mimeType":"text/plain","text":"day 7"}]}'
    answer = await worker.call("greet", {"name": "Ann"}, {}, soon(), silent, b"prompts.get")
    assert answer.body == b'{"messages":[{"role":"user","content":{"type":"text","text":"Hello Ann"}}]}'
    assert answer.frame is None
    with pytest.raises(ResourceNotFound):
        await worker.call("data://other", {}, {}, soon(), silent, b"resources.read")
    with pytest.raises(PromptNotFound):
        await worker.call("other", {}, {}, soon(), silent, b"prompts.get")
    with pytest.raises(InvalidArguments):
        await worker.call("greet", {}, {}, soon(), silent, b"prompts.get")
    with pytest.raises(ExecutionTimeout, match="Resource 'data://never'"):
        await worker.call("data://never", {}, {}, soon(0.2), silent, b"resources.read")
    assert not worker.given_up


# The clock.


class Thinking(Heard):
    """A caller who answers when told to."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.asked: asyncio.Queue[AskKind] = asyncio.Queue()
        self.go_on = asyncio.Event()

    async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
        self.asked.put_nowait(kind)
        await self.go_on.wait()
        return self._answer


async def test_questions_asked_at_once_reach_the_caller_before_any_is_answered(start: Start) -> None:
    caller = Thinking({"action": "decline", "roots": [], "content": {"type": "text", "text": "Hi"}})
    calling = asyncio.create_task(call(await start(), "thrice", 10, caller))
    async with asyncio.timeout(10):
        kinds = [await caller.asked.get()]
        while not caller.asked.empty():  # no wait: they came in one read
            kinds.append(caller.asked.get_nowait())
    caller.go_on.set()
    assert await asyncio.wait_for(calling, 10) == b'["decline","Hi",0]'
    assert kinds == ["elicit", "sample", "roots"]


async def test_the_clock_stands_still_while_a_person_is_asked_and_then_goes_on(start: Start) -> None:
    worker = await start()
    caller = Thinking({"action": "decline"})
    loop = asyncio.get_running_loop()
    begun = loop.time()
    calling = asyncio.create_task(call(worker, "confirm_then_wait", 0.5, caller))
    async with asyncio.timeout(10):
        await caller.asked.get()
        await asyncio.wait([calling], timeout=1.2)  # far past the deadline
    assert not calling.done()
    caller.go_on.set()
    with pytest.raises(ExecutionTimeout):
        await asyncio.wait_for(calling, 10)
    assert 1.5 <= loop.time() - begun < 5
    assert not worker._thinking
    assert not worker.given_up


async def test_the_clock_goes_on_while_another_tool_is_called(start: Start) -> None:
    caller = Thinking(1)
    with pytest.raises(ExecutionTimeout):
        await call(await start(), "talk", 0.3, caller)


async def test_a_caller_who_leaves_while_asked_leaves_no_clock_standing(start: Start) -> None:
    worker = await start()
    caller = Thinking({"action": "decline"})
    calling = asyncio.create_task(call(worker, "confirm_then_wait", 5, caller))
    await asyncio.wait_for(caller.asked.get(), 10)
    calling.cancel()
    await asyncio.wait([calling])
    assert await call(worker, "echo", text="fine") == b'"fine"'
    assert not worker._thinking

"""The worker's loop in this process, with the gateway's end of the socket in the test's hands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tooldock_worker import readings
from tooldock_worker.context import Context, get_context
from tooldock_worker.frames import Lines
from tooldock_worker.light.decorator import record_of
from tooldock_worker.light.exceptions import NotFoundError
from tooldock_worker.light.prompts import prompt
from tooldock_worker.light.resources import resource
from tooldock_worker.load import Loaded
from tooldock_worker.schema import parse
from tooldock_worker.server import Server
from tooldock_worker.tools import LoadedTool

WAIT = 5


def tool(fn: Callable[..., Any]) -> LoadedTool:
    parsed = parse(fn)
    described = {"name": parsed.name, "description": "", "inputSchema": parsed.input_schema, "file": "t.py"}
    return LoadedTool(
        fn=fn, bind=parsed.validate, described=described, line=None, context_parameter=parsed.context_parameter
    )


def loaded(*functions: Callable[..., Any], health: Any = None) -> Loaded:
    """Functions as a folder would hold them; what no decorator marked is a tool."""
    made = Loaded({}, health)
    for fn in functions:
        record = record_of(fn)
        if record is None:
            one = tool(fn)
            made.tools[one.name] = one
            continue
        item = (readings.prompt if record.type == "prompt" else readings.resource)("t.py", fn, record, None)
        assert item is not None
        if isinstance(item, readings.TemplateReading):
            made.templates[item.key] = item
        else:
            (made.prompts if item.kind == "prompt" else made.resources)[item.key] = item
    return made


class Gateway:
    """The other end."""

    def __init__(self, sock: socket.socket, begun: memoryview) -> None:
        self.sock = sock
        self.begun = begun
        self._lines = Lines()
        self._read: list[bytes] = []
        self._last = 0

    async def send(self, **frame: Any) -> str:
        self._last += 1
        message = {"id": str(self._last), **frame}
        await asyncio.get_running_loop().sock_sendall(self.sock, json.dumps(message).encode() + b"\n")
        return str(self._last)

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(WAIT):
            while not self._read:
                data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 16)
                assert data, "the worker closed the connection"
                self._read += self._lines.feed(data)
        frame: dict[str, Any] = json.loads(self._read.pop(0))
        return frame

    async def answer_to(self, number: str) -> dict[str, Any]:
        while (frame := await self.receive()).get("id") != number or "ok" not in frame:
            pass
        return frame

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        return await self.answer_to(await self.send(op=op, **fields))

    async def start(self, name: str, /, **arguments: Any) -> str:
        info = {"request_id": "r-1", "caller": "ann", "session_id": "s-1"}
        return await self.send(op="tools.call", tool=name, arguments=arguments, info=info)

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return await self.answer_to(await self.start(name, **arguments))

    async def read(self, uri: str) -> dict[str, Any]:
        return await self.ask("resources.read", tool=uri, arguments={}, info={})

    async def render(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return await self.ask("prompts.get", tool=name, arguments=arguments, info={"caller": "ann"})


@contextlib.asynccontextmanager
async def serving(*functions: Callable[..., Any], health: Any = None, **options: Any) -> AsyncIterator[Gateway]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    holds = loaded(*functions, health=health)
    begun = memoryview(bytearray(16)).cast("Q")
    server = Server("math", holds, theirs, begun=begun, **options)
    task = asyncio.create_task(server.serve())
    gateway = Gateway(ours, begun)
    ready = await gateway.receive()
    assert (ready["op"], ready["namespace"]) == ("ready", "math")
    assert [item["name"] for item in ready["tools"]] == list(holds.tools)
    assert [item["uri"] for item in ready["resources"]] == list(holds.resources)
    assert [item["uriTemplate"] for item in ready["templates"]] == list(holds.templates)
    assert [item["name"] for item in ready["prompts"]] == list(holds.prompts)
    try:
        yield gateway
    finally:
        if not task.done():
            await gateway.send(op="shutdown")
            await asyncio.wait_for(task, WAIT)
        ours.close()
        theirs.close()


async def add(a: int, b: int) -> int:
    return a + b


def add_sync(a: int, b: int) -> int:
    return a + b


async def fail() -> None:
    raise ValueError("it is broken")


def fail_sync() -> None:
    raise ValueError("it is broken")


@pytest.mark.parametrize("name", ["add", "add_sync"])
async def test_a_call_is_answered_with_its_value_last_in_the_frame(name: str) -> None:
    async with serving(add, add_sync) as gateway:
        frame = await gateway.call(name, a=1, b=2)
    assert list(frame) == ["id", "ok", "latency_ms", "result"]
    assert (frame["ok"], frame["result"]) == (True, 3)


@pytest.mark.parametrize("name", ["fail", "fail_sync"])
async def test_what_a_tool_raises_is_its_answer(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    async with serving(fail, fail_sync) as gateway:
        frame = await gateway.call(name)
    assert frame["ok"] is False
    assert frame["error"]["code"] == "tool_error"
    assert "it is broken" in frame["error"]["message"]
    assert "Traceback" not in frame["error"]["message"]
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["add", "add_sync"])
async def test_arguments_that_do_not_fit_are_the_caller_s_fault(name: str) -> None:
    async with serving(add, add_sync) as gateway:
        frame = await gateway.call(name, a="x", b=2)
    assert frame["error"]["code"] == "invalid_arguments"


async def test_an_unknown_tool_or_operation_is_an_error_and_not_the_end() -> None:
    async with serving(add) as gateway:
        assert (await gateway.call("sub"))["error"]["code"] == "tool_not_found"
        assert (await gateway.ask("tools.get_schema", tool="sub"))["error"]["code"] == "tool_not_found"
        assert (await gateway.ask("dance"))["error"]["code"] == "internal_error"
        assert (await gateway.call("add", a=1, b=1))["result"] == 2


async def test_the_number_of_the_call_taken_up_last_is_noted_before_it_runs() -> None:
    async with serving(add) as gateway:
        await gateway.ask("ping")
        number = await gateway.start("add", a=1, b=2)
        await gateway.answer_to(number)
        assert gateway.begun[0] == int(number)


async def test_tools_are_listed_and_described() -> None:
    async with serving(add) as gateway:
        (listed,) = (await gateway.ask("tools.list"))["result"]["tools"]
        described = (await gateway.ask("tools.get_schema", tool="add"))["result"]
    assert listed == described
    assert sorted(described["inputSchema"]["properties"]) == ["a", "b"]


async def test_pings_are_answered_while_tools_compute() -> None:
    release = threading.Event()

    def compute() -> str:
        release.wait(WAIT)
        return "done"

    async with serving(compute) as gateway:
        number = await gateway.start("compute")
        assert (await gateway.ask("ping"))["result"] == "pong"
        release.set()
        assert (await gateway.answer_to(number))["result"] == "done"


async def test_results_larger_than_allowed_are_cut_and_counted() -> None:
    async def long(kind: str) -> Any:
        return "é" * 10_000 if kind == "text" else list(range(10_000))

    async with serving(long, max_output=1000) as gateway:
        text = await gateway.call("long", kind="text")
        rows = await gateway.call("long", kind="json")
    assert (text["cut"], text["total"]) == ("text", 20_000)
    assert text["result"] == "é" * (len(text["result"]))
    assert 1000 <= len(text["result"].encode()) <= 1000 + 4096
    assert (rows["cut"], rows["total"]) == ("json", len(json.dumps(list(range(10_000)), separators=(",", ":"))))
    assert rows["result"].startswith("[0,1,2")


async def test_content_larger_than_allowed_is_an_error() -> None:
    from tooldock_worker.light.values import Image

    async def picture() -> Any:
        return Image(data=b"x" * 10_000, format="png")

    async with serving(picture, max_output=1000) as gateway:
        frame = await gateway.call("picture")
    assert frame["ok"] is False
    assert "1,000 are allowed" in frame["error"]["message"]


async def test_an_answer_larger_than_the_socket_s_buffer_arrives_whole_and_in_order() -> None:
    def big(letter: str) -> str:
        return letter * 3_000_000

    async def big_async(letter: str) -> str:
        return letter * 3_000_000

    async with serving(big, big_async, max_output=1 << 24) as gateway:
        numbers = {}
        for letter in "abcd":
            numbers[await gateway.start("big", letter=letter)] = letter
            numbers[await gateway.start("big_async", letter=letter.upper())] = letter.upper()
        frames = [await gateway.receive() for _ in numbers]
    assert {frame["id"]: frame["result"][:1] for frame in frames} == numbers
    assert all(len(frame["result"]) == 3_000_000 for frame in frames)


# Cancelling and draining.


async def test_a_cancelled_async_tool_stops_and_says_so() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with serving(wait) as gateway:
        number = await gateway.start("wait")
        await asyncio.wait_for(begun.wait(), WAIT)
        assert (await gateway.ask("cancel", call=number))["result"] is True
        assert (await gateway.answer_to(number))["error"]["code"] == "cancelled"
        assert stopped.is_set()
        assert (await gateway.ask("cancel", call=number))["result"] is False


async def test_a_call_cancelled_in_the_same_breath_is_still_answered() -> None:
    """Without an answer the gateway would take the worker for hung and replace it."""

    async def wait() -> None:
        await asyncio.Event().wait()

    async with serving(wait) as gateway:
        call = {"id": "100", "op": "tools.call", "tool": "wait", "arguments": {}}
        cancel = {"id": "101", "op": "cancel", "call": "100"}
        lines = b"".join(json.dumps(frame).encode() + b"\n" for frame in (call, cancel))
        await asyncio.get_running_loop().sock_sendall(gateway.sock, lines)
        frames = {frame["id"]: frame for frame in [await gateway.receive(), await gateway.receive()]}
    assert frames["101"]["result"] is True
    assert frames["100"]["error"]["code"] == "cancelled"


async def test_a_cancelled_sync_tool_can_see_it() -> None:
    begun = threading.Event()

    def work(ctx: Context) -> str:
        begun.set()
        while not ctx.cancelled:
            pass
        return "stopped by itself"

    async with serving(work) as gateway:
        number = await gateway.start("work")
        await asyncio.to_thread(begun.wait, WAIT)
        await gateway.ask("cancel", call=number)
        assert (await gateway.answer_to(number))["result"] == "stopped by itself"


async def test_a_call_cancelled_while_it_waits_for_a_thread_never_runs() -> None:
    release, ran = threading.Event(), threading.Event()

    def hold() -> None:
        release.wait(WAIT)

    def change() -> None:
        ran.set()

    async with serving(hold, change, threads=1) as gateway:
        await gateway.start("hold")
        number = await gateway.start("change")
        assert (await gateway.ask("cancel", call=number))["result"] is True
        release.set()
        assert (await gateway.answer_to(number))["error"]["code"] == "cancelled"
    assert not ran.is_set()


async def test_a_question_that_would_block_the_loop_is_refused_and_not_waited_for() -> None:
    async def question(ctx: Context) -> Any:
        return ctx.sync.elicit("Sure?", bool)

    async with serving(question, add) as gateway:
        frame = await gateway.call("question")
        assert (await gateway.call("add", a=1, b=2))["result"] == 3
    assert "await ctx" in frame["error"]["message"]


async def test_a_sync_tool_waiting_for_an_answer_is_freed_when_its_call_is_cancelled() -> None:
    """Nobody answers a question whose call is over; the thread would wait for ever."""

    def question(ctx: Context) -> Any:
        return ctx.sync.call_tool("other", "tool", {})

    async with serving(question) as gateway:
        number = await gateway.start("question")
        assert (await gateway.receive())["op"] == "ask"
        await gateway.send(op="cancel", call=number)
        frame = await gateway.answer_to(number)
    assert frame["ok"] is False
    assert frame["error"]["details"]["cause"] == "cancelled"


async def test_a_cancelled_call_takes_only_its_own_questions_with_it() -> None:
    def question(ctx: Context) -> Any:
        return ctx.sync.call_tool("other", "tool", {})

    async with serving(question) as gateway:
        first, second = await gateway.start("question"), await gateway.start("question")
        asks = {frame["id"]: frame["ask"] for frame in [await gateway.receive(), await gateway.receive()]}
        await gateway.send(op="cancel", call=first)
        assert (await gateway.answer_to(first))["ok"] is False
        await gateway.send(op="answer", ask=asks[second], ok=True, result=7)
        assert (await gateway.answer_to(second))["result"] == 7


async def test_draining_gives_back_calls_that_wait_for_a_thread() -> None:
    release = threading.Event()

    def hold() -> str:
        release.wait(WAIT)
        return "held"

    async with serving(hold, threads=2) as gateway:
        numbers = [await gateway.start("hold") for _ in range(4)]
        drain = await gateway.send(op="drain")
        back = [await gateway.receive() for _ in range(3)]
        assert {frame["id"] for frame in back if "error" in frame} == set(numbers[2:])
        assert {frame["error"]["code"] for frame in back if "error" in frame} == {"not_started"}
        assert [frame["result"] for frame in back if frame["id"] == drain] == [2]
        release.set()
        assert {(await gateway.receive())["id"] for _ in range(2)} == set(numbers[:2])


async def test_no_more_sync_tools_run_at_once_than_there_are_threads() -> None:
    lock, release = threading.Lock(), threading.Event()
    running: list[int] = [0, 0]
    full = threading.Event()

    def hold() -> None:
        with lock:
            running[0] += 1
            running[1] = max(running)
            if running[0] == 3:
                full.set()
        release.wait(WAIT)
        with lock:
            running[0] -= 1

    async with serving(hold, threads=3) as gateway:
        for _ in range(9):
            await gateway.start("hold")
        await gateway.ask("ping")
        await asyncio.to_thread(full.wait, WAIT)
        release.set()
        for _ in range(9):
            await gateway.receive()
    assert running == [0, 3]


async def test_shutdown_is_answered_and_stops_what_runs() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with serving(wait) as gateway:
        number = await gateway.start("wait")
        await asyncio.wait_for(begun.wait(), WAIT)
        down = await gateway.send(op="shutdown")
        frames = {frame["id"]: frame for frame in [await gateway.receive(), await gateway.receive()]}
    assert frames[down]["result"] is True
    assert frames[number]["error"]["code"] == "cancelled"
    assert stopped.is_set()


# Talking while running.


async def test_progress_and_log_lines_come_before_the_answer() -> None:
    async def talk(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        await ctx.info("hello", extra={"n": 1})
        return f"{ctx.request_id} {ctx.caller} {ctx.session_id} {get_context() is ctx}"

    def talk_sync(ctx: Context) -> str:
        ctx.sync.report_progress(1, 2, "half")
        ctx.sync.info("hello", extra={"n": 1})
        return f"{ctx.request_id} {ctx.caller} {ctx.session_id} {get_context() is ctx}"

    async with serving(talk, talk_sync) as gateway:
        for name in ("talk", "talk_sync"):
            number = await gateway.start(name)
            progress, line, answer = [await gateway.receive() for _ in range(3)]
            assert progress == {"op": "progress", "id": number, "progress": 1, "total": 2, "message": "half"}
            assert (line["op"], line["level"], line["message"], line["data"]) == ("log", "info", "hello", {"n": 1})
            assert answer["result"] == "r-1 ann s-1 True"


async def ask_async(ctx: Context) -> Any:
    return await ctx.call_tool("other", "tool", {"n": 1})


def ask_sync(ctx: Context) -> Any:
    return ctx.sync.call_tool("other", "tool", {"n": 1})


@pytest.mark.parametrize("name", ["ask_async", "ask_sync"])
async def test_a_question_gets_its_answer(name: str) -> None:
    async with serving(ask_async, ask_sync) as gateway:
        number = await gateway.start(name)
        ask = await gateway.receive()
        assert (ask["op"], ask["id"], ask["kind"]) == ("ask", number, "call_tool")
        assert ask["params"] == {"namespace": "other", "tool": "tool", "arguments": {"n": 1}}
        await gateway.send(op="answer", ask="9.9", ok=True, result="nobody asked")
        await gateway.send(op="answer", ask=ask["ask"], ok=True, result={"deep": [1]})
        assert (await gateway.answer_to(number))["result"] == {"deep": [1]}


@pytest.mark.parametrize("name", ["ask_async", "ask_sync"])
async def test_a_question_that_is_refused_fails_the_tool_with_the_reason(name: str) -> None:
    async with serving(ask_async, ask_sync) as gateway:
        number = await gateway.start(name)
        ask = (await gateway.receive())["ask"]
        error = {"code": "policy_denied", "message": "not that one", "details": {"rule": "x"}}
        await gateway.send(op="answer", ask=ask, ok=False, error=error)
        frame = await gateway.answer_to(number)
    assert frame["error"]["message"] == "not that one"
    assert frame["error"]["details"] == {"cause": "policy_denied", "rule": "x"}


# Health.


async def healthy() -> dict[str, Any]:
    return {"database": "ok"}


async def broken() -> None:
    raise RuntimeError("database is down")


@pytest.mark.parametrize("check", [healthy, lambda: {"database": "ok"}, lambda: healthy()])
async def test_health_is_what_the_namespace_says(check: Any) -> None:
    async with serving(add, health=check) as gateway:
        assert (await gateway.ask("health"))["result"] == {"database": "ok"}


async def test_a_namespace_without_a_check_has_no_opinion() -> None:
    async with serving(add) as gateway:
        assert (await gateway.ask("health"))["result"] is None


async def test_a_check_that_fails_is_an_error_and_can_be_cancelled() -> None:
    async with serving(add, health=broken) as gateway:
        assert "database is down" in (await gateway.ask("health"))["error"]["message"]

    async def never() -> None:
        await asyncio.Event().wait()

    async with serving(add, health=never) as gateway:
        number = await gateway.send(op="health")
        assert (await gateway.ask("cancel", call=number))["result"] is True
        assert (await gateway.answer_to(number))["ok"] is False


async def test_a_call_the_gateway_took_back_is_noted_but_not_run() -> None:
    ran: list[int] = []

    async def note() -> None:
        ran.append(1)

    async with serving(note) as gateway:
        gateway.begun[1] = 1
        number = await gateway.start("note")
        await gateway.ask("ping")
        assert gateway.begun[0] == int(number)
    assert ran == []


async def test_what_is_too_large_to_say_is_shortened_and_too_large_to_ask_refused() -> None:
    async def talk(ctx: Context) -> str:
        await ctx.info("x" * 200_000, logger_name="l" * 200_000, extra={"big": "y" * 200_000})
        await ctx.report_progress(1, 2, "z" * 200_000)
        await ctx.call_tool("other", "tool", {"big": "y" * 200_000})
        return "never"

    async with serving(talk, max_frame=100_000) as gateway:
        number = await gateway.start("talk")
        line, progress, answer = [await gateway.receive() for _ in range(3)]
    assert line["message"].startswith("xxx")
    assert "of 200,000 characters" in line["message"]
    assert len(line["logger"]) < 1_000
    assert (progress["progress"], progress["message"][:3]) == (1, "zzz")
    assert (answer["id"], answer["ok"]) == (number, False)
    assert "question is larger" in answer["error"]["message"]


async def test_a_tool_that_never_stops_talking_fills_no_memory_and_keeps_its_answer() -> None:
    """The loop cannot send while an async tool talks without a pause; nothing may pile up meanwhile."""
    count, size = 1_000, 20_000

    async def talk(ctx: Context) -> str:
        for _ in range(count):
            await ctx.info("x" * size)
        return "done"

    async with serving(talk) as gateway:
        number = await gateway.start("talk")
        said = 0
        while (frame := await gateway.receive())["id"] != number or "ok" not in frame:
            said += len(frame["message"])
    assert frame["result"] == "done"
    assert 0 < said < count * size // 4


async def test_an_error_too_large_to_say_keeps_its_kind() -> None:
    from tooldock_worker.light.exceptions import ToolError

    async def fail_at_length() -> None:
        raise ToolError("x" * 200_000)

    async with serving(fail_at_length, max_output=1000) as gateway:
        frame = await gateway.call("fail_at_length")
    assert frame["error"]["code"] == "tool_error"
    assert len(frame["error"]["message"]) < 10_000


async def test_a_cut_result_fits_its_line_even_when_every_character_is_escaped() -> None:
    async def control() -> str:
        return "\x01" * 100_000

    async with serving(control, max_output=50_000, max_frame=60_000) as gateway:
        frame = await gateway.call("control")
    assert (frame["cut"], frame["total"]) == ("text", 100_000)
    assert len(json.dumps(frame)) < 60_000


async def ask_thrice(ctx: Context) -> list[Any]:
    name, said, roots = await asyncio.gather(ctx.elicit("Name?", str), ctx.sample("Hello"), ctx.list_roots())
    return [name.data, said.text, len(roots)]


async def test_questions_asked_at_once_travel_at_once() -> None:
    """In one read, so that a wire that can put several questions only together puts all three."""
    async with serving(ask_thrice) as gateway:
        number = await gateway.start("ask_thrice")
        async with asyncio.timeout(WAIT):
            data = await asyncio.get_running_loop().sock_recv(gateway.sock, 1 << 16)
        asks = [json.loads(line) for line in data.splitlines()]
        assert [ask["kind"] for ask in asks] == ["elicit", "sample", "roots"]
        assert {ask["id"] for ask in asks} == {number}
        replies: list[Any] = [
            {"action": "accept", "content": {"value": "Ann"}},
            {"content": {"type": "text", "text": "Hi"}},
            {"roots": []},
        ]
        for ask, reply in zip(asks, replies, strict=True):
            await gateway.send(op="answer", ask=ask["ask"], ok=True, result=reply)
        assert (await gateway.answer_to(number))["result"] == ["Ann", "Hi", 0]


# Resources and prompts.


@resource("data://now", mime_type="text/x")
async def now() -> str:
    return "now"


@resource("data://day/{number}")
def day(number: int, ctx: Context) -> str:
    if number > 31:
        raise NotFoundError(f"There is no day {number}.")
    return f"day {number} for {ctx.tool}"


@resource("data://wait")
async def wait_for_ever() -> str:
    await asyncio.Event().wait()
    return ""


@resource("data://large")
def large() -> str:
    return "x" * 20_000


@resource("data://broken")
async def unreadable() -> str:
    raise ValueError("it is broken")


@prompt
async def greet(name: str, times: int = 1) -> str:
    """Greets."""
    return f"Hello {name}" * times


@prompt
def asking(ctx: Context) -> str:
    return f"{ctx.caller} said {ctx.sync.elicit('Well?', str).data}"


@prompt
def long_letter() -> str:
    return "x" * 20_000


async def test_a_resource_is_read_by_its_uri_and_a_prompt_rendered_by_its_name() -> None:
    async with serving(add, now, day, greet) as gateway:
        frame = await gateway.read("data://now")
        assert list(frame) == ["id", "ok", "latency_ms", "result"]
        assert frame["result"] == {"contents": [{"uri": "data://now", "mimeType": "text/x", "text": "now"}]}
        frame = await gateway.read("data://day/7")
        assert frame["result"]["contents"] == [
            {"uri": "data://day/7", "mimeType": "text/plain", "text": "day 7 for day"}
        ]
        frame = await gateway.render("greet", name="Ann", times="2")
        assert frame["result"] == {
            "description": "Greets.",
            "messages": [{"role": "user", "content": {"type": "text", "text": "Hello AnnHello Ann"}}],
        }
        assert gateway.begun[0] == 3


async def test_everything_is_listed_together() -> None:
    async with serving(add, now, day, greet) as gateway:
        listed = (await gateway.ask("tools.list"))["result"]
    assert {part: [item["name"] for item in items] for part, items in listed.items()} == {
        "tools": ["add"],
        "resources": ["now"],
        "templates": ["day"],
        "prompts": ["greet"],
    }


async def test_what_cannot_be_read_or_rendered_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    async with serving(now, day, greet, unreadable) as gateway:
        answers = [
            await gateway.read("data://other"),
            await gateway.read("data://day/40"),
            await gateway.read("data://day/soon"),
            await gateway.read("data://broken"),
            await gateway.render("other"),
            await gateway.render("greet"),
            await gateway.render("greet", name="Ann", times="often"),
        ]
        codes = [answer["error"]["code"] for answer in answers]
        assert (await gateway.read("data://now"))["ok"]
    assert codes == [
        "resource_not_found",
        "resource_not_found",
        "invalid_arguments",
        "tool_error",
        "prompt_not_found",
        "invalid_arguments",
        "invalid_arguments",
    ]
    assert answers[1]["error"]["message"] == "There is no day 40."
    assert "fit the resource" in answers[2]["error"]["message"]
    assert "fit the prompt" in answers[5]["error"]["message"]
    assert "it is broken" in capfd.readouterr().err


async def test_half_a_resource_or_prompt_is_never_sent() -> None:
    async with serving(large, long_letter, max_output=10_000) as gateway:
        for frame in (await gateway.read("data://large"), await gateway.render("long_letter")):
            assert frame["error"]["code"] == "tool_error"
            assert "10,000 are allowed" in frame["error"]["message"]


async def test_reading_can_be_cancelled_and_taken_back_like_a_call() -> None:
    async with serving(wait_for_ever, now, greet) as gateway:
        number = await gateway.send(op="resources.read", tool="data://wait", arguments={}, info={})
        await gateway.send(op="cancel", call=number)
        assert (await gateway.answer_to(number))["error"]["code"] == "cancelled"
        gateway.begun[1] = 1
        read = await gateway.send(op="resources.read", tool="data://now", arguments={}, info={})
        rendered = await gateway.send(op="prompts.get", tool="greet", arguments={"name": "Ann"}, info={})
        ping = await gateway.send(op="ping")
        assert (await gateway.receive())["id"] == ping
        assert gateway.begun[0] == int(rendered) == int(read) + 1


async def test_a_prompt_may_ask_its_caller() -> None:
    async with serving(asking) as gateway:
        number = await gateway.send(op="prompts.get", tool="asking", arguments={}, info={"caller": "ann"})
        ask = await gateway.receive()
        assert (ask["op"], ask["id"], ask["kind"]) == ("ask", number, "elicit")
        reply = {"action": "accept", "content": {"value": "yes"}}
        await gateway.send(op="answer", ask=ask["ask"], ok=True, result=reply)
        frame = await gateway.answer_to(number)
    assert frame["result"]["messages"][0]["content"]["text"] == "ann said yes"

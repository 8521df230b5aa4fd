"""The path of a call, with sources that behave in every way a source can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog.testing

from tests.source import EmptySource
from tooldock.engine import audit
from tooldock.engine.audit import AuditLog
from tooldock.engine.pipeline import Engine
from tooldock.engine.registry import Catalogue, Change, Entry, Limits, Offer, Registry
from tooldock.engine.schema import Validator
from tooldock.engine.secrets.redact import Redactor
from tooldock.errors import (
    BY_CODE,
    ExecutionTimeout,
    InternalError,
    InvalidArguments,
    NamespaceNotFound,
    PolicyDenied,
    ToolDockError,
    ToolFailed,
    ToolNotFound,
    Unavailable,
)
from tooldock.model import (
    AskKind,
    Call,
    Caller,
    Channel,
    Item,
    LogLevel,
    Outcome,
    Prompt,
    Resource,
    SilentChannel,
    Tool,
)

SECRET = "s3cr3t-value-0001"
Body = Callable[[Call, Channel, float], Awaitable[Outcome]]


class Source(EmptySource):
    """Runs a function of the test."""

    def __init__(self, body: Body) -> None:
        self._body = body

    async def call(self, call: Call, item: Item, deadline: float, channel: Channel, /) -> Outcome:
        return await self._body(call, channel, deadline)


async def echo(call: Call, channel: Channel, deadline: float) -> Outcome:
    return Outcome("ok", orjson.dumps(call.arguments))


class World:
    """An engine over one namespace, and what it recorded."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.engine = Engine(Registry(), AuditLog(lambda day: log))

    def serve(
        self,
        namespace: str = "math",
        /,
        *,
        limits: Limits | None = None,
        read_only: bool = False,
        reading: Body | None = None,
        **bodies: Body,
    ) -> Entry:
        """Replace the namespace's tools; `reading` serves a resource, a template and a prompt."""
        hints = {"readOnlyHint": True} if read_only else {}
        offers = {
            name: Offer(
                Tool(namespace=namespace, name=name, annotations=hints),
                Source(body),
                Validator(name, {"type": "object", "properties": {"n": {"type": "integer"}}}),
            )
            for name, body in bodies.items()
        }
        limits = limits or Limits(timeout=10, max_concurrency=8, max_queue=8, max_output=10_000)
        served: dict[str, Any] = {}
        if reading is not None:
            pages = [Resource(namespace=namespace, uri=uri, name="page") for uri in ("page://1", "page://{n}")]
            served["resources"] = {pages[0].uri: pages[0]}
            served["templates"] = {pages[1].uri: pages[1]}
            served["prompts"] = {"ask": Prompt(namespace=namespace, name="ask")}
            served["reading"] = Source(reading)
        entry = Entry(namespace, offers, limits, redactor=Redactor([("TOKEN", SECRET)]), **served)
        others = [one for one in self.engine.registry.catalogue.entries.values() if one.name != namespace]
        self.engine.registry.swap(Catalogue([*others, entry]))
        return entry

    async def call(self, tool: str = "run", namespace: str = "math", /, **changes: Any) -> Outcome:
        values: dict[str, Any] = {"arguments": {}, "caller": Caller("ann"), "request_id": "r-1", "protocol": "rest"}
        async with asyncio.timeout(20):
            return await self.engine.call(Call(namespace, tool, **(values | changes)))

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_bytes().splitlines()]

    @property
    def counts(self) -> dict[tuple[str, str, str], int]:
        return {key: series.count for key, series in self.engine.meter.series()}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "audit.jsonl")
    yield made
    assert all(gate.active == 0 and not gate.waiting for gate in made.engine.gates().values())
    made.engine.audit.close()


def raising(error: BaseException) -> Body:
    async def body(call: Call, channel: Channel, deadline: float) -> Outcome:
        raise error

    return body


async def test_a_call_gives_its_result_and_leaves_one_record_and_one_count(world: World) -> None:
    world.serve(run=echo)
    outcome = await world.call(arguments={"n": 1})
    assert (outcome.status, outcome.body, outcome.error) == ("ok", b'{"n":1}', None)
    assert outcome.elapsed_ms > 0
    (record,) = world.records
    assert (record["status"], record["decision"], record["tool"]) == ("ok", "allow", "run")
    assert world.counts == {("math", "run", "ok"): 1}


@pytest.mark.parametrize("kind", BY_CODE.values(), ids=BY_CODE.keys())
async def test_every_kind_of_error_comes_back_as_an_outcome_and_is_recorded(
    world: World, kind: type[ToolDockError]
) -> None:
    world.serve(run=raising(kind("It went wrong.")))
    outcome = await world.call()
    assert type(outcome.error) is kind
    assert outcome.status == "error"
    (record,) = world.records
    assert (record["status"], record["error"]) == ("fail", kind.code)
    assert world.counts == {("math", "run", kind.code): 1}


@pytest.mark.parametrize(
    ("tool", "namespace", "arguments", "kind"),
    [
        ("run", "nowhere", {}, NamespaceNotFound),
        ("nothing", "math", {}, ToolNotFound),
        ("run", "math", {"n": "x"}, InvalidArguments),
    ],
)
async def test_a_refusal_is_recorded_as_one(
    world: World, tool: str, namespace: str, arguments: dict[str, Any], kind: type[ToolDockError]
) -> None:
    world.serve(run=raising(AssertionError("must not run")))
    outcome = await world.call(tool, namespace, arguments=arguments)
    assert type(outcome.error) is kind
    assert (world.records[0]["decision"], world.records[0]["error"]) == ("refuse", kind.code)


async def test_made_up_names_do_not_fill_the_metrics(world: World) -> None:
    world.serve(run=echo)
    for number in range(5):
        await world.call("run", f"made-up-{number}")
        await world.call(f"made-up-{number}")
    assert world.counts == {("?", "?", "namespace_not_found"): 5, ("math", "?", "tool_not_found"): 5}


async def test_a_fault_of_ours_is_logged_and_tells_the_caller_nothing_but_where_to_look(world: World) -> None:
    world.serve(run=raising(RuntimeError(f"inner detail {SECRET}")))
    with structlog.testing.capture_logs() as said:
        outcome = await world.call()
    assert isinstance(outcome.error, InternalError)
    assert "inner detail" not in outcome.error.message
    assert SECRET not in outcome.error.message
    assert "r-1" in outcome.error.message
    assert [row["event"] for row in said] == ["call_failed"]
    assert world.records[0]["error"] == "internal_error"


async def test_a_caller_who_leaves_is_recorded_and_still_cancelled(world: World) -> None:
    begun = asyncio.Event()

    async def wait(call: Call, channel: Channel, deadline: float) -> Outcome:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    world.serve(run=wait)
    task = asyncio.create_task(world.call())
    await asyncio.wait_for(begun.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.records[0]["error"] == "cancelled"


async def test_a_caller_who_leaves_while_waiting_for_a_place_is_recorded(world: World) -> None:
    release = asyncio.Event()

    async def wait(call: Call, channel: Channel, deadline: float) -> Outcome:
        await release.wait()
        return Outcome("ok")

    world.serve(run=wait, limits=Limits(10, 1, 1, 1000))
    first, second = asyncio.create_task(world.call()), asyncio.create_task(world.call(request_id="r-2"))
    while not (gate := world.engine.gates().get("math")) or not gate.waiting:
        await asyncio.sleep(0)
    third = await world.call(request_id="r-3")
    assert isinstance(third.error, Unavailable)
    second.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await first).status == "ok"
    assert {row["request_id"]: row["error"] for row in world.records} == {
        "r-1": None,
        "r-2": "cancelled",
        "r-3": "unavailable",
    }


# Secrets.


async def test_secrets_are_removed_from_results_content_and_errors(world: World) -> None:
    async def blocks(call: Call, channel: Channel, deadline: float) -> Outcome:
        return Outcome("ok", b"null", content=({"type": "text", "text": f"it is {SECRET}"},))

    async def value(call: Call, channel: Channel, deadline: float) -> Outcome:
        return Outcome("ok", orjson.dumps({"token": SECRET}))

    world.serve(
        blocks=blocks,
        value=value,
        fails=raising(ToolFailed(f"bad {SECRET}", seen=[SECRET], line=3)),
        busy=raising(Unavailable(f"bad {SECRET}", retry_after=2)),
    )
    for tool in ("blocks", "value", "fails", "busy"):
        outcome = await world.call(tool)
        assert SECRET not in repr(outcome)
        if outcome.error is not None:
            assert SECRET not in outcome.error.message + repr(outcome.error.details)
            assert "[redacted:TOKEN]" in outcome.error.message
    fails = await world.call("fails")
    assert fails.error is not None
    assert fails.error.details == {"seen": ["[redacted:TOKEN]"], "line": 3}
    assert SECRET not in world.log.read_text()


class Heard:
    """A caller's channel that remembers."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.said.append((progress, total, message))

    async def log(self, level: LogLevel, message: str, logger: str | None, data: Any) -> None:
        self.said.append((level, message, logger, data))

    async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
        self.said.append((kind, params))
        return {"action": "accept"}


async def test_secrets_are_removed_from_what_a_tool_says_on_the_way(world: World) -> None:
    async def talk(call: Call, channel: Channel, deadline: float) -> Outcome:
        await channel.progress(1, 2, f"at {SECRET}")
        await channel.progress(2, 2, None)
        await channel.log("info", f"saw {SECRET}", f"tool {SECRET}", {"key": [SECRET]})
        await channel.log("info", "plain", None, None)
        await channel.ask("sample", {"last": 10**30, "first": [1]})
        answer = await channel.ask("elicit", {"message": f"use {SECRET}?", "last": 10**30, "first": [1]})
        return Outcome("ok", orjson.dumps(answer))

    heard = Heard()
    world.serve(run=talk)
    outcome = await world.call(channel=heard)
    assert outcome.body == b'{"action":"accept"}'
    hidden = "[redacted:TOKEN]"
    assert heard.said == [
        (1, 2, f"at {hidden}"),
        (2, 2, None),
        ("info", f"saw {hidden}", f"tool {hidden}", {"key": [hidden]}),
        ("info", "plain", None, None),
        ("sample", {"last": 10**30, "first": [1]}),
        ("elicit", {"message": f"use {hidden}?", "last": 10**30, "first": [1]}),
    ]
    assert list(heard.said[-1][1]) == ["message", "last", "first"]


async def test_a_question_to_a_caller_who_cannot_be_asked_is_the_tool_s_error(world: World) -> None:
    async def ask(call: Call, channel: Channel, deadline: float) -> Outcome:
        await channel.ask("sample", {"messages": []})
        raise AssertionError

    world.serve(run=ask)
    outcome = await world.call(channel=SilentChannel())
    assert outcome.error is not None
    assert outcome.error.code == "no_back_channel"


# Tools that call tools.


def calling(namespace: Any, tool: Any, arguments: Any) -> Body:
    async def body(call: Call, channel: Channel, deadline: float) -> Outcome:
        params = {"namespace": namespace, "tool": tool, "arguments": arguments}
        return Outcome("ok", orjson.dumps({"got": await channel.ask("call_tool", params)}))

    return body


async def test_a_tool_s_call_takes_the_same_path_with_its_own_record(world: World) -> None:
    world.serve("text", run=echo)
    world.serve(run=calling("text", "run", {"n": 5}))
    outcome = await world.call()
    assert orjson.loads(outcome.body) == {"got": {"n": 5}}
    inner, outer = world.records
    assert (inner["namespace"], inner["depth"], inner["protocol"], inner["caller"]) == ("text", 1, "tool/math", "ann")
    assert (outer["namespace"], outer["depth"], outer["protocol"]) == ("math", 0, "rest")
    assert inner["request_id"] == outer["request_id"]


async def test_a_failing_nested_call_fails_the_tool_that_made_it(world: World) -> None:
    world.serve(run=calling("text", "run", {}))
    outcome = await world.call()
    assert isinstance(outcome.error, NamespaceNotFound)
    assert [row["error"] for row in world.records] == ["namespace_not_found", "namespace_not_found"]


@pytest.mark.parametrize("params", [(1, "run", {}), ("math", None, {}), ("math", "run", [])])
async def test_a_nested_call_of_the_wrong_shape_is_refused(world: World, params: tuple[Any, Any, Any]) -> None:
    world.serve(run=calling(*params))
    outcome = await world.call()
    assert isinstance(outcome.error, InvalidArguments)


async def test_a_nested_call_ends_with_its_caller_s_deadline(world: World) -> None:
    seen: list[float] = []

    async def note(call: Call, channel: Channel, deadline: float) -> Outcome:
        seen.append(deadline)
        return Outcome("ok")

    async def call_on(call: Call, channel: Channel, deadline: float) -> Outcome:
        seen.append(deadline)
        await channel.ask("call_tool", {"namespace": "text", "tool": "run", "arguments": {}})
        return Outcome("ok")

    world.serve("text", run=note, limits=Limits(1000, 1, 1, 1000))
    world.serve(run=call_on)
    await world.call()
    assert seen[0] == seen[1]


async def test_a_tool_that_calls_itself_is_stopped_even_in_a_namespace_with_one_place(world: World) -> None:
    world.serve(run=calling("math", "run", {}), limits=Limits(10, 1, 0, 1000))
    outcome = await world.call()
    assert isinstance(outcome.error, PolicyDenied)
    assert outcome.error.details["rule"] == "call_depth"
    assert max(row["depth"] for row in world.records) == 9


# Limits.


async def test_the_deadline_is_the_nearest_of_the_caller_s_the_tool_s_and_the_namespace_s(world: World) -> None:
    seen: list[float] = []

    async def note(call: Call, channel: Channel, deadline: float) -> Outcome:
        seen.append(round(deadline - asyncio.get_running_loop().time()))
        return Outcome("ok")

    entry = world.serve(run=note, limits=Limits(40, 8, 8, 1000))
    now = asyncio.get_running_loop().time()
    await world.call()
    await world.call(deadline=now + 20)
    await world.call(deadline=now + 500)
    offer = entry.offer("run")
    slow = Tool(namespace="math", name="run", timeout=90)
    world.engine.registry.swap(
        Catalogue([Entry("math", {"run": Offer(slow, offer.source, offer.validator)}, entry.limits)])
    )
    await world.call()
    assert seen == [40, 20, 40, 40]


async def test_a_call_whose_place_never_comes_free_times_out_in_the_queue(world: World) -> None:
    release = asyncio.Event()

    async def wait(call: Call, channel: Channel, deadline: float) -> Outcome:
        await release.wait()
        return Outcome("ok")

    world.serve(run=wait, limits=Limits(10, 1, 1, 1000))
    first = asyncio.create_task(world.call())
    await asyncio.sleep(0)
    second = await world.call(deadline=asyncio.get_running_loop().time() + 0.02)
    assert isinstance(second.error, ExecutionTimeout)
    release.set()
    assert (await first).error is None


async def test_changed_limits_hold_for_the_next_call_and_keep_who_is_inside(world: World) -> None:
    world.serve(run=echo, limits=Limits(10, 1, 1, 1000))
    await world.call()
    gate = world.engine.gates()["math"]
    world.serve(run=echo, limits=Limits(10, 5, 7, 1000))
    await world.call()
    assert world.engine.gates()["math"] is gate
    assert (gate.max_active, gate.max_waiting) == (5, 7)


async def test_a_result_that_is_too_large_is_cut_after_secrets_are_removed(world: World) -> None:
    async def long(call: Call, channel: Channel, deadline: float) -> Outcome:
        return Outcome("ok", orjson.dumps("x" * 95 + SECRET + "y" * 100))

    world.serve(run=long, limits=Limits(10, 1, 1, 100))
    outcome = await world.call()
    assert orjson.loads(outcome.body).startswith("x" * 95 + "[reda\n[cut: ")
    assert world.records[0]["stdout_trunc"] == outcome.truncated > 0


@pytest.mark.parametrize("shown", range(1, len(SECRET)))
@pytest.mark.parametrize("kind", ["text", "json"])
async def test_of_a_secret_the_source_cut_in_two_nothing_is_shown(world: World, kind: Any, shown: int) -> None:
    """Labels are shorter than values, so what lay beyond the limit may come within it."""
    beginning = f'{{"a": "{f"{SECRET}{SECRET} " * 10}{SECRET[:shown]}'

    async def long(call: Call, channel: Channel, deadline: float) -> Outcome:
        return Outcome("ok", orjson.dumps(beginning), partial=kind, total_bytes=5000)

    world.serve(run=long, limits=Limits(10, 1, 1, 1000))
    outcome = await world.call()
    cleaned = '{"a": "' + "[redacted:TOKEN][redacted:TOKEN] " * 10
    value = orjson.loads(outcome.body)
    assert (value["text"] if kind == "json" else value.partition("\n")[0]) == cleaned


async def test_of_a_secret_cut_in_two_by_the_end_of_a_message_nothing_is_shown(world: World) -> None:
    world.serve(fails=raising(ToolFailed(f"bad {SECRET[:-1]}… [cut]; its last words: {SECRET[:10]}")))
    fails = await world.call("fails")
    assert fails.error is not None
    assert fails.error.message == "bad [redacted:TOKEN]… [cut]; its last words: [redacted:TOKEN]"


# Reloads.


async def test_a_call_in_flight_keeps_the_version_it_found(world: World) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def old(call: Call, channel: Channel, deadline: float) -> Outcome:
        begun.set()
        await release.wait()
        return Outcome("ok", b'"old"')

    async def new(call: Call, channel: Channel, deadline: float) -> Outcome:
        return Outcome("ok", b'"new"')

    world.serve(run=old)
    task = asyncio.create_task(world.call())
    await begun.wait()
    world.serve(run=new)
    assert (await world.call()).body == b'"new"'
    release.set()
    assert (await task).body == b'"old"'


async def test_a_call_whose_version_was_closed_first_runs_on_the_new_one(world: World) -> None:
    async def closed(call: Call, channel: Channel, deadline: float) -> Outcome:
        world.serve(run=echo)
        raise Unavailable("being replaced", reason="closed")

    world.serve(run=closed)
    outcome = await world.call(arguments={"n": 3})
    assert outcome.body == b'{"n":3}'
    assert len(world.records) == 1


async def test_a_call_does_not_chase_new_versions_for_ever(world: World) -> None:
    world.serve(run=raising(Unavailable("being replaced", reason="closed")))
    outcome = await world.call()
    assert isinstance(outcome.error, Unavailable)
    assert outcome.error.retry_after == 1


async def test_a_tool_that_is_gone_in_the_new_version_is_not_found(world: World) -> None:
    async def closed(call: Call, channel: Channel, deadline: float) -> Outcome:
        world.serve(other=echo)
        raise Unavailable("being replaced", reason="closed")

    world.serve(run=closed)
    assert isinstance((await world.call()).error, ToolNotFound)


# Recording.


async def test_while_calls_cannot_be_recorded_only_read_only_tools_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_RETRY_SECONDS", 0.0)
    log = tmp_path / "full.jsonl"
    log.symlink_to("/dev/full")
    world = World(log)
    world.serve(run=echo)
    world.serve("files", read=echo, read_only=True)
    await world.call("read", "files")
    refused = await world.call()
    assert isinstance(refused.error, Unavailable)
    assert refused.error.details["reason"] == "audit"
    assert (await world.call("read", "files")).error is None
    log.unlink()
    assert (await world.call()).error is None
    assert [row["error"] for row in world.records] == [None, "unavailable", None, None]
    world.engine.audit.close()


async def test_arguments_no_wire_format_can_carry_are_still_recorded(world: World) -> None:
    world.serve(run=echo)
    for arguments in ({"n": 2**70}, {"text": "\ud800"}):
        await world.call(arguments=arguments)
    assert len({row["args_hash"] for row in world.records}) == 2


async def test_the_digest_does_not_depend_on_the_order_of_arguments(world: World) -> None:
    world.serve(run=echo)
    await world.call(arguments={"a": 1, "b": 2})
    await world.call(arguments={"b": 2, "a": 1})
    await world.call(arguments={"a": 2, "b": 1})
    first, second, third = (row["args_hash"] for row in world.records)
    assert first == second != third


# Resources and prompts.


def giving(body: bytes) -> Body:
    async def run(call: Call, channel: Channel, deadline: float) -> Outcome:
        return Outcome("ok", body)

    return run


async def test_a_resource_and_a_prompt_take_the_same_path_and_say_so_in_the_record(world: World) -> None:
    seen: list[Call] = []

    async def read(call: Call, channel: Channel, deadline: float) -> Outcome:
        seen.append(call)
        return Outcome("ok", orjson.dumps({"for": call.tool, "key": SECRET}))

    world.serve(run=echo, reading=read)
    bodies = [
        (await world.call("page://1", kind="resource")).body,
        (await world.call("page://7", kind="resource")).body,
        (await world.call("ask", kind="prompt", arguments={"about": "x"})).body,
    ]
    await world.call("run")
    assert bodies == [
        b'{"for":"page://1","key":"[redacted:TOKEN]"}',
        b'{"for":"page://7","key":"[redacted:TOKEN]"}',
        b'{"for":"ask","key":"[redacted:TOKEN]"}',
    ]
    assert [(call.kind, call.tool) for call in seen] == [
        ("resource", "page://1"),
        ("resource", "page://7"),
        ("prompt", "ask"),
    ]
    assert [(record.get("kind"), record["tool"], record["mutates"]) for record in world.records] == [
        ("resource", "page://1", False),
        ("resource", "page://7", False),
        ("prompt", "ask", False),
        (None, "run", True),
    ]
    assert world.counts == {
        ("math", "resource:page://1", "ok"): 1,
        ("math", "resource:page://{n}", "ok"): 1,
        ("math", "prompt:ask", "ok"): 1,
        ("math", "run", "ok"): 1,
    }


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("page://1/2", "resource", "resource_not_found"),
        ("run", "resource", "resource_not_found"),
        ("run", "prompt", "prompt_not_found"),
        ("ask", "tool", "tool_not_found"),
        ("page://1", "tool", "tool_not_found"),
    ],
)
async def test_each_kind_is_found_only_among_its_own_and_a_refusal_is_recorded(
    world: World, name: str, kind: Any, code: str
) -> None:
    world.serve(run=echo, reading=echo)
    outcome = await world.call(name, kind=kind)
    assert outcome.error is not None
    assert outcome.error.code == code
    (record,) = world.records
    assert (record["error"], record["decision"]) == (code, "refuse")
    assert world.counts == {("math", "?", code): 1}


@pytest.mark.parametrize(("name", "kind"), [("page://1", "resource"), ("ask", "prompt")])
async def test_a_resource_or_prompt_that_is_too_large_is_refused_and_not_cut(
    world: World, name: str, kind: Any
) -> None:
    world.serve(reading=giving(b'"' + b"x" * 20_000 + b'"'))
    outcome = await world.call(name, kind=kind)
    assert isinstance(outcome.error, ToolFailed)
    assert f"The {kind} has 20,002 bytes; 10,000 are allowed" in outcome.error.message


async def test_while_calls_cannot_be_recorded_resources_are_still_read(world: World) -> None:
    world.serve(run=echo, reading=giving(b"{}"))
    world.engine.audit.problem = "No space left on device"
    world.engine.audit._retry_at = float("inf")
    assert (await world.call("page://1", kind="resource")).status == "ok"
    refused = (await world.call("run")).error
    assert isinstance(refused, Unavailable)


# What a running tool says about its namespace, and the clock while people are asked.


async def test_a_tool_can_say_that_something_of_its_namespace_changed(world: World) -> None:
    async def say(call: Call, channel: Channel, deadline: float) -> Outcome:
        for method in ("tools/list_changed", "prompts/list_changed", "resources/list_changed"):
            assert await channel.ask("notify", {"method": f"notifications/{method}", "params": {}}) is None
        await channel.ask("notify", {"method": "notifications/resources/updated", "params": {"uri": "page://1"}})
        return Outcome("ok")

    heard: list[Change] = []
    world.serve(run=say)
    world.engine.registry.subscribe(heard.append)
    caller = Heard()
    assert (await world.call(channel=caller)).status == "ok"
    assert heard == [
        Change("math", frozenset({"tools"})),
        Change("math", frozenset({"prompts"})),
        Change("math", frozenset({"resources"})),
        Change("math", frozenset(), frozenset({"page://1"})),
    ]
    assert caller.said == []


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"method": "notifications/progress", "params": {}},
        {"method": 7},
        {"method": "notifications/resources/updated"},
        {"method": "notifications/resources/updated", "params": {"uri": ""}},
        {"method": "notifications/resources/updated", "params": {"uri": "a:" + "x" * 5000}},
    ],
)
async def test_a_notification_that_is_none_of_these_is_the_tool_s_mistake(world: World, params: dict[str, Any]) -> None:
    async def say(call: Call, channel: Channel, deadline: float) -> Outcome:
        await channel.ask("notify", params)
        raise AssertionError

    world.serve(run=say)
    assert isinstance((await world.call()).error, InvalidArguments)


async def test_letting_a_stream_go_is_passed_on_and_does_nothing_where_there_is_none(world: World) -> None:
    async def let_go(call: Call, channel: Channel, deadline: float) -> Outcome:
        await channel.ask("close_stream", {})
        return Outcome("ok")

    heard = Heard()
    world.serve(run=let_go)
    assert (await world.call(channel=heard)).status == "ok"
    assert heard.said == [("close_stream", {})]
    assert (await world.call(channel=SilentChannel())).status == "ok"


async def test_the_time_people_take_is_given_to_the_tools_called_afterwards(world: World) -> None:
    """The question outlasts the whole time of the call; without the rule the nested call would have none left."""
    deadlines: list[float] = []

    class Slow(Heard):
        async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
            await asyncio.sleep(0.1 if kind == "elicit" else 0.05)
            return {}

    async def inner(call: Call, channel: Channel, deadline: float) -> Outcome:
        deadlines.append(deadline)
        return Outcome("ok")

    async def outer(call: Call, channel: Channel, deadline: float) -> Outcome:
        deadlines.append(deadline)
        await asyncio.gather(channel.ask("elicit", {}), channel.ask("roots", {}))
        await channel.ask("close_stream", {})
        await channel.ask("call_tool", {"namespace": "text", "tool": "run", "arguments": {}})
        return Outcome("ok")

    world.serve("text", run=inner)
    world.serve(run=outer)
    loop = asyncio.get_running_loop()
    assert (await world.call(channel=Slow(), deadline=loop.time() + 5)).status == "ok"
    assert 0.1 <= deadlines[1] - deadlines[0] < 0.15


async def test_a_call_whose_caller_is_asked_leaves_its_place_to_others(world: World) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    class Thinking(Heard):
        async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
            asked.set()
            await answered.wait()

    async def asking(call: Call, channel: Channel, deadline: float) -> Outcome:
        await channel.ask("elicit", {})
        return Outcome("ok", orjson.dumps(world.engine.gates()["math"].active))

    world.serve(asking=asking, run=echo, limits=Limits(10, 1, 0, 1000))
    waiting = asyncio.create_task(world.call("asking", channel=Thinking()))
    await asyncio.wait_for(asked.wait(), 5)
    assert (await world.call()).status == "ok"
    answered.set()
    assert orjson.loads((await waiting).body) == 1


async def test_a_question_that_outlives_its_call_gives_up_no_place_twice(world: World) -> None:
    open_questions: list[asyncio.Task[Any]] = []

    class Never(Heard):
        async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
            await asyncio.Event().wait()

    async def leaving(call: Call, channel: Channel, deadline: float) -> Outcome:
        open_questions.append(asyncio.create_task(channel.ask("elicit", {})))
        await asyncio.sleep(0)
        return Outcome("ok")

    world.serve(run=leaving)
    await world.call(channel=Never())
    assert world.engine.gates()["math"].active == 0
    open_questions[0].cancel()
    await asyncio.wait(open_questions)
    assert world.engine.gates()["math"].active == 0


async def test_a_tool_cannot_stop_its_clock_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by one question after the other, nor by always having one open."""
    monkeypatch.setattr("tooldock.engine.pipeline._MAX_ASKING", 0.1)

    class Slow(Heard):
        async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
            await asyncio.sleep(0.06)

    async def ask(channel: Channel, after: float) -> None:
        await asyncio.sleep(after)
        while True:
            await channel.ask("elicit", {})

    async def in_turn(call: Call, channel: Channel, deadline: float) -> Outcome:
        await ask(channel, 0)
        raise AssertionError

    async def overlapping(call: Call, channel: Channel, deadline: float) -> Outcome:
        await asyncio.gather(ask(channel, 0), ask(channel, 0.03))
        raise AssertionError

    world.serve(in_turn=in_turn, overlapping=overlapping)
    for tool in ("in_turn", "overlapping"):
        outcome = await world.call(tool, channel=Slow())
        assert isinstance(outcome.error, ExecutionTimeout), tool

"""What clients may ask, answered from the catalogue."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tooldock.dialects.mcp.exchange import ClientChannel, Exchange
from tooldock.dialects.mcp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    RpcError,
)
from tooldock.dialects.mcp.methods import MAX_COMPLETIONS, Methods
from tooldock.dialects.mcp.revisions import (
    HANDSHAKE,
    R2024_11_05,
    R2025_03_26,
    R2025_06_18,
    R2025_11_25,
    R2026_07_28,
    Revisions,
)
from tooldock.engine.registry import Catalogue, Entry, Limits, Offer, Registry
from tooldock.engine.schema import Validator
from tooldock.errors import (
    InternalError,
    InvalidArguments,
    NamespaceNotFound,
    NoBackChannel,
    ResourceNotFound,
    ToolDockError,
    ToolNotFound,
    Unavailable,
)
from tooldock.model import Argument, Call, Caller, Outcome, Prompt, Resource, Tool

ALL = (*HANDSHAKE, R2026_07_28)
LIMITS = Limits(timeout=60, max_concurrency=8, max_queue=8, max_output=1 << 20)
CALLER = Caller("tester")


class Engine:
    """Answers what the test says, and remembers what it was asked."""

    def __init__(self, answer: Callable[[Call], Outcome]) -> None:
        self.registry = Registry()
        self.calls: list[Call] = []
        self._answer = answer

    async def call(self, call: Call) -> Outcome:
        self.calls.append(call)
        return self._answer(call)


def entry(tools: int = 2, **more: Any) -> Entry:
    made = [Tool(namespace="n", name=f"tool_{number:03}") for number in range(tools)]
    offers: dict[str, Any] = {tool.name: Offer(tool, None, Validator(tool.name, tool.input_schema)) for tool in made}  # type: ignore[arg-type]
    prompts = {
        "p": Prompt(
            namespace="n",
            name="p",
            arguments=(
                Argument(name="colour", values=("red", "Green", "dark red")),
                Argument(name="free"),
                Argument(name="many", values=tuple(f"v{number}" for number in range(150))),
            ),
        )
    }
    templates = {
        "a://{kind}": Resource(
            namespace="n", uri="a://{kind}", name="t", arguments=(Argument(name="kind", values=("x", "y")),)
        )
    }
    resources = {"a://b": Resource(namespace="n", uri="a://b", name="b")}
    return Entry("n", offers, LIMITS, prompts=prompts, templates=templates, resources=resources, **more)


def methods(answer: Callable[[Call], Outcome] = lambda call: Outcome("ok", b'"x"'), **more: Any) -> Methods:
    engine = Engine(answer)
    engine.registry.swap(Catalogue([entry(**more)]))
    return Methods(engine, Revisions(ALL), page=100)


async def ask(
    served: Methods,
    method: str,
    params: Mapping[str, Any] | None = None,
    revision: str = R2025_11_25,
    capabilities: Mapping[str, Any] | None = None,
) -> Any:
    exchange = Exchange("n", CALLER, "r1", revision, 1, method, dict(params or {}), capabilities or {})
    return json.loads(await served.answer(exchange))


async def refused(
    served: Methods, method: str, params: Any = None, revision: str = R2025_11_25, **more: Any
) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await ask(served, method, params, revision, **more)
    return caught.value


WRAPS = {
    "type": "object",
    "properties": {"result": {"type": "integer"}},
    "required": ["result"],
    "x-fastmcp-wrap-result": True,
}
HAS_A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TEXT = ({"type": "text", "text": "t"},)


def promising(schema: dict[str, Any], outcome: Outcome) -> Methods:
    engine = Engine(lambda call: outcome)
    tool = Tool(namespace="n", name="t", output_schema=schema)
    offers: dict[str, Any] = {"t": Offer(tool, None, Validator("t", tool.input_schema))}  # type: ignore[arg-type]
    engine.registry.swap(Catalogue([Entry("n", offers, LIMITS)]))
    return Methods(engine, Revisions(ALL))


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(
    ("schema", "outcome", "fits"),
    [
        (WRAPS, Outcome("ok", b"1"), True),
        (WRAPS, Outcome("ok", b'"x"'), False),
        (HAS_A, Outcome("ok", b'{"a":1}'), True),
        (HAS_A, Outcome("ok", b'{"a":"secret"}'), False),
        (HAS_A, Outcome("ok", b"null"), False),
        (HAS_A, Outcome("ok", b'{"a":1}', content=TEXT), True),
        (HAS_A, Outcome("ok", b'{"b":1}', content=TEXT), False),
        (HAS_A, Outcome("ok", b"null", content=TEXT), False),
    ],
)
async def test_g49_a_result_that_breaks_its_tools_promise_is_a_failure_that_says_so(
    schema: dict[str, Any], outcome: Outcome, fits: bool, revision: str
) -> None:
    served = promising(schema, outcome)
    for _ in range(2):
        answer = await ask(served, "tools/call", {"name": "t"}, revision)
        assert answer["isError"] is (not fits and revision >= R2025_06_18)
        assert ("structuredContent" in answer) == (fits and revision >= R2025_06_18)
        if answer["isError"]:
            assert "output schema" in answer["content"][0]["text"]
            assert "secret" not in json.dumps(answer)


async def test_g49_a_promise_nobody_can_read_is_not_held_against_the_tool() -> None:
    for schema in ({"type": "object", "$ref": "https://example.com/other"}, {"type": "object", "properties": 5}):
        answer = await ask(promising(schema, Outcome("ok", b'{"a":1}')), "tools/call", {"name": "t"})
        assert (answer["isError"], answer["structuredContent"]) == (False, {"a": 1})


async def test_g46_a_long_list_comes_in_pages_that_add_up_in_order() -> None:
    served = methods(tools=250)
    names: list[str] = []
    cursor: dict[str, str] = {}
    sizes = []
    while True:
        page = await ask(served, "tools/list", cursor)
        names += [tool["name"] for tool in page["tools"]]
        sizes.append(len(page["tools"]))
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert sizes == [100, 100, 50]
    assert names == sorted(names)


@pytest.mark.parametrize("cursor", ["x", "", 5, [], {}, "cGFnZTo5OQ==", "cGFnZToxMDAwMDAwMDAw", "\ud800", "é"])
async def test_g46_what_is_no_cursor_of_the_list_is_refused(cursor: Any) -> None:
    assert (await refused(methods(), "tools/list", {"cursor": cursor})).code == INVALID_PARAMS


@pytest.mark.parametrize("kind", ["tools", "resources", "prompts"])
async def test_an_empty_list_is_an_empty_list(kind: str) -> None:
    engine = Engine(lambda call: Outcome("ok"))
    engine.registry.swap(Catalogue([Entry("n", {}, LIMITS)]))
    assert await ask(Methods(engine, Revisions(ALL)), f"{kind}/list") == {kind: []}


async def test_lists_are_rendered_once_for_each_revision_and_version() -> None:
    served = methods()
    for revision in ALL:
        await ask(served, "tools/list", revision=revision)
    rendered = served.engine.registry.catalogue.entry("n").rendered
    assert {key for key in rendered if key.startswith("mcp.tools")} == {f"mcp.tools.{revision}" for revision in ALL}
    before = rendered["mcp.tools.2025-11-25"]
    await ask(served, "tools/list")
    assert rendered["mcp.tools.2025-11-25"] is before


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_g09_the_handshake_declares_what_is_served(revision: str) -> None:
    served = methods(description="about")
    result = json.loads(served.initialize("n", revision))
    assert result["protocolVersion"] == revision
    assert result["instructions"] == "about"
    assert result["capabilities"] == {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
        "logging": {},
        **({"completions": {}} if revision >= R2025_03_26 else {}),
    }


async def test_g02_discovery_lists_versions_and_capabilities_with_cache_hints() -> None:
    result = await ask(methods(), "server/discover", revision=R2026_07_28)
    assert result["supportedVersions"][0] == R2026_07_28
    assert result["resultType"] == "complete"
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] == "private"
    assert result["capabilities"] == json.loads(methods().initialize("n", R2025_11_25))["capabilities"]


@pytest.mark.parametrize(
    ("method", "revision"),
    [
        ("server/discover", R2025_11_25),
        ("ping", R2026_07_28),
        ("initialize", R2026_07_28),
        ("logging/setLevel", R2026_07_28),
        ("tasks/list", R2025_11_25),
        ("", R2025_11_25),
        ("x" * 10_000, R2026_07_28),
    ],
)
async def test_a_method_of_another_revision_is_not_found(method: str, revision: str) -> None:
    error = await refused(methods(), method, revision=revision)
    assert error.code == METHOD_NOT_FOUND
    assert len(error.message) < 300


async def test_ping_is_answered_with_nothing() -> None:
    assert await ask(methods(), "ping") == {}


@pytest.mark.parametrize(
    "params",
    [{}, {"name": 5}, {"name": None}, {"name": "tool_000", "arguments": []}, {"name": "tool_000", "arguments": "x"}],
)
async def test_an_ill_typed_call_is_refused_and_reaches_no_tool(params: dict[str, Any]) -> None:
    served = methods()
    assert (await refused(served, "tools/call", params)).code == INVALID_PARAMS
    assert served.engine.calls == []  # type: ignore[attr-defined]


async def test_a_call_says_where_it_came_from() -> None:
    served = methods()
    await ask(served, "tools/call", {"name": "tool_000", "arguments": {"a": 1}}, capabilities={"roots": {}})
    (call,) = served.engine.calls  # type: ignore[attr-defined]
    assert (call.namespace, call.tool, call.arguments, call.protocol) == ("n", "tool_000", {"a": 1}, "mcp/2025-11-25")
    assert call.caller is CALLER
    assert call.meta["client_capabilities"] == {"roots": {}}


def failing(error: ToolDockError) -> Methods:
    return methods(lambda call: Outcome("error", error=error))


@pytest.mark.parametrize("revision", ALL)
async def test_g51_an_unknown_tool_is_the_clients_mistake_and_our_faults_are_ours(revision: str) -> None:
    call = {"name": "tool_000"}
    assert (await refused(failing(ToolNotFound("x")), "tools/call", call, revision)).code == INVALID_PARAMS
    assert (await refused(failing(InternalError("x")), "tools/call", call, revision)).code == INTERNAL_ERROR
    result = await ask(failing(Unavailable("later")), "tools/call", call, revision)
    assert result["isError"] is True


async def test_g51_a_very_long_name_is_refused_without_looking_for_its_like() -> None:
    served = methods()
    error = await refused(served, "tools/call", {"name": "x" * 100_000})
    assert error.code == INVALID_PARAMS
    assert len(error.message) < 300
    assert served.engine.calls == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("revision", ALL)
async def test_g50_wrong_arguments_are_shown_to_the_model_where_the_revision_says_so(revision: str) -> None:
    served = failing(InvalidArguments("a: too short"))
    if revision >= R2025_11_25:
        result = await ask(served, "tools/call", {"name": "tool_000"}, revision)
        assert result["isError"] is True
        assert result["content"][0]["text"] == "a: too short"
    else:
        assert (await refused(served, "tools/call", {"name": "tool_000"}, revision)).code == INVALID_PARAMS


@pytest.mark.parametrize("revision", ALL)
async def test_g51_a_resource_that_is_not_there_has_the_code_of_its_revision(revision: str) -> None:
    error = await refused(failing(ResourceNotFound("none")), "resources/read", {"uri": "a://z"}, revision)
    assert error.code == (INVALID_PARAMS if revision == R2026_07_28 else RESOURCE_NOT_FOUND)


@pytest.mark.parametrize("method", ["resources/read", "prompts/get"])
@pytest.mark.parametrize("params", [{}, {"uri": 5, "name": 5}, {"uri": "x" * 9000, "name": None}])
async def test_ill_typed_reads_are_refused(method: str, params: dict[str, Any]) -> None:
    assert (await refused(methods(), method, params)).code == INVALID_PARAMS


async def test_resources_and_prompts_take_the_same_path_as_tools() -> None:
    served = methods(lambda call: Outcome("ok", b'{"contents":[],"messages":[]}'))
    await ask(served, "resources/read", {"uri": "a://b"})
    await ask(served, "prompts/get", {"name": "p", "arguments": {"colour": "red"}})
    kinds = [(call.kind, call.tool, call.arguments) for call in served.engine.calls]  # type: ignore[attr-defined]
    assert kinds == [("resource", "a://b", {}), ("prompt", "p", {"colour": "red"})]


async def test_g53_a_question_the_client_cannot_take_names_the_missing_capability() -> None:
    """The channel refuses it by the declared capabilities; the stateless revision has a code for that."""

    class Asking(Engine):
        async def call(self, call: Call) -> Outcome:
            try:
                await call.channel.ask("sample", {"messages": []})
            except NoBackChannel as error:
                return Outcome("error", error=error)
            return Outcome("ok")

    engine = Asking(lambda call: Outcome("ok"))
    engine.registry.swap(Catalogue([entry()]))
    served = Methods(engine, Revisions(ALL))
    error = await refused(served, "tools/call", {"name": "tool_000"}, R2026_07_28)
    assert error.code == MISSING_CAPABILITY
    assert error.data == {"requiredCapabilities": {"sampling": {}}}
    assert (await ask(served, "tools/call", {"name": "tool_000"}, R2025_11_25))["isError"] is True


def prompt_ref(name: str, value: str, ref: Any = None) -> dict[str, Any]:
    return {"ref": ref or {"type": "ref/prompt", "name": "p"}, "argument": {"name": name, "value": value}}


async def test_completion_offers_what_begins_with_the_text_before_what_holds_it() -> None:
    result = await ask(methods(), "completion/complete", prompt_ref("colour", "RE"))
    assert result["completion"] == {"values": ["red", "Green", "dark red"], "total": 3, "hasMore": False}
    assert (await ask(methods(), "completion/complete", prompt_ref("colour", "g")))["completion"]["values"] == ["Green"]
    assert (await ask(methods(), "completion/complete", prompt_ref("free", "")))["completion"]["values"] == []


async def test_completion_knows_the_parameters_of_templates() -> None:
    params = prompt_ref("kind", "", {"type": "ref/resource", "uri": "a://{kind}"})
    assert (await ask(methods(), "completion/complete", params))["completion"]["values"] == ["x", "y"]


async def test_completion_never_offers_more_than_the_protocol_allows() -> None:
    completion = (await ask(methods(), "completion/complete", prompt_ref("many", "v")))["completion"]
    assert (len(completion["values"]), completion["total"], completion["hasMore"]) == (MAX_COMPLETIONS, 150, True)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": "p", "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "none"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": ["p"]}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/resource", "uri": "none://"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/tool"}, "argument": {"name": "a", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a"}},
    ],
)
async def test_completion_of_what_does_not_exist_is_refused(params: dict[str, Any]) -> None:
    assert (await refused(methods(), "completion/complete", params)).code == INVALID_PARAMS


def test_an_unknown_namespace_is_named_with_the_way_out() -> None:
    with pytest.raises(NamespaceNotFound):
        methods().check_namespace("other")
    with pytest.raises(NamespaceNotFound):
        methods().check_namespace("x" * 10_000)


@pytest.mark.parametrize(
    ("asked", "given"),
    [(R2025_03_26, R2025_03_26), (R2026_07_28, R2025_11_25), ("1999-01-01", R2025_11_25), (5, R2025_11_25)],
)
def test_g01_a_version_is_echoed_where_it_is_served_and_otherwise_the_newest_with_a_handshake(
    asked: object, given: str
) -> None:
    assert Revisions(ALL).negotiate(asked) == given


def test_the_operator_narrows_the_revisions() -> None:
    narrow = Revisions([R2025_06_18, R2024_11_05], legacy=False)
    assert narrow.listed() == [R2025_06_18]
    assert narrow.negotiate(R2024_11_05) == R2025_06_18
    assert Revisions([R2026_07_28]).negotiate(R2025_11_25) is None


@pytest.mark.parametrize("revision", ALL)
async def test_g53_a_revision_without_elicitation_is_never_asked(revision: str) -> None:
    asked: list[str] = []

    class Wire:
        def send(self, message: bytes) -> None:
            return None

        async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
            asked.append(method)
            return {"action": "decline"}

        def close_stream(self) -> bool:
            return False

    channel = ClientChannel(Wire(), revision, {"elicitation": {}}, None, None)
    if revision >= R2025_06_18:
        await channel.ask("elicit", {"message": "?"})
        assert asked == ["elicitation/create"]
    else:
        with pytest.raises(NoBackChannel):
            await channel.ask("elicit", {"message": "?"})
        assert asked == []

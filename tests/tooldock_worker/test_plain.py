"""The short way for plain signatures comes to the same as pydantic, in every respect but the cost."""

from __future__ import annotations

import json
import keyword
import math
import sys
import timeit
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Any, Dict, List, Literal, NamedTuple, Optional, Union, get_args, get_origin  # noqa: UP035

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from tooldock_worker import plain
from tooldock_worker.context import Context
from tooldock_worker.problems import BadArguments
from tooldock_worker.results import EncodeError, encode
from tooldock_worker.schema import Parsed, SchemaError, parse
from tooldock_worker.tools import LoadedTool

TEXTS = st.text(max_size=8) | st.sampled_from(["1", "1.0", "true", "null", "a", "", "\ud800", "é"])
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, 1, -0.0, 1.0, 2.5, 2**53 + 1, 2.0**60, 10**400, 1e300])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
# Not JSON, and still values a check may meet: it must not take them for the plain ones they resemble.
ODD = st.sampled_from([b"x", (1, 2), {1}, type("Text", (str,), {})("a"), type("Whole", (int,), {})(1), {1: 2}])
VALUES = JSON | ODD


def unions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner | st.none(), min_size=2, max_size=4).map(lambda arms: Union[tuple(arms)])  # noqa: UP007


LITERALS = st.lists(
    st.sampled_from(["a", "b", "1", "true", "é"]) | st.sampled_from([0, 1, 2]) | st.booleans() | st.none(),
    min_size=1,
    max_size=4,
).map(lambda values: Literal[tuple(values)])
PLAIN: list[Any] = [str, int, float, bool, None, Any, list, dict, List, Dict]  # noqa: UP006
BARE = st.sampled_from([*PLAIN * 4, object, tuple, Dict[int, str]])  # noqa: UP006
HINTS = st.recursive(
    BARE | LITERALS,
    lambda inner: (
        inner.map(lambda hint: list[hint])  # type: ignore[valid-type]
        | inner.map(lambda hint: dict[str, hint])  # type: ignore[valid-type]
        | inner.map(lambda hint: Optional[hint])  # noqa: UP045
        | unions(inner)
    ),
    max_leaves=5,
)
DESCRIPTIONS = st.text("ab \n\t'\"é", max_size=12)
ANNOTATED = st.builds(
    lambda hint, said: Annotated[hint, said],
    HINTS,
    DESCRIPTIONS
    | DESCRIPTIONS.map(lambda text: Field(description=text))
    | st.sampled_from([Field(title="Own"), Field(description="d", examples=[1]), Field()]),
)
NAMES = st.from_regex(r"[A-Za-z_][a-z_0-9]{0,6}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))


class Parameter(NamedTuple):
    name: str
    hint: Any
    has_default: bool
    default: Any


DEFAULTS = st.sampled_from([None, 0, 2, 1.5, True, "a", "é", [], {}, ["a", [1]], {"k": [None]}]) | VALUES
PARAMETERS = st.lists(
    st.builds(Parameter, NAMES, HINTS | ANNOTATED | st.just("none given"), st.booleans(), DEFAULTS),
    max_size=4,
    unique_by=lambda item: item.name,
)


def function(parameters: list[Parameter], returns: Any, about: str) -> Callable[..., Any]:
    """A function as somebody could have written it."""
    words = [f"{item.name}=defaults[{item.name!r}]" if item.has_default else item.name for item in parameters]
    names = {"defaults": {item.name: item.default for item in parameters}}
    exec(f"def fn({', '.join(['*', *words]) if words else ''}): ...", names)
    fn: Any = names["fn"]
    fn.__annotations__ = {item.name: item.hint for item in parameters if item.hint != "none given"}
    fn.__annotations__["return"] = returns
    fn.__doc__ = about
    return fn  # type: ignore[no-any-return]


def by_pydantic(fn: Callable[..., Any]) -> Parsed:
    """The same function, understood the long way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "arguments", lambda *_: None)
        patch.setattr(plain, "shape_of", lambda _: None)
        return parse(fn)


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except BadArguments as error:
        return sorted(map(str, error.errors))
    except (SchemaError, EncodeError) as error:
        return str(error)


def bound(parsed: Parsed, arguments: Any) -> Any:
    """The outcome of a check with the type of every value showing, so that 1, 1.0 and True differ."""
    found = outcome(lambda: parsed.validate(arguments))
    return {name: repr(value) for name, value in found.items()} if isinstance(found, dict) else found


def alternatives_sorted(schema: Any) -> Any:
    """JSON text of a schema that leaves out in which order alternatives are named.

    The long way makes a generic of the return hint, and `typing` keeps one for all hints that differ only in
    that order: which order is shown depends on who came first.
    """
    if isinstance(schema, dict):
        return json.dumps({key: alternatives_sorted(value) for key, value in schema.items()}, sort_keys=True)
    if isinstance(schema, list):
        return json.dumps(sorted(map(alternatives_sorted, schema)))
    return json.dumps(schema)


def encoded(parsed: Parsed, value: Any) -> Any:
    described: dict[str, Any] = {"name": "t", "description": "", "inputSchema": {}, "file": "t.py"}
    described |= {"outputSchema": parsed.output_schema} if parsed.output_schema else {}
    tool = LoadedTool(fn=print, bind=dict, described=described, line=None, result_adapter=parsed.result_adapter)
    return outcome(lambda: encode(tool, value))


@st.composite
def fitting(draw: st.DrawFn, hint: Any) -> Any:
    """A value that pydantic could accept for a hint, and often does."""
    origin, inner = get_origin(hint), get_args(hint)
    # `typing` may hand out a union or literal it made earlier, in another order; what is drawn must not depend on it.
    arms = sorted(inner, key=lambda arm: sorted(repr(arm)))
    if origin is Annotated:
        return draw(fitting(inner[0]))
    if hint in (list, dict):
        return draw(JSON.filter(lambda value: type(value) is hint))
    if hint in (str, int, float, bool):
        return draw(LIKELY[hint])
    if origin is list and inner:
        return draw(st.lists(fitting(inner[0]), max_size=3))
    if origin is dict and inner:
        return draw(st.dictionaries(TEXTS, fitting(inner[1]), max_size=3))
    if origin is Literal:
        return draw(st.sampled_from(arms))
    if origin is Union:
        return draw(st.sampled_from(arms).flatmap(fitting))
    return draw(JSON)


LIKELY: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers() | st.integers(-5, 5).map(float),
    float: NUMBERS,
    bool: st.booleans(),
}


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    parameters=PARAMETERS,
    returns=HINTS,
    about=st.sampled_from(["", "Does.", "Does.\n\nArgs:\n    a: first"]),
    data=st.data(),
)
def test_any_signature_means_what_it_means_to_pydantic(
    parameters: list[Parameter], returns: Any, about: str, data: st.DataObject
) -> None:
    fn = function(parameters, returns, about)
    short, long = outcome(lambda: parse(fn)), outcome(lambda: by_pydantic(fn))
    if not isinstance(long, Parsed):
        assert short == long
        return
    assert json.dumps(short.input_schema, sort_keys=True) == json.dumps(long.input_schema, sort_keys=True)
    assert alternatives_sorted(short.output_schema) == alternatives_sorted(long.output_schema)
    assert short.description == long.description
    for _ in range(4):
        arguments = {
            item.name: data.draw(fitting(item.hint) | VALUES)
            for item in parameters
            if not item.has_default or data.draw(st.booleans())
        }
        assert bound(short, arguments) == bound(long, arguments)
    arguments = data.draw(st.dictionaries(NAMES, VALUES, max_size=3))
    assert bound(short, arguments) == bound(long, arguments)
    value = data.draw(fitting(returns) | VALUES)
    assert encoded(short, value) == encoded(long, value)


TELLING_HINTS: list[Any] = [
    *PLAIN,
    *(list[str], list[int], list[float], list[bool], list[None], list[Any], list[list[float]], list[dict[str, int]]),
    *(dict[str, str], dict[str, int], dict[str, float], dict[str, Any], dict[str, list[float]], Dict[str, bool]),  # noqa: UP006
    *(str | None, int | None, float | None, bool | None, list[float] | None, dict[str, int] | None),
    *(int | str, float | str, int | float, bool | int, bool | float, bool | str, int | float | bool | str | None),
    *(str | list[str], int | list[int], float | dict[str, float], list[int] | dict[str, int], list[int] | list[str]),
    *(Literal["a"], Literal["a", "1"], Literal[1], Literal[1, 2], Literal[True], Literal[1, True], Literal[0, False]),
    *(Literal["a", 1, None], Literal["a"] | None, Literal["a"] | int, Literal[1] | float, Literal[1] | bool),
    *(Literal["1"] | str, list[Literal["a", "b"]], list[int | None], list[int | str], dict[str, float | None]),
]
TELLING_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 2**53, 2**53 + 1, -(2**53) - 1, 2**63, 2**64, 10**400),
    *(0.0, -0.0, 1.0, -1.0, 2.5, 2.0**53, 2.0**60, -(2.0**60), 1e300, math.inf, -math.inf, math.nan),
    *(
        "",
        "a",
        "1",
        "1.0",
        "true",
        "null",
        "\ud800",
        "é",
        b"a",
        type("Text", (str,), {})("a"),
        type("N", (int,), {})(1),
    ),
    *([], [1], [1.0], [True], ["a"], ["1"], [None], [1, "a"], [1.5, 2], [[1]], [[1.0], [2]], [{"a": 1}], (1,), {1}),
    *({}, {"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": None}, {"a": [1]}, {1: 1}, {b"a": 1}, {"\ud800": 1}),
]


@pytest.mark.parametrize("hint", TELLING_HINTS, ids=str)
def test_every_telling_value_is_taken_as_pydantic_takes_it(hint: Any) -> None:
    others: list[Any] = [{}, {"b": 1}, {"a": 1, "b": 1}, {1: 1}, [], None]
    for has_default in (False, True):
        fn = function([Parameter("a", hint, has_default, "left out")], None, "")
        short, long = parse(fn), by_pydantic(fn)
        for arguments in [{"a": value} for value in TELLING_VALUES] + others:
            assert bound(short, arguments) == bound(long, arguments), arguments


async def echo(
    text: str,
    ctx: Context,
    limit: int = 10,
    tags: list[str] | None = None,
    mode: Annotated[Literal["fast", "exact"], "How to look."] = "fast",
    weights: dict[str, float] = {},  # noqa: B006
) -> list[dict[str, Any]]:
    """Look for something.

    Args:
        text: What to look for.
    """
    return []


def test_a_plain_tool_is_described_checked_and_called_without_running_pydantic() -> None:
    """Forked workers share their parent's memory only as long as they do not run what lies in it."""
    ran: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        source = getattr(argument, "__module__", None) if event == "c_call" else frame.f_globals.get("__name__")
        ran.add(str(source).partition(".")[0])

    sys.setprofile(note)
    try:
        parsed = parse(echo)
        arguments = parsed.validate({"text": "x", "limit": 3.0, "weights": {"a": 1}, "tags": ["b"]})
    finally:
        sys.setprofile(None)
    assert not ran & {"pydantic", "pydantic_core", "annotated_types"}
    assert "tooldock_worker" in ran
    assert arguments == {"text": "x", "limit": 3, "tags": ["b"], "mode": "fast", "weights": {"a": 1.0}}
    assert repr(arguments["weights"]) == "{'a': 1.0}"
    assert parsed.input_schema == by_pydantic(echo).input_schema


def test_a_default_that_a_tool_changes_is_whole_again_for_the_next_call() -> None:
    check = parse(echo).validate
    check({"text": "x"})["weights"]["left behind"] = 1.0
    assert check({"text": "x"})["weights"] == {}


def test_what_is_not_plainly_right_is_judged_by_pydantic() -> None:
    check = parse(echo).validate
    assert check({"text": "x", "limit": "7"})["limit"] == 7
    with pytest.raises(BadArguments) as caught:
        check({"limit": "many", "other": 1})
    assert {error["path"] for error in caught.value.errors} == {"text", "limit", "other"}


def test_the_short_check_is_no_slower_than_pydantic() -> None:
    def fn(text: str) -> str:
        return text

    def seconds(parsed: Parsed) -> float:
        return min(timeit.repeat(lambda: parsed.validate({"text": "hello"}), number=2_000, repeat=15))

    assert seconds(parse(fn)) <= seconds(by_pydantic(fn)) * 1.2

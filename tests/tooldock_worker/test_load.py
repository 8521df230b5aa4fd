"""Loading real folders, each in a process of its own, because loading changes what Python can import."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROBE = """
import json, sys
from pathlib import Path
from tooldock_worker.load import LoadError, load
sys.path[:0] = sys.argv[2:]
seen = {}
try:
    loaded = load(Path(sys.argv[1]))
except LoadError as error:
    seen["error"] = {"message": str(error), "file": error.file, "line": error.line, "kind": error.kind}
else:
    seen["tools"] = {name: tool.describe() for name, tool in loaded.tools.items()}
    seen["values"] = {
        name: tool.fn()
        for name, tool in loaded.tools.items()
        if not tool.is_async and not tool.describe()["inputSchema"]["properties"]
    }
    seen["async"] = sorted(name for name, tool in loaded.tools.items() if tool.is_async)
    seen["health"] = loaded.health is not None
    seen["all"] = {part: [(item["name"], item["file"]) for item in items] for part, items in loaded.describe().items()}
    seen["reading"] = sorted(name for name in sys.modules if name in ("tooldock_worker.readings", "urllib.parse"))
json.dump(seen, sys.stdout)
"""

Loader = Callable[..., dict[str, Any]]


@pytest.fixture
def loading(tmp_path: Path) -> Loader:
    """Write files, load the folder in a fresh interpreter, give what came of it."""

    def load(files: dict[str, str], *path: str) -> dict[str, Any]:
        folder = tmp_path / "ns"
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", PROBE, str(folder), *path],
            cwd=folder.parent,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        return seen

    return load


TOOL = "from fastmcp.tools import tool\n"
FIELD = "from typing import Annotated; from pydantic import Field\n"


def test_tools_come_in_order_of_files_and_definition(loading: Loader) -> None:
    seen = loading(
        {
            "b.py": TOOL + "@tool\ndef last(): ...\n",
            "a.py": TOOL + "@tool\ndef second(): ...\n@tool\ndef first(): ...\ndef helper(): ...\n",
        }
    )
    assert list(seen["tools"]) == ["second", "first", "last"]
    assert [tool["file"] for tool in seen["tools"].values()] == ["a.py", "a.py", "b.py"]


def test_private_hidden_and_route_files_are_no_tool_files(loading: Loader) -> None:
    broken = "raise RuntimeError('must not run')\n"
    seen = loading(
        {
            "_private.py": broken,
            ".hidden.py": broken,
            "routes.py": broken,
            "notes.txt": broken,
            "sub/x.py": broken,
        }
    )
    assert seen["tools"] == {}
    assert seen["health"] is False


def test_private_files_and_packages_can_be_imported(loading: Loader) -> None:
    seen = loading(
        {
            "a.py": TOOL
            + "import _helper\nfrom _kit.deep import two\nfrom parts.inner import three\n"
            + "@tool\ndef total(): return _helper.one() + two() + three()\n",
            "_helper.py": "def one(): return 1\n",
            "_kit/__init__.py": "",
            "_kit/deep.py": "from . import sibling\ndef two(): return sibling.TWO\n",
            "_kit/sibling.py": "TWO = 2\n",
            "parts/__init__.py": "",
            "parts/inner.py": "def three(): return 3\n",
        }
    )
    assert seen["values"] == {"total": 6}


def test_a_private_file_wins_over_an_installed_module_of_its_name(loading: Loader) -> None:
    seen = loading(
        {
            "a.py": TOOL + "import _pytest\n@tool\ndef whose(): return _pytest.MINE\n",
            "_pytest.py": "MINE = 'mine'\n",
        }
    )
    assert seen["values"] == {"whose": "mine"}


def test_a_private_file_may_not_take_the_standard_librarys_name(loading: Loader) -> None:
    error = loading({"_csv.py": "", "a.py": "import csv\n"})["error"]
    assert error["file"] == "_csv.py"
    assert "rename _csv.py" in error["message"]


@pytest.mark.parametrize("path", [(), ("ns",)])
def test_a_tool_file_never_hides_a_module_of_its_name(loading: Loader, path: tuple[str, ...]) -> None:
    """Also when something has put the folder first on the path."""
    files = {
        "json.py": TOOL + "import json\n@tool\ndef text(): return json.dumps([1])\n",
        "pydantic_core.py": TOOL + "@tool\ndef core():\n    import pydantic_core\n    return pydantic_core.__name__\n",
        "fastmcp.py": TOOL + "@tool\ndef light(): return 1\n",
        "zz.py": TOOL + "import json, httpx\n@tool\ndef loads(): return json.loads('[2]') + [hasattr(httpx, 'get')]\n",
        "httpx.py": TOOL + "@tool\ndef fetch(): return 'mine'\n",
        "my-tool.v2.py": TOOL + "@tool\ndef odd_name(): return 'loaded'\n",
    }
    seen = loading(files, *path)
    assert seen["values"] == {
        "text": "[1]",
        "core": "pydantic_core",
        "light": 1,
        "loads": [2, True],
        "fetch": "mine",
        "odd_name": "loaded",
    }


def test_a_tool_file_is_loaded_beside_a_package_of_its_name(loading: Loader) -> None:
    """Python would import the package alone, and the file's tools would be missing without a word."""
    seen = loading(
        {
            "words.py": TOOL + "import words\n@tool\ndef count(): return words.NUMBER\n",
            "words/__init__.py": "NUMBER = 7\n",
        }
    )
    assert seen["values"] == {"count": 7}


def test_tool_files_import_each_other_as_one_module(loading: Loader) -> None:
    seen = loading(
        {
            "a.py": TOOL + "from zeta import counter, shared\n@tool\ndef up(): return counter.append(1) or shared()\n",
            "zeta.py": TOOL
            + "counter = []\n@tool\ndef shared(): return len(counter)\n"
            + "@tool\ndef module(): return __name__\n",
        }
    )
    assert list(seen["tools"]) == ["up", "shared", "module"]
    assert seen["tools"]["shared"]["file"] == "zeta.py"
    assert seen["values"] == {"up": 1, "shared": 1, "module": "zeta"}


def test_a_tool_from_a_private_file_is_served_by_the_file_that_imports_it(loading: Loader) -> None:
    seen = loading(
        {
            "_shared.py": TOOL + "@tool\ndef common(): return 1\n",
            "a.py": "from _shared import common\nalias = common\n",
            "b.py": "from _shared import common\n",
        }
    )
    assert {name: tool["file"] for name, tool in seen["tools"].items()} == {"common": "a.py"}


def test_a_name_used_twice_names_both_files(loading: Loader) -> None:
    error = loading({"a.py": TOOL + "@tool\ndef x(): ...\n", "b.py": TOOL + "\n@tool('x')\ndef y(): ...\n"})["error"]
    assert "a.py" in error["message"]
    assert "b.py" in error["message"]
    assert (error["file"], error["line"]) == ("b.py", 3)


@pytest.mark.parametrize("name", ["", "has space", "ä", "x" * 129, "a/b"])
def test_a_name_outside_the_alphabet_is_refused(loading: Loader, name: str) -> None:
    seen = loading({"a.py": TOOL + f"@tool(name={name!r})\ndef f(): ...\n"})
    if name:
        assert "cannot be called" in seen["error"]["message"]
    else:
        assert list(seen["tools"]) == ["f"]


def test_names_within_the_alphabet_are_kept(loading: Loader) -> None:
    names = ["a.b-c_D9", "x" * 128]
    seen = loading({"a.py": TOOL + "".join(f"@tool({name!r})\ndef f{i}(): ...\n" for i, name in enumerate(names))})
    assert list(seen["tools"]) == names


@pytest.mark.parametrize(
    ("files", "file", "line", "kind", "words"),
    [
        ({"a.py": "x = 1\ndef broken(:\n"}, "a.py", 2, "syntax", "a.py"),
        ({"a.py": "import _h\n", "_h.py": "\n\nx = = 1\n"}, "_h.py", 3, "syntax", "_h.py"),
        ({"a.py": "\nimport no_such_package.deep\n"}, "a.py", 2, "import", "requirements.txt"),
        ({"a.py": "from json import no_such_name\n"}, "a.py", 1, "import", "no_such_name"),
        ({"a.py": "import json.nope\n"}, "a.py", 1, "import", "json"),
        ({"a.py": "def f():\n    1 / 0\nf()\n"}, "a.py", 2, "error", "ZeroDivisionError"),
        (
            {"a.py": "import _h\n", "_h.py": "import json\njson.loads('{')\n"},
            "_h.py",
            2,
            "error",
            "JSONDecodeError",
        ),
        ({"a.py": "import sys\nsys.exit(3)\n"}, "a.py", 2, "error", "sys.exit"),
        ({"a.py": "import asyncio\nraise asyncio.CancelledError\n"}, "a.py", 2, "error", "CancelledError"),
        ({"a.py": "from fastmcp import FastMCP\n"}, "a.py", 1, "import", "light fastmcp"),
        ({"a.py": "import fastmcp.client\n"}, "a.py", 1, "import", "add fastmcp to requirements.txt"),
        ({"_health.py": "x = 1\n"}, "_health.py", None, "error", "no function health"),
        ({"a.py": TOOL + "@tool\ndef f(*args): ...\n"}, "a.py", 2, "error", "*args"),
        ({"a.py": TOOL + "@tool\ndef f(**more): ...\n"}, "a.py", 2, "error", "**more"),
        ({"a.py": TOOL + "@tool\ndef f(a, /): ...\n"}, "a.py", 2, "error", "positional-only"),
        ({"a.py": TOOL + "class X: ...\n@tool\ndef f(a: X): ...\n"}, "a.py", 3, "error", "'a' of type X"),
        ({"a.py": TOOL + "@tool\ndef f(a: 'Nope'): ...\n"}, "a.py", 2, "error", "'Nope'"),
        ({"a.py": TOOL + "f = tool(name=None)(lambda: 1)\n"}, "a.py", 2, "error", "lambda"),
        (
            {"a.py": TOOL + "@tool(output_schema={'type': 'string'})\ndef f(): ...\n"},
            "a.py",
            2,
            "error",
            "object",
        ),
        ({"a.py": TOOL + "@tool(auth=print)\ndef f(): ...\n"}, "a.py", 2, "error", "auth=, which is not checked"),
        ({"a.py": TOOL + "@tool(meta={'x': object()})\ndef f(): ...\n"}, "a.py", 2, "error", "JSON"),
        (
            {"a.py": TOOL + "@tool(run_in_thread=False, timeout=1)\ndef f(): ...\n"},
            "a.py",
            2,
            "error",
            "timeout",
        ),
        ({"a.py": TOOL + "@tool(timeout='soon')\ndef f(): ...\n"}, "a.py", 2, "error", "'soon'"),
        ({"a.py": TOOL + "@tool(tags=5)\ndef f(): ...\n"}, "a.py", 2, "error", "the tool f"),
        ({"a.py": TOOL + "@tool(annotations='read')\ndef f(): ...\n"}, "a.py", 2, "error", "the tool f"),
        ({"a.py": TOOL + "@tool\ndef f(a: '1/0'): ...\n"}, "a.py", 2, "error", "ZeroDivisionError"),
        (
            {"a.py": TOOL + FIELD + "@tool\ndef f(a: Annotated[str, Field(pattern='(')]): ...\n"},
            "a.py",
            3,
            "error",
            "(",
        ),
        (
            {"a.py": TOOL + FIELD + "@tool\ndef f() -> Annotated[str, Field(pattern='(')]: ...\n"},
            "a.py",
            3,
            "error",
            "(",
        ),
        (
            {"a.py": TOOL + "import functools\nf = tool(name='f')(functools.partial(max))\n"},
            "a.py",
            None,
            "error",
            "max",
        ),
        ({"a.py": TOOL + "@tool\ndef f(): ...\nf.__wrapped__ = f\n"}, "a.py", 2, "error", "wrapper loop"),
    ],
    ids=lambda value: None,
)
def test_what_is_wrong_is_reported_with_its_place(
    loading: Loader, files: dict[str, str], file: str, line: int | None, kind: str, words: str
) -> None:
    error = loading(files)["error"]
    assert (error["file"], error["line"], error["kind"]) == (file, line, kind)
    assert words in error["message"]


def test_a_missing_folder_is_an_error_and_not_an_empty_namespace(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(tmp_path / "nowhere")], capture_output=True, text=True, timeout=60
    )
    assert "does not exist" in json.loads(done.stdout)["error"]["message"]


def test_every_kind_of_callable_is_served_and_known_as_sync_or_async(loading: Loader) -> None:
    seen = loading(
        {
            "a.py": TOOL
            + """
import functools

def passing(fn):
    @functools.wraps(fn)
    def inner(**arguments):
        return fn(**arguments)
    return inner

async def work(a: int, b: int): return a + b

class Adder:
    "Adds."
    async def __call__(self, a: int): return a
    def method(self, a: int): return a

@tool
async def plain(a: int): ...

@tool
@passing
async def decorated(a: int): ...

@tool
async def stream(a: int): yield a

@tool(run_in_thread=False)
def inline(a: int): return a

bound = tool(name="partial")(functools.partial(work, b=2))
adder = tool(name="object")(Adder())
method = tool(name="method")(Adder().method)
shown = tool(name="lambda")(lambda a: a)
hidden = tool(enabled=False)(lambda: 1)
"""
        }
    )
    assert seen["async"] == ["decorated", "inline", "object", "partial", "plain", "stream"]
    assert set(seen["tools"]) == {*seen["async"], "method", "lambda"}
    assert set(seen["tools"]["partial"]["inputSchema"]["properties"]) == {"a", "b"}
    assert seen["tools"]["object"]["description"] == "Adds."


def test_a_tool_is_described_with_what_was_said_about_it(loading: Loader) -> None:
    seen = loading(
        {
            "a.py": TOOL
            + "@tool('n', title='T', description='D', tags={'b', 'a'}, annotations={'read_only_hint': True},"
            + " version=2, icons=[{'src': 'i.png'}], meta={'m': 1}, timeout=5, task=True)\n"
            + "def f(x: int = 1) -> int: ...\n"
            + "@tool\ndef bare(): ...\n"
        }
    )
    assert seen["tools"]["n"] == {
        "name": "n",
        "title": "T",
        "description": "D",
        "inputSchema": {
            "additionalProperties": False,
            "properties": {"x": {"default": 1, "type": "integer"}},
            "type": "object",
        },
        "outputSchema": {
            "properties": {"result": {"type": "integer"}},
            "required": ["result"],
            "type": "object",
            "x-fastmcp-wrap-result": True,
        },
        "annotations": {"readOnlyHint": True},
        "icons": [{"src": "i.png"}],
        "tags": ["a", "b"],
        "meta": {"m": 1},
        "version": "2",
        "timeout": 5.0,
        "file": "a.py",
    }
    assert set(seen["tools"]["bare"]) == {"name", "description", "inputSchema", "file"}


def test_what_was_said_about_a_tool_is_described_as_json(loading: Loader) -> None:
    said = "from datetime import date\n@tool(meta={'since': date(2024, 1, 2), 'parts': ('a', 'b')})\ndef f(): ...\n"
    described = loading({"a.py": TOOL + said})["tools"]["f"]
    assert described["meta"] == {"since": "2024-01-02", "parts": ["a", "b"]}


def test_the_health_check_is_found(loading: Loader) -> None:
    assert loading({"_health.py": "async def health(): return {'db': 'ok'}\n"})["health"] is True


RESOURCE = "from fastmcp.resources import resource\n"
PROMPT = "from fastmcp.prompts import prompt\n"


def test_resources_templates_and_prompts_are_found_beside_tools(loading: Loader) -> None:
    seen = loading(
        {
            "a.py": TOOL + RESOURCE + "@tool\ndef t(): ...\n@resource('a://x')\ndef r(): ...\n",
            "b.py": PROMPT + RESOURCE + "@prompt\ndef p(): ...\n@resource('a://{x}')\ndef s(x): ...\n",
            "_shared.py": PROMPT + "@prompt\ndef q(): ...\n",
            "c.py": "from _shared import q\nfrom b import p\n",
        }
    )
    assert seen["all"] == {
        "tools": [["t", "a.py"]],
        "resources": [["r", "a.py"]],
        "templates": [["s", "b.py"]],
        "prompts": [["p", "b.py"], ["q", "c.py"]],
    }


def test_a_folder_of_tools_alone_does_not_pay_for_resources(loading: Loader) -> None:
    assert "tooldock_worker.readings" not in loading({"a.py": TOOL + "@tool\ndef t(): ...\n"})["reading"]
    assert "tooldock_worker.readings" in loading({"a.py": PROMPT + "@prompt\ndef t(): ...\n"})["reading"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (RESOURCE + "@resource('a://x')\ndef r(a): ...\n", 2, "the resource r has the parameter 'a'"),
        (PROMPT + "@prompt\ndef p(*a): ...\n", 2, "the prompt p has *a"),
        (RESOURCE + "@resource('a://x')\ndef r(): ...\n@resource('a://x')\ndef s(): ...\n", 4, "'a://x' is used twice"),
        (RESOURCE + "@resource('a://{x}')\ndef r(x): ...\n@resource('a://{x}')\ndef s(x): ...\n", 4, "used twice"),
        (PROMPT + "@prompt\ndef p(): ...\n@prompt('p')\ndef q(): ...\n", 4, "prompt name 'p' is used twice"),
        (RESOURCE + "@resource('a://x', tags=5)\ndef r(): ...\n", 2, "cannot be used as it is declared"),
    ],
)
def test_a_resource_or_prompt_that_cannot_be_served_says_where(
    loading: Loader, text: str, line: int, words: str
) -> None:
    error = loading({"a.py": text})["error"]
    assert (error["file"], error["line"]) == ("a.py", line)
    assert words in error["message"]

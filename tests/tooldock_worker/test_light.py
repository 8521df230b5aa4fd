"""The light package as tool files meet it."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tooldock_worker.light.decorator import record_of, tool
from tooldock_worker.light.dependencies import Depends, resolve
from tooldock_worker.light.values import Audio, File, Image, ToolResult

IMPORTS = """
import sys
from tooldock_worker import light
assert light.install() is True
assert light.install() is True
from fastmcp.tools import tool, ToolResult
from fastmcp.tools.tool import ToolResult as older
from fastmcp.tools.base import ToolResult as newer
from fastmcp import Context
from fastmcp.server.context import Context as same
from fastmcp.server.dependencies import get_context
from fastmcp.server.elicitation import AcceptedElicitation, CancelledElicitation, DeclinedElicitation
from fastmcp.dependencies import CurrentContext, Depends
from fastmcp.exceptions import ToolError, ResourceError, ValidationError, NotFoundError
from fastmcp.utilities.types import Audio, File, Image
from fastmcp.utilities.logging import get_logger
from fastmcp.types import Textarea
import fastmcp.tools
assert callable(fastmcp.tools.tool) and ToolResult is older is newer and Context is same
assert get_logger("x").name == "fastmcp.x"
assert not hasattr(fastmcp, "__wrapped__")
for line in (
    "from fastmcp import FastMCP", "import fastmcp.client", "fastmcp.Client", "from fastmcp.tools import nope"
):
    try:
        exec(line)
    except ImportError as error:
        assert "this is ToolDock's light fastmcp, add fastmcp to requirements.txt" in str(error), error
    else:
        raise AssertionError(line)
assert not any(name == "mcp" or name.startswith("uncalled_for") for name in sys.modules)
"""


def test_the_import_lines_of_the_framework_work_and_others_say_why_not() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_an_installed_package_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "fastmcp").mkdir()
    (tmp_path / "fastmcp" / "__init__.py").write_text("REAL = True\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from tooldock_worker import light\nassert light.install() is False\n"
        "import fastmcp\nassert fastmcp.REAL and light.install() is False\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_package_needs_nothing_but_itself_and_pydantic() -> None:
    code = (
        "import sys\nimport tooldock_worker.load, tooldock_worker.results\n"
        "roots = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "allowed = {'tooldock_worker', 'pydantic', 'pydantic_core', 'annotated_types', 'typing_extensions'}\n"
        "extra = {name for name in roots - allowed - {'typing_inspection'} if not name.startswith('_')}\n"
        "assert 'tooldock' not in roots and not extra, extra\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_form_of_the_decorator_leaves_the_function_as_it_is() -> None:
    def fn(a: int) -> int:
        return a + 1

    for decorate in (tool, tool(), tool("n"), tool(name="n", title="t", tags={"x"})):
        assert decorate(fn) is fn
        assert fn(1) == 2
    assert record_of(fn).name == "n"
    assert record_of(fn).tags == {"x"}
    assert record_of(lambda: 1) is None


def test_a_decorator_used_wrongly_says_so() -> None:
    with pytest.raises(TypeError, match="twice"):
        tool("a", name="b")
    with pytest.raises(TypeError, match="not int"):
        tool(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="classmethod"):
        tool(classmethod(print))  # type: ignore[call-overload]


def test_media_take_their_type_from_format_or_file(tmp_path: Path) -> None:
    photo = tmp_path / "a.jpg"
    photo.write_bytes(b"jpeg")
    assert Image(path=photo).to_image_content().wire == {
        "type": "image",
        "data": base64.b64encode(b"jpeg").decode(),
        "mimeType": "image/jpeg",
    }
    assert Image(data=b"x", format="SVG").to_image_content().wire["mimeType"] == "image/svg+xml"
    assert Image(data=b"x").to_data_uri() == "data:image/png;base64,eA=="
    assert Audio(data=b"x").to_audio_content().wire["mimeType"] == "audio/wav"
    assert Audio(path=tmp_path / "a.ogg", format="flac")._mime_type == "audio/flac"
    text = File(data="é".encode("latin-1"), format="txt", name="n").to_resource_content().wire
    assert text["resource"] == {"uri": "file:///n.txt", "mimeType": "text/plain", "text": "é"}
    binary = File(data=b"\0").to_resource_content(annotations={"priority": 1}).wire
    assert binary["resource"] == {
        "uri": "file:///resource.octet-stream",
        "mimeType": "application/octet-stream",
        "blob": "AA==",
    }
    assert binary["annotations"] == {"priority": 1}
    with pytest.raises(ValueError, match="Exactly one"):
        Image()
    with pytest.raises(ValueError, match="Either"):
        ToolResult()


async def test_dependencies_are_made_once_a_call_and_closed_after_it() -> None:
    events: list[str] = []

    def plain() -> str:
        events.append("plain")
        return "p"

    async def asked(value: str = Depends(plain)) -> str:
        return value + "a"

    @contextmanager
    def opened() -> Iterator[str]:
        events.append("open")
        yield "o"
        events.append("closed")

    @asynccontextmanager
    async def opened_later(value: str = Depends(plain), suffix: str = "") -> AsyncIterator[str]:
        yield value + suffix
        events.append("closed later")

    wanted: dict[str, Any] = {
        "a": Depends(asked),
        "b": Depends(opened),
        "c": Depends(opened_later, suffix="!"),
        "d": Depends(plain),
    }
    async with AsyncExitStack() as stack:
        values = await asyncio.wait_for(resolve(wanted, stack, {}), 5)
        assert values == {"a": "pa", "b": "o", "c": "p!", "d": "p"}
        assert events == ["plain", "open"]
    assert events == ["plain", "open", "closed later", "closed"]

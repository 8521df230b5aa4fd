"""What the how-to pages show, done with a real client."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

pytestmark = pytest.mark.process

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
SECONDS = 60.0


def files_of(page: str) -> dict[str, str]:
    """The files of a page; each begins with a comment that says where it belongs."""
    blocks = re.findall(r"```python\n(# (\S+)\n.*?)```", (PAGES / page).read_text("utf-8"), re.S)
    return {name: text for text, name in blocks}


async def test_resources_prompts_and_questions_work_as_shown(tmp_path: Path, venvs: Path) -> None:
    from mcp_types import ElicitRequestParams, ElicitResult

    files = files_of("resources-and-prompts.md")
    assert [Path(name).name for name in files] == ["books.py", "letters.py", "desk.py"]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")

    async def fill_in(context: Any, params: ElicitRequestParams) -> ElicitResult:
        assert params.message == "To whom, and for how long?"
        return ElicitResult(action="accept", content={"reader": "Ada", "days": 7})

    steps: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tooldock", "stdio", "library", "--data-dir", str(tmp_path)],
        env={**os.environ, "VENVS_DIR": str(venvs)},  # the client would pass on too little to build one
    )
    async with asyncio.timeout(SECONDS), Client(stdio_client(parameters), elicitation_callback=fill_in) as client:
        read = await client.read_resource("library://books/2?language=et")
        assert read.contents[0].text == "Ulysses (et)"  # type: ignore[union-attr]
        letter = await client.get_prompt("overdue", {"title": "Emma", "days": "3"})
        assert letter.messages[0].content.text == "Write a warm letter: 'Emma' is 3 day(s) late."  # type: ignore[union-attr]
        lent = await client.call_tool("lend", {"number": "1"})
        assert lent.content[0].text == "Lent to Ada for 7 days."  # type: ignore[union-attr]
        counted = await client.call_tool("stocktaking", {"shelves": 2, "pause": 0}, progress_callback=note)
        assert counted.content[0].text == "All there."  # type: ignore[union-attr]
    assert steps == [(0, 2, "shelf 1"), (1, 2, "shelf 2")]


def test_the_fields_for_open_webui_are_those_that_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BEARER_TOKEN", "CORE_URL", "CORE_PORT", "PORT", "HOST"):
        monkeypatch.delenv(name, raising=False)
    page = (PAGES / "open-webui.md").read_text("utf-8")
    shown = re.search(r"\$ tooldock (client-config .*)\n((?:     .*\n)+)", page)
    assert shown is not None
    (tmp_path / "tools" / "shared").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "tooldock", *shown[1].split(), "--data-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    printed = done.stdout.replace(str(tmp_path), "/home/ada/tooldock_data").splitlines()
    assert [line.strip() for line in shown[2].splitlines()] == [line.strip() for line in printed]

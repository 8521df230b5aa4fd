"""The README's commands, pasted into a real shell beside a real gateway, give what the README shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway import TOKEN, Gateway

README_FOLDER = Path(__file__).parents[2]
README = (README_FOLDER / "README.md").read_text("utf-8")

pytestmark = pytest.mark.process


def blocks() -> list[str]:
    return re.findall(r"```console\n(.*?)```", README, re.S)


def steps(block: str) -> list[tuple[str, str]]:
    """Commands with what they print; a command goes on over its here-document and its continued lines."""
    found: list[tuple[str, str]] = []
    lines = iter(block.splitlines(keepends=True))
    for line in lines:
        if not line.startswith("$ "):
            command, shown = found[-1]
            found[-1] = (command, shown + line)
            continue
        command = line[2:]
        if "<<'EOF'" in command:
            for more in lines:
                command += more
                if more == "EOF\n":
                    break
        while command.endswith("\\\n"):
            command += next(lines)
        found.append((command, ""))
    return found


@pytest.fixture
def beside(gateway: Callable[..., Gateway], tmp_path: Path) -> Gateway:
    """A gateway whose directory looks like a checkout after `make up`."""
    one = gateway()
    one.write("shared", "hello.py", "from fastmcp.tools import tool\n\n@tool\ndef hello() -> str:\n    return 'hi'\n")
    one.start()
    one.settled()
    here = tmp_path / "checkout"
    (here / ".venv" / "bin").mkdir(parents=True)
    command = here / ".venv" / "bin" / "tooldock"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tooldock "$@"\n')
    command.chmod(0o755)
    (here / "tooldock_data").symlink_to(one.data)
    (one.data / "state" / "keys" / "bearer_token").write_text(TOKEN)
    return one


def test_the_transcripts_work_as_printed(beside: Gateway, tmp_path: Path) -> None:
    ours = [step for block in blocks() for step in steps(block) if not step[0].startswith(("git clone", "make up"))]
    assert len(ours) == 6
    for command, expected in ours:
        pasted = command.replace("http://127.0.0.1:8000", beside.url)
        if pasted.startswith("curl") and shutil.which("curl") is None:
            pytest.skip("needs curl")
        done = subprocess.run(
            ["sh", "-c", pasted],
            cwd=tmp_path / "checkout",
            env={**os.environ, "BEARER_TOKEN": TOKEN, "MANAGER_INTERNAL_TOKEN": "test-manager-token-0123456789"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stderr == ""
        assert done.stdout.strip() == expected.strip().replace("http://127.0.0.1:8000", beside.url), command
    records = [record for record in beside.audit() if record["tool"] == "add"]
    assert [record["protocol"] for record in records] == ["rest", "rest"]


def test_the_excerpt_of_the_summary_is_how_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    from tooldock.cli.startup import Announcer, Token
    from tooldock.model import Namespace
    from tooldock.paths import Paths

    [(_, excerpt)] = [step for step in steps(blocks()[0]) if step[0].startswith("make up")]
    shared = Namespace(name="shared", status="ready", tools=2)
    Announcer(Paths(Path("data")), Token(), made_example=True).ready("http://127.0.0.1:8000", [shared])
    assert capsys.readouterr().out.lstrip("\n").startswith(excerpt.partition("  …")[0])


def test_claude_code_is_told_what_client_config_tells(beside: Gateway, tmp_path: Path) -> None:
    """The two commands that are not run here, because they need Claude Code."""
    (beside.data / "tools" / "my-tools").mkdir()
    said = subprocess.run(
        [sys.executable, "-m", "tooldock", "client-config", "my-tools", "--client", "claude"],
        cwd=tmp_path / "checkout",
        env={name: value for name, value in os.environ.items() if name not in ("BEARER_TOKEN", "DATA_DIR")},
        capture_output=True,
        text=True,
        timeout=60,
    ).stderr
    keys = str(tmp_path / "checkout" / "tooldock_data" / "state" / "keys")
    said = said.replace(keys, "tooldock_data/state/keys").replace(beside.url, "http://127.0.0.1:8000")
    export = 'export TOOLDOCK_TOKEN="$(cat tooldock_data/state/keys/bearer_token)"'
    assert export in said
    assert export in README
    told, shown = (text.partition("claude mcp add")[2].partition("```")[0] for text in (said, README))
    assert told.split() == shown.split() != []


def test_the_record_shown_has_the_fields_of_a_record(beside: Gateway) -> None:
    shown = re.search(r"```json\n(.*?)```", README, re.S)
    assert shown is not None
    beside.value("shared", "hello")
    [record] = beside.audit()
    assert set(re.findall(r'"(\w+)":', shown[1])) <= record.keys()


def test_the_request_on_the_page_about_mcp_is_answered_as_shown(beside: Gateway, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    example = README_FOLDER / "src" / "tooldock" / "cli" / "templates" / "hello.py.template"
    beside.write("shared", "hello.py", example.read_text("utf-8"))
    beside.reload()
    page = (README_FOLDER / "docs" / "reference" / "mcp.md").read_text("utf-8")
    shown = re.search(r"```console\n\$ (TOKEN=.*?)\n\$ (curl .*?\}')\n(.*?) …\n```", page, re.S)
    assert shown is not None
    script = f"{shown[1]}\n{shown[2]}".replace("http://127.0.0.1:8000", beside.url)
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path / "checkout", capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(shown[3].rstrip(",")), done.stdout

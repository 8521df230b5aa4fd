"""What a person sees of a start: progress, summary, changes."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import Terminal, screen
from tooldock import __version__
from tooldock.cli.startup import Announcer, Token
from tooldock.model import Namespace
from tooldock.paths import Paths

URL = "http://127.0.0.1:8000"


@pytest.fixture
def paths(data: Path) -> Paths:
    return Paths(data)


def space(name: str, tools: int = 2, **facts: Any) -> Namespace:
    return Namespace(name=name, status=facts.pop("status", "ready"), tools=tools, **facts)


def test_the_summary_says_where_everything_is(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    token = Token(file=paths.token("bearer_token"))
    broken = space("broken", 0, status="failed", error="invalid syntax", error_file="a.py", error_line=3)
    Announcer(paths, token, made_example=True).ready(URL, [space("shared"), broken])
    out = capsys.readouterr().out
    assert f"ToolDock {__version__} is up." in out
    for word in (
        URL,
        f"{URL}/ns/shared/mcp",
        f"{URL}/docs",
        f"{URL}/metrics",
        str(paths.data_dir),
        str(paths.token("bearer_token")),
    ):
        assert re.search(rf"(?m) {re.escape(word)}$", out), word
    assert "broken/a.py:3" in out
    assert "invalid syntax" in out
    assert "call shared hello name=Ada" in out
    assert "client-config --client claude" in out


def commands(out: str) -> list[list[str]]:
    """The commands offered for pasting, as a shell would split them."""
    block = out.partition("another terminal:\n")[2].partition("  Connect")[0].replace("\\\n", " ")
    return [shlex.split(line) for line in block.splitlines() if line.strip()]


def test_both_commands_survive_a_directory_with_spaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = Paths(tmp_path / "my data")
    Announcer(paths, Token(file=paths.token("bearer_token")), made_example=True).ready(URL, [space("shared")])
    call, curl = commands(capsys.readouterr().out)
    assert call[call.index("--data-dir") :] == [
        "--data-dir",
        str(paths.data_dir),
        "call",
        "shared",
        "hello",
        "name=Ada",
    ]
    assert f"Authorization: Bearer $(cat '{paths.token('bearer_token')}')" in curl
    assert curl[-1] == f"{URL}/tools/hello"


@pytest.mark.parametrize(
    ("token", "header"),
    [(Token(source="BEARER_TOKEN in the environment"), "Authorization: Bearer $BEARER_TOKEN"), (Token(), None)],
)
def test_the_curl_line_takes_the_token_from_where_it_is(
    paths: Paths, capsys: pytest.CaptureFixture[str], token: Token, header: str | None
) -> None:
    Announcer(paths, token).ready(URL, [space("mine")])
    call, curl = commands(capsys.readouterr().out)
    assert call[-1] == "tools"
    assert [word for word in curl if word.startswith("Authorization")] == ([header] if header else [])
    assert curl[-1] == f"{URL}/ns/mine/tools"


def test_without_namespaces_the_summary_says_how_to_make_one(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    Announcer(paths, Token()).ready(URL, [])
    out = capsys.readouterr().out
    assert "tooldock new" in out
    assert commands(out)[1][-1] == f"{URL}/namespaces"


def test_a_note_is_shown(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    Announcer(paths, Token(), notes=["mind the gap"]).ready(URL, [])
    assert "Note: mind the gap" in capsys.readouterr().out


def test_only_what_a_person_would_call_a_change_is_told(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    announcer = Announcer(paths, Token())
    announcer.changed([space("early")])
    assert capsys.readouterr().out == ""
    announcer.ready(URL, [space("a", pid=1), space("b", 0, status="building"), space("c")])
    capsys.readouterr()
    broken = space("b", 1, error="cannot import x\nmore", error_file="b.py", error_line=7)
    announcer.changed([space("a", pid=2, status="idle"), broken])
    assert capsys.readouterr().out.splitlines() == [
        "  b ready, 1 tool; b.py:7: cannot import x",
        "  c is gone",
    ]


def test_what_is_served_beside_tools_is_told_where_there_is_any(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    announcer = Announcer(paths, Token())
    announcer.ready(URL, [space("a", 0, resources=2)])
    out = capsys.readouterr().out
    assert f"{URL}/ns/a/mcp" in out
    assert "RESOURCES" in out
    assert "PROMPTS" not in out
    announcer.changed([space("a", 0, resources=1, prompts=2)])
    assert capsys.readouterr().out == "  a ready, 0 tools, 1 resource, 2 prompts\n"


def test_the_address_for_clients_is_that_of_a_namespace_there_is(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    Announcer(paths, Token()).ready(URL, [space("later", 0, status="building")])
    assert f"{URL}/ns/later/mcp" in capsys.readouterr().out
    Announcer(paths, Token()).ready(URL, [])
    assert f"{URL}/ns/NAMESPACE/mcp" in capsys.readouterr().out


def test_stopping_tells_how_many_calls_are_waited_for(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    announcer = Announcer(paths, Token())
    announcer.stopping(0)
    announcer.stopping(1)
    announcer.stopping(2)
    assert capsys.readouterr().out.splitlines() == [
        "",
        "Stopping, 0 calls in flight.",
        "",
        "Stopping, 1 call in flight; Ctrl-C again stops at once.",
        "",
        "Stopping, 2 calls in flight; Ctrl-C again stops at once.",
    ]


def test_progress_is_plain_lines_where_nobody_watches(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    announcer = Announcer(paths, Token())
    announcer.progress("", "Resolved 5 packages")
    announcer.progress("a", "Installed 1 package")
    announcer.progress("a", "Installed 1 package")
    assert capsys.readouterr().out == "base environment: Resolved 5 packages\na: Installed 1 package\n"


PROGRESS = """
from tooldock.cli.progress import Progress
progress = Progress(live=True)
print("before")
progress.update("a", "Resolved")
progress.update("bb", "Downloading " + "x" * 200)
progress.update("a", "Installed \\x1b[2J")
{end}
print("after")
"""


@pytest.fixture
def environ(data: Path) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "NO_COLOR"}


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.mark.process
def test_a_terminal_shows_one_line_per_namespace(environ: dict[str, str], terminals: list[Terminal]) -> None:
    terminals.append(Terminal("-c", PROGRESS.format(end="pass"), environ=environ))
    rows = screen(terminals[0].read_all())
    assert rows[0] == "before"
    assert rows[1] == "  a   Installed \\x1b[2J"
    assert rows[2].startswith("  bb  Downloading xxx")
    assert rows[2].endswith("…")
    assert len(rows[2]) < 80
    assert rows[3] == "after"


@pytest.mark.process
def test_progress_is_gone_when_it_is_over(environ: dict[str, str], terminals: list[Terminal]) -> None:
    terminals.append(Terminal("-c", PROGRESS.format(end="progress.clear()"), environ=environ))
    assert screen(terminals[0].read_all())[:2] == ["before", "after"]


@pytest.mark.process
def test_more_namespaces_than_lines_do_not_scroll(environ: dict[str, str], terminals: list[Terminal]) -> None:
    code = (
        "from tooldock.cli.progress import Progress\np = Progress(live=True)\n"
        "for n in range(50): p.update(f'n{n}', 'x')\n"
    )
    terminals.append(Terminal("-c", code, environ=environ, lines=10))
    rows = [row.split()[0] for row in screen(terminals[0].read_all()) if row.strip()]
    assert rows == [f"n{number}" for number in range(42, 50)]


@pytest.mark.process
@pytest.mark.parametrize(("extra", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_colour_is_for_terminals_that_want_it(
    environ: dict[str, str], terminals: list[Terminal], extra: dict[str, str], coloured: bool
) -> None:
    terminals.append(Terminal("-m", "tooldock", "doctor", environ={**environ, **extra}))
    assert ("\x1b[" in terminals[0].read_all()) is coloured


@pytest.mark.process
def test_an_error_has_no_colour_without_wanting_it(environ: dict[str, str], terminals: list[Terminal]) -> None:
    terminals.append(Terminal("-m", "tooldock", "tools", environ={**environ, "NO_COLOR": "1"}))
    text = terminals[0].read_all()
    assert "Error: ToolDock is not running" in text
    assert "\x1b[" not in text
    assert terminals[0].process.returncode == 3

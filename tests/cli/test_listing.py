"""`tools`, `namespaces` and `reload`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.cli.server import HELLO, MANAGER_TOKEN, Server, problem


def row(name: str, **facts: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "name": name,
        "status": "ready",
        "tool_count": 1,
        "description": "",
        "error": None,
        "error_file": None,
        "error_line": None,
        "missing_secrets": [],
    }
    return {**base, **facts}


@pytest.fixture
def served(server: Server) -> Server:
    rows = [
        row("shared", description="Shared tools"),
        row("broken", status="failed", tool_count=0, error="invalid syntax", error_file="a.py", error_line=12),
        row("stale", error="cannot import x\nsecond line", error_file="b.py", missing_secrets=["API_TOKEN"]),
    ]
    server.answers[("GET", "/namespaces")] = (200, rows)
    server.answers[("GET", "/ns/stale/tools")] = (200, {"namespace": "stale", "tools": []})
    return server


def test_namespaces_are_a_table_with_errors_below(cli: Cli, served: Server) -> None:
    result = cli("namespaces")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["NAMESPACE", "TOOLS", "STATUS", "DESCRIPTION"]
    assert lines[1].split() == ["shared", "1", "ready", "Shared", "tools"]
    assert "  broken/a.py:12" in lines
    assert "    invalid syntax" in lines
    assert "  stale/b.py (the last version that worked is served)" in lines
    assert "  stale lacks secrets: API_TOKEN" in lines


def test_namespaces_as_json_are_what_the_gateway_gave(cli: Cli, served: Server) -> None:
    assert json.loads(cli("namespaces", "--json").stdout) == served.answers[("GET", "/namespaces")][1]


def test_no_namespace_at_all_names_the_command_that_makes_one(cli: Cli, server: Server) -> None:
    server.answers[("GET", "/namespaces")] = (200, [])
    assert "tooldock new" in cli("namespaces").stdout
    assert "tooldock new" in cli("tools").stderr


def test_tools_show_signature_and_first_line(cli: Cli, served: Server) -> None:
    lines = cli("tools", "shared").stdout.splitlines()
    assert lines[0] == "shared"
    assert lines[1].startswith('  hello(name: string = "World", times?: integer, ratio?: number | null')
    assert lines[2] == "      Greet someone by name."
    assert len(lines) == 3


def test_tools_without_a_name_are_those_of_all_namespaces_that_have_some(cli: Cli, served: Server) -> None:
    assert [line for line in cli("tools").stdout.splitlines() if line and line[0] != " "] == ["shared", "stale"]
    listed = json.loads(cli("tools", "--json").stdout)
    assert [entry["namespace"] for entry in listed] == ["shared", "stale"]
    assert json.loads(cli("tools", "shared", "--json").stdout)["tools"] == [HELLO]


def test_a_namespace_without_tools_says_why_there_are_none(cli: Cli, served: Server) -> None:
    assert "Not loaded: broken. `tooldock namespaces`" in cli("tools").stderr
    assert "Not loaded: broken" in cli("tools", "--json").stderr
    assert "stale serves nothing: no file" in cli("tools", "stale").stderr
    served.answers[("GET", "/namespaces")][1][:] = [row("broken", tool_count=0, error="invalid syntax")]
    assert "tooldock new" not in cli("tools").stderr


def test_tools_of_an_unknown_namespace_are_an_error(cli: Cli, server: Server) -> None:
    server.answers[("GET", "/ns/nope/tools")] = (404, problem("namespace_not_found", "There is none."))
    result = cli("tools", "nope")
    assert result.exit_code == 1
    assert "There is none. (namespace_not_found)" in result.stderr


def test_control_characters_of_others_are_shown_and_not_obeyed(cli: Cli, server: Server) -> None:
    nasty = row("a", description="\x1b[2Jgone", error="\x1b]0;title\x07")
    server.answers[("GET", "/namespaces")] = (200, [nasty])
    shown = cli("namespaces").stdout
    assert "\x1b" not in shown
    assert "\\x1b[2Jgone" in shown


def test_reload_sends_both_tokens_and_tells_what_changed(cli: Cli, server: Server) -> None:
    done = {
        "reloaded": True,
        "namespaces": ["a", "b"],
        "workers_restarted": ["b"],
        "deps_synced": ["b"],
        "errors": {},
    }
    server.answers[("POST", "/reload")] = (200, done)
    result = cli("reload")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Looked at 2 namespaces.",
        "  Changed: b",
        "  Requirements installed for: b",
    ]
    assert server.seen[0].headers["x-manager-token"] == MANAGER_TOKEN
    assert json.loads(cli("reload", "--json").stdout) == done


def test_a_reload_with_errors_ends_with_1(cli: Cli, server: Server) -> None:
    server.answers[("POST", "/reload")] = (200, {"namespaces": ["a"], "errors": {"a": "invalid syntax"}})
    result = cli("reload")
    assert result.exit_code == 1
    assert result.stdout == "Looked at 1 namespace: 1 could not be loaded.\n"
    assert "a: invalid syntax" in result.stderr
    assert cli("reload", "--json").exit_code == 1


@pytest.mark.parametrize(
    ("status", "says"), [("ready", "The last version that worked is still served."), ("failed", "It is not served.")]
)
def test_a_reload_tells_where_to_look_and_what_is_served(cli: Cli, server: Server, status: str, says: str) -> None:
    server.answers[("POST", "/reload")] = (200, {"namespaces": [], "errors": {"a": "t.py raised NameError"}})
    row = {"name": "a", "status": status, "tool_count": 1, "error_file": "t.py", "error_line": 4}
    server.answers[("GET", "/namespaces")] = (200, [row])
    shown = cli("reload").stderr
    assert "a: t.py raised NameError (t.py, line 4)" in shown
    assert says in shown


def test_a_reload_tells_of_a_folder_without_tools(cli: Cli, server: Server) -> None:
    server.answers[("POST", "/reload")] = (200, {"namespaces": ["a"], "workers_restarted": ["a"], "errors": {}})
    server.answers[("GET", "/namespaces")] = (200, [{"name": "a", "status": "ready", "tool_count": 0}])
    said = cli("reload").stderr
    assert "a serves nothing: no file in its folder has a function with @tool, @resource or @prompt" in said
    server.answers[("GET", "/namespaces")] = (200, [{"name": "a", "status": "ready", "tool_count": 0, "prompts": 1}])
    assert cli("reload").stderr == ""


def test_a_reload_that_found_nothing_new_says_so(cli: Cli, server: Server) -> None:
    server.answers[("POST", "/reload")] = (200, {"namespaces": ["a", "b"], "workers_restarted": [], "errors": {}})
    assert cli("reload").stdout == "Looked at 2 namespaces: nothing was loaded anew.\n"


def test_a_namespace_that_never_loaded_was_looked_at_too(cli: Cli, server: Server) -> None:
    done = {"namespaces": ["a"], "workers_restarted": ["a"], "errors": {"b": "invalid syntax"}}
    server.answers[("POST", "/reload")] = (200, done)
    assert cli("reload").stdout.splitlines() == ["Looked at 2 namespaces: 1 could not be loaded.", "  Changed: a"]


def test_reload_takes_no_name(cli: Cli, server: Server) -> None:
    result = cli("reload", "github")
    assert result.exit_code == 2
    assert "reload takes no name: it brings in whatever changed." in result.stderr
    assert server.seen == []


def test_resources_and_prompts_are_columns_where_there_are_any(cli: Cli, served: Server) -> None:
    rows = served.answers[("GET", "/namespaces")][1]
    rows[1] |= {"resources": 3, "error": "newest is broken"}
    rows[2] |= {"prompts": 2}
    lines = cli("namespaces").stdout.splitlines()
    assert lines[0].split() == ["NAMESPACE", "TOOLS", "RESOURCES", "PROMPTS", "STATUS", "DESCRIPTION"]
    assert lines[2].split() == ["broken", "0", "3", "0", "failed"]
    assert lines[3].split() == ["stale", "1", "0", "2", "ready"]
    assert "  broken/a.py:12 (the last version that worked is served)" in lines


def test_a_gateway_that_will_not_list_resources_is_still_asked_for_tools(cli: Cli, served: Server) -> None:
    served.answers[("GET", "/namespaces")][1][0]["resources"] = 1
    served.answers[("POST", "/ns/shared/mcp")] = (400, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32022}})
    assert cli("tools", "shared").stdout.splitlines()[1].startswith("  hello(")
    served.answers[("POST", "/ns/shared/mcp")] = (200, b"<html>")
    assert cli("tools", "shared").exit_code == 0

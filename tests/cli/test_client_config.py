"""`tooldock client-config`: snippets that work when pasted, and a token only when it is asked for."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from tests.cli.conftest import Cli
from tests.cli.server import Server
from tests.cli.terminal import Terminal
from tests.gateway import ECHO, Gateway
from tooldock.cli.client_config import CLIENTS

TOKEN = "a-token-that-must-not-be-seen-0123456789"


@pytest.fixture
def namespaces(data: Path) -> Path:
    for name in ("github", "my-tools"):
        (data / "tools" / name).mkdir(parents=True)
    (data / "tools" / "Not A Namespace").mkdir()
    keys = data / "state" / "keys"
    keys.mkdir(parents=True)
    (keys / "bearer_token").write_text(TOKEN)
    return data


def snippet(cli: Cli, client: str, *words: str) -> Any:
    done = cli("client-config", "--client", client, "--json", *words)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return yaml.safe_load(done.stdout) if client == "litellm" else json.loads(done.stdout)


def failed(done: Result) -> str:
    assert done.exit_code != 0
    return done.stderr


def test_claude_gets_mcp_servers_of_type_http(cli: Cli, namespaces: Path) -> None:
    assert snippet(cli, "claude") == {
        "mcpServers": {
            f"tooldock-{name}": {
                "type": "http",
                "url": f"http://127.0.0.1:8000/ns/{name}/mcp",
                "headers": {"Authorization": "Bearer ${TOOLDOCK_TOKEN}"},
            }
            for name in ("github", "my-tools")
        }
    }


def test_vscode_gets_servers_and_the_question_for_the_token(cli: Cli, namespaces: Path) -> None:
    found = snippet(cli, "vscode", "--namespace", "github")
    assert found["servers"] == {
        "tooldock-github": {
            "type": "http",
            "url": "http://127.0.0.1:8000/ns/github/mcp",
            "headers": {"Authorization": "Bearer ${input:tooldock-token}"},
        }
    }
    assert [(one["id"], one["type"], one["password"]) for one in found["inputs"]] == [
        ("tooldock-token", "promptString", True)
    ]
    assert "inputs" not in snippet(cli, "vscode", "--transport", "stdio")
    assert "inputs" not in snippet(cli, "vscode", "--show-token")


def test_cursor_refers_to_a_variable_in_its_own_words(cli: Cli, namespaces: Path) -> None:
    found = snippet(cli, "cursor", "--namespace", "github")
    assert found["mcpServers"]["tooldock-github"] == {
        "url": "http://127.0.0.1:8000/ns/github/mcp",
        "headers": {"Authorization": "Bearer ${env:TOOLDOCK_TOKEN}"},
    }


def test_litellm_gets_yaml_and_names_without_hyphens(cli: Cli, namespaces: Path) -> None:
    assert snippet(cli, "litellm", "--namespace", "my-tools") == {
        "mcp_servers": {
            "tooldock_my_tools": {
                "url": "http://127.0.0.1:8000/ns/my-tools/mcp",
                "transport": "http",
                "auth_type": "bearer_token",
                "auth_value": "os.environ/TOOLDOCK_TOKEN",
            }
        }
    }


def test_open_webui_is_told_the_fields_of_its_form(cli: Cli, namespaces: Path) -> None:
    done = cli("client-config", "github", "--client", "open-webui")
    fields = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert fields == {
        "Type": "MCP (Streamable HTTP)",
        "URL": "http://127.0.0.1:8000/ns/github/mcp",
        "Auth": "Bearer",
        "Key": f"the token; it is in {namespaces / 'state' / 'keys' / 'bearer_token'}",
        "ID": "tooldock-github",
        "Name": "ToolDock github",
    }
    assert "Admin Settings → External Tools" in done.stderr
    for word in ("host.docker.internal", "docs/how-to/open-webui.md", "openapi.json", "TOOL_SERVER_CONNECTIONS"):
        assert word in done.stderr
    assert cli("client-config", "--client", "open-webui").stdout.count("Type ") == 2
    shown = cli("client-config", "github", "--client", "open-webui", "--show-token").stdout
    assert dict(line.split(None, 1) for line in shown.splitlines())["Key"] == TOKEN


def test_open_webui_without_a_token_is_told_so(cli: Cli, namespaces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTH_DISABLED", "true")
    shown = cli("client-config", "github", "--client", "open-webui").stdout
    assert ["Auth", "None"] in [line.split() for line in shown.splitlines()]
    assert "Key" not in shown


def test_open_webui_gets_its_setting_as_json(cli: Cli, namespaces: Path) -> None:
    (connection,) = snippet(cli, "open-webui", "--namespace", "github")
    assert (connection["type"], connection["url"]) == ("mcp", "http://127.0.0.1:8000/ns/github/mcp")
    assert (connection["auth_type"], connection["key"]) == ("bearer", "${TOOLDOCK_TOKEN}")
    assert connection["info"]["id"] == "tooldock-github"


@pytest.mark.parametrize("client", ["claude", "vscode", "cursor", "litellm"])
def test_stdio_starts_the_program_by_its_whole_path(
    cli: Cli, namespaces: Path, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VENVS_DIR", "/somewhere/venvs")
    found = snippet(cli, client, "--namespace", "github", "--transport", "stdio")
    (server,) = next(value for key, value in found.items() if key != "inputs").values()
    assert os.path.isabs(server["command"])
    assert os.access(server["command"], os.X_OK)
    assert server["args"][-5:] == ["stdio", "--namespace", "github", "--data-dir", str(namespaces)]
    assert server["env"] == {"VENVS_DIR": "/somewhere/venvs"}


def test_both_transports_have_servers_of_different_names(cli: Cli, namespaces: Path) -> None:
    found = snippet(cli, "claude", "--namespace", "github", "--transport", "both")
    assert set(found["mcpServers"]) == {"tooldock-github", "tooldock-github-stdio"}


@pytest.mark.parametrize("client", ["claude", "vscode", "cursor", "litellm"])
def test_both_transports_are_one_document(cli: Cli, namespaces: Path, client: str) -> None:
    done = cli("client-config", "--client", client, "--transport", "both")
    loaded = yaml.safe_load(done.stdout) if client == "litellm" else json.loads(done.stdout)
    assert loaded == snippet(cli, client, "--transport", "both")
    assert "sees every tool twice" in done.stderr


def test_the_namespace_may_be_given_bare(cli: Cli, namespaces: Path) -> None:
    assert snippet(cli, "claude", "github") == snippet(cli, "claude", "--namespace", "github")
    both = cli("client-config", "github", "--client", "claude", "--namespace", "my-tools")
    assert both.exit_code == 2
    assert "Two namespaces are named, 'github' and 'my-tools'" in both.stderr


def test_remarks_fit_the_transport(cli: Cli, namespaces: Path) -> None:
    http = cli("client-config", "--client", "claude").stderr
    assert "this belongs in .mcp.json" in http
    assert "claude_desktop_config.json" not in http
    assert "TOOLDOCK_TOKEN" in http
    stdio = cli("client-config", "--client", "claude", "--transport", "stdio").stderr
    assert "claude_desktop_config.json" in stdio
    assert "TOOLDOCK_TOKEN" not in stdio
    assert "claude mcp add" not in stdio


@pytest.mark.parametrize("client", ["claude", "vscode", "cursor", "litellm"])
def test_nobody_is_told_to_overwrite_a_file(cli: Cli, namespaces: Path, client: str) -> None:
    assert "If the file is there already, add these servers" in cli("client-config", "--client", client).stderr
    assert ">" not in cli("client-config", "--help").stdout


def test_claude_code_can_be_told_by_a_command(cli: Cli, namespaces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's name and address stand before --header, which would take them for further headers."""
    said = cli("client-config", "github", "--client", "claude").stderr
    (command,) = [part for part in said.replace("\\\n", " ").splitlines() if "claude mcp add" in part]
    assert shlex.split(command) == [
        "claude", "mcp", "add", "--scope", "user", "--transport", "http", "tooldock-github", "http://127.0.0.1:8000/ns/github/mcp",
        "--header", f"Authorization: Bearer $(cat {namespaces / 'state' / 'keys' / 'bearer_token'})",
    ]  # fmt: skip
    assert "claude mcp add" not in cli("client-config", "github", "--client", "claude", "--show-token").stderr
    assert "likewise for each" in cli("client-config", "--client", "claude").stderr
    monkeypatch.setenv("AUTH_DISABLED", "true")
    assert "--header" not in cli("client-config", "github", "--client", "claude").stderr


@pytest.mark.process
def test_remarks_are_folded_to_the_terminal_and_commands_are_not(namespaces: Path) -> None:
    terminal = Terminal("-m", "tooldock", "client-config", "--client", "claude", environ=dict(os.environ), columns=60)
    try:
        lines = terminal.read_all().replace("\r", "").splitlines()
    finally:
        terminal.close()
    prose = [line for line in lines if not line.startswith((" ", "{", "}"))]
    assert all(len(line) <= 60 for line in prose if str(namespaces) not in line)
    assert not any("Claude Code takes the token" in line and "is started" in line for line in prose)
    assert f'  export TOOLDOCK_TOKEN="$(cat {namespaces / "state" / "keys" / "bearer_token"})"' in lines


def test_open_webui_cannot_start_programs(cli: Cli, namespaces: Path) -> None:
    assert "stdio" in failed(cli("client-config", "--client", "open-webui", "--transport", "stdio"))
    assert len(snippet(cli, "open-webui", "--transport", "both")) == 2


@pytest.mark.parametrize("client", list(CLIENTS))
def test_the_token_is_only_shown_when_it_is_asked_for(cli: Cli, namespaces: Path, client: str) -> None:
    hidden = cli("client-config", "--client", client)
    assert TOKEN not in hidden.output
    assert hidden.exit_code == 0
    shown = cli("client-config", "--client", client, "--show-token")
    assert TOKEN in shown.stdout
    assert "TOOLDOCK_TOKEN" not in shown.output


@pytest.mark.parametrize("client", list(CLIENTS))
def test_a_person_is_told_where_the_snippet_belongs_apart_from_the_snippet(
    cli: Cli, namespaces: Path, client: str
) -> None:
    done = cli("client-config", "--client", client, "--namespace", "github")
    assert CLIENTS[client].places["http"] in done.stderr
    assert str(namespaces / "state" / "keys" / "bearer_token") in done.output
    if client == "open-webui":
        return  # has a form, and a snippet only with --json
    loaded = yaml.safe_load(done.stdout) if client == "litellm" else json.loads(done.stdout)
    assert loaded == snippet(cli, client, "--namespace", "github")


def test_the_address_is_that_of_the_running_core(cli: Cli, namespaces: Path, server: Server) -> None:
    found = snippet(cli, "cursor", "--namespace", "github")
    assert found["mcpServers"]["tooldock-github"]["url"] == f"{server.url}/ns/github/mcp"
    assert "tooldock up" not in cli("client-config", "--client", "cursor").stderr


def test_without_a_running_core_the_settings_tell_the_address(
    cli: Cli, namespaces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST", "::")
    monkeypatch.setenv("CORE_PORT", "9100")
    found = snippet(cli, "cursor", "--namespace", "github")
    assert found["mcpServers"]["tooldock-github"]["url"] == "http://[::1]:9100/ns/github/mcp"
    assert f"`tooldock up --data-dir {namespaces}` starts it" in cli("client-config", "--client", "cursor").stderr


def test_core_url_names_a_gateway_elsewhere_and_its_namespaces(
    cli: Cli, data: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORE_URL", server.url)
    server.answers["GET", "/namespaces"] = (200, [{"name": "far"}])
    found = snippet(cli, "cursor")
    assert found["mcpServers"]["tooldock-far"]["url"] == f"{server.url}/ns/far/mcp"


def test_a_gateway_that_wants_no_token_gets_none(cli: Cli, namespaces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTH_DISABLED", "true")
    for client in CLIENTS:
        done = cli("client-config", "--client", client)
        assert "TOOLDOCK_TOKEN" not in done.output
        assert "Authorization" not in done.output
        assert "input:" not in done.output


def test_a_namespace_that_is_not_there_is_refused_with_those_that_are(cli: Cli, namespaces: Path) -> None:
    text = failed(cli("client-config", "--client", "claude", "--namespace", "nope"))
    assert "github, my-tools" in text
    near = failed(cli("client-config", "--client", "claude", "--namespace", "githbu"))
    assert "Did you mean 'github'?" in near


def test_a_missing_data_directory_is_named_as_such(cli: Cli, tmp_path: Path) -> None:
    text = failed(cli("client-config", "--client", "claude", "--data-dir", str(tmp_path / "nowhere")))
    assert f"There is no data directory {tmp_path / 'nowhere'}." in text
    assert "--data-dir" in text


def test_without_namespaces_or_token_the_next_step_is_named(cli: Cli, data: Path) -> None:
    assert "tooldock new" in failed(cli("client-config", "--client", "claude"))
    (data / "tools" / "github").mkdir(parents=True)
    assert "tooldock up" in failed(cli("client-config", "--client", "claude", "--show-token"))


@pytest.mark.process
def test_what_is_printed_works_when_pasted(gateway: Callable[..., Gateway], venvs: Path) -> None:
    """Both ways, as a client would use them: the values are taken from the snippet and from nowhere else."""
    core = gateway()
    core.write("shared", "tools.py", ECHO)
    core.start()
    core.settled()
    environ = {**os.environ, "VENVS_DIR": str(venvs), "BEARER_TOKEN": core.headers["Authorization"].split()[1]}
    words = ["client-config", "--client", "claude", "--transport", "both", "--show-token", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tooldock", *words, "--data-dir", str(core.data)],
        env=environ,
        capture_output=True,
        timeout=60,
        check=True,
    )
    servers = json.loads(done.stdout)["mcpServers"]
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    remote = servers["tooldock-shared"]
    headers = {**remote["headers"], "Accept": "application/json, text/event-stream"}
    answer = core.http.post(remote["url"], json=hello, headers=headers)
    assert answer.status_code == 200, answer.text
    assert '"protocolVersion":"2025-11-25"' in answer.text
    local = servers["tooldock-shared-stdio"]
    spoken = subprocess.run(
        [local["command"], *local["args"]],
        env=local["env"],
        cwd="/",
        input=json.dumps(hello).encode() + b"\n",
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert json.loads(spoken.stdout)["result"]["protocolVersion"] == "2025-11-25"

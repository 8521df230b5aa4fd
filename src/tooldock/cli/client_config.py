"""`tooldock client-config`: the piece of configuration that connects an MCP client, made for pasting.

The snippet goes to standard output, what to do with it to standard error. Each client has its own format and its own
way of referring to a secret; the token itself is only in the snippet when somebody asks for it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from tooldock.cli.completion import namespace_names
from tooldock.cli.failure import Failure
from tooldock.cli.place import data_dir_option, load_settings

if TYPE_CHECKING:
    from tooldock.paths import Paths
    from tooldock.settings import Settings

Way = Literal["http", "stdio"]

VARIABLE = "TOOLDOCK_TOKEN"
_PASSED_ON = ("VENVS_DIR", "UV_CACHE_DIR")
"""What a client's own environment would lack, and the program it starts needs to find the same files."""


@dataclass(frozen=True, slots=True)
class Server:
    """One namespace as one server of a client."""

    namespace: str
    way: Way
    url: str
    """Where the gateway listens, without a path."""
    program: tuple[str, ...]
    token: str | None
    """The token, a reference to it in the client's own words, or None when the gateway wants none."""
    name: str
    env: dict[str, str]

    @property
    def endpoint(self) -> str:
        return f"{self.url}/ns/{self.namespace}/mcp"

    @property
    def headers(self) -> dict[str, Any]:
        return {} if self.token is None else {"headers": {"Authorization": f"Bearer {self.token}"}}

    @property
    def command(self) -> dict[str, Any]:
        started = {"command": self.program[0], "args": list(self.program[1:])}
        return {**started, "env": self.env} if self.env else started


@dataclass(frozen=True, slots=True)
class Client:
    """How one client is told about servers."""

    title: str
    file: str
    """Where the snippet belongs."""
    reference: str
    """How the client refers to a token it is not given."""
    token_note: str
    """What a person has to do so that the reference leads to the token; `{export}` sets the variable."""
    render: Callable[[Sequence[Server]], str]
    starts_programs: bool = True
    separator: str = "-"
    """Between the words of a server's name."""
    remark: str = ""


def _claude(servers: Sequence[Server]) -> str:
    return _json(
        {
            "mcpServers": {
                server.name: server.command
                if server.way == "stdio"
                else {"type": "http", "url": server.endpoint, **server.headers}
                for server in servers
            }
        }
    )


def _vscode(servers: Sequence[Server]) -> str:
    snippet: dict[str, Any] = {
        "servers": {
            server.name: {"type": "stdio", **server.command}
            if server.way == "stdio"
            else {"type": "http", "url": server.endpoint, **server.headers}
            for server in servers
        }
    }
    if any(server.way == "http" and server.token == _INPUT for server in servers):
        snippet["inputs"] = [
            {"type": "promptString", "id": _INPUT_ID, "description": "ToolDock token", "password": True}
        ]
    return _json(snippet)


def _cursor(servers: Sequence[Server]) -> str:
    return _json(
        {
            "mcpServers": {
                server.name: {"type": "stdio", **server.command}
                if server.way == "stdio"
                else {"url": server.endpoint, **server.headers}
                for server in servers
            }
        }
    )


def _litellm(servers: Sequence[Server]) -> str:
    import yaml

    entries: dict[str, Any] = {}
    for server in servers:
        if server.way == "stdio":
            entries[server.name] = {"transport": "stdio", **server.command}
            continue
        entry: dict[str, Any] = {"url": server.endpoint, "transport": "http"}
        if server.token is not None:
            entry |= {"auth_type": "bearer_token", "auth_value": server.token}
        entries[server.name] = entry
    return yaml.safe_dump({"mcp_servers": entries}, sort_keys=False, width=1000).rstrip()


def _open_webui(servers: Sequence[Server]) -> str:
    return _json(
        [
            {
                "type": "mcp",
                "url": server.endpoint,
                "path": "",
                "auth_type": "none" if server.token is None else "bearer",
                "key": server.token or "",
                "config": {"enable": True},
                "info": {
                    "id": server.name,
                    "name": f"ToolDock {server.namespace}",
                    "description": f"The tools of the namespace {server.namespace}",
                },
            }
            for server in servers
        ]
    )


_INPUT_ID = "tooldock-token"
_INPUT = f"${{input:{_INPUT_ID}}}"

CLIENTS: dict[str, Client] = {
    "claude": Client(
        "Claude",
        ".mcp.json in the folder of a project (Claude Code). Claude Desktop only starts programs: use --transport "
        "stdio for it, and claude_desktop_config.json (Settings, Developer, Edit Config)",
        f"${{{VARIABLE}}}",
        f"Claude Code takes the token from {VARIABLE}; set it where Claude Code is started:\n  {{export}}",
        _claude,
    ),
    "vscode": Client(
        "VS Code",
        ".vscode/mcp.json in a workspace, or your own mcp.json (command `MCP: Open User Configuration`)",
        _INPUT,
        "VS Code asks for the token when it starts the server, and keeps it. It is in {where}.",
        _vscode,
    ),
    "cursor": Client(
        "Cursor",
        "~/.cursor/mcp.json, or .cursor/mcp.json in a project",
        f"${{env:{VARIABLE}}}",
        f"Cursor takes the token from {VARIABLE}; set it where Cursor is started:\n  {{export}}",
        _cursor,
    ),
    "litellm": Client(
        "LiteLLM",
        "config.yaml of the LiteLLM proxy",
        f"os.environ/{VARIABLE}",
        f"The proxy takes the token from {VARIABLE}; set it where the proxy is started:\n  {{export}}",
        _litellm,
        separator="_",
    ),
    "open-webui": Client(
        "Open WebUI",
        "the setting TOOL_SERVER_CONNECTIONS of a new Open WebUI; in one that runs, add each under Admin Panel, "
        "Settings, External Tools, with type MCP (Streamable HTTP), this url and auth Bearer",
        f"${{{VARIABLE}}}",
        f"Compose puts the variable {VARIABLE} in its place; anywhere else write the token itself there.\n  {{export}}",
        _open_webui,
        starts_programs=False,
        remark="Where Open WebUI knows only OpenAPI, its URL is {url}/ns/NAMESPACE with the path openapi.json.",
    ),
}


@click.command("client-config", short_help="Print the configuration that connects a client.")
@click.option("--client", required=True, type=click.Choice(tuple(CLIENTS)), help="The client to connect.")
@click.option(
    "--namespace",
    metavar="NAME",
    shell_complete=namespace_names,
    help="The namespace to connect; each becomes a server of its own. Default: all.",
)
@click.option(
    "--transport",
    type=click.Choice(("http", "stdio", "both")),
    default="http",
    show_default=True,
    help="http: talk to the running gateway. stdio: the client starts `tooldock stdio` itself.",
)
@click.option("--show-token", is_flag=True, help="Write the token into the snippet instead of a reference to it.")
@click.option("--json", "only_snippet", is_flag=True, help="Print the snippet alone: JSON, and YAML for LiteLLM.")
@data_dir_option
def client_config(client: str, namespace: str | None, transport: str, show_token: bool, only_snippet: bool) -> None:
    """Print what to paste into a client's configuration, and where it belongs.

    The snippet refers to the token in the way the client can: a variable of the environment, or a question. Only
    --show-token writes the token itself; keep such a file to yourself.

    \b
    Examples:
      tooldock client-config --client claude > .mcp.json
      tooldock client-config --client vscode --namespace github
      tooldock client-config --client cursor --transport stdio
    """
    format = CLIENTS[client]
    settings = load_settings()
    paths = settings.paths()
    ways = _ways(format, transport)
    names = _namespaces(paths, namespace)
    url, running = _address(settings, paths)
    token = None if settings.auth_disabled else _token(settings, paths) if show_token else format.reference
    groups = [[_server(name, way, format, paths, url, token, len(ways) > 1) for name in names] for way in ways]
    if only_snippet:
        click.echo(format.render([server for group in groups for server in group]))
        return
    click.echo(f"{format.title}: this belongs in {format.file}.", err=True)
    for way, group in zip(ways, groups, strict=True):
        heading = "over HTTP" if way == "http" else "started by the client"
        click.echo(f"\n{format.title}, {heading}:\n" if len(ways) > 1 else "", err=True)
        click.echo(format.render(group))
    for note in _notes(format, ways, settings, paths, url, running=running, show_token=show_token):
        click.echo(f"\n{note}", err=True)


def _ways(format: Client, transport: str) -> tuple[Way, ...]:
    if transport != "http" and not format.starts_programs:
        if transport == "stdio":
            raise Failure(
                f"{format.title} starts no programs, so it cannot use stdio.", next_step="use --transport http."
            )
        return ("http",)
    if transport == "both":
        return ("http", "stdio")
    return ("stdio",) if transport == "stdio" else ("http",)


def _namespaces(paths: Paths, wanted: str | None) -> list[str]:
    """Those that are asked for: of the gateway CORE_URL names, otherwise of the data directory."""
    from tooldock.paths import NAMESPACE_NAME
    from tooldock.sources import folder

    if os.environ.get("CORE_URL", "").strip():
        from tooldock.cli.gateway import Gateway

        gateway = Gateway.find()
        try:
            known = [str(row["name"]) for row in gateway.get("/namespaces")]
        finally:
            gateway.close()
        place = gateway.url
    else:
        known = [name for name in folder.names(paths.tools) if NAMESPACE_NAME.fullmatch(name)]
        place = str(paths.tools)
    if not known:
        raise Failure(f"There are no namespaces in {place}.", next_step="make one with `tooldock new NAME`.")
    if wanted is None:
        return known
    if wanted not in known:
        raise Failure(
            f"There is no namespace {wanted[:80]!r} in {place}.", next_step=f"choose one of: {', '.join(known)}."
        )
    return [wanted]


def _address(settings: Settings, paths: Paths) -> tuple[str, bool]:
    """Where the gateway is, and whether it runs; where it would be, when it does not."""
    from tooldock.cli.gateway import running_core

    named = os.environ.get("CORE_URL", "").strip()
    if named:
        return named.rstrip("/"), True
    record = running_core(paths)
    if record is not None:
        return str(record["url"]), True
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(settings.host, settings.host)  # noqa: S104
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_cert else 'http'}://{shown}:{settings.port_for('core')}", False


def _token(settings: Settings, paths: Paths) -> str:
    from tooldock.cli.gateway import stored_credential

    token = settings.bearer_token or stored_credential(paths.token("bearer_token"))
    if token is None:
        raise Failure(
            "There is no token yet: the gateway makes one at its first start.",
            next_step="run `tooldock up` once, or leave out --show-token.",
        )
    return token


def _server(namespace: str, way: Way, format: Client, paths: Paths, url: str, token: str | None, twice: bool) -> Server:
    words = ["tooldock", *namespace.split("-"), *(["stdio"] if twice and way == "stdio" else [])]
    program = (*_program(), "stdio", "--namespace", namespace, "--data-dir", str(paths.data_dir))
    env = {name: os.environ[name] for name in _PASSED_ON if os.environ.get(name)}
    return Server(namespace, way, url, program, token, format.separator.join(words), env)


def _program() -> tuple[str, ...]:
    """How a program that knows nothing of our PATH starts this one."""
    beside = Path(sys.executable).with_name("tooldock")
    if beside.is_file() and os.access(beside, os.X_OK):
        return (str(beside),)
    return (sys.executable, "-m", "tooldock")


def _notes(
    format: Client, ways: Sequence[Way], settings: Settings, paths: Paths, url: str, *, running: bool, show_token: bool
) -> list[str]:
    notes = []
    if "http" in ways:
        if not running:
            notes.append(f"Nothing runs at {url} for {paths.data_dir} yet; `tooldock up` starts it.")
        if show_token and not settings.auth_disabled:
            notes.append("The token is in the snippet: whoever reads that file can call every tool.")
        elif not settings.auth_disabled:
            notes.append(_token_note(format, paths))
        if format.remark:
            notes.append(format.remark.format(url=url))
    if "stdio" in ways and os.environ.get("SECRETS_KEY", "").strip():
        notes.append("SECRETS_KEY is set here. The client has to be started with it too, if tools need secrets.")
    return notes


def _token_note(format: Client, paths: Paths) -> str:
    if os.environ.get("BEARER_TOKEN", "").strip():
        where, value = "the variable BEARER_TOKEN", '"$BEARER_TOKEN"'
    elif not paths.token("bearer_token").exists() and paths.config_file.exists():
        where, value = f"bearer_token in {paths.config_file}", "..."
    else:
        where = str(paths.token("bearer_token"))
        value = f'"$(cat {shlex.quote(where)})"'
    return format.token_note.format(export=f"export {VARIABLE}={value}", where=where)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)

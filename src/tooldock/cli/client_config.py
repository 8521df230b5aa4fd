"""`tooldock client-config`: the piece of configuration that connects an MCP client, made for pasting.

The snippet goes to standard output, what to do with it to standard error. Each client has its own format and its own
way of referring to a secret; the token itself is only in the snippet when somebody asks for it. Nothing is written to
a client's files: they may hold other servers.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from tooldock.cli.failure import Failure
from tooldock.cli.namespace import check_known, given, namespace_option, none_at_all, on_disk
from tooldock.cli.place import data_dir_option, given_data_dir, load_settings
from tooldock.cli.terminal import folded

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
    places: Mapping[Way, str]
    """Where the snippet belongs, by transport; a client that starts no programs has no stdio."""
    reference: str
    """How the client refers to a token it is not given."""
    token_note: str
    """What a person has to do so that the reference leads to the token; `{export}` sets the variable."""
    render: Callable[[Sequence[Server]], str]
    separator: str = "-"
    """Between the words of a server's name."""
    form: Callable[[Sequence[Server], str], str] | None = None
    """For a client that is told in its own pages: the fields to fill in, given where the token is."""
    remarks: Callable[[Sequence[Server], str | None], list[str]] = field(default=lambda servers, token: [])
    """What else to say, given the shell's word for the token; None when no token is needed or it is shown already."""


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


def _claude_remarks(servers: Sequence[Server], token: str | None) -> list[str]:
    remote = [server for server in servers if server.way == "http"]
    if not remote or (token is None and remote[0].token is not None):
        return []
    header = "" if token is None else f' \\\n    --header "Authorization: Bearer {token}"'
    kept = "" if token is None else ", with the token, in its own configuration"
    each = "; likewise for each of the others" if len(remote) > 1 else ""
    command = f"  claude mcp add --scope user --transport http {remote[0].name} {remote[0].endpoint}{header}"
    return [f"Or, instead of the file, let Claude Code keep it{kept}{each}:\n{command}"]


def _open_webui_form(servers: Sequence[Server], where: str) -> str:
    forms = []
    for server in servers:
        fields = [
            ("Type", "MCP (Streamable HTTP)"),
            ("URL", server.endpoint),
            ("Auth", "None" if server.token is None else "Bearer"),
            ("Key", "" if server.token is None else where),
            ("ID", server.name),
            ("Name", f"ToolDock {server.namespace}"),
        ]
        forms.append("\n".join(f"  {name:<5}  {value}" for name, value in fields if value))
    return "\n\n".join(forms)


def _open_webui_remarks(servers: Sequence[Server], token: str | None) -> list[str]:
    url = servers[0].url
    return [
        "If Open WebUI runs in a container, 127.0.0.1 is the container itself: write host.docker.internal instead, and "
        "have the gateway listen on more than loopback. docs/how-to/open-webui.md has the steps.",
        f"Where Open WebUI knows only the type OpenAPI, the URL is {url}/ns/{servers[0].namespace} and the path "
        "openapi.json.",
        "For TOOL_SERVER_CONNECTIONS of an Open WebUI that is set up by its environment, --json prints the value.",
    ]


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
        {
            "http": ".mcp.json in the folder of a project (Claude Code; Claude Desktop needs --transport stdio)",
            "stdio": "claude_desktop_config.json (Claude Desktop: Settings, Developer, Edit Config), or .mcp.json in "
            "the folder of a project (Claude Code)",
        },
        f"${{{VARIABLE}}}",
        f"Claude Code takes the token from {VARIABLE}; set it where Claude Code is started:\n  {{export}}",
        _claude,
        remarks=_claude_remarks,
    ),
    "vscode": Client(
        "VS Code",
        dict.fromkeys(
            ("http", "stdio"),
            ".vscode/mcp.json in a workspace, or your own mcp.json (command `MCP: Open User Configuration`)",
        ),
        _INPUT,
        "VS Code asks for the token when it starts the server, and keeps it. It is in {where}.",
        _vscode,
    ),
    "cursor": Client(
        "Cursor",
        dict.fromkeys(("http", "stdio"), "~/.cursor/mcp.json, or .cursor/mcp.json in a project"),
        f"${{env:{VARIABLE}}}",
        f"Cursor takes the token from {VARIABLE}; set it where Cursor is started:\n  {{export}}",
        _cursor,
    ),
    "litellm": Client(
        "LiteLLM",
        dict.fromkeys(("http", "stdio"), "config.yaml of the LiteLLM proxy"),
        f"os.environ/{VARIABLE}",
        f"The proxy takes the token from {VARIABLE}; set it where the proxy is started:\n  {{export}}",
        _litellm,
        separator="_",
    ),
    "open-webui": Client(
        "Open WebUI",
        {"http": "Admin Settings → External Tools → + (Add Connection)"},
        f"${{{VARIABLE}}}",
        "",
        _open_webui,
        form=_open_webui_form,
        remarks=_open_webui_remarks,
    ),
}


@click.command("client-config", short_help="Print the configuration that connects a client.")
@click.option("--client", required=True, type=click.Choice(tuple(CLIENTS)), help="The client to connect.")
@namespace_option("The namespace to connect; each becomes a server of its own. Default: all.")
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
def client_config(
    client: str, name: str | None, namespace: str | None, transport: str, show_token: bool, only_snippet: bool
) -> None:
    """Print what to paste into a client's configuration, and where it belongs. NAME is a namespace.

    The snippet refers to the token in the way the client can: a variable of the environment, or a question. Only
    --show-token writes the token itself; keep such a file to yourself. Open WebUI is told in a form: its fields are
    printed, and with --json the value of its setting TOOL_SERVER_CONNECTIONS.

    \b
    Examples:
      tooldock client-config --client claude
      tooldock client-config github --client vscode
      tooldock client-config --client cursor --transport stdio
    """
    format = CLIENTS[client]
    settings = load_settings()
    paths = settings.paths()
    ways = _ways(format, transport)
    names = _namespaces(paths, given(name, namespace))
    url, running = _address(settings, paths)
    token = None if settings.auth_disabled else _token(settings, paths) if show_token else format.reference
    servers = [_server(one, way, format, paths, url, token, len(ways) > 1) for way in ways for one in names]
    if only_snippet:
        click.echo(format.render(servers))
        return
    _say(_placed(format, ways, len(names)) + "\n")
    if format.form is not None:
        where = (token or "") if show_token else f"the token; it is in {_token_place(paths)[0]}"
        click.echo(format.form(servers, where))
    else:
        click.echo(format.render(servers))
    for note in _notes(format, servers, settings, paths, running=running, show_token=show_token):
        _say(f"\n{note}")


def _say(text: str) -> None:
    click.echo(folded(text), err=True)


def _placed(format: Client, ways: Sequence[Way], count: int) -> str:
    """Where it belongs; such a file may be there already, with other servers in it."""
    if format.form is not None:
        each = ", once for each namespace" if count > 1 else ""
        return f"{format.title}: fill this in under {format.places['http']}{each}."
    places = list(dict.fromkeys(format.places[way] for way in ways))
    lines = [f"{format.title}: this belongs in {place}." for place in places]
    if len(places) > 1:
        lines = [f"{format.title} over {way}: {place}." for way, place in zip(ways, places, strict=True)]
    lines.append("If the file is there already, add these servers to those it has.")
    if len(ways) > 1:
        lines.append("Keep one way for each namespace, or the client sees every tool twice.")
    return "\n".join(lines)


def _ways(format: Client, transport: str) -> tuple[Way, ...]:
    if transport != "http" and "stdio" not in format.places:
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
    if os.environ.get("CORE_URL", "").strip():
        from tooldock.cli.gateway import Gateway

        gateway = Gateway.find()
        try:
            known = [str(row["name"]) for row in gateway.get("/namespaces")]
        finally:
            gateway.close()
        place = gateway.url
    else:
        known = on_disk(paths)
        place = str(paths.tools)
    if not known:
        raise none_at_all(place)
    return known if wanted is None else [check_known(wanted, known, place)]


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
    format: Client, servers: Sequence[Server], settings: Settings, paths: Paths, *, running: bool, show_token: bool
) -> list[str]:
    notes = []
    remote = any(server.way == "http" for server in servers)
    hidden = remote and not settings.auth_disabled and not show_token
    if remote and not running:
        chosen = "" if given_data_dir() is None else f" --data-dir {shlex.quote(str(paths.data_dir))}"
        notes.append(f"Nothing runs at {servers[0].url} yet; `tooldock up{chosen}` starts it.")
    if remote and show_token and not settings.auth_disabled:
        notes.append("The token is shown above: whoever reads it can call every tool.")
    if hidden and format.token_note:
        where, value = _token_place(paths)
        notes.append(format.token_note.format(export=f'export {VARIABLE}="{value}"', where=where))
    notes += format.remarks(servers, _token_place(paths)[1] if hidden else None)
    if any(server.way == "stdio" for server in servers) and os.environ.get("SECRETS_KEY", "").strip():
        notes.append("SECRETS_KEY is set here. The client has to be started with it too, if tools need secrets.")
    return notes


def _token_place(paths: Paths) -> tuple[str, str]:
    """Where the token is, in words and in a shell's."""
    if os.environ.get("BEARER_TOKEN", "").strip():
        return "the variable BEARER_TOKEN", "$BEARER_TOKEN"
    if not paths.token("bearer_token").exists() and paths.config_file.exists():
        return f"bearer_token in {paths.config_file}", "..."
    where = str(paths.token("bearer_token"))
    return where, f"$(cat {shlex.quote(where)})"


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)

"""`tooldock call`: one tool, once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tooldock.cli.completion import namespace_names, tool_names
from tooldock.cli.place import data_dir_option

_MAX_INPUT = 64 << 20


@click.command(short_help="Call a tool and print what it returns.")
@click.argument("namespace", shell_complete=namespace_names)
@click.argument("tool", shell_complete=tool_names)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--json",
    "json_text",
    metavar="JSON",
    help="All arguments as one JSON object; @FILE reads a file, - reads standard input.",
)
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up, and cancel the call, after this long.")
@click.option("--raw", is_flag=True, help="Print the answer as it was received, also an error.")
@data_dir_option
def call(
    namespace: str,
    tool: str,
    arguments: tuple[str, ...],
    json_text: str | None,
    timeout: float | None,
    raw: bool,
) -> None:
    """Call TOOL of NAMESPACE on the running gateway.

    NAME=VALUE is read as the tool's schema has it: text stays text, numbers, true/false, lists and objects
    are JSON. NAME:=JSON is JSON always. Text is printed as it is, anything else as indented JSON.

    \b
    Examples:
      tooldock call shared hello name=Ada
      tooldock call math add a=2 b=0.5
      tooldock call github search labels:='["bug"]' --timeout 20
      tooldock call github search --json @query.json
    """
    from tooldock.cli.gateway import LONGEST_SECONDS, Gateway

    if json_text is not None and arguments:
        raise click.UsageError("Give the arguments as NAME=VALUE or with --json, not both.")
    if timeout is not None and not 0 < timeout <= LONGEST_SECONDS:
        raise click.UsageError(f"--timeout must be above 0 and at most {LONGEST_SECONDS:g} seconds.")
    whole = None if json_text is None else _whole(json_text)
    gateway = Gateway.find()
    try:
        path = f"/ns/{_quoted(namespace)}/tools/{_quoted(tool)}"
        body = _body(gateway, path, namespace, tool, arguments) if whole is None else whole
        answer = gateway.request("POST", path, body, seconds=timeout or LONGEST_SECONDS)
    finally:
        gateway.close()
    if raw:
        sys.stdout.buffer.write(answer.body + b"\n")
        sys.stdout.flush()
    if not answer.ok:
        failure = gateway.failure(answer, namespace=namespace, tool=tool)
        if raw:
            raise click.exceptions.Exit(failure.exit_code)
        raise failure
    if not raw:
        from tooldock.cli.result import show

        show(answer.json())


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")


def _body(gateway: Any, path: str, namespace: str, tool: str, words: tuple[str, ...]) -> bytes:
    """The arguments as JSON; the schema is asked for only when there is a word to interpret."""
    from tooldock.cli import arguments

    given = arguments.split(words)
    schema: dict[str, Any] = {}
    if any(not is_json for is_json, _ in given.values()):
        answer = gateway.request("GET", f"{path}/schema")
        if not answer.ok:
            raise gateway.failure(answer, namespace=namespace, tool=tool)
        described = answer.json()
        schema = described.get("inputSchema", {}) if isinstance(described, dict) else {}
    return arguments.encoded(arguments.convert(given, schema))


def _whole(text: str) -> bytes:
    """`--json` in its three forms, checked here so that a slip of the pen does not travel."""
    from tooldock.cli import arguments

    what = "--json"
    if text == "-":
        text, what = _decoded(sys.stdin.buffer.read(_MAX_INPUT), "standard input"), "Standard input"
    elif text.startswith("@"):
        text, what = _read(Path(text[1:])), text[1:]
    value = arguments.parse_json(text, what)
    if not isinstance(value, dict):
        raise click.UsageError(f'{what} must be a JSON object with the arguments by name, like {{"name": "Ada"}}.')
    return arguments.encoded(value)


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return _decoded(stream.read(_MAX_INPUT), str(file))
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read ({error.strerror}).") from None


def _decoded(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise click.UsageError(f"{what} is not UTF-8 text.") from None

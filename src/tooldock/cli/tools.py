"""`tooldock tools` and `tooldock namespaces`: what the running gateway serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from tooldock.cli.completion import namespace_names
from tooldock.cli.place import data_dir_option
from tooldock.cli.terminal import one_line, printable, table, width

if TYPE_CHECKING:
    from tooldock.cli.gateway import Gateway


@click.command(short_help="List tools and what they take.")
@click.argument("namespace", required=False, shell_complete=namespace_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the complete schemas.")
@data_dir_option
def tools(namespace: str | None, as_json: bool) -> None:
    """List the tools of NAMESPACE, or of all namespaces; its resources and prompts too, where it has any.

    \b
    Examples:
      tooldock tools
      tooldock tools github --json
    """
    from tooldock.cli.gateway import Gateway

    gateway = Gateway.find()
    try:
        rows, found = _ask(gateway, namespace)
    finally:
        gateway.close()
    broken = ", ".join(printable(row["name"]) for row in rows if row.get("error") and not offered(row))
    if broken and not namespace:
        click.echo(f"Not loaded: {broken}. `tooldock namespaces` shows why.", err=True)
    if as_json:
        import json

        click.echo(json.dumps(found[0] if namespace else found, indent=2, ensure_ascii=False))
        return
    if namespace and not _has_any(found[0]):
        click.echo(f"{namespace} serves nothing: {NOTHING_THERE}.", err=True)
    elif not broken and not any(map(_has_any, found)):
        click.echo("There are no tools yet. `tooldock new NAME` makes a namespace with one.", err=True)
    for number, entry in enumerate(found):
        if number:
            click.echo()
        _show_entry(entry)


NOTHING_THERE = "no file in its folder has a function with @tool, @resource or @prompt above it"


def _ask(gateway: Gateway, namespace: str | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of all namespaces, and what each that was asked for serves."""
    from tooldock.cli.readables import readables

    found: dict[str, dict[str, Any]] = {}
    if namespace:
        found[namespace] = _tools_of(gateway, namespace)
    rows: list[dict[str, Any]] = gateway.get("/namespaces")
    for row in rows:
        name = row["name"]
        if not namespace and offered(row):
            found[name] = _tools_of(gateway, name)
        if name in found and (row.get("resources") or row.get("prompts")):
            found[name] |= readables(gateway, name)
    return rows, list(found.values())


def _tools_of(gateway: Gateway, namespace: str) -> dict[str, Any]:
    answer = gateway.request("GET", f"/ns/{quote(namespace, safe='')}/tools")
    if not answer.ok:
        raise gateway.failure(answer, namespace=namespace)
    entry: dict[str, Any] = answer.json()
    return entry


def _has_any(entry: Mapping[str, Any]) -> bool:
    return any(entry.get(key) for key in ("tools", "resources", "resourceTemplates", "prompts"))


def _show_entry(entry: Mapping[str, Any]) -> None:
    """Tools alone need no heading."""
    click.echo(click.style(printable(entry["namespace"]), bold=True))
    resources = [*entry.get("resources", ()), *entry.get("resourceTemplates", ())]
    sections = (
        ("Tools", [(_tool_line(tool), tool) for tool in entry["tools"]]),
        ("Resources", [(_styled(str(one.get("uri") or one.get("uriTemplate"))), one) for one in resources]),
        ("Prompts", [(_prompt_line(prompt), prompt) for prompt in entry.get("prompts", ())]),
    )
    only_tools = not any(items for _, items in sections[1:])
    margin = "  " if only_tools else "    "
    for title, items in sections:
        if items and not only_tools:
            click.echo(f"  {title}")
        for line, item in items:
            click.echo(f"{margin}{line}")
            description = one_line(item.get("description") or "", width() - len(margin) - 4)
            if description:
                click.echo(f"{margin}    {description}")


def _tool_line(tool: Mapping[str, Any]) -> str:
    from tooldock.cli.signature import signature

    name, bracket, rest = signature(tool["name"], tool["inputSchema"]).partition("(")
    return f"{_styled(name)}{bracket}{rest}"


def _prompt_line(prompt: Mapping[str, Any]) -> str:
    """Its arguments are texts, so only their names say something."""
    blanks = [f"{blank.get('name')}{'' if blank.get('required') else '?'}" for blank in prompt.get("arguments") or ()]
    return f"{_styled(str(prompt.get('name')))}({printable(', '.join(blanks))})"


def _styled(name: str) -> str:
    return click.style(printable(name), fg="cyan")


@click.command(short_help="List namespaces and how they are.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as the gateway gives it.")
@data_dir_option
def namespaces(as_json: bool) -> None:
    """List what the running gateway serves, with the error of whatever it could not load.

    \b
    Examples:
      tooldock namespaces
      tooldock namespaces --json
    """
    from tooldock.cli.gateway import Gateway

    gateway = Gateway.find()
    try:
        rows = gateway.get("/namespaces")
    finally:
        gateway.close()
    if as_json:
        import json

        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for line in namespace_lines(rows):
        click.echo(line)


STATUS_COLOURS = {
    "ready": "green",
    "idle": "green",
    "starting": "yellow",
    "building": "yellow",
    "crash_loop": "red",
    "failed": "red",
    "disabled": "bright_black",
}


def offered(row: Mapping[str, Any]) -> int:
    """How many things a namespace serves, of whatever kind."""
    return sum(int(row.get(key) or 0) for key in ("tool_count", "resources", "prompts"))


def namespace_lines(rows: list[dict[str, Any]]) -> list[str]:
    """A table, and below it what is wrong with whom."""
    if not rows:
        return ["  There are no namespaces yet. `tooldock new NAME` makes one."]
    extra = [kind for kind in ("resources", "prompts") if any(row.get(kind) for row in rows)]
    cells = [
        (
            printable(row["name"]),
            str(row["tool_count"]),
            *(str(row.get(kind) or 0) for kind in extra),
            click.style(row["status"].replace("_", " "), fg=STATUS_COLOURS.get(row["status"])),
            one_line(row.get("description") or ""),
        )
        for row in rows
    ]
    headings = ("NAMESPACE", "TOOLS", *map(str.upper, extra), "STATUS", "DESCRIPTION")
    used = len(headings) if any(cell[-1] for cell in cells) else len(headings) - 1
    numbers = frozenset(range(1, 2 + len(extra)))
    lines = table(headings[:used], [cell[:used] for cell in cells], right=numbers)
    for row in rows:
        lines += _remarks(row)
    return lines


def _remarks(row: Mapping[str, Any]) -> list[str]:
    remarks = []
    name = printable(row["name"])
    if row.get("error"):
        where = row.get("error_file") or ""
        if where and row.get("error_line"):
            where += f":{row['error_line']}"
        kept = " (the last version that worked is served)" if offered(row) else ""
        prefix = f"{name}/{printable(where)}" if where else name
        error = printable(row["error"]).rstrip()
        remarks += ["", f"  {click.style(prefix, fg='red')}{kept}"]
        remarks += [f"    {line}" for line in error.splitlines()[:12]]
    if row.get("missing_secrets"):
        missing = ", ".join(map(printable, row["missing_secrets"]))
        remarks += ["", f"  {click.style(name, fg='yellow')} lacks secrets: {missing}"]
    return remarks

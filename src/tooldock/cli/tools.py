"""`tooldock tools` and `tooldock namespaces`: what the running gateway serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click

from tooldock.cli.completion import namespace_names
from tooldock.cli.place import data_dir_option
from tooldock.cli.terminal import one_line, printable, table, width


@click.command(short_help="List tools and what they take.")
@click.argument("namespace", required=False, shell_complete=namespace_names)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the complete schemas.")
@data_dir_option
def tools(namespace: str | None, as_json: bool) -> None:
    """List the tools of NAMESPACE, or of all namespaces.

    \b
    Examples:
      tooldock tools
      tooldock tools github --json
    """
    from tooldock.cli.gateway import Gateway

    gateway = Gateway.find()
    try:
        rows = [] if namespace else gateway.get("/namespaces")
        names = [namespace] if namespace else [row["name"] for row in rows if row["tool_count"]]
        found = []
        for name in names:
            answer = gateway.request("GET", f"/ns/{quote(name, safe='')}/tools")
            if not answer.ok:
                raise gateway.failure(answer, namespace=name)
            found.append(answer.json())
    finally:
        gateway.close()
    broken = ", ".join(printable(row["name"]) for row in rows if row.get("error") and not row["tool_count"])
    if broken:
        click.echo(f"Not loaded: {broken}. `tooldock namespaces` shows why.", err=True)
    if as_json:
        import json

        click.echo(json.dumps(found[0] if namespace else found, indent=2, ensure_ascii=False))
        return
    if namespace and not found[0]["tools"]:
        click.echo(f"{namespace} has no tools: no file in its folder has a function with @tool.", err=True)
    elif not broken and not any(entry["tools"] for entry in found):
        click.echo("There are no tools yet. `tooldock new NAME` makes a namespace with one.", err=True)
    for number, entry in enumerate(found):
        _show_tools(entry, first=number == 0)


def _show_tools(entry: Mapping[str, Any], *, first: bool) -> None:
    from tooldock.cli.signature import signature

    if not first:
        click.echo()
    click.echo(click.style(printable(entry["namespace"]), bold=True))
    for tool in entry["tools"]:
        line = signature(tool["name"], tool["inputSchema"])
        name, bracket, rest = line.partition("(")
        click.echo(f"  {click.style(name, fg='cyan')}{bracket}{rest}")
        description = one_line(tool.get("description") or "", width() - 6)
        if description:
            click.echo(f"      {description}")


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


def namespace_lines(rows: list[dict[str, Any]]) -> list[str]:
    """A table, and below it what is wrong with whom."""
    if not rows:
        return ["  There are no namespaces yet. `tooldock new NAME` makes one."]
    cells = [
        (
            printable(row["name"]),
            str(row["tool_count"]),
            click.style(row["status"].replace("_", " "), fg=STATUS_COLOURS.get(row["status"])),
            one_line(row.get("description") or ""),
        )
        for row in rows
    ]
    headings = ("NAMESPACE", "TOOLS", "STATUS", "DESCRIPTION")
    used = len(headings) if any(cell[-1] for cell in cells) else len(headings) - 1
    lines = table(headings[:used], [cell[:used] for cell in cells], right=frozenset({1}))
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
        kept = " (the last version that worked is served)" if row["tool_count"] else ""
        prefix = f"{name}/{printable(where)}" if where else name
        error = printable(row["error"]).rstrip()
        remarks += ["", f"  {click.style(prefix, fg='red')}{kept}"]
        remarks += [f"    {line}" for line in error.splitlines()[:12]]
    if row.get("missing_secrets"):
        missing = ", ".join(map(printable, row["missing_secrets"]))
        remarks += ["", f"  {click.style(name, fg='yellow')} lacks secrets: {missing}"]
    return remarks

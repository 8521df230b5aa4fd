"""`tooldock reload`: have the gateway look at its folders again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from tooldock.cli.place import data_dir_option
from tooldock.cli.terminal import printable

RELOAD_SECONDS = 1_800.0
"""Installing requirements takes its time; the gateway bounds each installation itself."""


@click.command(short_help="Take in changed tool folders.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as the gateway gives it.")
@data_dir_option
def reload(as_json: bool) -> None:
    """Make the running gateway look at its tool folders again.

    Only what changed is loaded anew. A namespace that cannot be loaded keeps its last working version; its
    error is shown and the exit code is 1.

    \b
    Example:
      tooldock reload
    """
    from tooldock.cli.gateway import Gateway

    gateway = Gateway.find()
    try:
        answer = gateway.request("POST", "/reload", b"{}", seconds=RELOAD_SECONDS, manager=True)
        if not answer.ok:
            raise gateway.failure(answer)
        listed = gateway.request("GET", "/namespaces")
    finally:
        gateway.close()
    done = answer.json()
    rows = listed.json() if listed.ok else []
    if as_json:
        click.echo(json.dumps(done, indent=2, ensure_ascii=False))
    else:
        _show(done, {row["name"]: row for row in rows})
    if done.get("errors"):
        raise click.exceptions.Exit(1)


def _show(done: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> None:
    click.echo(f"Reloaded {_count(done.get('namespaces'), 'namespace')}.")
    for key, sentence in (("workers_restarted", "Changed"), ("deps_synced", "Requirements installed for")):
        names = done.get(key)
        if isinstance(names, list) and names:
            click.echo(f"  {sentence}: {', '.join(printable(str(name)) for name in names)}")
            for name in names if key == "workers_restarted" else ():
                if rows.get(name, {}).get("tool_count") == 0:
                    click.echo(f"  {printable(name)} has no tools: put @tool above a function in its folder.", err=True)
    errors = done.get("errors")
    for name, message in errors.items() if isinstance(errors, dict) else ():
        row = rows.get(name, {})
        shown = f"{printable(str(message))}{_place(str(message), row)}"
        click.echo(f"{click.style(printable(str(name)), fg='red')}: {shown}", err=True)
        if row:
            served = row.get("status") not in ("failed", "building")
            click.echo(
                f"  {'The last version that worked is still served.' if served else 'It is not served.'}", err=True
            )


def _place(message: str, row: Mapping[str, Any]) -> str:
    """Where to look, unless the message says so itself."""
    file, line = row.get("error_file"), row.get("error_line")
    if not file or not line or f"line {line}" in message or f"{file}:{line}" in message:
        return ""
    return f" ({printable(str(file))}, line {line})"


def _count(value: Any, noun: str) -> str:
    number = len(value) if isinstance(value, list) else int(value or 0)
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""`tooldock reload`: have the gateway look at its folders again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import click

from tooldock.cli.place import data_dir_option, data_paths
from tooldock.cli.terminal import printable
from tooldock.cli.tools import NOTHING_THERE, offered

RELOAD_SECONDS = 1_800.0
"""Installing requirements takes its time; the gateway bounds each installation itself."""


@click.command(short_help="Take in changed tool folders.")
@click.argument("names", nargs=-1, metavar="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as the gateway gives it.")
@data_dir_option
def reload(names: tuple[str, ...], as_json: bool) -> None:
    """Make the running gateway look at its tool folders again.

    Only what changed is loaded anew. A namespace that cannot be loaded keeps its last working version; its
    error is shown and the exit code is 1. Clients that started `tooldock stdio` for this data directory get what
    changed, too.

    \b
    Example:
      tooldock reload
    """
    from tooldock.cli.failure import ExitCode, Failure
    from tooldock.cli.gateway import running_core

    if names:
        raise click.UsageError("reload takes no name: it brings in whatever changed.")
    told = _tell_pipes()
    try:
        done, rows = _ask()
    except Failure as failure:
        if failure.exit_code != ExitCode.UNREACHABLE or not told or running_core(data_paths()) is not None:
            raise
        click.echo(f"No gateway runs here. {_told(told)}", err=as_json)
        return
    if as_json:
        click.echo(json.dumps(done, indent=2, ensure_ascii=False))
    else:
        _show(done, rows, told)
    if done.get("errors"):
        raise click.exceptions.Exit(1)


def _tell_pipes() -> int:
    """The gateway knows nothing of the processes clients started; CORE_URL names one of another directory."""
    from tooldock.cli.processes import hang_up

    return 0 if os.environ.get("CORE_URL", "").strip() else hang_up(data_paths())


def _ask() -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    from tooldock.cli.gateway import Gateway

    gateway = Gateway.find()
    try:
        answer = gateway.request("POST", "/reload", b"{}", seconds=RELOAD_SECONDS, manager=True)
        if not answer.ok:
            raise gateway.failure(answer)
        listed = gateway.request("GET", "/namespaces")
    finally:
        gateway.close()
    return answer.json(), {row["name"]: row for row in (listed.json() if listed.ok else [])}


def _show(done: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], told: int) -> None:
    errors = done.get("errors")
    errors = errors if isinstance(errors, dict) else {}
    changed = _names(done, "workers_restarted")
    looked_at = len({*_names(done, "namespaces"), *errors})
    outcome = f"{len(errors)} could not be loaded" if errors else "" if changed else "nothing was loaded anew"
    click.echo(f"Looked at {_count(looked_at, 'namespace')}{outcome and f': {outcome}'}.")
    for sentence, names in (("Changed", changed), ("Requirements installed for", _names(done, "deps_synced"))):
        if names:
            click.echo(f"  {sentence}: {', '.join(map(printable, names))}")
    if told:
        click.echo(f"  {_told(told)}")
    for name in changed:
        if name in rows and not offered(rows[name]):
            click.echo(f"  {printable(name)} serves nothing: {NOTHING_THERE}.", err=True)
    for name, message in errors.items():
        row = rows.get(name, {})
        shown = f"{printable(str(message))}{_place(str(message), row)}"
        click.echo(f"{click.style(printable(str(name)), fg='red')}: {shown}", err=True)
        if row:
            served = row.get("status") not in ("failed", "building")
            click.echo(
                f"  {'The last version that worked is still served.' if served else 'It is not served.'}", err=True
            )


def _told(count: int) -> str:
    return f"Told {_count(count, 'stdio server')} that clients started to look as well."


def _names(done: Mapping[str, Any], key: str) -> list[str]:
    value = done.get(key)
    return [str(name) for name in value] if isinstance(value, list) else []


def _place(message: str, row: Mapping[str, Any]) -> str:
    """Where to look, unless the message says so itself."""
    file, line = row.get("error_file"), row.get("error_line")
    if not file or not line or f"line {line}" in message or f"{file}:{line}" in message:
        return ""
    return f" ({printable(str(file))}, line {line})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

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
    finally:
        gateway.close()
    done = answer.json()
    if as_json:
        click.echo(json.dumps(done, indent=2, ensure_ascii=False))
    else:
        _show(done)
    if done.get("errors"):
        raise click.exceptions.Exit(1)


def _show(done: Mapping[str, Any]) -> None:
    click.echo(f"Reloaded {_count(done.get('namespaces'), 'namespace')}.")
    for key, sentence in (("workers_restarted", "Changed"), ("deps_synced", "Requirements installed for")):
        names = done.get(key)
        if isinstance(names, list) and names:
            click.echo(f"  {sentence}: {', '.join(printable(str(name)) for name in names)}")
    errors = done.get("errors")
    for name, message in errors.items() if isinstance(errors, dict) else ():
        click.echo(f"{click.style(printable(str(name)), fg='red')}: {printable(str(message))}", err=True)


def _count(value: Any, noun: str) -> str:
    number = len(value) if isinstance(value, list) else int(value or 0)
    return f"{number} {noun}{'' if number == 1 else 's'}"

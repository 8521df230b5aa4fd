"""`tooldock doctor`: is everything here that the gateway needs, and if not, what to do."""

from __future__ import annotations

import click

from tooldock.cli.place import data_dir_option

_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


@click.command(short_help="Check this machine and the data directory.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@data_dir_option
def doctor(as_json: bool) -> None:
    """Check Python, uv, the data directory, ports, credentials, kernel features and the running gateway.

    Changes nothing. The exit code is 1 when a check failed; a warning does not count.

    \b
    Examples:
      tooldock doctor
      tooldock doctor --json
    """
    from tooldock.cli.checks import examine

    results = examine()
    if as_json:
        import dataclasses
        import json

        click.echo(json.dumps([dataclasses.asdict(result) for result in results], indent=2))
    else:
        longest = max(len(result.name) for result in results)
        for result in results:
            word, colour = _MARKS[result.status]
            mark = click.style(f"{word:<5}", fg=colour, bold=result.status != "ok")
            click.echo(f"{mark} {result.name.ljust(longest)}  {result.text}")
            if result.advice:
                click.echo(f"{'':<5} {'':<{longest}}  → {result.advice}")
    if any(result.status == "fail" for result in results):
        raise click.exceptions.Exit(1)

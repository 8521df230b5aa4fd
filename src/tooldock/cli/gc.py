"""`tooldock gc`: give back disk space nobody uses any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tooldock.cli.place import data_dir_option, load_settings

if TYPE_CHECKING:
    from tooldock.cli.garbage import Item

_NAMES = {
    "snapshot": "old versions of namespaces",
    "environment": "unused environments",
    "runtime": "worker packages of earlier releases",
    "scratch": "scratch of processes that ended",
    "log": "logs past LOG_RETENTION_DAYS",
}


@click.command(short_help="Remove what nobody uses any more.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@data_dir_option
def gc(dry_run: bool, as_json: bool) -> None:
    """Remove old versions, unused environments, scratch of dead processes and logs past their time.

    Safe while the gateway runs: what is served, or was used in the last ten minutes, stays.

    \b
    Examples:
      tooldock gc --dry-run
      tooldock gc
    """
    from tooldock.cli.garbage import Garbage

    settings = load_settings()
    garbage = Garbage(settings.paths(), retention_days=settings.log_retention_days)
    items = garbage.find() if dry_run else garbage.remove()
    if as_json:
        import json

        rows = [{"kind": item.kind, "path": str(item.path), "bytes": item.size} for item in items]
        total = sum(item.size for item in items)
        click.echo(json.dumps({"dry_run": dry_run, "bytes": total, "items": rows}, indent=2))
        return
    _show(items, dry_run)


def _show(items: list[Item], dry_run: bool) -> None:
    if not items:
        click.echo("There is nothing to remove.")
        return
    for kind, words in _NAMES.items():
        chosen = [item for item in items if item.kind == kind]
        if not chosen:
            continue
        click.echo(f"{click.style(words.capitalize(), bold=True)}: {len(chosen)}, {_bytes(chosen)}")
        if dry_run:
            for item in chosen:
                click.echo(f"  {item.path}")
    verb = "would be freed; run it without --dry-run to do so" if dry_run else "freed"
    click.echo(f"{_bytes(items)} {verb}.")


def _bytes(items: list[Item]) -> str:
    size = float(sum(item.size for item in items))
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError

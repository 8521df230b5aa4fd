"""`tooldock completion`, and what can be completed: names on disk, so no gateway has to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tooldock.cli.place import data_dir_option, data_paths

_SETUP = {
    "bash": 'eval "$(tooldock completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(tooldock completion zsh)" in ~/.zshrc',
    "fish": "tooldock completion fish | source in ~/.config/fish/config.fish",
}


@click.command(short_help="Print the completion script for a shell.")
@click.argument("shell", type=click.Choice(tuple(_SETUP)))
@data_dir_option
def completion(shell: str) -> None:
    """Print a script that lets SHELL complete commands, namespaces and tools.

    \b
    Examples:
      eval "$(tooldock completion bash)"          (put it into ~/.bashrc)
      eval "$(tooldock completion zsh)"           (put it into ~/.zshrc)
      tooldock completion fish | source           (put it into ~/.config/fish/config.fish)
    """
    from click.shell_completion import get_completion_class

    from tooldock.cli.root import program

    kind = get_completion_class(shell)
    assert kind is not None
    # click's own source() for bash first runs bash to learn its version; printing a script needs no shell.
    script = kind(program, {}, "tooldock", "_TOOLDOCK_COMPLETE")
    click.echo(script.source_template % script.source_vars())


def namespace_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Namespaces that were served before, and folders that could be."""
    try:
        paths = data_paths(context)
        folders = [entry.name for entry in paths.tools.iterdir() if entry.is_dir() and entry.name[0] not in "._"]
        served = [file.stem for file in (paths.state / "catalogue").glob("*.json")]
    except OSError:
        return []
    return sorted(name for name in {*folders, *served} if name.startswith(incomplete))


def tool_names(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return sorted(
        str(tool["name"])
        for tool in known_tools(str(context.params.get("namespace") or ""), context)
        if str(tool.get("name", "")).startswith(incomplete)
    )


def known_tools(namespace: str, context: click.Context | None = None) -> list[dict[str, Any]]:
    """The tools of the last version that loaded, as described then; none when nothing is known."""
    try:
        file: Path = data_paths(context).catalogue(namespace)
        tools = json.loads(file.read_bytes())["tools"]
        return [tool for tool in tools if isinstance(tool, dict)]
    except (OSError, ValueError, KeyError, TypeError):
        return []

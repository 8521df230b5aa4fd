"""`tooldock stdio`: one namespace over standard input and output, for clients that start their servers themselves."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tooldock.cli.completion import namespace_names
from tooldock.cli.failure import Failure
from tooldock.cli.place import data_dir_option, load_settings

if TYPE_CHECKING:
    from tooldock.model import Namespace

_MAX_PROBLEM = 600


@click.command(short_help="Serve one namespace over standard input and output.")
@click.option(
    "--namespace",
    required=True,
    metavar="NAME",
    shell_complete=namespace_names,
    help="The namespace to serve. Its folder is in the data directory; no gateway has to run.",
)
@data_dir_option
def stdio(namespace: str) -> None:
    """Serve one namespace to the program that started this command.

    It speaks MCP, every revision, and the line protocol: a line with {"method": "list_tools"} or {"method":
    "call_tool", "name": ..., "args": {...}} is answered by one line. Only messages are written to standard output; the
    log goes to standard error. It ends when standard input does. SIGHUP reads the namespace's folder again.

    \b
    Examples:
      tooldock stdio --namespace github --data-dir ~/tools
      echo '{"method": "list_tools"}' | tooldock stdio --namespace shared
    """
    incoming, outgoing = _private_pipes()
    from tooldock import app
    from tooldock.errors import ToolDockError

    try:
        # Nothing listens here, so what a gateway others can reach would need is not asked for.
        settings = load_settings({"host": "127.0.0.1"})
        app.configure_logging(settings)
        served = app.serve_stdio(
            settings,
            settings.paths(),
            namespace=namespace,
            incoming=incoming,
            outgoing=outgoing,
            reporter=_Quiet(),
        )
        code = app.run(served)
    except ToolDockError as error:
        raise Failure(" ".join(error.message.split())[:_MAX_PROBLEM]) from None
    if code:
        raise click.exceptions.Exit(code)


def _private_pipes() -> tuple[int, int]:
    """Our own copies of standard input and output. Whoever else uses the usual ones, a library or a child, gets
    nothing to read and writes to standard error: a stray line among the messages would end the conversation."""
    try:
        incoming, outgoing = os.dup(0), os.dup(1)
    except OSError:
        raise Failure("Standard input or output is closed, and `tooldock stdio` speaks through them.") from None
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed
        os.dup2(nothing, 1)
    os.close(nothing)
    return incoming, outgoing


class _Quiet:
    """A reporter for a client's log window: building an environment is worth a line, being ready is not."""

    def progress(self, namespace: str, text: str) -> None:
        click.echo(f"{namespace or 'base environment'}: {text}", err=True)

    def ready(self, url: str, namespaces: Sequence[Namespace]) -> None:
        return None

    def changed(self, namespaces: Sequence[Namespace]) -> None:
        return None

    def stopping(self, calls: int) -> None:
        return None

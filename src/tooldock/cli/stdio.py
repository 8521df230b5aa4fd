"""`tooldock stdio`: one namespace over standard input and output, for clients that start their servers themselves."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from tooldock.cli.failure import Failure
from tooldock.cli.namespace import check_known, given, namespace_option, on_disk
from tooldock.cli.place import data_dir_option, load_settings
from tooldock.cli.terminal import one_line

if TYPE_CHECKING:
    from tooldock.model import Namespace
    from tooldock.settings import Settings

_MAX_PROBLEM = 600


@click.command(short_help="Serve one namespace over standard input and output.")
@namespace_option("The namespace to serve. Its folder is in the data directory; no gateway has to run.")
@data_dir_option
def stdio(name: str | None, namespace: str | None) -> None:
    """Serve the namespace NAME to the program that started this command.

    It speaks MCP, every revision, and the line protocol: a line with {"method": "list_tools"} or {"method":
    "call_tool", "name": ..., "args": {...}} is answered by one line. Only messages are written to standard output; the
    log goes to standard error. It ends when standard input does. SIGHUP reads the namespace's folder again, and so
    does `tooldock reload`.

    \b
    Examples:
      tooldock stdio github --data-dir ~/tools
      echo '{"method": "list_tools"}' | tooldock stdio --namespace shared
    """
    wanted = given(name, namespace)
    if wanted is None:
        raise click.UsageError("Which namespace? Write `tooldock stdio NAME`.")
    incoming, outgoing = _private_pipes()
    from tooldock import app
    from tooldock.errors import ToolDockError

    try:
        # Nothing listens here, so what a gateway others can reach would need is not asked for.
        settings = load_settings({"host": "127.0.0.1"})
        paths = settings.paths()
        check_known(wanted, on_disk(paths), str(paths.tools))
        early = dataclasses.replace(settings, log_level="error") if _is_unchosen(settings) else settings
        app.configure_logging(early)
        if os.isatty(incoming):
            click.echo(_ABOUT.format(name=wanted), err=True)
        served = app.serve_stdio(
            settings,
            paths,
            namespace=wanted,
            incoming=incoming,
            outgoing=outgoing,
            reporter=_Quiet(lambda: app.configure_logging(settings)),
        )
        code = app.run(served)
    except Failure as failure:
        step = failure.next_step
        raise Failure(f"{failure.message} {step[:1].upper()}{step[1:]}".strip()) from None
    except ToolDockError as error:
        raise Failure(" ".join(error.message.split())[:_MAX_PROBLEM]) from None
    if code:
        raise click.exceptions.Exit(code)


_ABOUT = (
    "This serves {name!r} to a program that speaks MCP, or one JSON object a line, over standard input and output; "
    "`tooldock client-config {name} --client claude --transport stdio` prints the configuration for one. "
    "Ctrl-D ends it."
)


def _is_unchosen(settings: Settings) -> bool:
    """Whether nobody said how to log. What goes wrong at the start is then told once, as the error it ends in."""
    return settings.log_format == "auto" and settings.log_level == "info"


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

    def __init__(self, loaded: Callable[[], None]) -> None:
        """`loaded` is called once the namespace is served."""
        self._loaded: Callable[[], None] | None = loaded

    def progress(self, namespace: str, text: str) -> None:
        click.echo(f"{namespace or 'base environment'}: {text}", err=True)

    def ready(self, url: str, namespaces: Sequence[Namespace]) -> None:
        return None

    def changed(self, namespaces: Sequence[Namespace]) -> None:
        """After the first load, also when there was nothing to load; later when a reload changed something."""
        if self._loaded is None:
            return
        for namespace in namespaces:
            if namespace.status in ("failed", "building", "disabled"):
                return  # the command is about to end with the reason
            if namespace.error:
                said = f"{namespace.name}: {one_line(namespace.error)} The last version that worked is served."
                click.echo(said, err=True)
        self._loaded()
        self._loaded = None

    def stopping(self, calls: int) -> None:
        return None

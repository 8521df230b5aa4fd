"""The program itself: which commands there are, and how every one of them ends."""

from __future__ import annotations

import importlib
import os
import sys

import click

from tooldock import __version__
from tooldock.cli.failure import ExitCode, Failure
from tooldock.cli.place import data_dir_option
from tooldock.cli.terminal import colour_allowed
from tooldock.errors import ToolDockError

SECTIONS: tuple[tuple[str, dict[str, str]], ...] = (
    ("Run the gateway", {"up": "serve", "core": "serve", "stdio": "stdio"}),
    ("Connect clients", {"client-config": "client_config"}),
    ("Write and call tools", {"new": "new", "call": "call", "tools": "tools", "namespaces": "tools"}),
    ("Look after it", {"reload": "reload", "logs": "logs", "gc": "gc", "doctor": "doctor"}),
    ("Shell", {"completion": "completion"}),
)
"""Commands by task, each with the module that holds it; a module is imported when its command is used."""

_MODULES = {name: module for _, commands in SECTIONS for name, module in commands.items()}


class Program(click.Group):
    """A group whose commands are found by name in their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _MODULES.get(cmd_name)
        if module is None:
            return None
        command = getattr(importlib.import_module(f"tooldock.cli.{module}"), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            near = difflib.get_close_matches(args[0], _MODULES, n=1)
            hint = f" Did you mean `tooldock {near[0]}`?" if near else " `tooldock --help` lists them."
            raise click.UsageError(f"There is no command {args[0][:80]!r}.{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, _MODULES))
        for title, commands in SECTIONS:
            rows = []
            for name in commands:
                command = self.get_command(ctx, name)
                assert command is not None
                rows.append((name.ljust(longest), command.get_short_help_str(60)))
            with formatter.section(title):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> object:
        """Expected errors become one sentence; anything else is a fault of ours and keeps its traceback."""
        try:
            result: object = super().invoke(ctx)
        except ToolDockError as error:
            raise Failure(error.message) from None
        except PermissionError as error:
            if error.filename is None:
                raise
            raise Failure(
                f"{error.filename} cannot be used ({error.strerror}).",
                next_step="run this as the user who started ToolDock.",
            ) from None
        return result


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `tooldock up`. Every command explains itself: `tooldock COMMAND --help`.",
)
@click.version_option(__version__, "-V", "--version", prog_name="tooldock")
@data_dir_option
@click.pass_context
def program(context: click.Context) -> None:
    """ToolDock turns a folder into a governed tool server.

    \b
    Example:
      tooldock up
      tooldock call shared hello name=Ada
    """
    if not colour_allowed():
        context.color = False


def main() -> None:
    """Run the command line and end the process."""
    try:
        code = program.main(prog_name="tooldock", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("", err=True)
        sys.exit(int(ExitCode.INTERRUPTED))
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(int(ExitCode.FAILED))

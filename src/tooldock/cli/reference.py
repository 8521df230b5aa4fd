"""`docs/reference/cli.md`, made from the commands themselves: `python -m tooldock.cli.reference`."""

from __future__ import annotations

import sys

import click

from tooldock.cli.failure import MEANING
from tooldock.cli.root import SECTIONS, program

_WIDTH = 90


_HEAD = """\
# Command line

<!-- Made by `python -m tooldock.cli.reference`; edit the commands in `tooldock/cli` instead. -->

`--data-dir` may stand before the command or after it. Settings come from the command line, else from the
environment, else from `config.yaml`; [Settings](settings.md) has every name.

Commands that speak to a running gateway find it through the data directory, or at `CORE_URL` when that is
set. They take the token from `BEARER_TOKEN`, else from `config.yaml`, else from the file the gateway made,
and never as an argument, where other users of the machine could see it.

Colour is used on a terminal only, and not when `NO_COLOR` is set.

## Exit codes

| code | meaning |
|---|---|
"""

_ERRORS = """
An error is one sentence on standard error, followed by what to do next. Results go to standard output.

## tooldock
"""


def reference_page() -> str:
    root = click.Context(program, info_name="tooldock", terminal_width=_WIDTH, help_option_names=["-h", "--help"])
    codes = "".join(f"| {int(code)} | {meaning} |\n" for code, meaning in MEANING.items())
    parts = [_HEAD + codes + _ERRORS, _help(root)]
    for title, commands in SECTIONS:
        parts.append(f"## {title}")
        for name in commands:
            command = program.get_command(root, name)
            assert command is not None
            context = click.Context(command, parent=root, info_name=name)
            parts += [f"### tooldock {name}", _help(context)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _help(context: click.Context) -> str:
    lines = click.unstyle(context.get_help()).splitlines()
    return "\n".join(["```text", *(line.rstrip() for line in lines), "```"])


if __name__ == "__main__":
    sys.stdout.write(reference_page())

"""How a command ends when it could not do its work: one sentence, the next step, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import IO, Any

import click


class ExitCode(IntEnum):
    """What a script can tell apart; the reference page is made from the strings below."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMEOUT = 4
    INTERRUPTED = 130


MEANING: dict[ExitCode, str] = {
    ExitCode.OK: "The command did what it was asked to.",
    ExitCode.FAILED: "The tool or the gateway answered with an error, or a check failed.",
    ExitCode.USAGE: "The command line cannot be understood.",
    ExitCode.UNREACHABLE: "The command needs a running gateway, and there is none to be reached.",
    ExitCode.TIMEOUT: "The call did not finish in time.",
    ExitCode.INTERRUPTED: "Interrupted with Ctrl-C.",
}


class Failure(click.ClickException):
    """`message` says what happened; `facts` are lines below it, `next_step` says what to do."""

    exit_code: int  # type: ignore[misc]  # click has it on the class, and reads it from the instance

    def __init__(
        self,
        message: str,
        *,
        code: ExitCode = ExitCode.FAILED,
        facts: Sequence[str] = (),
        next_step: str = "",
    ) -> None:
        super().__init__(message)
        self.exit_code = int(code)
        self.facts = tuple(facts)
        self.next_step = next_step

    def show(self, file: IO[Any] | None = None) -> None:
        lines = [f"{click.style('Error:', fg='red', bold=True)} {self.message}"]
        lines += [f"  {fact}" for fact in self.facts]
        if self.next_step:
            lines.append(f"{click.style('Next:', bold=True)} {self.next_step}")
        # The command's context is closed by now; click noted what it said about colour.
        click.echo("\n".join(lines), file=file or sys.stderr, color=self.show_color)

"""One line per namespace while environments are built: redrawn in place on a terminal, appended elsewhere."""

from __future__ import annotations

import shutil

import click

from tooldock.cli.terminal import one_line

_BASE = "base environment"


class Progress:
    """Call `clear` before printing anything else."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._lines: dict[str, str] = {}
        self._drawn = 0

    def update(self, namespace: str, text: str) -> None:
        name = namespace or _BASE
        if self._lines.get(name) == text:
            return
        self._lines[name] = text
        if self._live:
            self._redraw()
        else:
            click.echo(f"{name}: {one_line(text)}")

    def clear(self) -> None:
        """Take the lines away again; what they told is over."""
        if self._drawn:
            click.echo(f"\x1b[{self._drawn}A\x1b[J", nl=False, color=True)
        self._drawn = 0
        self._lines.clear()

    def _redraw(self) -> None:
        size = shutil.get_terminal_size((80, 24))
        # Lines that left the screen at the top cannot be redrawn, so no more are drawn than fit.
        shown = list(self._lines.items())[-max(1, size.lines - 2) :]
        longest = max(len(name) for name, _ in shown)
        up = f"\x1b[{self._drawn}A\x1b[J" if self._drawn else ""
        room = max(10, size.columns - longest - 5)
        text = "".join(
            f"  {click.style(name.ljust(longest), bold=True)}  {one_line(text, room)}\n" for name, text in shown
        )
        # Moving the cursor is no colour; where colour is unwanted the codes are taken out of the text alone.
        context = click.get_current_context(silent=True)
        plain = context is not None and context.color is False
        click.echo(up + (click.unstyle(text) if plain else text), nl=False, color=True)
        self._drawn = len(shown)

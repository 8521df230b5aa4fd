"""A pseudo-terminal for tests, and what is on its screen at the end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping

_CODE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")


class Terminal:
    """A command that believes a person is watching."""

    def __init__(self, *command: str, environ: Mapping[str, str], columns: int = 80, lines: int = 24) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, *command],
            env={**environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": str(lines)},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.text = ""

    def read_until(self, what: str, seen: Callable[[str], bool], seconds: float = 60.0) -> str:
        deadline = time.monotonic() + seconds
        while not seen(self.text):
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"not within {seconds:g} s: {what}\n{self.text}")
            if not self._read():
                raise AssertionError(f"ended before: {what}\n{self.text}")
        return self.text

    def read_all(self, seconds: float = 60.0) -> str:
        deadline = time.monotonic() + seconds
        while select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if not self._read():
                self.process.wait(max(0.1, deadline - time.monotonic()))
                return self.text
        raise AssertionError(f"did not end within {seconds:g} s:\n{self.text}")

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._master >= 0:
            os.close(self._master)

    def _read(self) -> bool:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux reports the end of a terminal as an error
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)


def screen(text: str) -> list[str]:
    """The lines left after moving up and erasing; colours are ignored."""
    rows = [""]
    row = 0
    position = 0
    while position < len(text):
        code = _CODE.match(text, position)
        if code:
            position = code.end()
            if code[2] == "A":
                row = max(0, row - int(code[1] or 1))
            elif code[2] == "J":
                rows[row + 1 :] = []
                rows[row] = ""
            continue
        letter = text[position]
        position += 1
        if letter == "\n":
            row += 1
            if row == len(rows):
                rows.append("")
        elif letter != "\r":
            rows[row] += letter
    return rows

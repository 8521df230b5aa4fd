"""`tooldock logs`: what a namespace's tools printed. Reads the log file; no gateway has to run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from tooldock.cli.completion import namespace_names
from tooldock.cli.failure import Failure
from tooldock.cli.place import data_dir_option, data_paths
from tooldock.cli.terminal import is_terminal, printable

POLL_SECONDS = 0.25
_BLOCK = 1 << 16


@click.command(short_help="Show what a namespace's tools printed.")
@click.argument("namespace", shell_complete=namespace_names)
@click.option("-n", "--lines", type=int, default=50, show_default=True, help="How many lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@data_dir_option
def logs(namespace: str, lines: int, follow: bool) -> None:
    """Show the last lines NAMESPACE printed, tracebacks of its tools among them.

    \b
    Examples:
      tooldock logs github
      tooldock logs github -n 200 -f
    """
    from tooldock.paths import check_namespace_name

    if lines < 0:
        raise click.UsageError("--lines must be 0 or more.")
    paths = data_paths()
    file = paths.worker_log(check_namespace_name(namespace))
    if not file.exists():
        if not paths.namespace(namespace).is_dir():
            raise Failure(
                f"There is no namespace {namespace!r} in {paths.tools}.",
                next_step="`tooldock namespaces` lists what is served.",
            )
        click.echo(f"{namespace} has printed nothing yet.", err=True)
    stream, last = _open(file)
    for line in last_lines(file, lines):
        _print(line)
    if follow:
        for line in _follow(file, stream, last):
            _print(line)
    elif stream is not None:
        stream.close()


def _print(line: bytes) -> None:
    text = line.decode("utf-8", "replace")
    click.echo(printable(text) if is_terminal(sys.stdout) else text, color=True)


def last_lines(file: Path, count: int) -> list[bytes]:
    """The last lines, those of the file before a rotation included."""
    found: list[bytes] = []
    for path in (file, file.with_suffix(".log.1")):
        if len(found) < count:
            found = _tail(path, count - len(found)) + found
    return found


def _tail(path: Path, count: int) -> list[bytes]:
    """Read from the end, so that a large file costs no more than a small one."""
    try:
        with path.open("rb") as stream:
            position = stream.seek(0, os.SEEK_END)
            data = b""
            while position > 0 and data.count(b"\n") <= count:
                step = min(_BLOCK, position)
                position -= step
                stream.seek(position)
                data = stream.read(step) + data
    except FileNotFoundError:
        return []
    return data.splitlines()[-count:] if count else []


def _open(file: Path) -> tuple[BinaryIO | None, int]:
    """The file, to be read from its present end."""
    try:
        stream = file.open("rb")
    except FileNotFoundError:
        return None, 0
    return stream, stream.seek(0, os.SEEK_END)


def _follow(file: Path, stream: BinaryIO | None, position: int) -> Iterator[bytes]:
    """New lines as they come; when the file is replaced, what is left of the old one and then the new one."""
    partial = b""
    if stream is not None:
        stream.seek(position)
    while True:
        if stream is None:
            stream = _reopen(file)
        if stream is not None:
            data = stream.read()
            *whole, partial = (partial + data).split(b"\n")
            yield from whole
            if _replaced(file, stream) and not data:
                stream.close()
                stream, partial = None, b""
                continue
        time.sleep(POLL_SECONDS)


def _reopen(file: Path) -> BinaryIO | None:
    try:
        return file.open("rb")
    except FileNotFoundError:
        return None


def _replaced(file: Path, stream: BinaryIO) -> bool:
    try:
        now = file.stat()
    except FileNotFoundError:
        return False
    return now.st_ino != os.fstat(stream.fileno()).st_ino

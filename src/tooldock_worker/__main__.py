"""`python -m tooldock_worker`: serve one namespace folder over one socket.

The gateway starts it with an inherited socket (`--fd`); `--socket PATH` listens on a path instead, for running a
worker by hand. Everything tools print goes to this process's standard error.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import mmap
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tooldock_worker import light
from tooldock_worker.frames import MAX_FRAME, dumps
from tooldock_worker.load import LoadError, load
from tooldock_worker.server import Server

EXIT_NOT_LOADED = 3
"""The folder could not be loaded; starting it again unchanged will not help."""

_PR_SET_PDEATHSIG = 1
_USAGE = """\
usage: python -m tooldock_worker --namespace NAME --folder PATH (--fd N | --socket PATH)

  --namespace NAME   what the tools are served as
  --folder PATH      the namespace's files
  --fd N             an inherited, connected socket
  --socket PATH      listen here and serve the first connection
  --begun-fd N       inherited shared memory: the call taken up last
  --threads N        how many sync tools may run at once (128)
  --max-output N     bytes one result may have (1048576)
  --max-frame N      bytes one line may have (16777216)
"""


@dataclass(slots=True)
class Options:
    """The command line."""

    namespace: str = ""
    folder: str = ""
    fd: int | None = None
    socket: str | None = None
    begun_fd: int | None = None
    threads: int = 128
    max_output: int = 1 << 20
    max_frame: int = MAX_FRAME
    die_with_parent: int | None = None


_TEXTS = frozenset({"namespace", "folder", "socket"})


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    if options.die_with_parent:
        die_with_parent(options.die_with_parent)
    sock = socket.socket(fileno=options.fd) if options.socket is None else _accept(options.socket)
    begun = _shared_counter(options.begun_fd)
    # The gateway's own way of finding this package must not reach what tools start.
    os.environ.pop("PYTHONPATH", None)
    sys.stdout = sys.stderr
    light.install()
    try:
        loaded = load(Path(options.folder))
        gc.collect()
        gc.freeze()
        server = Server(
            options.namespace,
            loaded,
            sock,
            begun=begun,
            threads=options.threads,
            max_output=options.max_output,
            max_frame=options.max_frame,
        )
        asyncio.run(server.serve())
    except LoadError as error:
        _report(sock, error)
        return EXIT_NOT_LOADED
    return 0


def die_with_parent(parent: int) -> None:
    """Linux: be killed when the process that started this one goes, however it goes."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)  # it was gone before we asked


def leave(code: int) -> None:
    """End the process as an interpreter would, but without waiting for threads a tool never returns from."""
    try:
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass  # closed by a tool; there is nothing left to save
        os._exit(code)


def _parse(argv: Sequence[str] | None) -> Options:
    """By hand, because every forked worker does this and argparse would cost it a megabyte of its own."""
    options = Options()
    words = iter(sys.argv[1:] if argv is None else argv)
    for word in words:
        if word in ("-h", "--help"):
            print(_USAGE, end="")
            raise SystemExit(0)
        option, given, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in Options.__slots__:
            _refuse(f"there is no option {option}")
        text = value if given else next(words, None)
        if text is None:
            _refuse(f"{option} needs a value")
        if name in _TEXTS:
            setattr(options, name, text)
        elif text.isdecimal():
            setattr(options, name, int(text))
        else:
            _refuse(f"{option} needs a number")
    if not options.namespace or not options.folder:
        _refuse("--namespace and --folder are needed")
    if (options.fd is None) == (options.socket is None):
        _refuse("exactly one of --fd and --socket is needed")
    return options


def _refuse(why: str) -> NoReturn:
    print(f"{_USAGE}\npython -m tooldock_worker: {why}.", file=sys.stderr)
    raise SystemExit(2)


def _accept(path: str) -> socket.socket:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        try:
            os.chmod(path, 0o600)
            listener.listen(1)
            connection, _ = listener.accept()
        finally:
            os.unlink(path)
    return connection


def _shared_counter(fd: int | None) -> memoryview:
    if fd is None:
        return memoryview(bytearray(16)).cast("Q")
    memory = mmap.mmap(fd, 16)
    os.close(fd)
    return memoryview(memory).cast("Q")


def _report(sock: socket.socket, error: LoadError) -> None:
    code = "dependency_error"
    details = {"file": error.file, "line": error.line, "kind": error.kind}
    message = {"op": "failed", "error": {"code": code, "message": str(error), "details": details}}
    try:
        sock.settimeout(5)
        sock.sendall(dumps(message) + b"\n")
    except OSError:
        pass  # the gateway is gone; the exit code says the rest


if __name__ == "__main__":
    leave(main())

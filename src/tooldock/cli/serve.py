"""`tooldock up` and `tooldock core`: run the gateway, for a person or for a service manager."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tooldock.cli.failure import Failure
from tooldock.cli.place import data_dir_option, load_settings

if TYPE_CHECKING:
    from tooldock.cli.startup import Token
    from tooldock.errors import ToolDockError
    from tooldock.paths import Paths
    from tooldock.settings import Settings


@click.command(short_help="Run the gateway on this machine.")
@click.option(
    "--core-port",
    "--port",
    "core_port",
    type=int,
    metavar="PORT",
    help="The port of core; CORE_PORT, else 8000. 0 takes a free one.",
)
@click.option("--manager-port", type=int, metavar="PORT", help="The port of the manager; MANAGER_PORT, else 8001.")
@data_dir_option
def up(core_port: int | None, manager_port: int | None) -> None:
    """Run the gateway on loopback, with everything set up by itself.

    The first start makes the data directory, a token, and a namespace `shared` with two tools to try.

    \b
    Examples:
      tooldock up
      tooldock up --data-dir ~/tools --port 9000
    """
    import dataclasses

    from tooldock import app
    from tooldock.cli.new import create_example
    from tooldock.cli.startup import Announcer
    from tooldock.errors import ToolDockError
    from tooldock.settings import is_loopback

    named = os.environ.get("HOST", "").strip()
    host = named if named and is_loopback(named) else "127.0.0.1"
    settings = load_settings({"host": host, "core_port": core_port, "manager_port": manager_port})
    # A person reads what the announcer says; the log adds what is out of the ordinary, unless asked for more.
    level = "warning" if settings.log_level == "info" else settings.log_level
    app.configure_logging(dataclasses.replace(settings, log_level=level))
    notes = []
    if named and host != named:
        notes.append(f"HOST is {named}, but `tooldock up` stays on this machine; `tooldock core` listens there.")
    paths = settings.paths()
    is_new = not paths.data_dir.exists()
    made = create_example(paths.tools)
    announcer = Announcer(paths, _token(settings, paths), notes=notes, made_example=made)
    # PORT belongs to a single process; `up` has a port for each role.
    served = app.serve(settings, paths, role="core", host=host, port=settings.core_port, reporter=announcer)
    try:
        code = app.run(served)
    except ToolDockError as error:
        if made and not announcer.up:
            _take_back(paths, whole=is_new)
        raise _explained(error, paths, "up", "--core-port") from None
    _end(code)


@click.command(short_help="Run the gateway as a service.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on; HOST, else 127.0.0.1.")
@click.option("--port", type=int, metavar="PORT", help="The port; PORT or CORE_PORT, else 8000. 0 takes a free one.")
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate chain (PEM); TLS_CERT.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key (PEM); TLS_KEY.")
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error", "critical")),
    help="The least serious event that is logged; LOG_LEVEL, else info.",
)
@data_dir_option
def core(
    host: str | None, port: int | None, tls_cert: Path | None, tls_key: Path | None, log_level: str | None
) -> None:
    """Run the gateway for containers and service managers: structured logs on standard error, no decoration.

    On anything but loopback, BEARER_TOKEN, MANAGER_INTERNAL_TOKEN and SECRETS_KEY must be set.

    \b
    Examples:
      tooldock core
      tooldock core --host 0.0.0.0 --port 8000 --data-dir /data
    """
    from tooldock import app
    from tooldock.cli.startup import Logged
    from tooldock.errors import ToolDockError

    flags: dict[str, Any] = {
        "host": host,
        "port": port,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "log_level": log_level,
    }
    settings = load_settings(flags)
    app.configure_logging(settings)
    paths = settings.paths()
    port = settings.port_for("core")
    served = app.serve(settings, paths, role="core", host=settings.host, port=port, reporter=Logged())
    try:
        code = app.run(served)
    except ToolDockError as error:
        raise _explained(error, paths, "core", "--port") from None
    _end(code)


def _token(settings: Settings, paths: Paths) -> Token:
    """Where the bearer token comes from; asked before a missing one is generated."""
    from tooldock.cli.startup import Token

    if settings.auth_disabled:
        return Token()
    if os.environ.get("BEARER_TOKEN", "").strip():
        return Token(source="BEARER_TOKEN in the environment")
    if settings.bearer_token is not None:
        return Token(source=f"bearer_token in {paths.config_file}")
    return Token(file=paths.token("bearer_token"))


def _explained(error: ToolDockError, paths: Paths, command: str, option: str) -> Failure:
    """Why it did not start: most of all, because it runs already."""
    from tooldock.cli.gateway import running_core
    from tooldock.cli.processes import holder
    from tooldock.cli.startup import program_name

    pid = holder(paths, "core")
    if pid is not None:
        record = running_core(paths)
        at = f" at {record['url']}" if record is not None and record["pid"] == pid else ""
        return Failure(
            f"ToolDock already runs for {paths.data_dir}{at} (process {pid}).",
            next_step=f"use it, stop it with `kill {pid}`, or choose another directory with --data-dir.",
        )
    port = error.details.get("port")
    if not isinstance(port, int):
        return Failure(error.message)
    other = _OTHER_PORT if port != _OTHER_PORT else _OTHER_PORT + 1
    if command == "up" and os.environ.get("MAKELEVEL"):
        return Failure(error.message, next_step=f"`CORE_PORT={other} make up`.")
    return Failure(error.message, next_step=f"`{program_name()} {command} {option} {other}`.")


_OTHER_PORT = 8010
_OURS = {"tools", "state", "logs", "repos", "venvs"}


def _take_back(paths: Paths, *, whole: bool) -> None:
    """After a start that failed: what it made for a first look, and a new directory as long as it is all ours."""
    import shutil

    from tooldock.cli.new import remove_example

    remove_example(paths.tools)
    try:
        if whole and not any(paths.tools.iterdir()) and {entry.name for entry in paths.data_dir.iterdir()} <= _OURS:
            shutil.rmtree(paths.data_dir)
    except OSError:
        return  # it is in use, or not ours to remove; nothing in it does harm


def _end(code: int) -> None:
    if code:
        raise click.exceptions.Exit(code)

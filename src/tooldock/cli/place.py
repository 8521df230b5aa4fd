"""Which data directory a command works on, and the settings that hold there.

`--data-dir` may stand before the command or after it; the nearer one wins, then DATA_DIR, then the default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tooldock.paths import Paths
    from tooldock.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

_KEY = "tooldock.data_dir"


def _remember(context: click.Context, _parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.meta[_KEY] = value


def data_dir_option(function: F) -> F:
    """`--data-dir`, on the program and on every command."""
    option = click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        expose_value=False,
        is_eager=True,
        callback=_remember,
        help="The data directory. Default: DATA_DIR, else /data in a container, else ./tooldock_data.",
    )
    return option(function)


def given_data_dir(context: click.Context | None = None) -> Path | None:
    """What the command line or the environment says; None means the default."""
    context = context or click.get_current_context(silent=True)
    chosen: Path | None = context.meta.get(_KEY) if context is not None else None
    if chosen is not None:
        return chosen
    named = os.environ.get("DATA_DIR", "").strip()
    return Path(named) if named else None


def data_paths(context: click.Context | None = None) -> Paths:
    """The data directory's files, without looking at settings. Completion has a context, but no current one."""
    from tooldock.paths import Paths, default_data_dir

    return Paths(given_data_dir(context) or default_data_dir())


def load_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    """Flags, environment and `config.yaml` together."""
    from tooldock.config.gateway import read_gateway
    from tooldock.settings import Settings

    paths = data_paths()
    file = read_gateway(paths.config_file).settings
    return Settings.load({**(flags or {}), "data_dir": paths.data_dir}, os.environ, file)

"""The namespace a command is about: given bare or as --namespace, and one of those that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tooldock.cli.completion import namespace_names
from tooldock.cli.failure import Failure

if TYPE_CHECKING:
    from tooldock.paths import Paths

F = TypeVar("F", bound=Callable[..., Any])


def namespace_option(help: str) -> Callable[[F], F]:
    """`NAME` and `--namespace NAME`, as the parameters `name` and `namespace`; `given` makes one of them."""

    def add(function: F) -> F:
        option = click.option("--namespace", metavar="NAME", shell_complete=namespace_names, help=help)
        bare = click.argument("name", required=False, shell_complete=namespace_names)
        return bare(option(function))

    return add


def given(name: str | None, namespace: str | None) -> str | None:
    if name is not None and namespace is not None and name != namespace:
        raise click.UsageError(f"Two namespaces are named, {name[:80]!r} and {namespace[:80]!r}; name one.")
    return name if namespace is None else namespace


def on_disk(paths: Paths) -> list[str]:
    """The namespaces of a data directory, which has to be there."""
    from tooldock.paths import NAMESPACE_NAME
    from tooldock.sources import folder

    if not paths.data_dir.is_dir():
        raise Failure(
            f"There is no data directory {paths.data_dir}.",
            next_step="choose it with --data-dir, or make one there with `tooldock up`.",
        )
    return [name for name in folder.names(paths.tools) if NAMESPACE_NAME.fullmatch(name)]


def check_known(wanted: str, known: Sequence[str], place: str) -> str:
    """The name itself, or a failure with the one it resembles and those there are."""
    if wanted in known:
        return wanted
    if not known:
        raise none_at_all(place)
    import difflib

    near = difflib.get_close_matches(wanted[:80], known, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise Failure(
        f"There is no namespace {wanted[:80]!r} in {place}.{meant}", next_step=f"choose one of: {', '.join(known)}."
    )


def none_at_all(place: str) -> Failure:
    return Failure(f"There are no namespaces in {place}.", next_step="make one with `tooldock new NAME`.")

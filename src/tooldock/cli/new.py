"""`tooldock new`: a namespace to start from, and the example a first start gets."""

from __future__ import annotations

from pathlib import Path

import click

from tooldock.cli.failure import Failure
from tooldock.cli.place import data_dir_option, data_paths

_TEMPLATES = Path(__file__).parent / "templates"

EXAMPLE_NAMESPACE = "shared"
EXAMPLE_TOOL = "hello"


@click.command(short_help="Make a namespace with a tool to start from.")
@click.argument("namespace")
@click.option("--async", "is_async", is_flag=True, help="Start from an async tool.")
@click.option("--with-requirements", is_flag=True, help="Add a requirements.txt.")
@data_dir_option
def new(namespace: str, is_async: bool, with_requirements: bool) -> None:
    """Make tools/NAMESPACE with a tool file and a commented tooldock.yaml.

    \b
    Examples:
      tooldock new github
      tooldock new weather --async --with-requirements
    """
    from tooldock.paths import check_namespace_name

    paths = data_paths()
    folder = paths.namespace(check_namespace_name(namespace))
    files = {
        "tools.py": _template("async_tool.py" if is_async else "tool.py", namespace),
        "tooldock.yaml": _template("tooldock.yaml", namespace),
    }
    if with_requirements:
        files["requirements.txt"] = _template("requirements.txt", namespace)
    _write(folder, files)
    tool = "shout_later" if is_async else "shout"
    click.echo(f"Made {folder}:")
    for name in files:
        click.echo(f"  {name}")
    click.echo("\nNext:")
    click.echo("  tooldock reload")
    click.echo(f"  tooldock call {namespace} {tool} text=hello")


def create_example(tools: Path) -> bool:
    """`shared/hello.py`, if there is no namespace at all; whether it was made."""
    try:
        if any(entry.is_dir() and entry.name[0] not in "._" for entry in tools.iterdir()):
            return False
    except FileNotFoundError:
        pass
    _write(tools / EXAMPLE_NAMESPACE, {"hello.py": _template("hello.py", EXAMPLE_NAMESPACE)})
    return True


def remove_example(tools: Path) -> None:
    """Take back what `create_example` made, as long as it is still just that."""
    import shutil

    folder = tools / EXAMPLE_NAMESPACE
    try:
        if [entry.name for entry in folder.iterdir()] == ["hello.py"] and (folder / "hello.py").read_text(
            "utf-8"
        ) == _template("hello.py", EXAMPLE_NAMESPACE):
            shutil.rmtree(folder)
    except (OSError, UnicodeDecodeError):
        return  # it is not ours any more


def _template(name: str, namespace: str) -> str:
    text = (_TEMPLATES / f"{name}.template").read_text("utf-8")
    return text.replace("NAMESPACE", namespace)


def _write(folder: Path, files: dict[str, str]) -> None:
    """All files or none: a gateway that looks in between must not see half a namespace."""
    import os
    import shutil
    import tempfile

    if folder.exists():
        raise Failure(
            f"{folder} exists already, and nothing in it was changed.",
            next_step="choose another name, or add a .py file with an @tool function there.",
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
        try:
            unfinished.chmod(0o755)
            for name, text in files.items():
                (unfinished / name).write_text(text, "utf-8")
            os.rename(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise Failure(
            f"{folder} cannot be made ({error.strerror}).",
            next_step="make its parent writable, or choose another place with --data-dir.",
        ) from None

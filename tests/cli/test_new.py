from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tooldock.cli.new import create_example
from tooldock.config.namespace import read_namespace


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ((), {"tools.py", "tooldock.yaml"}),
        (("--async", "--with-requirements"), {"tools.py", "tooldock.yaml", "requirements.txt"}),
    ],
)
def test_new_makes_a_namespace_and_names_the_next_two_commands(
    cli: Cli, data: Path, options: tuple[str, ...], files: set[str]
) -> None:
    result = cli("new", "my-tools", *options)
    assert result.exit_code == 0
    folder = data / "tools" / "my-tools"
    assert {file.name for file in folder.iterdir()} == files
    assert read_namespace(folder).description == "Tools of my-tools"
    following = result.stdout.partition("Next:\n")[2].splitlines()
    assert following[0].strip() == "tooldock reload"
    tool = following[1].split()[3]
    assert f"def {tool}(" in (folder / "tools.py").read_text()
    assert "NAMESPACE" not in (folder / "tools.py").read_text()


@pytest.mark.parametrize("name", ["Upper", "_system", "a_b", "-a", "../x", "a" * 64, "a/b"])
def test_a_bad_name_is_refused_and_nothing_is_made(cli: Cli, data: Path, name: str) -> None:
    result = cli("new", "--", name)
    assert result.exit_code == 1
    assert "namespace name" in result.stderr
    assert not (data / "tools").exists()


def test_an_existing_namespace_is_left_alone(cli: Cli, data: Path) -> None:
    file = data / "tools" / "mine" / "tools.py"
    file.parent.mkdir(parents=True)
    file.write_text("# mine")
    result = cli("new", "mine")
    assert result.exit_code == 1
    assert "exists already" in result.stderr
    assert [path.name for path in file.parent.iterdir()] == ["tools.py"]
    assert file.read_text() == "# mine"


def test_a_place_that_cannot_be_written_is_an_error_in_words(cli: Cli, data: Path) -> None:
    (data / "tools").write_text("a file")
    result = cli("new", "mine")
    assert result.exit_code == 1
    assert "cannot be made" in result.stderr


def test_the_example_is_made_only_where_there_is_no_namespace(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    assert create_example(tools)
    assert (tools / "shared" / "hello.py").is_file()
    assert not create_example(tools)
    (tmp_path / "other" / "mine").mkdir(parents=True)
    assert not create_example(tmp_path / "other")
    assert not (tmp_path / "other" / "shared").exists()

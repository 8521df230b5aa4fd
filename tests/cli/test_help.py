"""What holds for every command, and for the program as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Cli
from tooldock import __version__
from tooldock.cli.failure import MEANING
from tooldock.cli.reference import reference_page
from tooldock.cli.root import SECTIONS, program

NAMES = [name for _, commands in SECTIONS for name in commands]
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

HEAVY = {"asyncio", "orjson", "ssl", "structlog", "tooldock.settings", "uvicorn", "uvloop", "yaml"}


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself_with_an_example(cli: Cli, name: str) -> None:
    result = cli(name, "--help")
    assert result.exit_code == 0
    assert f"tooldock {name}" in result.stdout.partition("Example")[2]
    assert "--data-dir" in result.stdout
    assert all(len(line) <= 100 for line in result.stdout.splitlines())


def test_the_programs_help_lists_every_command(cli: Cli) -> None:
    shown = cli("--help").stdout
    assert all(f"\n  {name} " in shown for name in NAMES)
    assert cli("-h").stdout == shown


def test_the_reference_page_is_current() -> None:
    """If this fails: python -m tooldock.cli.reference > docs/reference/cli.md"""
    assert REFERENCE.read_text("utf-8") == reference_page()


def test_the_reference_page_names_every_option_and_exit_code() -> None:
    page = reference_page()
    context = click.Context(program)
    for name in NAMES:
        command = program.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert all(word in page for word in parameter.opts)
    assert all(f"| {int(code)} | {meaning} |" in page for code, meaning in MEANING.items())


def test_the_version_is_the_packages(cli: Cli) -> None:
    assert cli("--version").stdout == f"tooldock, version {__version__}\n"


def test_a_mistyped_command_is_told_the_nearest(cli: Cli) -> None:
    result = cli("namspaces")
    assert result.exit_code == 2
    assert "Did you mean `tooldock namespaces`?" in result.stderr
    assert "`tooldock --help` lists them" in cli("xyzzy").stderr


@pytest.mark.parametrize(
    "words", [("--help",), ("--version",), ("call", "shared", "hello"), ("tools",), ("call", "--help")]
)
def test_commands_people_wait_for_import_next_to_nothing(data: Path, words: tuple[str, ...]) -> None:
    done = run("-X", "importtime", "-m", "tooldock", *words)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in imported
    # The call has to look for a gateway over HTTP only once one is announced.
    assert not imported & (HEAVY - {"ssl"} if words[0] in ("call", "tools") else HEAVY)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    return subprocess.run([sys.executable, *words], env=environ, capture_output=True, text=True, timeout=60)


def test_a_reader_that_leaves_early_is_no_traceback(data: Path) -> None:
    code = (
        "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1); sys.argv = ['tooldock', 'doctor'];"
        "from tooldock.cli import main; main()"
    )
    done = run("-c", code)
    assert done.returncode == 1
    assert done.stderr == ""


def test_a_broken_config_file_is_one_sentence(cli: Cli, data: Path) -> None:
    (data / "config.yaml").write_text("settings: [1]\n")
    result = cli("gc")
    assert result.exit_code == 1
    assert "config.yaml" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete "), ("zsh", "#compdef"), ("fish", "complete ")])
def test_completion_scripts_are_printed(cli: Cli, shell: str, word: str) -> None:
    script = cli("completion", shell).stdout
    assert word in script
    assert "_TOOLDOCK_COMPLETE" in script


def test_names_are_completed_from_disk(data: Path) -> None:
    (data / "tools" / "alpha").mkdir(parents=True)
    (data / "tools" / ".hidden").mkdir()
    (data / "state" / "catalogue").mkdir(parents=True)
    (data / "state" / "catalogue" / "apple.json").write_text('{"tools": [{"name": "peel"}, {"name": "eat"}]}')

    def complete(words: str, position: int) -> list[str]:
        environ = {
            **os.environ,
            "_TOOLDOCK_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(position),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tooldock"], env=environ, capture_output=True, text=True, timeout=60
        )
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    assert complete("tooldock na", 1) == ["namespaces"]
    assert complete("tooldock call a", 2) == ["alpha", "apple"]
    assert complete("tooldock call apple p", 3) == ["peel"]
    assert complete("tooldock call ../x p", 3) == []
    assert complete(f"tooldock --data-dir {data / 'tools'} call a", 4) == []

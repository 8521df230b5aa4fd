"""A command line in a clean environment, and a server for it to talk to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.server import Server
from tooldock.cli.root import program
from tooldock.settings import TABLE

Cli = Callable[..., Result]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory that DATA_DIR names; no other setting is in the environment."""
    for spec in TABLE:
        monkeypatch.delenv(spec.name, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    path = tmp_path / "data"
    path.mkdir()
    monkeypatch.setenv("DATA_DIR", str(path))
    return path


@pytest.fixture
def cli(data: Path) -> Cli:
    """`cli("call", "shared", "hello")` runs the program in this process."""

    def run(*words: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(program, words, input=stdin, prog_name="tooldock", catch_exceptions=False)

    return run


@pytest.fixture
def server(data: Path) -> Iterator[Server]:
    """An HTTP server announced as the running core of `data`."""
    with Server(data) as running:
        running.announce()
        yield running

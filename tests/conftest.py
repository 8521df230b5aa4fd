"""Fixtures that several rooms share; everything else is arranged where it is used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gateway import Gateway


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Where every part is installed (CI), a skipped test is one that nobody ran."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("TOOLDOCK_SKIP_FAILS") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def venvs(pytestconfig: pytest.Config) -> Path:
    """Environments of all tests of all runs: named by content, so sharing them is what they are for."""
    path = Path(pytestconfig.cache.mkdir("tooldock-venvs")).resolve()
    return Path(os.environ.get("TOOLDOCK_TEST_VENVS", path))


@pytest.fixture
def gateway(tmp_path: Path, venvs: Path) -> Iterator[Callable[..., Gateway]]:
    """`gateway(TOOL_CALL_TIMEOUT_SECONDS="2")` makes one; write its files, then `.start()` it."""
    made: list[Gateway] = []

    def make(**settings: str) -> Gateway:
        made.append(Gateway(tmp_path / f"data{len(made)}", venvs, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()

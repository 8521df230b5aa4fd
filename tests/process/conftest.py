"""A stage for several tests: gateways that live as long as the module that uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gateway import Gateway


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, venvs: Path) -> Iterator[Callable[..., Gateway]]:
    """Like `gateway`, for a whole module: each test has namespaces of its own on it."""
    made: list[Gateway] = []

    def make(**settings: str) -> Gateway:
        made.append(Gateway(tmp_path_factory.mktemp("stage") / "data", venvs, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()

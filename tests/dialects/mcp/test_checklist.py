"""Each line of the protocol checklist (G01 to G62) has a test that is named after it.

Of G33 only the half about a client's headers: there are no servers behind this one to forward them to.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]

_NAMED = re.compile(r"^\s*(?:async )?def test_g(\d\d)_", re.M)


@pytest.fixture(scope="module")
def named() -> set[int]:
    texts = (path.read_text("utf-8") for path in TESTS.rglob("test_*.py"))
    return {int(number) for text in texts for number in _NAMED.findall(text)}


@pytest.mark.parametrize("number", range(1, 63))
def test_the_line_has_a_test(number: int, named: set[int]) -> None:
    assert number in named

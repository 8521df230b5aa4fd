"""The tree of errors is whole: stable codes, and a way back from each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tooldock import errors
from tooldock.errors import BY_CODE, ConfigError, SettingsError, TooLarge, ToolDockError, Unavailable


def tree(root: type[ToolDockError]) -> Iterator[type[ToolDockError]]:
    """Of this module; a wire may add kinds that never leave it."""
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from tree(kind)


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in tree(ToolDockError)]
    assert len(set(codes)) == len(codes)


def test_every_error_that_can_reach_a_caller_is_found_by_its_code() -> None:
    expected = set(tree(ToolDockError)) - {SettingsError, ConfigError}
    assert set(BY_CODE.values()) == expected
    assert all(BY_CODE[kind.code] is kind for kind in expected)


def test_every_error_stands_in_the_drawing() -> None:
    assert errors.__doc__ is not None
    for kind in tree(ToolDockError):
        assert f"── {kind.__name__}" in errors.__doc__


def test_an_error_carries_its_message_and_its_facts() -> None:
    error = Unavailable("Come back later.", retry_after=2, namespace="math")
    assert (str(error), error.message, error.code) == ("Come back later.", "Come back later.", "unavailable")
    assert error.details == {"retry_after": 2, "namespace": "math"}
    assert issubclass(TooLarge, errors.MalformedRequest)


@pytest.mark.parametrize(("details", "seconds"), [({"retry_after": 2}, 2.0), ({"retry_after": 0}, 0.0), ({}, None)])
def test_when_to_come_back_is_a_number_or_unknown(details: dict[str, float], seconds: float | None) -> None:
    assert Unavailable("Later.", **details).retry_after == seconds

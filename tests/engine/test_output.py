"""Cutting a result: what is shown is whole characters, and what is missing is counted."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tooldock.engine.output import fit
from tooldock.errors import ToolFailed
from tooldock.model import Outcome


def text(value: str, **more: Any) -> Outcome:
    return Outcome("ok", orjson.dumps(value), **more)


def test_what_fits_is_the_same_object() -> None:
    outcome = text("x" * 98)
    assert fit(outcome, 100) is outcome


def test_a_text_is_measured_without_its_quotes_and_escapes() -> None:
    outcome = text('"' * 100)
    assert fit(outcome, 100) is outcome


def test_a_long_text_stays_a_text_and_says_what_is_missing() -> None:
    cut = fit(text("x" * 150), 100)
    assert orjson.loads(cut.body) == "x" * 100 + "\n[cut: the first 100 of 150 bytes are shown]"
    assert (cut.truncated, cut.total_bytes) == (50, 150)


@pytest.mark.parametrize(("character", "shown"), [("é", 100), ("€", 99), ("😀", 100)])
def test_a_character_is_shown_whole_or_not_at_all(character: str, shown: int) -> None:
    cut = fit(text(character * 100), 101)
    body = orjson.loads(cut.body)
    assert body.split("\n")[0] == character * (shown // len(character.encode()))
    assert cut.truncated == 100 * len(character.encode()) - shown


def test_other_json_becomes_an_object_that_says_it_was_cut() -> None:
    whole = orjson.dumps({"rows": list(range(100))})
    cut = fit(Outcome("ok", whole), 40)
    assert orjson.loads(cut.body) == {
        "truncated": True,
        "shown_bytes": 40,
        "total_bytes": len(whole),
        "text": whole[:40].decode(),
    }
    assert cut.truncated == len(whole) - 40


def test_a_text_of_which_the_source_sent_only_a_part_counts_the_whole() -> None:
    cut = fit(text("x" * 120, partial="text", total_bytes=5000), 100)
    assert orjson.loads(cut.body).endswith("[cut: the first 100 of 5,000 bytes are shown]")
    assert (cut.truncated, cut.partial) == (4900, "")


def test_json_of_which_the_source_sent_only_a_part_counts_the_whole() -> None:
    cut = fit(text('{"rows":[1,2,3', partial="json", total_bytes=5000), 10)
    assert orjson.loads(cut.body) == {
        "truncated": True,
        "shown_bytes": 10,
        "total_bytes": 5000,
        "text": '{"rows":[1',
    }


def test_content_blocks_cannot_be_cut_and_are_refused() -> None:
    outcome = Outcome("ok", b'"' + b"x" * 200 + b'"', content=({"type": "text", "text": "x" * 200},))
    with pytest.raises(ToolFailed, match="202 bytes of content; 100 are allowed"):
        fit(outcome, 100)


@given(value=st.text(), limit=st.integers(1, 60))
def test_the_beginning_of_any_text_is_a_beginning_of_it(value: str, limit: int) -> None:
    outcome = Outcome("ok", orjson.dumps(value))
    fitted = fit(outcome, limit)
    if fitted is outcome:
        assert len(value.encode()) <= limit
        return
    shown, _, marker = orjson.loads(fitted.body).rpartition("\n")
    assert value.startswith(shown)
    assert len(shown.encode()) + fitted.truncated == len(value.encode())
    assert limit - 3 <= len(shown.encode()) <= limit
    assert marker.startswith("[cut:")

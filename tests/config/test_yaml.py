from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tooldock.config import load_yaml, parse_yaml
from tooldock.config.load import MAX_BYTES, MAX_DEPTH
from tooldock.errors import ConfigError


def place(text: bytes) -> tuple[int, int, str]:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f.yaml")
    details = caught.value.details
    assert caught.value.message.startswith(f"f.yaml:{details['line']}:{details['column']}: ")
    assert details["file"] == "f.yaml"
    return details["line"], details["column"], caught.value.message


def test_values_know_where_they_stand() -> None:
    root = parse_yaml(b"a: 1\nb:\n  - x\n  - {c: yes}\n", "f.yaml")
    items = root.mapping("")["b"].sequence("")
    assert (items[0].place.line, items[0].place.column) == (3, 5)
    inner = items[1].mapping("")["c"]
    assert (inner.place.line, inner.place.column) == (4, 9)
    assert (items[1].keys["c"].line, items[1].keys["c"].column) == (4, 6)
    assert root.plain() == {"a": 1, "b": ["x", {"c": True}]}


def test_scalars_keep_how_they_were_written() -> None:
    root = parse_yaml(b"a: 1.10\nb: 010\nc: on\nd: 2024-01-01\n", "f.yaml").mapping("")
    assert [node.raw for node in root.values()] == ["1.10", "010", "on", "2024-01-01"]
    assert root["d"].value == "2024-01-01"


@pytest.mark.parametrize("text", [b"", b"# nothing\n", b"---\n", b"\xef\xbb\xbf"])
def test_a_file_without_content_is_an_empty_value(text: bytes) -> None:
    assert parse_yaml(text, "f.yaml").value is None


def test_a_byte_order_mark_is_not_part_of_the_first_key() -> None:
    assert parse_yaml(b"\xef\xbb\xbfa: 1\n", "f.yaml").plain() == {"a": 1}


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        (b"a: 1\nb: 2\na: 3\n", 3, 1, "already set on line 1"),
        (b"a:\n\t- 1\n", 2, 1, "a tab is used"),
        (b"a: [1, 2\n", 2, 1, "not valid YAML"),
        (b"a: \xff\n", 1, 4, "not UTF-8"),
        (b"ok: 1\nb: \x01\n", 2, 4, "not allowed in YAML"),
        (b"a: !!python/object/apply:os.system [x]\n", 1, 4, "tag"),
        (b"a: !mine 1\n", 1, 4, "tag"),
        (b"a: !!set {x, y}\n", 1, 4, "tag"),
        (b"b: &b {x: 1}\na:\n  <<: *b\n", 3, 3, "'<<' is not supported"),
        (b"? [a]\n: 1\n", 1, 3, "a key must be text"),
        (b"a: 1\n---\nb: 2\n", 2, 1, "second document"),
        (b"a: *nowhere\n", 1, 4, "undefined alias"),
        (b"a: &a [*a]\n", 1, 4, "aliases"),
        (b"a: !!int x\n", 1, 4, "not a valid int"),
        (b"a: " + b"9" * 10_000 + b"\n", 1, 4, "not a valid int"),
    ],
)
def test_what_cannot_be_used_is_refused_at_its_place(text: bytes, line: int, column: int, words: str) -> None:
    found_line, found_column, message = place(text)
    assert (found_line, found_column) == (line, column)
    assert words in message


def test_aliases_cannot_blow_up() -> None:
    rows = [b"a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [b"a%d: &a%d [%s]" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 9)]
    started = time.monotonic()
    assert "aliases" in place(b"\n".join(rows))[2]
    assert time.monotonic() - started < 5


def test_a_harmless_alias_is_followed() -> None:
    assert parse_yaml(b"a: &x [1, 2]\nb: *x\n", "f.yaml").plain() == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize("opening", [b"[", b"{a: ", b"- "])
def test_depth_is_bounded_before_anything_recurses(opening: bytes) -> None:
    assert f"more than {MAX_DEPTH} levels" in place(opening * 100_000)[2]


def test_size_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    file.write_bytes(b"# " + b"x" * MAX_BYTES)
    with pytest.raises(ConfigError, match="larger than"):
        load_yaml(file, "big.yaml")


def test_the_number_of_values_is_bounded() -> None:
    assert "values" in place(b"[" + b"1," * 300_000 + b"]")[2]


def test_a_pipe_in_place_of_the_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f.yaml")
    with pytest.raises(ConfigError, match="regular file"):
        load_yaml(tmp_path / "f.yaml", "f.yaml")


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="regular file"):
        load_yaml(tmp_path, "f.yaml")


def test_a_missing_file_is_the_callers_business(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_yaml(tmp_path / "absent.yaml")


def test_errors_call_the_file_by_the_name_given(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"^tools/x/f\.yaml:") as caught:
        load_yaml(tmp_path / "f.yaml", "tools/x/f.yaml")
    assert str(tmp_path) not in caught.value.message


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_parsed_or_refused_as_config(data: bytes) -> None:
    try:
        parse_yaml(data, "f.yaml")
    except ConfigError:
        pass  # anything else would fail the test

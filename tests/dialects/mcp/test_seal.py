"""State that a client carries and cannot read, change, lend or keep."""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tooldock.dialects.mcp.jsonrpc import INVALID_PARAMS
from tooldock.dialects.mcp.seal import InvalidState, Seal, binding

TICKET = bytes(range(16))
BOUND = binding("ann", "notes", "tools/call", {"name": "drop", "arguments": {"id": 7}})


def test_a_state_opens_to_its_ticket_for_what_it_was_made_for() -> None:
    seal = Seal()
    assert seal.unseal(seal.seal(TICKET, BOUND, 60), BOUND) == TICKET


def test_two_states_of_one_ticket_look_unlike_and_hide_it() -> None:
    seal = Seal()
    first, second = seal.seal(TICKET, BOUND, 60), seal.seal(TICKET, BOUND, 60)
    assert first != second
    assert first.startswith("v1.")
    assert TICKET not in base64.urlsafe_b64decode(first[3:] + "==")


@pytest.mark.parametrize(
    "other",
    [
        binding("bob", "notes", "tools/call", {"name": "drop", "arguments": {"id": 7}}),
        binding("ann", "other", "tools/call", {"name": "drop", "arguments": {"id": 7}}),
        binding("ann", "notes", "prompts/get", {"name": "drop", "arguments": {"id": 7}}),
        binding("ann", "notes", "tools/call", {"name": "keep", "arguments": {"id": 7}}),
        binding("ann", "notes", "tools/call", {"name": "drop", "arguments": {"id": 8}}),
        binding("ann", "notes", "tools/call", {"name": "drop", "arguments": {"id": "7"}}),
        binding("ann", "notes", "tools/call", {"name": "drop"}),
        binding("ann", "notes", "tools/call", {"uri": "drop", "arguments": {"id": 7}}),
    ],
)
def test_g54_a_state_is_bound_to_caller_namespace_method_name_and_arguments(other: bytes) -> None:
    seal = Seal()
    with pytest.raises(InvalidState):
        seal.unseal(seal.seal(TICKET, BOUND, 60), other)


def test_the_order_of_arguments_does_not_matter_and_huge_integers_are_bound_exactly() -> None:
    def bound(arguments: dict[str, Any]) -> bytes:
        return binding("ann", "notes", "tools/call", {"name": "drop", "arguments": arguments})

    assert bound({"a": 1, "b": 2}) == bound({"b": 2, "a": 1})
    assert bound({"a": 10**30}) != bound({"a": 10**30 + 1})


def test_g54_every_changed_byte_is_noticed() -> None:
    seal = Seal()
    token = seal.seal(TICKET, BOUND, 60)
    raw = bytearray(base64.urlsafe_b64decode(token[3:] + "=="))
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1
        with pytest.raises(InvalidState):
            seal.unseal("v1." + base64.urlsafe_b64encode(changed).decode().rstrip("="), BOUND)


@pytest.mark.parametrize(
    "token", [None, 7, [], {}, "", "v1.", "v2.abc", "v1.!!!!", "v1.é", "v1." + "A" * 600, "v1." + "A" * 69]
)
def test_g54_whatever_is_wrong_the_error_is_the_same_dull_one(token: object) -> None:
    with pytest.raises(InvalidState) as caught:
        Seal().unseal(token, BOUND)
    assert caught.value.code == INVALID_PARAMS
    assert caught.value.data == {"reason": "invalid_request_state"}
    assert caught.value.message == InvalidState().message


def test_g54_a_state_expires() -> None:
    seal = Seal()
    with pytest.raises(InvalidState):
        seal.unseal(seal.seal(TICKET, BOUND, -0.01), BOUND)


def test_another_key_opens_nothing() -> None:
    with pytest.raises(InvalidState):
        Seal().unseal(Seal().seal(TICKET, BOUND, 60), BOUND)


def test_g54_the_key_survives_a_restart_in_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "seal"
    token = Seal.open(path).seal(TICKET, BOUND, 60)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Seal.open(path).unseal(token, BOUND) == TICKET
    assert os.listdir(tmp_path) == ["seal"]


def test_a_key_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "seal"
    Seal.open(path)
    path.chmod(0o644)
    Seal.open(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_old_key_is_replaced_and_still_opens_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "seal"
    token = Seal.open(path).seal(TICKET, BOUND, 60)
    made, _, key = path.read_text().strip().partition(" ")
    path.write_text(f"{float(made) - 100:.0f} {key}\n")
    rotated = Seal.open(path, rotate_seconds=50)
    assert rotated.unseal(token, BOUND) == TICKET
    new = rotated.seal(TICKET, BOUND, 60)
    lines = path.read_text().splitlines()
    assert len(lines) == 2
    assert Seal.open(path).unseal(new, BOUND) == TICKET
    # Once the new key is older than any state, the old one is good for nothing.
    path.write_text(f"{time.time() - 20:.0f} {lines[0].partition(' ')[2]}\n{lines[1]}\n")
    late = Seal.open(path, keep_seconds=10)
    assert late.unseal(new, BOUND) == TICKET
    with pytest.raises(InvalidState):
        late.unseal(token, BOUND)


def test_a_file_that_holds_no_key_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "seal"
    path.write_bytes(b"\xff rubbish\n1 short\n")
    token = Seal.open(path).seal(TICKET, BOUND, 60)
    assert Seal.open(path).unseal(token, BOUND) == TICKET


def test_a_pipe_in_place_of_the_key_does_not_hold_up_the_start(tmp_path: Path) -> None:
    path = tmp_path / "seal"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)  # without one, opening it for reading waits for ever
    try:
        os.write(writer, f"9999999999 {base64.urlsafe_b64encode(bytes(32)).decode()}\n".encode())
        token = Seal.open(path).seal(TICKET, BOUND, 60)
    finally:
        os.close(writer)
    with pytest.raises(InvalidState):
        Seal([bytes(32)]).unseal(token, BOUND)


def test_where_no_file_can_be_the_key_lives_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    seal = Seal.open(tmp_path / "file" / "seal")
    assert seal.unseal(seal.seal(TICKET, BOUND, 60), BOUND) == TICKET

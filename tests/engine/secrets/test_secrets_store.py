from __future__ import annotations

import base64
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tooldock.engine.secrets import Secrets, read, seal
from tooldock.engine.secrets.store import FEWEST_ITERATIONS
from tooldock.errors import ConfigError

KEY = "correct horse battery staple"
PAYLOAD: dict[str, Any] = {
    "global": {"SHARED": "shared-value", "TOKEN": "global-token"},
    "namespaces": {"github": {"TOKEN": "github-token"}, "slack": {"BOT": "slack-bot-token"}},
}


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.enc"
    seal(PAYLOAD, KEY, path, iterations=FEWEST_ITERATIONS)
    return path


def change(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    envelope = json.loads(path.read_text())
    edit(envelope)
    path.write_text(json.dumps(envelope))


def test_no_file_means_no_secrets(tmp_path: Path) -> None:
    secrets = read(tmp_path / "secrets.enc", None)
    assert secrets.for_namespace("github") == {}
    assert secrets.missing("github", ["TOKEN"]) == ("TOKEN",)


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "secrets.enc"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="not a regular file"):
        read(path, KEY)


def test_a_namespace_gets_the_global_values_with_its_own_over_them(sealed: Path) -> None:
    secrets = read(sealed, KEY)
    assert secrets.for_namespace("github") == {"SHARED": "shared-value", "TOKEN": "github-token"}
    assert secrets.for_namespace("other") == {"SHARED": "shared-value", "TOKEN": "global-token"}
    assert dict(secrets.values_for("slack")) == PAYLOAD["global"] | PAYLOAD["namespaces"]["slack"]


def test_the_envelope_has_the_documented_shape_and_no_value(sealed: Path) -> None:
    text = sealed.read_text()
    envelope = json.loads(text)
    assert set(envelope) == {"version", "kdf", "salt", "nonce", "ciphertext", "created_at"}
    assert envelope["kdf"] == {"name": "pbkdf2-hmac-sha256", "iterations": FEWEST_ITERATIONS}
    token = base64.urlsafe_b64decode(envelope["ciphertext"])
    assert base64.b64decode(envelope["nonce"]) == token[9:25]
    assert "token" not in text.replace("ciphertext", "")


def test_sealing_derives_with_the_full_count_by_default(tmp_path: Path) -> None:
    seal({}, KEY, tmp_path / "secrets.enc")
    assert json.loads((tmp_path / "secrets.enc").read_text())["kdf"]["iterations"] == 600_000
    assert read(tmp_path / "secrets.enc", KEY) == Secrets()


def test_only_the_owner_can_read_the_file_whatever_it_was_before(sealed: Path) -> None:
    sealed.chmod(0o644)
    seal(PAYLOAD, KEY, sealed, iterations=FEWEST_ITERATIONS)
    assert stat.S_IMODE(sealed.stat().st_mode) == 0o600
    assert os.listdir(sealed.parent) == ["secrets.enc"]


def test_a_refused_payload_leaves_the_old_file(sealed: Path) -> None:
    before = sealed.read_bytes()
    with pytest.raises(ConfigError, match="name of a secret"):
        seal({"global": {"A=B": "x"}}, KEY, sealed, iterations=FEWEST_ITERATIONS)
    assert sealed.read_bytes() == before


def test_a_reader_never_sees_half_a_file(sealed: Path) -> None:
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            seal(PAYLOAD, KEY, sealed, iterations=FEWEST_ITERATIONS)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(10):
            assert read(sealed, KEY).for_namespace("github")["TOKEN"] == "github-token"
    finally:
        stop.set()
        writer.join(30)


def test_a_wrong_key_is_one_clear_sentence(sealed: Path) -> None:
    with pytest.raises(ConfigError, match="SECRETS_KEY is not the one") as caught:
        read(sealed, "wrong key with a name")
    assert "wrong key with a name" not in caught.value.message
    assert caught.value.message.count("\n") == 0


@pytest.mark.parametrize("key", [None, ""])
def test_a_file_without_a_key_asks_for_the_key(sealed: Path, key: str | None) -> None:
    with pytest.raises(ConfigError, match="set SECRETS_KEY"):
        read(sealed, key)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda e: e.update(version=2), "version '2'"),
        (lambda e: e.pop("version"), "version 'None'"),
        (lambda e: e["kdf"].update(iterations=1), "key iterations"),
        (lambda e: e["kdf"].update(iterations=10**12), "key iterations"),
        (lambda e: e["kdf"].update(iterations="many"), "key iterations"),
        (lambda e: e["kdf"].update(name="md5"), "pbkdf2-hmac-sha256"),
        (lambda e: e.pop("kdf"), "pbkdf2-hmac-sha256"),
        (lambda e: e.pop("salt"), "its salt is missing"),
        (lambda e: e.update(salt="AAAA"), "its salt is missing or too short"),
        (lambda e: e.update(nonce=base64.b64encode(bytes(16)).decode()), "nonce belongs to another"),
        (lambda e: e.pop("ciphertext"), "ciphertext is missing"),
        (lambda e: e.update(ciphertext="ä"), "ciphertext is missing"),
        (lambda e: e.update(ciphertext="x"), "ciphertext is not complete"),
        (lambda e: e.update(ciphertext=e["ciphertext"][:-8] + "AAAAAAA="), "or it was changed"),
    ],
)
def test_a_damaged_envelope_says_how(sealed: Path, edit: Callable[[dict[str, Any]], None], words: str) -> None:
    change(sealed, edit)
    with pytest.raises(ConfigError) as caught:
        read(sealed, KEY)
    assert words in caught.value.message
    assert caught.value.message.startswith("secrets.enc")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_envelope_is_damaged(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "secrets.enc").write_bytes(data)
    with pytest.raises(ConfigError, match="damaged"):
        read(tmp_path / "secrets.enc", KEY)


@pytest.mark.parametrize(
    "payload",
    [
        {"global": ["x"]},
        {"namespaces": {"a": "x"}},
        {"namespaces": [1]},
        {"global": {"A": 1}},
        {"global": {"A": "x\0y"}},
        {"global": {"1A": "x"}},
    ],
)
def test_what_an_environment_cannot_carry_is_refused_without_showing_it(
    tmp_path: Path, payload: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="damaged"):
        seal(payload, KEY, tmp_path / "secrets.enc", iterations=FEWEST_ITERATIONS)


def test_metadata_tells_placeholders_from_missing(sealed: Path) -> None:
    meta = {
        "global": {"TOKEN": {"status": "set"}, "LATER": {"status": "placeholder"}},
        "namespaces": {"slack": {"HOOK": {"status": "placeholder"}, "BOT": {"status": "placeholder"}}},
    }
    secrets = read(sealed, KEY, meta)
    assert secrets.status("slack", "TOKEN") == "set"
    assert secrets.status("slack", "BOT") == "set"  # a value is a value, whatever the metadata says
    assert secrets.status("slack", "HOOK") == "placeholder"
    assert secrets.status("github", "HOOK") == "missing"
    assert secrets.status("github", "LATER") == "placeholder"
    assert secrets.missing("slack", ["TOKEN", "HOOK", "LATER", "NEVER"]) == ("HOOK", "LATER", "NEVER")


@pytest.mark.parametrize(
    "meta",
    [
        {"global": ["A"]},
        {"global": {"A": "set"}},
        {"global": {"A": {"status": "maybe"}}},
        {"namespaces": ["x"]},
        {"namespaces": {"x": ["A"]}},
    ],
)
def test_metadata_of_another_shape_is_refused(tmp_path: Path, meta: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"secrets\.meta\.yaml"):
        read(tmp_path / "secrets.enc", None, meta)


def test_a_digest_changes_with_the_values_of_its_namespace_only() -> None:
    before = Secrets({"G": "1"}, {"a": {"X": "1"}, "b": {"X": "1"}})
    own = Secrets({"G": "1"}, {"a": {"X": "2"}, "b": {"X": "1"}})
    shared = Secrets({"G": "2"}, {"a": {"X": "1"}, "b": {"X": "1"}})
    assert before.digest("a") == Secrets({"G": "1"}, {"a": {"X": "1"}}).digest("a")
    assert before.digest("a") != own.digest("a")
    assert before.digest("b") == own.digest("b")
    assert before.digest("b") != shared.digest("b")


def test_printing_shows_names_only(sealed: Path) -> None:
    shown = repr(read(sealed, KEY))
    assert "TOKEN" in shown
    assert "github-token" not in shown
    assert "shared-value" not in shown

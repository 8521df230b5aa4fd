"""`tooldock call` against a server that answers as it is told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.cli.server import TOKEN, Server, problem
from tests.cli.terminal import Terminal
from tests.gateway import until

POST = ("POST", "/ns/shared/tools/hello")


def test_a_text_is_printed_as_it_is(cli: Cli, server: Server) -> None:
    result = cli("call", "shared", "hello")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello, World!\n", "")


def test_other_values_are_printed_as_indented_json(cli: Cli, server: Server) -> None:
    server.answers[POST] = (200, {"ü": [1, None]})
    assert cli("call", "shared", "hello").stdout == '{\n  "ü": [\n    1,\n    null\n  ]\n}\n'


def test_raw_prints_the_answer_as_received(cli: Cli, server: Server) -> None:
    server.answers[POST] = (200, b'{"a":1,   "b":1e2}')
    assert cli("call", "shared", "hello", "--raw").stdout_bytes == b'{"a":1,   "b":1e2}\n'


def test_content_blocks_are_shown_by_kind(cli: Cli, server: Server) -> None:
    blocks = [
        {"type": "text", "text": "here"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "file:///x"},
        {"type": "resource", "resource": {"uri": "file:///y", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///z", "blob": "AA"}},
    ]
    server.answers[POST] = (200, {"content": blocks, "structured": {"n": 1}})
    lines = cli("call", "shared", "hello").stdout.splitlines()
    assert lines[:2] == ["here", "[image, image/png, 3 bytes; --raw shows the data]"]
    assert lines[2:5] == ["[link to file:///x]", "inside", "[resource file:///z; --raw shows the data]"]
    assert json.loads("".join(lines[5:])) == {"n": 1}


def test_words_become_arguments_by_the_tools_schema(cli: Cli, server: Server) -> None:
    words = ("name=5", "times=5", "ratio=0.5", "loud=true", 'tags=["a"]', 'extra={"k": 1}', "other:=[2]")
    assert cli("call", "shared", "hello", *words).exit_code == 0
    assert server.calls() == [
        {"name": "5", "times": 5, "ratio": 0.5, "loud": True, "tags": ["a"], "extra": {"k": 1}, "other": [2]}
    ]


def test_the_schema_is_not_asked_for_without_need(cli: Cli, server: Server) -> None:
    cli("call", "shared", "hello", "times:=2")
    cli("call", "shared", "hello")
    assert [seen.method for seen in server.seen] == ["POST", "POST"]


def test_json_comes_from_the_word_a_file_or_standard_input(cli: Cli, server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"name": "file"}')
    assert cli("call", "shared", "hello", "--json", '{"name": "word"}').exit_code == 0
    assert cli("call", "shared", "hello", "--json", f"@{tmp_path / 'a.json'}").exit_code == 0
    assert cli("call", "shared", "hello", "--json", "-", stdin='{"name": "input"}').exit_code == 0
    assert [body["name"] for body in server.calls()] == ["word", "file", "input"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--json", "{"), "--json is not JSON"),
        (("--json", "[1]"), "must be a JSON object"),
        (("--json", "@/does/not/exist"), "cannot be read"),
        (("--json", "{}", "a=1"), "not both"),
        (("name",), "is no argument"),
        (("times=x",), "must be an integer"),
        (("times:=1e400",), "larger than any number"),
        (("--json", '{"times": -1e400}'), "larger than any number"),
        (("name=\udcff",), "not UTF-8 text"),
        (("--json", '{"name": "\\ud800"}'), "not UTF-8 text"),
        (("--timeout", "0"), "--timeout must be above 0"),
    ],
)
def test_a_command_line_that_makes_no_sense_ends_with_2_and_calls_nothing(
    cli: Cli, server: Server, words: tuple[str, ...], said: str
) -> None:
    result = cli("call", "shared", "hello", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert server.calls() == []


def test_the_token_travels_in_the_header_only(cli: Cli, server: Server) -> None:
    cli("call", "shared", "hello", "name=Ada")
    assert {seen.headers["authorization"] for seen in server.seen} == {f"Bearer {TOKEN}"}
    assert not any(TOKEN in seen.path for seen in server.seen)


def test_the_environments_token_wins_over_config_and_file(
    cli: Cli, server: Server, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "config.yaml").write_text("settings:\n  bearer_token: from-config\n")
    cli("call", "shared", "hello")
    monkeypatch.setenv("BEARER_TOKEN", "from-environment")
    cli("call", "shared", "hello")
    sent = [seen.headers["authorization"] for seen in server.seen]
    assert sent == ["Bearer from-config", "Bearer from-environment"]


def test_field_errors_are_listed(cli: Cli, server: Server) -> None:
    errors = [{"path": "name", "message": "too long"}, {"path": "", "message": "b is missing"}]
    server.answers[POST] = (422, problem("invalid_arguments", "They do not fit.", errors=errors))
    result = cli("call", "shared", "hello")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "Error: They do not fit. (invalid_arguments)" in result.stderr
    assert "- name: too long" in result.stderr
    assert "- arguments: b is missing" in result.stderr
    assert "tooldock tools shared" in result.stderr


def test_near_tool_names_come_first(cli: Cli, server: Server) -> None:
    names = [f"tool_{number}" for number in range(20)] + ["hello"]
    server.answers[("POST", "/ns/shared/tools/helo")] = (
        404,
        problem("tool_not_found", "No such tool.", available=names),
    )
    result = cli("call", "shared", "helo")
    assert "shared has: hello, tool_0" in result.stderr
    assert "and 11 more" in result.stderr


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "said"),
    [
        (500, "tool_error", 1, "tooldock logs shared"),
        (503, "unavailable", 1, "in 7 s"),
        (401, "not_authenticated", 1, "BEARER_TOKEN"),
        (504, "execution_timeout", 4, "tooldock logs shared"),
        (404, "namespace_not_found", 1, "tooldock reload"),
    ],
)
def test_an_error_names_the_next_command(
    cli: Cli, server: Server, status: int, code: str, exit_code: int, said: str
) -> None:
    server.answers[POST] = (status, problem(code, "Oh no."))
    result = cli("call", "shared", "hello")
    assert result.exit_code == exit_code
    assert f"Oh no. ({code})" in result.stderr
    assert said in result.stderr.partition("Next:")[2]


def test_raw_prints_an_error_too_and_keeps_its_exit_code(cli: Cli, server: Server) -> None:
    server.answers[POST] = (504, problem("execution_timeout", "Late."))
    result = cli("call", "shared", "hello", "--raw")
    assert result.exit_code == 4
    assert json.loads(result.stdout)["error"]["code"] == "execution_timeout"


@pytest.mark.parametrize("answer", [(500, b"<html>oops</html>"), (500, b'{"error": 5}'), (200, b"<html>")])
def test_an_answer_that_is_not_toolDocks_is_no_traceback(cli: Cli, server: Server, answer: tuple[int, Any]) -> None:
    server.answers[POST] = answer
    result = cli("call", "shared", "hello")
    assert result.exit_code == 1
    assert "tooldock doctor" in result.stderr


def test_a_dropped_connection_ends_with_3(cli: Cli, server: Server) -> None:
    server.answers[POST] = (0, None)
    result = cli("call", "shared", "hello")
    assert result.exit_code == 3
    assert "ended the connection" in result.stderr


def test_the_timeout_bounds_the_whole_call(cli: Cli, server: Server) -> None:
    server.hold.clear()
    result = cli("call", "shared", "slow", "--timeout", "0.2")
    assert result.exit_code == 4
    assert "No answer within 0.2 seconds" in result.stderr


def test_a_trickle_does_not_outwit_the_timeout(cli: Cli, data: Path, server: Server) -> None:
    """Each byte comes in time; all of them together do not."""
    stop = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def trickle() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not stop.wait(0.05):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    thread = threading.Thread(target=trickle)
    thread.start()
    server.announce(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
    try:
        assert cli("call", "shared", "hello", "--timeout", "0.4").exit_code == 4
    finally:
        stop.set()
        thread.join(5)
        listener.close()


@pytest.mark.parametrize("command", [("call", "a", "b"), ("tools",), ("namespaces",), ("reload",)])
def test_without_a_gateway_the_command_says_how_to_start_one(cli: Cli, data: Path, command: tuple[str, ...]) -> None:
    result = cli(*command)
    assert result.exit_code == 3
    assert f"ToolDock is not running for {data}" in result.stderr
    assert "tooldock up" in result.stderr


def test_what_a_dead_core_left_behind_is_not_believed(cli: Cli, server: Server) -> None:
    """Otherwise the token would go to whoever took over its port."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait(10)
    server.announce(pid=child.pid)
    assert cli("call", "shared", "hello").exit_code == 3
    assert server.seen == []


def test_a_closed_port_is_a_gateway_that_does_not_run(cli: Cli, server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server.announce(url=f"http://127.0.0.1:{port}")
    assert cli("call", "shared", "hello").exit_code == 3


def test_core_url_names_another_gateway(cli: Cli, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    (server.data / "state" / "run" / "core" / "core.json").unlink()
    monkeypatch.setenv("CORE_URL", server.url)
    assert cli("call", "shared", "hello").stdout == "Hello, World!\n"
    monkeypatch.setenv("CORE_URL", "http://127.0.0.1:1")
    result = cli("call", "shared", "hello")
    assert result.exit_code == 3
    assert "which CORE_URL names" in result.stderr


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://[::1", "http://127.0.0.1:abc", "http://x:99999", "http://", "http://x/a b"]
)
@pytest.mark.parametrize("command", [("call", "shared", "hello"), ("doctor",)])
def test_an_address_that_is_none_is_refused_in_words(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CORE_URL", url)
    result = cli(*command)
    assert result.exit_code == (1 if command == ("doctor",) else 2)
    assert "CORE_URL must be an address like http://" in result.output


@pytest.mark.parametrize("token", ["first\nsecond-secret", "s\u00e9cret", "tab\tsecret"])
def test_a_token_no_header_can_carry_is_never_shown(
    cli: Cli, server: Server, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("BEARER_TOKEN", token)
    result = cli("call", "shared", "hello")
    assert result.exit_code == 1
    assert "BEARER_TOKEN" in result.stderr
    assert "cret" not in result.output
    assert server.seen == []


def test_another_users_gateway_is_not_said_to_be_stopped(
    cli: Cli, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the kernel's refusal is played."""

    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refused)
    result = cli("call", "shared", "hello")
    assert result.exit_code == 1
    assert "belongs to another user" in result.stderr
    assert "run this as the user who started ToolDock" in result.stderr
    assert "belongs to another user" in cli("doctor").stdout


def test_data_dir_may_stand_before_or_after_the_command(
    cli: Cli, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "elsewhere"))
    assert cli("call", "shared", "hello").exit_code == 3
    assert cli("--data-dir", str(server.data), "call", "shared", "hello").exit_code == 0
    assert cli("call", "shared", "hello", "--data-dir", str(server.data)).exit_code == 0
    wrong = str(tmp_path / "wrong")
    assert cli("--data-dir", wrong, "call", "shared", "hello", "--data-dir", str(server.data)).exit_code == 0


def test_names_cannot_leave_their_place_in_the_path(cli: Cli, server: Server) -> None:
    cli("call", "../x", "a/b?c", "n:=1")
    assert server.seen[0].path == "/ns/..%2Fx/tools/a%2Fb%3Fc"


def test_a_certificate_for_another_name_does_not_matter_on_loopback(
    cli: Cli, data: Path, server: Server, tmp_path: Path
) -> None:
    with Server(data, certificate=self_signed(tmp_path)) as secure:
        secure.announce()
        assert secure.url.startswith("https://")
        assert cli("call", "shared", "hello").stdout == "Hello, World!\n"


def self_signed(folder: Path) -> Path:
    """Certificate and key in one file, for a name that is not loopback's."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tools.example.org")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "both.pem"
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return file


def test_a_token_that_cannot_be_read_is_an_error_in_words(cli: Cli, server: Server) -> None:
    file = server.data / "state" / "keys" / "bearer_token"
    file.unlink()
    file.mkdir()
    result = cli("call", "shared", "hello")
    assert result.exit_code == 1
    assert f"The credential in {file} cannot be read" in result.stderr
    assert "BEARER_TOKEN" in result.stderr


def test_a_result_cannot_steer_the_terminal_but_reaches_a_program_unchanged(cli: Cli, server: Server) -> None:
    server.answers[POST] = (200, "\x1b[2Jgone")
    assert cli("call", "shared", "hello").stdout == "\x1b[2Jgone\n"
    terminal = Terminal("-m", "tooldock", "call", "shared", "hello", environ=os.environ)
    try:
        assert terminal.read_all().strip() == "\\x1b[2Jgone"
    finally:
        terminal.close()


def test_ctrl_c_ends_a_call_without_a_traceback(server: Server) -> None:
    server.hold.clear()
    process = subprocess.Popen(
        [sys.executable, "-m", "tooldock", "call", "shared", "slow"],
        env={**os.environ, "DATA_DIR": str(server.data)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until("the call has arrived", lambda: server.seen, 20)
        process.send_signal(2)
        _, stderr = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert stderr.strip() == ""


def test_the_token_is_in_no_argument_of_the_process(server: Server) -> None:
    server.hold.clear()
    process = subprocess.Popen(
        [sys.executable, "-m", "tooldock", "call", "shared", "slow"],
        env={**os.environ, "DATA_DIR": str(server.data)},
    )
    try:
        until("the call has arrived", lambda: server.seen, 20)
        assert TOKEN.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        server.hold.set()
        process.wait(20)
    finally:
        process.kill()
        process.wait()

"""The commands against a real gateway, the examples, and the tutorial as it is printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal, screen
from tests.gateway import MANAGER_TOKEN, TOKEN, Gateway, until

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TUTORIAL = ROOT / "docs" / "tutorial" / "first-tool.md"

Make = Callable[..., Gateway]


@pytest.fixture
def live(gateway: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """A gateway whose data directory and tokens the commands find in the environment."""
    made = gateway()
    monkeypatch.setenv("DATA_DIR", str(made.data))
    monkeypatch.setenv("BEARER_TOKEN", TOKEN)
    monkeypatch.setenv("MANAGER_INTERNAL_TOKEN", MANAGER_TOKEN)
    return made


def test_a_new_namespace_is_served_after_a_reload(live: Gateway, cli: Cli) -> None:
    live.start()
    for name, options in (("plain", ()), ("later", ("--async", "--with-requirements"))):
        made = cli("new", name, *options)
        reload, call = (line.split()[1:] for line in made.stdout.partition("Next:\n")[2].splitlines())
        assert cli(*reload).exit_code == 0
        assert cli(*call).stdout == "HELLO!\n"
    assert "shout(text: string, times: integer = 1)" in cli("tools", "plain").stdout
    assert [row["name"] for row in json.loads(cli("namespaces", "--json").stdout)] == ["later", "plain"]


def test_a_broken_file_is_shown_with_its_line_and_the_old_version_serves(live: Gateway, cli: Cli) -> None:
    live.start()
    cli("new", "mine")
    assert cli("reload").exit_code == 0
    live.write("mine", "broken.py", "x = 1\ndef broken(:\n")
    result = cli("reload")
    assert result.exit_code == 1
    assert "mine: " in result.stderr
    assert "mine/broken.py:2 (the last version that worked is served)" in cli("namespaces").stdout
    assert cli("call", "mine", "shout", "text=hello").stdout == "HELLO!\n"


def test_errors_of_the_gateway_are_explained(live: Gateway, cli: Cli) -> None:
    live.write(
        "a",
        "tools.py",
        """
        from fastmcp.tools import tool

        @tool
        def fails(n: int = 0) -> int:
            raise ValueError("the cupboard is bare")
        """,
    )
    live.start()
    live.settled()
    failed = cli("call", "a", "fails")
    assert failed.exit_code == 1
    assert "the cupboard is bare" in failed.stderr
    assert "tooldock logs a" in failed.stderr
    assert "Traceback" in until("the log has it", lambda: cli("logs", "a").stdout)
    assert "- n: " in cli("call", "a", "fails", 'n:="x"').stderr
    assert "a has: fails" in cli("call", "a", "fail").stderr
    assert cli("call", "b", "fails").exit_code == 1


def test_a_call_given_up_is_cancelled_in_the_gateway(live: Gateway, cli: Cli) -> None:
    live.write(
        "a",
        "tools.py",
        """
        import asyncio
        from fastmcp.tools import tool

        @tool
        async def waits() -> None:
            await asyncio.sleep(50)
        """,
    )
    live.start()
    live.settled()
    assert cli("call", "a", "waits", "--timeout", "0.5").exit_code == 4
    record = until("the call is recorded", lambda: [row for row in live.audit() if row["tool"] == "waits"])[0]
    assert record["error"] == "cancelled"


def test_collecting_while_a_gateway_runs_leaves_it_working(live: Gateway, cli: Cli) -> None:
    live.write("a", "tools.py", "from fastmcp.tools import tool\n\n@tool\ndef one() -> int:\n    return 1\n")
    live.start()
    live.settled()
    live.write("a", "tools.py", "from fastmcp.tools import tool\n\n@tool\ndef one() -> int:\n    return 2\n")
    live.reload()
    for path in live.data.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (0, 0))
    before = {path.name for path in (live.data / "state" / "snapshots" / "a").iterdir()}
    assert len(before) == 2
    removed = json.loads(cli("gc", "--json").stdout)["items"]
    assert [item["kind"] for item in removed] == ["snapshot"]
    os.kill(live.worker_pid("a"), signal.SIGKILL)
    assert until("a new worker answers", lambda: cli("call", "a", "one").stdout) == "2\n"
    live.restart()
    live.settled()
    assert cli("call", "a", "one").stdout == "2\n"


def test_doctor_finds_the_running_gateway(live: Gateway, cli: Cli) -> None:
    live.start()
    assert f"answers at {live.url}" in cli("doctor").stdout


# Examples.


def test_the_examples_load_and_can_be_called(live: Gateway, cli: Cli) -> None:
    for name in ("basic-tool", "multi-tool"):
        shutil.copytree(EXAMPLES / name, live.data / "tools" / name)
    live.start()
    assert {row["error"] for row in live.settled().values()} == {None}
    assert cli("call", "basic-tool", "say_hello").stdout == "Hello, World!\n"
    assert cli("call", "multi-tool", "add", "a=2", "b=0.5").stdout == "2.5\n"
    assert cli("call", "multi-tool", "multiply", "a=3", "b=4").stdout == "12.0\n"
    assert cli("call", "multi-tool", "mean", "numbers=[1, 2, 3]").stdout == "2.0\n"
    assert "pass at least one number" in cli("call", "multi-tool", "mean", "numbers=[]").stderr
    counted = json.loads(cli("call", "multi-tool", "count_words", "text=One one don't").stdout)
    assert counted == {"one": 2, "don't": 1}
    assert cli("call", "multi-tool", "change_case", "text=Snow White", "style=snake").stdout == "snow_white\n"


WEATHER = {
    "name": "Berlin",
    "main": {"temp": 21.5, "humidity": 40},
    "weather": [{"description": "clear sky"}],
}


@pytest.fixture
def weather_service() -> Iterator[str]:
    """Stands for the web service: answers for Berlin, and for those with the key alone."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = "q=Berlin" in self.path
            right = "appid=the-key-of-the-service" in self.path and "units=metric" in self.path
            body = json.dumps(WEATHER if known and right else {}).encode()
            self.send_response(200 if known and right else 404 if right else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()
        thread.join(5)


@pytest.mark.network
def test_the_async_example_works_with_its_package_and_secret(live: Gateway, cli: Cli, weather_service: str) -> None:
    from tooldock.engine.secrets import store

    folder = live.data / "tools" / "weather"
    shutil.copytree(EXAMPLES / "async-tool", folder)
    config = (folder / "tooldock.yaml").read_text()
    (folder / "tooldock.yaml").write_text(re.sub("https://api.*", weather_service, config))
    live.settings["SECRETS_KEY"] = key = "a-key-for-tests-0123456789"
    live.start()
    assert live.settled(180)["weather"]["missing_secrets"] == ["WEATHER_API_KEY"]
    assert "WEATHER_API_KEY is not set" in cli("call", "weather", "get_weather", "city=Berlin").stderr
    store.seal({"global": {"WEATHER_API_KEY": "the-key-of-the-service"}}, key, live.data / "secrets.enc")
    assert cli("reload").exit_code == 0
    assert json.loads(cli("call", "weather", "get_weather", "city=Berlin").stdout) == {
        "city": "Berlin",
        "temperature": 21.5,
        "humidity": 40,
        "description": "clear sky",
    }
    assert "knows no city" in cli("call", "weather", "get_weather", "city=Atlantis").stderr
    assert cli("call", "weather", "get_weather", "city=Berlin", "units=kelvin").exit_code == 1


# The tutorial.


def test_the_tutorial_works_as_printed(live: Gateway, cli: Cli, data: Path) -> None:
    text = TUTORIAL.read_text("utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.S)
    assert code is not None
    shutil.copytree(_example_folder(data), live.data / "tools" / "shared")
    live.start()
    live.settled()
    transcripts = re.findall(r"```console\n(.*?)```", text, re.S)
    steps = [step for block in transcripts for step in _steps(block) if step[0] != "tooldock up"]
    assert len(steps) == 10
    for command, expected in steps:
        if command.startswith("echo"):
            with (live.data / "tools" / "notes" / "tools.py").open("a") as file:
                file.write("def broken(:\n")
            continue
        result = cli(*_words(command))
        expected = expected.replace("/home/ada/tooldock_data", str(live.data))
        assert _timeless(result.stdout + result.stderr) == _timeless(expected), command
        if command.startswith("tooldock new"):
            (live.data / "tools" / "notes" / "tools.py").write_text(code[1])


def _timeless(text: str) -> str:
    return re.sub(r"(?m)^  request [0-9a-f]+$", "  request (its id)", text).strip()


def _example_folder(data: Path) -> Path:
    from tooldock.cli.new import create_example

    create_example(data / "made")
    return data / "made" / "shared"


def _steps(block: str) -> list[tuple[str, str]]:
    parts = re.split(r"(?m)^\$ (.*)\n", block)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _words(command: str) -> list[str]:
    import shlex

    return shlex.split(command)[1:]


# `tooldock up`.


@pytest.fixture
def up(data: Path, venvs: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(**extra: str) -> Terminal:
        environ = {**os.environ, "VENVS_DIR": str(venvs), **extra}
        opened.append(Terminal("-m", "tooldock", "up", "--core-port", "0", environ=environ))
        return opened[-1]

    yield start
    for terminal in opened:
        if terminal.process.poll() is None:
            terminal.process.terminate()
            terminal.process.wait(20)
        terminal.close()


def test_up_sets_everything_up_and_its_commands_work_as_printed(
    up: Callable[..., Terminal], data: Path, tmp_path: Path
) -> None:
    terminal = up()
    text = terminal.read_until("the summary", lambda text: "Ctrl-C stops it." in text)
    rows = screen(text)
    assert all(len(row) <= 80 for row in rows if str(data) not in row)
    assert any(row.split() == ["shared", "2", "ready"] for row in rows)
    block = "\n".join(rows).partition("another terminal:\n")[2].partition("Ctrl-C stops")[0]
    call, curl, _, config = [part for part in re.split(r"\n\s*\n", block) if part.strip()]
    environ = {name: value for name, value in os.environ.items() if name != "DATA_DIR"}

    def paste(command: str) -> str:
        return subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60
        ).stdout

    assert paste(call) == "Hello, Ada!\n"
    if shutil.which("curl"):
        assert paste(curl) == '"Hello, Ada!"\n'
    (server,) = json.loads(paste(config))["mcpServers"].values()
    assert server["url"].endswith("/ns/shared/mcp")
    terminal.press(b"\x03")
    assert "Stopping, 0 calls in flight." in terminal.read_all()
    assert terminal.process.returncode == 0
    assert "Traceback" not in terminal.text


def test_a_second_ctrl_c_does_not_wait_for_calls(up: Callable[..., Terminal], data: Path) -> None:
    folder = data / "tools" / "slow"
    folder.mkdir(parents=True)
    (folder / "tools.py").write_text(
        "import time\nfrom pathlib import Path\nfrom fastmcp.tools import tool\n\n@tool\ndef naps(mark: str) -> None:\n"
        "    Path(mark).touch()\n    time.sleep(50)\n"
    )
    terminal = up(DRAIN_SECONDS="50")
    terminal.read_until("the summary", lambda text: "Ctrl-C stops it." in text)
    caller = subprocess.Popen(
        [sys.executable, "-m", "tooldock", "call", "slow", "naps", f"mark={data / 'mark'}"],
        env={**os.environ, "DATA_DIR": str(data)},
        stderr=subprocess.PIPE,
    )
    try:
        until("the tool runs", (data / "mark").exists, 20)
        terminal.press(b"\x03")
        terminal.read_until("it waits", lambda text: "Stopping, 1 call in flight; Ctrl-C again" in text, 10)
        terminal.press(b"\x03")
        terminal.read_all(5)
    finally:
        caller.kill()
        caller.communicate()


def test_up_leaves_an_existing_tree_alone(up: Callable[..., Terminal], data: Path) -> None:
    (data / "tools" / "mine").mkdir(parents=True)
    terminal = up()
    text = terminal.read_until("the summary", lambda text: "Ctrl-C stops it." in text)
    assert "Your first tools" not in text
    assert [path.name for path in (data / "tools").iterdir()] == ["mine"]


def test_up_stays_on_this_machine(up: Callable[..., Terminal]) -> None:
    terminal = up(HOST="0.0.0.0", PORT="1")
    text = terminal.read_until("the summary", lambda text: "Ctrl-C stops it." in text)
    assert "http://127.0.0.1:" in text
    assert "HOST is 0.0.0.0" in text


@pytest.mark.parametrize("command", ["up", "core"])
def test_a_taken_port_is_one_sentence(data: Path, venvs: Path, command: str) -> None:
    option = "--core-port" if command == "up" else "--port"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "tooldock", command, option, str(port)],
            env={**os.environ, "VENVS_DIR": str(venvs)},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert f"{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_core_refuses_other_machines_without_credentials(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tooldock", "core", "--host", "0.0.0.0", "--port", "0"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    for name in ("BEARER_TOKEN", "MANAGER_INTERNAL_TOKEN", "SECRETS_KEY"):
        assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_core_logs_json_where_nobody_watches(live: Gateway) -> None:
    live.write("a", "broken.py", "def broken(:")
    live.start()
    live.settled()
    events = [json.loads(line) for line in live.log.read_text().splitlines()]
    ready = until(
        "ready is logged",
        lambda: [row for row in map(json.loads, live.log.read_text().splitlines()) if row["event"] == "ready"],
    )
    assert ready[0]["url"] == live.url
    assert all({"event", "level"} <= row.keys() for row in events)

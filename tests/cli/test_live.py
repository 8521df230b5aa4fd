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
from tests.gateway import MANAGER_TOKEN, TOKEN, Gateway, descendants, is_alive, until

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
    assert "n: the value is not of type" in cli("call", "a", "fails", 'n:="x"').stderr
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


SERVER = '''
from fastmcp import Context, FastMCP

mcp = FastMCP("Written for FastMCP alone")


@mcp.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@mcp.tool()
async def wait(ctx: Context) -> str:
    await ctx.info("one moment")
    return "done"


@mcp.resource("old://motto")
def motto() -> str:
    return "Read."


@mcp.prompt
def ask(topic: str) -> str:
    return topic


if __name__ == "__main__":
    mcp.run()
'''


@pytest.mark.network
def test_a_fastmcp_server_file_works_as_it_is(live: Gateway, cli: Cli) -> None:
    live.write("old", "server.py", SERVER)
    live.write("old", "requirements.txt", "fastmcp\n")
    live.start()
    row = live.settled(180)["old"]
    assert (row["error"], row["tool_count"], row["resources"], row["prompts"]) == (None, 2, 1, 1)
    assert cli("call", "old", "add", "a=2", "b=40").stdout == "42\n"
    assert cli("call", "old", "wait").stdout == "done\n"


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
    assert len(steps) == 11
    for command, expected in steps:
        if command.startswith("echo"):
            with (live.data / "tools" / "notes" / "tools.py").open("a") as file:
                file.write("def broken(:\n")
            continue
        result = cli(*_words(command))
        expected = expected.replace("/home/ada/tooldock_data", str(live.data))
        expected = expected.replace("http://127.0.0.1:8000", live.url)
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
    assert rows[3].startswith("  MCP ")
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


def test_a_gateway_ends_with_the_terminal_it_was_started_in(up: Callable[..., Terminal], data: Path) -> None:
    terminal = up()
    terminal.read_until("the summary", lambda text: "Ctrl-C stops it." in text)
    workers = descendants(terminal.process.pid)
    assert workers
    terminal.hang_up()
    assert terminal.process.wait(20) == 0
    until("its workers are gone", lambda: not any(map(is_alive, workers)))


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


def start(venvs: Path, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Of a gateway that is not going to start."""
    environ = {name: value for name, value in os.environ.items() if name != "MAKELEVEL"}
    return subprocess.run(
        [sys.executable, "-m", "tooldock", *words],
        env={**environ, "VENVS_DIR": str(venvs), **extra},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("command", "extra", "step"),
    [
        ("up", {}, "tooldock up --core-port 8010`."),
        ("core", {}, "tooldock core --port 8010`."),
        ("up", {"MAKELEVEL": "1"}, "Next: `CORE_PORT=8010 make up`."),
    ],
)
def test_a_taken_port_names_the_command_that_takes_another(
    data: Path, venvs: Path, command: str, extra: dict[str, str], step: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = start(venvs, command, "--port", str(port), **extra)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert f"Port {port} on 127.0.0.1 is taken" in first
    assert second.startswith("Next: `")
    assert second.endswith(step)


def test_a_failed_start_leaves_no_new_directory_behind(tmp_path: Path, data: Path, venvs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert start(venvs, "up", "--port", port, "--data-dir", str(tmp_path / "new")).returncode == 1
        assert not (tmp_path / "new").exists()
        # Not one that was there, and nothing of somebody else's.
        (data / "tools" / "shared").mkdir(parents=True)
        (data / "tools" / "shared" / "hello.py").write_text("mine = 1\n")
        assert start(venvs, "up", "--port", port).returncode == 1
        assert (data / "tools" / "shared" / "hello.py").read_text() == "mine = 1\n"


def test_a_start_that_fails_later_takes_its_new_directory_back(tmp_path: Path, data: Path) -> None:
    """It got as far as building the base environment, and could not: the installer has no place for its cache."""
    new = tmp_path / "new"
    (tmp_path / "venvs").mkdir()
    (tmp_path / "cache").write_text("")
    done = start(
        tmp_path / "venvs", "up", "--port", "0", "--data-dir", str(new), UV_CACHE_DIR=str(tmp_path / "cache" / "x")
    )
    assert done.returncode == 1, done.stderr
    assert not new.exists()


@pytest.mark.parametrize("command", ["up", "core"])
@pytest.mark.parametrize("port", ["the same", "0"])
def test_a_second_start_says_where_the_first_one_runs(live: Gateway, venvs: Path, command: str, port: str) -> None:
    live.write("a", "tools.py", "x = 1\n")
    live.start()
    assert live.process is not None
    chosen = live.url.rpartition(":")[2] if port == "the same" else port
    done = start(venvs, command, "--port", chosen, "--data-dir", str(live.data))
    assert done.returncode == 1
    pid = live.process.pid
    assert done.stderr.splitlines() == [
        f"Error: ToolDock already runs for {live.data} at {live.url} (process {pid}).",
        f"Next: use it, stop it with `kill {pid}`, or choose another directory with --data-dir.",
    ]
    assert live.http.get(f"{live.url}/health").status_code == 200


def test_a_number_left_by_a_killed_gateway_is_no_running_one(live: Gateway, venvs: Path) -> None:
    live.start()
    live.stop(signal.SIGKILL)
    left = live.data / "state" / "run" / "core"
    (left / "core.json").write_text(json.dumps({"pid": os.getpid(), "url": "http://127.0.0.1:1"}))
    (left / "lock").write_text(str(os.getpid()))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = start(venvs, "core", "--port", str(taken.getsockname()[1]), "--data-dir", str(live.data))
    assert "is taken" in done.stderr
    assert "already runs" not in done.stderr


LIBRARY = '''
from fastmcp.prompts import prompt
from fastmcp.resources import resource


@resource("library://motto")
def motto() -> str:
    """What is written above the door."""
    return "Read."


@resource("library://books/{number}")
def book(number: str) -> str:
    """One book."""
    return number


@prompt
def overdue(title: str, days: int = 1) -> str:
    """Remind a reader."""
    return title
'''


def test_resources_and_prompts_are_listed_beside_the_tools(live: Gateway, cli: Cli) -> None:
    live.write("library", "books.py", LIBRARY)
    live.write("plain", "tools.py", "from fastmcp.tools import tool\n\n@tool\ndef one() -> int:\n    return 1\n")
    live.start()
    live.settled()
    assert cli("tools", "library").stdout.splitlines() == [
        "library",
        "  Resources",
        "    library://motto",
        "        What is written above the door.",
        "    library://books/{number}",
        "        One book.",
        "  Prompts",
        "    overdue(title, days?)",
        "        Remind a reader.",
    ]
    assert cli("tools", "library").stderr == ""
    assert [line for line in cli("tools").stdout.splitlines() if line[:1].strip()] == ["library", "plain"]
    listed = json.loads(cli("tools", "library", "--json").stdout)
    assert [one["uri"] for one in listed["resources"]] == ["library://motto"]
    assert [one["uriTemplate"] for one in listed["resourceTemplates"]] == ["library://books/{number}"]
    assert [one["name"] for one in listed["prompts"]] == ["overdue"]
    lines = [line.split() for line in cli("namespaces").stdout.splitlines()]
    assert lines[:2] == [["NAMESPACE", "TOOLS", "RESOURCES", "PROMPTS", "STATUS"], ["library", "0", "2", "1", "ready"]]


def test_reload_also_tells_pipes_beside_a_gateway(live: Gateway, cli: Cli, venvs: Path) -> None:
    live.write("a", "tools.py", "from fastmcp.tools import tool\n\n@tool\ndef one() -> int:\n    return 1\n")
    live.start()
    live.settled()
    pipe = subprocess.Popen(
        [sys.executable, "-m", "tooldock", "stdio", "a", "--data-dir", str(live.data)],
        env={**os.environ, "VENVS_DIR": str(venvs)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        until("it serves", lambda: list(live.data.glob("state/run/stdio-*/stdio-*.json")), 30)
        assert cli("reload").stdout.splitlines() == [
            "Looked at 1 namespace: nothing was loaded anew.",
            "  Told 1 stdio server that clients started to look as well.",
        ]
        assert pipe.poll() is None
    finally:
        pipe.communicate(timeout=20)


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

"""What `tooldock up` tells the person who started it."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tooldock import __version__
from tooldock.cli.completion import known_tools
from tooldock.cli.new import EXAMPLE_NAMESPACE, EXAMPLE_TOOL
from tooldock.cli.progress import Progress
from tooldock.cli.terminal import is_terminal, one_line, printable, width
from tooldock.cli.tools import STATUS_COLOURS, namespace_lines, offered

if TYPE_CHECKING:
    from tooldock.model import Namespace
    from tooldock.paths import Paths


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """Where a caller gets the token from: a file, a variable of the shell, or nowhere if none is needed."""

    file: Path | None = None
    source: str = ""

    @property
    def shown(self) -> str:
        return str(self.file) if self.file else self.source

    @property
    def header(self) -> str:
        """The `curl` option, for a shell to fill in; never the token itself."""
        if self.file is not None:
            return f'-H "Authorization: Bearer $(cat {shlex.quote(str(self.file))})"'
        return '-H "Authorization: Bearer $BEARER_TOKEN"' if self.source else ""


class Announcer:
    """A reporter for people: progress at first, a summary when it is up, a line when something changes."""

    def __init__(self, paths: Paths, token: Token, *, notes: Sequence[str] = (), made_example: bool = False) -> None:
        self._paths = paths
        self._token = token
        self._notes = notes
        self._made_example = made_example
        self._progress = Progress(live=is_terminal(sys.stdout))
        self._known: dict[str, Namespace] = {}
        self._up = False

    @property
    def up(self) -> bool:
        """Whether the gateway came as far as serving."""
        return self._up

    def progress(self, namespace: str, text: str) -> None:
        if self._up:
            return  # `changed` tells the outcome; the steps would only scroll the summary away
        self._progress.update(namespace, text)

    def ready(self, url: str, namespaces: Sequence[Namespace]) -> None:
        self._progress.clear()
        self._up = True
        self._known = {namespace.name: namespace for namespace in namespaces}
        for line in self._summary(url, namespaces):
            click.echo(line)

    def changed(self, namespaces: Sequence[Namespace]) -> None:
        if not self._up:
            return  # the summary is still to come and shows it
        before, self._known = self._known, {namespace.name: namespace for namespace in namespaces}
        for name, namespace in self._known.items():
            if _shown(before.get(name)) != _shown(namespace):
                click.echo(f"  {_change(namespace)}")
        for name in before.keys() - self._known.keys():
            click.echo(f"  {click.style(printable(name), bold=True)} is gone")

    def stopping(self, calls: int) -> None:
        self._progress.clear()
        flight = f"{calls} call{'' if calls == 1 else 's'} in flight"
        again = "; Ctrl-C again stops at once" if calls else ""
        click.echo(f"\nStopping, {flight}{again}.")

    def _summary(self, url: str, namespaces: Sequence[Namespace]) -> list[str]:
        rows = [
            ("MCP", f"{url}/ns/{_first(namespaces)}/mcp"),
            ("API", url),
            ("Docs", f"{url}/docs"),
            ("Metrics", f"{url}/metrics"),
            ("Data", str(self._paths.data_dir)),
            ("Token", self._token.shown or "none is needed (AUTH_DISABLED)"),
        ]
        lines = ["", f"  {click.style(f'ToolDock {__version__}', bold=True, fg='green')} is up.", ""]
        lines += [f"  {click.style(f'{name:<9}', bold=True)}{value}" for name, value in rows]
        lines += ["", *namespace_lines([_row(namespace) for namespace in namespaces]), ""]
        if self._made_example:
            lines += [f"  Your first tools are in {self._paths.tools / EXAMPLE_NAMESPACE / 'hello.py'}.", ""]
        lines += ["  Try it from another terminal:", "", *self._tries(url, namespaces), ""]
        config = [*self._command(), "client-config --client claude"]
        lines += ["  Connect Claude (or vscode, cursor, litellm, open-webui):", "", *_folded(config), ""]
        lines += [f"  {click.style('Note:', fg='yellow')} {note}" for note in self._notes]
        lines += ["  Ctrl-C stops it.", ""]
        return lines

    def _tries(self, url: str, namespaces: Sequence[Namespace]) -> list[str]:
        """A call by each way, made for pasting; without the example tool, the list of what there is."""
        serving = [namespace.name for namespace in namespaces if namespace.tools]
        words = self._command()
        curl = ["curl -s -w '\\n'", self._token.header]
        if self._has_example(serving):
            words.append(f"call {EXAMPLE_NAMESPACE} {EXAMPLE_TOOL} name=Ada")
            curl += [
                f'-H "X-Namespace: {EXAMPLE_NAMESPACE}"',
                '-H "Content-Type: application/json"',
                """-d '{"name": "Ada"}'""",
                f"{url}/tools/{EXAMPLE_TOOL}",
            ]
        else:
            words.append("tools")
            curl.append(f"{url}/ns/{serving[0]}/tools" if serving else f"{url}/namespaces")
        return [*_folded(words), "", *_folded([part for part in curl if part])]

    def _command(self) -> list[str]:
        return [program_name(), f"--data-dir {shlex.quote(str(self._paths.data_dir))}"]

    def _has_example(self, serving: Sequence[str]) -> bool:
        if self._made_example:
            return True
        return EXAMPLE_NAMESPACE in serving and any(
            tool.get("name") == EXAMPLE_TOOL and "name" in (tool.get("inputSchema") or {}).get("properties", {})
            for tool in known_tools(EXAMPLE_NAMESPACE)
        )


def _first(namespaces: Sequence[Namespace]) -> str:
    """The namespace to begin with: the example if it is there, else the first that serves something."""
    names = [namespace.name for namespace in namespaces if offered(_row(namespace))]
    names = names or [namespace.name for namespace in namespaces if namespace.status == "building"]
    return EXAMPLE_NAMESPACE if EXAMPLE_NAMESPACE in names else next(iter(names), "NAMESPACE")


def program_name() -> str:
    """How to start this program from another shell, which may not have its directory on PATH."""
    if shutil.which("tooldock"):
        return "tooldock"
    if os.path.basename(sys.argv[0]) == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m tooldock"
    return shlex.quote(os.path.abspath(sys.argv[0]))


def _folded(words: Sequence[str]) -> list[str]:
    """A command over as many lines as it needs; a shell takes them as one."""
    limit = min(width(), 100) - 6
    lines: list[str] = []
    current = words[0]
    for word in words[1:]:
        if len(current) + len(word) + 1 > limit:
            lines.append(f"    {current} \\")
            current = f"  {word}"
        else:
            current = f"{current} {word}"
    return [*lines, f"    {current}"]


def _row(namespace: Namespace) -> dict[str, Any]:
    row = dataclasses.asdict(namespace)
    row["tool_count"] = row.pop("tools")
    return row


def _shown(namespace: Namespace | None) -> tuple[object, ...]:
    """What a person would call a change; that a worker came or went is none."""
    if namespace is None:
        return ()
    waiting = namespace.status if namespace.status not in ("ready", "idle", "starting") else "ready"
    return (waiting, _offers(namespace), namespace.error, namespace.revision)


def _change(namespace: Namespace) -> str:
    name = click.style(printable(namespace.name), bold=True)
    status = click.style(namespace.status.replace("_", " "), fg=STATUS_COLOURS.get(namespace.status))
    if not namespace.error:
        return f"{name} {status}, {_offers(namespace)}"
    where = namespace.error_file or ""
    if where and namespace.error_line:
        where += f":{namespace.error_line}"
    prefix = f"{printable(where)}: " if where else ""
    return f"{name} {status}, {_offers(namespace)}; {click.style(prefix + one_line(namespace.error), fg='red')}"


def _offers(namespace: Namespace) -> str:
    """What it serves, in words; tools always, the rest where there is any."""
    counts = [("tool", namespace.tools), ("resource", namespace.resources), ("prompt", namespace.prompts)]
    shown = [pair for pair in counts if pair[1] or pair[0] == "tool"]
    return ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in shown)


class Logged:
    """A reporter for services: what the gateway does not log by itself goes into the structured log."""

    def __init__(self) -> None:
        import structlog

        self._log = structlog.get_logger("tooldock.cli")

    def progress(self, namespace: str, text: str) -> None:
        self._log.info("environment.progress", namespace=namespace, text=text)

    def ready(self, url: str, namespaces: Sequence[Namespace]) -> None:
        self.changed(namespaces)

    def changed(self, namespaces: Sequence[Namespace]) -> None:
        for namespace in namespaces:
            if namespace.error:
                self._log.warning(
                    "namespace.error",
                    namespace=namespace.name,
                    status=namespace.status,
                    error=namespace.error,
                    file=namespace.error_file,
                    line=namespace.error_line,
                )

    def stopping(self, calls: int) -> None:
        return None

"""`tooldock.yaml`: what a namespace says about itself.

    description: GitHub API tools
    version: 1.0.0
    author: someone
    enabled: true
    secrets: [GITHUB_TOKEN]
    env:
      GITHUB_API_URL: https://api.github.com
    limits: {timeout_seconds: 30, max_concurrency: 8, max_queue: 100, max_output_size: 65536}
    roots: [/srv/repositories, ~/notes]
    tools:
      delete_issue: {enabled: false}

Every key is optional, and so is the file. Whether the secrets exist, and what the limits do, is decided
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tooldock.config.load import load_yaml
from tooldock.config.locate import Located

FILE_NAME = "tooldock.yaml"

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOADER_VARIABLE = re.compile(r"(?i)(LD_|DYLD_|PYTHON|TOOLDOCK_).*")
"""They decide what code the worker runs, before any of ours does."""

_KEYS = (
    "description",
    "version",
    "author",
    "enabled",
    "secrets",
    "env",
    "limits",
    "roots",
    "tools",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """None takes the gateway's setting."""

    timeout_seconds: float | None = None
    max_concurrency: int | None = None
    max_queue: int | None = None
    max_output_size: int | None = None


@dataclass(frozen=True, slots=True)
class ToolConfig:
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    description: str = ""
    version: str = ""
    author: str = ""
    enabled: bool = True
    secrets: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    roots: tuple[Path, ...] = ()
    """Folders outside its own that it may touch."""
    tools: Mapping[str, ToolConfig] = field(default_factory=dict)

    @property
    def disabled_tools(self) -> frozenset[str]:
        return frozenset(name for name, tool in self.tools.items() if not tool.enabled)


def read_namespace(folder: Path, namespace: str | None = None) -> NamespaceConfig:
    """The namespace's own file in `folder`, which may be a snapshot; `namespace` is how errors call it."""
    try:
        root = load_yaml(folder / FILE_NAME, f"tools/{namespace or folder.name}/{FILE_NAME}")
    except FileNotFoundError:
        return NamespaceConfig()
    return namespace_config(root)


def namespace_config(root: Located) -> NamespaceConfig:
    values = root.mapping(f"{FILE_NAME} must be a mapping, like\n  description: GitHub API tools")
    root.only(_KEYS, FILE_NAME)
    return NamespaceConfig(
        description=_text(values, "description", "GitHub API tools"),
        version=_text(values, "version", "1.0.0"),
        author=_text(values, "author", "someone"),
        enabled=_switch(values, "'enabled' must be true or false, like\n  enabled: false"),
        secrets=_secrets(values.get("secrets")),
        env=_env(values.get("env")),
        limits=_limits(values.get("limits")),
        roots=_roots(values.get("roots")),
        tools=_tools(values.get("tools")),
    )


def _text(values: Mapping[str, Located], key: str, example: str) -> str:
    node = values.get(key)
    if node is None or node.value is None:
        return ""
    return node.text(f"{key!r} must be text, like\n  {key}: {example}").strip()


def _switch(values: Mapping[str, Located], complaint: str) -> bool:
    node = values.get("enabled")
    return True if node is None else node.switch(complaint)


def _secrets(node: Located | None) -> tuple[str, ...]:
    if node is None:
        return ()
    complaint = "'secrets' must be a list of names, like\n  secrets: [GITHUB_TOKEN]"
    names: dict[str, None] = {}
    for item in node.sequence(complaint):
        name = item.text(complaint)
        _check_variable(item, name, "secret")
        names[name] = None
    return tuple(names)


def _env(node: Located | None) -> Mapping[str, str]:
    if node is None:
        return {}
    complaint = "'env' must map names to values, like\n  env:\n    GITHUB_API_URL: https://api.github.com"
    variables = {}
    for name, item in node.mapping(complaint).items():
        _check_variable(Located(name, node.keys[name]), name, "variable")
        value = item.text(
            f"the value of {name!r} must be text, a number or true/false, like\n  {name}: value\n"
            "Leave an empty one in quotes: ''."
        )
        if "\0" in value:
            item.fail(f"the value of {name!r} holds a NUL character, which no environment can carry.")
        variables[name] = value
    return variables


def _check_variable(node: Located, name: str, what: str) -> None:
    if not ENV_NAME.fullmatch(name) or len(name) > 255:
        node.fail(
            f"{name[:80]!r} cannot be the name of a {what}: use letters, digits and underscores, with no "
            "digit first, like GITHUB_TOKEN."
        )
    if _LOADER_VARIABLE.fullmatch(name):
        node.fail(f"{name[:80]!r} is set by ToolDock or changes which code runs; choose another name.")


def _limits(node: Located | None) -> Limits:
    if node is None:
        return Limits()
    values = node.mapping("'limits' must map names to numbers, like\n  limits: {timeout_seconds: 30}")
    node.only(("timeout_seconds", "max_concurrency", "max_queue", "max_output_size"), "'limits'")
    timeout = values.get("timeout_seconds")
    return Limits(
        timeout_seconds=None
        if timeout is None
        else timeout.number(0, "'timeout_seconds' must be a number above 0, like\n  timeout_seconds: 30"),
        max_concurrency=_whole(values, "max_concurrency", 1, "8"),
        max_queue=_whole(values, "max_queue", 0, "100"),
        max_output_size=_whole(values, "max_output_size", 1, "65536"),
    )


def _whole(values: Mapping[str, Located], key: str, low: int, example: str) -> int | None:
    node = values.get(key)
    if node is None:
        return None
    return node.whole(low, f"{key!r} must be a whole number from {low}, like\n  {key}: {example}")


def _roots(node: Located | None) -> tuple[Path, ...]:
    if node is None:
        return ()
    complaint = "'roots' must be a list of absolute folders, like\n  roots: [/srv/repositories, ~/notes]"
    return tuple(_root(item, item.text(complaint), complaint) for item in node.sequence(complaint))


def _root(node: Located, text: str, complaint: str) -> Path:
    path = PurePosixPath(text)
    at_home = text == "~" or text.startswith("~/")
    if "\0" in text or not (path.is_absolute() or at_home):
        node.fail(complaint)
    if ".." in path.parts:
        node.fail("a root must not contain '..'; write the folder it leads to.")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        node.fail("'~' cannot be used, because the gateway runs without a home directory; write the full path.")


def _tools(node: Located | None) -> Mapping[str, ToolConfig]:
    if node is None:
        return {}
    example = "\n  tools:\n    delete_issue: {enabled: false}"
    tools = {}
    for name, item in node.mapping(f"'tools' must map tool names to switches, like{example}").items():
        values = item.mapping(f"the entry of tool {name[:80]!r} must be a mapping, like{example}")
        item.only(("enabled",), f"tool {name[:80]!r}")
        tools[name] = ToolConfig(_switch(values, f"'enabled' must be true or false, like{example}"))
    return tools

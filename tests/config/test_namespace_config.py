from __future__ import annotations

from pathlib import Path

import pytest

from tooldock.config import Limits, NamespaceConfig, ToolConfig, read_namespace
from tooldock.errors import ConfigError


def read(folder: Path, text: str) -> NamespaceConfig:
    (folder / "tooldock.yaml").write_text(text)
    return read_namespace(folder, "github")


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert read_namespace(tmp_path) == NamespaceConfig()


@pytest.mark.parametrize("text", ["", "# later\n", "secrets:\nenv:\nlimits:\nroots:\ntools:\ndescription:\n"])
def test_a_file_that_says_nothing_means_the_defaults(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == NamespaceConfig()


def test_everything_is_read(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
description: "GitHub API tools"
version: 1.10
author: someone
enabled: true
secrets:
  - GITHUB_TOKEN
  - GITHUB_TOKEN
env:
  GITHUB_API_URL: "https://api.github.com"
  RETRIES: 3
  VERBOSE: on
  RATIO: 0.50
  EMPTY: ''
limits: {timeout_seconds: 1.5, max_concurrency: 8, max_queue: 0, max_output_size: 65536}
roots: [/srv/repositories, ~/notes]
tools:
  delete_issue: {enabled: false}
  list_issues: {}
""",
    )
    assert config == NamespaceConfig(
        description="GitHub API tools",
        version="1.10",
        author="someone",
        secrets=("GITHUB_TOKEN",),
        env={
            "GITHUB_API_URL": "https://api.github.com",
            "RETRIES": "3",
            "VERBOSE": "on",
            "RATIO": "0.50",
            "EMPTY": "",
        },
        limits=Limits(1.5, 8, 0, 65536),
        roots=(Path("/srv/repositories"), Path.home() / "notes"),
        tools={"delete_issue": ToolConfig(enabled=False), "list_issues": ToolConfig()},
    )
    assert config.disabled_tools == {"delete_issue"}


def test_a_namespace_can_be_switched_off(tmp_path: Path) -> None:
    assert not read(tmp_path, "enabled: false").enabled


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("- 1\n", 1, 1, "must be a mapping"),
        ("description: x\n\nsecretz: [A]\n", 3, 1, "did you mean 'secrets'?"),
        ("frobnicate: 1\n", 1, 1, "known are description"),
        ("description: [x]\n", 1, 14, "'description' must be text"),
        ("enabled: 'no'\n", 1, 10, "true or false"),
        ("enabled:\n", 1, 9, "true or false"),
        (
            "secrets: GITHUB_TOKEN\n",
            1,
            10,
            "'secrets' must be a list of names, like\n  secrets: [GITHUB_TOKEN]",
        ),
        ("secrets: [[A]]\n", 1, 11, "'secrets' must be a list of names"),
        ("secrets: [A, 9LIVES]\n", 1, 14, "cannot be the name of a secret"),
        ("secrets: [LD_PRELOAD]\n", 1, 11, "changes which code runs"),
        ("env: [A]\n", 1, 6, "'env' must map"),
        ("env:\n  A: [1]\n", 2, 6, "the value of 'A' must be text"),
        ("env:\n  A:\n", 2, 5, "the value of 'A' must be text"),
        ("env:\n  A-B: 1\n", 2, 3, "cannot be the name of a variable"),
        ('env:\n  A: "x\\0y"\n', 2, 6, "NUL"),
        ("limits: 3\n", 1, 9, "'limits' must map"),
        ("limits: {timeout: 3}\n", 1, 10, "did you mean 'timeout_seconds'?"),
        ("limits: {timeout_seconds: 0}\n", 1, 27, "above 0"),
        ("limits: {timeout_seconds: .inf}\n", 1, 27, "above 0"),
        ("limits: {timeout_seconds: .nan}\n", 1, 27, "above 0"),
        ("limits: {max_concurrency: 0}\n", 1, 27, "from 1"),
        ("limits: {max_concurrency: true}\n", 1, 27, "from 1"),
        ("limits: {max_queue: 1.5}\n", 1, 21, "from 0"),
        ("roots: /srv\n", 1, 8, "'roots' must be a list"),
        ("roots: [data]\n", 1, 9, "absolute folders"),
        ("roots: [~root/x]\n", 1, 9, "absolute folders"),
        ("roots: [/srv/../etc]\n", 1, 9, "'..'"),
        ("tools: [a]\n", 1, 8, "'tools' must map"),
        ("tools: {a: false}\n", 1, 12, "must be a mapping"),
        ("tools: {a: {enable: false}}\n", 1, 13, "did you mean 'enabled'?"),
        ("tools: {a: {enabled: 0}}\n", 1, 22, "true or false"),
    ],
)
def test_a_mistake_is_reported_at_its_place(tmp_path: Path, text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert caught.value.message.startswith(f"tools/github/tooldock.yaml:{line}:{column}: ")
    assert words in caught.value.message


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "ld_library_path",
        "DYLD_INSERT_LIBRARIES",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "TOOLDOCK_STATE_DIR",
    ],
)
def test_variables_that_decide_which_code_runs_cannot_be_set(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="choose another name"):
        read(tmp_path, f"env: {{{name}: x}}")


@pytest.mark.parametrize("name", ["PATH", "LDAP_URL", "MY_PYTHON", "_X"])
def test_other_variables_can(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, f"env: {{{name}: x}}").env == {name: "x"}

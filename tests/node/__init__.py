"""Suites and clients for Node that others wrote, and the Node they run on; `make node` installs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
OLDEST = (22, 19)
"""What the Inspector asks for."""


def _node() -> Path | None:
    """The installed Node, or the machine's own where there is none to install for it and its own is new enough."""
    if not MODULES.is_dir():
        return None
    if installed := sorted(MODULES.glob("node-*/bin/node")):
        return installed[0]
    own = shutil.which("node")
    if own is None:
        return None
    said = subprocess.run([own, "--version"], capture_output=True, text=True, timeout=30).stdout
    version = re.match(r"v(\d+)\.(\d+)\.", said)
    return Path(own) if version and tuple(map(int, version.groups())) >= OLDEST else None


NODE = _node()
needs_node = pytest.mark.skipif(NODE is None, reason="needs the Node parts of the tests (make node)")


def command(script: Path, *arguments: str) -> list[str]:
    # Collected without Node, too: the mark skips the test before this is run.
    return [str(NODE), str(script), *arguments]


def environ(**more: str) -> dict[str, str]:
    """What a Node child needs, with its own Node first on the path."""
    assert NODE is not None
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR", "TZ") if name in os.environ}
    return {**kept, "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1", **more}

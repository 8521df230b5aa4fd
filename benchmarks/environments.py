"""Scratch environments for the servers we compare with, built once below `.bench/` and reused.

Made by the project's own uv and with the interpreter that runs the benchmark, so that every server runs on
the same Python. Nothing of a peer is ever installed into the project's environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / ".bench"
BIN = Path(sys.executable).parent
"""Where the project's own programs are: `tooldock` and `uv`."""


class NotMeasurable(Exception):
    """Something cannot be measured here; the report shows the reason in its place."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with these requirements; the first one is what its version is reported for."""

    name: str
    requirements: tuple[str, ...]

    @property
    def python(self) -> Path:
        return SCRATCH / self.name / "bin" / "python"

    def ensure(self) -> None:
        """Build it unless it stands; the stamp is written last, so a half-built one is built again."""
        stamp = SCRATCH / self.name / ".built"
        wanted = "\n".join((sys.version, *self.requirements))
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
            return
        print(f"Building the scratch environment {self.name} (once) ...", file=sys.stderr)
        self._uv("venv", "--clear", "--python", sys.executable, str(SCRATCH / self.name))
        self._uv("pip", "install", "--python", str(self.python), *self.requirements)
        stamp.write_text(wanted, encoding="utf-8")

    def versions(self) -> dict[str, str]:
        """What is installed in it."""
        return installed(self.python)

    def _uv(self, *arguments: str) -> None:
        finished = subprocess.run(
            [str(BIN / "uv"), "--quiet", *arguments], capture_output=True, text=True, check=False, timeout=300
        )
        if finished.returncode != 0:
            raise NotMeasurable(f"the environment {self.name} could not be built: {finished.stderr.strip()[-300:]}")


def installed(python: Path) -> dict[str, str]:
    """Distributions and versions in the environment of an interpreter."""
    finished = subprocess.run(
        [str(BIN / "uv"), "--quiet", "pip", "list", "--format", "json", "--python", str(python)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return {one["name"]: one["version"] for one in json.loads(finished.stdout)}

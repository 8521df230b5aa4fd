"""The worker package stands alone: what it imports is the standard library, pydantic, and itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pydantic
import pytest

import tooldock_worker
from tooldock.paths import Paths
from tooldock.workers.venvs import Environments, copy_runtime

pytestmark = pytest.mark.process

PROBE = """
import importlib, json, pkgutil, sys
sys.path[:0] = sys.argv[1:]
import tooldock_worker
for module in pkgutil.walk_packages(tooldock_worker.__path__, "tooldock_worker."):
    importlib.import_module(module.name)
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
json.dump({name: file for name, file in files.items() if file}, sys.stdout)
"""
BASE_SET = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}


def imported(python: Path, *path: str) -> dict[str, str]:
    """Every module there is after the whole package was imported in a bare interpreter."""
    done = subprocess.run([str(python), "-I", "-S", "-c", PROBE, *path], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    modules: dict[str, str] = json.loads(done.stdout)
    return modules


def foreign(modules: dict[str, str]) -> set[str]:
    """Top-level packages that are neither the standard library's nor the worker's own."""
    names = {name.partition(".")[0] for name in modules if not name.startswith("_sysconfigdata")}
    return names - set(sys.stdlib_module_names) - {"tooldock_worker", "__main__"}


def test_every_module_imports_with_nothing_but_its_path_and_pydantic(tmp_path: Path) -> None:
    packages = Path(pydantic.__file__).parent.parent
    for name in (*BASE_SET, "typing_extensions.py"):
        if (packages / name).exists():
            (tmp_path / name).symlink_to(packages / name)
    (tmp_path / "tooldock_worker").symlink_to(Path(tooldock_worker.__file__).parent)
    modules = imported(Path(sys.executable), str(tmp_path))
    assert "tooldock_worker.server" in modules
    assert "tooldock" not in modules
    assert foreign(modules) <= BASE_SET


async def test_the_copy_workers_run_imports_in_the_environment_workers_use(tmp_path: Path, venvs: Path) -> None:
    paths = Paths(tmp_path, venvs)
    paths.prepare()
    environments = Environments(paths)
    base = await environments.base()
    runtime = copy_runtime(paths)
    done = subprocess.run(
        [str(base.python), "-c", PROBE, str(runtime)], capture_output=True, timeout=60, check=False, env={}
    )
    environments.close()
    assert done.returncode == 0, done.stderr.decode()
    modules: dict[str, str] = json.loads(done.stdout)
    assert Path(modules["tooldock_worker.server"]).is_relative_to(runtime)
    assert "tooldock" not in modules
    assert foreign(modules) <= BASE_SET | {"_virtualenv", "sitecustomize"}

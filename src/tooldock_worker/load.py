"""A namespace's folder in, its tools, resources and prompts out.

Every `*.py` at the top of the folder is a tool file, except `routes.py` and names that start with `_` or `.`;
the latter, and packages in the folder, can be imported by the tool files. Installed packages and the standard
library always keep their names: a tool file called `json.py` is loaded, but `import json` means Python's.

Knows nothing of sockets or processes; loading runs the tool files' code and is done once in a process.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from tooldock_worker import context, light, schema, tools
from tooldock_worker.jsontext import clean
from tooldock_worker.light.decorator import record_of
from tooldock_worker.tools import LoadedTool

if TYPE_CHECKING:
    from tooldock_worker.readings import Reading, TemplateReading

_MAX_MESSAGE = 2_000
_REAL = {"Tool": "tool", "Resource": "resource", "ResourceTemplate": "resource", "Prompt": "prompt"}

Health = Callable[[], Awaitable[Any] | Any]


class LoadError(Exception):
    """A folder that cannot be served, with the place to look at."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        kind: Literal["syntax", "import", "error"] = "error",
    ) -> None:
        super().__init__(message)
        self.file = file
        self.line = line
        self.kind = kind


class Loaded:
    """What a folder holds."""

    __slots__ = ("health", "prompts", "resources", "templates", "tools")

    def __init__(self, tools: dict[str, LoadedTool], health: Health | None) -> None:
        self.tools = tools
        self.resources: dict[str, Reading] = {}
        """By URI."""
        self.templates: dict[str, TemplateReading] = {}
        """By template."""
        self.prompts: dict[str, Reading] = {}
        self.health = health

    def describe(self) -> dict[str, list[dict[str, Any]]]:
        """What callers are told of everything, as JSON."""
        parts: dict[str, dict[str, Any]] = {
            "tools": self.tools,
            "resources": self.resources,
            "templates": self.templates,
            "prompts": self.prompts,
        }
        return {part: [item.describe() for item in items.values()] for part, items in parts.items()}

    def resource(self, uri: str) -> tuple[Reading, dict[str, Any]] | None:
        """What is read at a URI, and with which arguments: the exact one, else the first template that fits."""
        exact = self.resources.get(uri)
        if exact is not None:
            return exact, {}
        for template in self.templates.values():
            arguments = template.arguments(uri)
            if arguments is not None:
                return template, dict(arguments)
        return None


def load(folder: Path) -> Loaded:
    """Import a namespace's files and collect their tools; raises `LoadError`."""
    # Text instead of paths from here on, and no globbing: what a forked worker runs costs it memory of its own.
    root = os.path.realpath(folder)
    light.install()
    entries = _entries(root)
    _refuse_taken_names(entries)
    sys.path[:] = _path_without(root)
    names = {file: _module_name(root, file) for file in _tool_files(entries)}
    _make_importable(root)
    modules = {file: _imported(root, file, name) for file, name in names.items()}
    health = _health(root)
    _share_current_context()
    return _collect(modules, health)


# Files and modules.


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        raise LoadError("The folder does not exist.") from None
    except OSError as error:
        raise LoadError(f"The folder cannot be read: {error.strerror}.") from error


def _tool_files(entries: Sequence[os.DirEntry[str]]) -> list[str]:
    return [
        entry.name
        for entry in entries
        if entry.name.endswith(".py") and entry.name[0] not in "_." and entry.name != "routes.py" and entry.is_file()
    ]


def _refuse_taken_names(entries: Sequence[os.DirEntry[str]]) -> None:
    """A private file must be importable by its name, which it is not if Python itself needs that name."""
    for entry in entries:
        stem, _, suffix = entry.name.rpartition(".") if "." in entry.name else (entry.name, "", "")
        if stem.startswith("_") and stem in sys.stdlib_module_names and (suffix == "py" or entry.is_dir()):
            raise LoadError(
                f"The name {stem} belongs to Python's standard library; rename {entry.name}.",
                file=entry.name,
            )


def _module_name(folder: str, file: str) -> str:
    """The file's own name where nothing else has it, else a private one."""
    stem = file.removesuffix(".py")
    free = (
        stem.isidentifier()
        and stem not in sys.modules
        and stem not in sys.stdlib_module_names
        and not os.path.isfile(os.path.join(folder, stem, "__init__.py"))  # Python prefers the package beside it
        and not _found_elsewhere(stem)
    )
    return stem if free else f"_tooldock_file_{stem.encode().hex()}"


def _found_elsewhere(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return True


def _path_without(folder: str) -> list[str]:
    own = os.stat(folder)
    return [entry for entry in sys.path if not _is_same(entry, own)]


def _is_same(entry: str, own: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(entry or os.curdir), own)
    except OSError:
        return False  # an entry that is not there


class _PrivateFinder:
    """Finds `_name` in the folder before anybody else does; everything else is the path's business."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is not None or not name.startswith("_"):
            return None
        file = os.path.join(self.folder, f"{name}.py")
        if os.path.isfile(file):
            return importlib.util.spec_from_file_location(name, file)
        package = os.path.join(self.folder, name)
        start = os.path.join(package, "__init__.py")
        if os.path.isfile(start):
            return importlib.util.spec_from_file_location(name, start, submodule_search_locations=[package])
        return None


def _make_importable(folder: str) -> None:
    # Last on the path, so that a tool file never hides an installed package of the same name.
    sys.path.append(folder)
    if not any(isinstance(finder, _PrivateFinder) and finder.folder == folder for finder in sys.meta_path):
        sys.meta_path.insert(0, _PrivateFinder(folder))
    # Files may have come since the folder was last looked at, faster than its modification time tells.
    for entry in [entry for entry in sys.path_importer_cache if f"{entry}{os.sep}".startswith(f"{folder}{os.sep}")]:
        del sys.path_importer_cache[entry]


def _imported(folder: str, file: str, name: str) -> ModuleType:
    try:
        if name == file.removesuffix(".py"):
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(name, os.path.join(folder, file))
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _explained(folder, file, error) from error


def _health(folder: str) -> Health | None:
    if not os.path.isfile(os.path.join(folder, "_health.py")):
        return None
    check = getattr(_imported(folder, "_health.py", "_health"), "health", None)
    if not callable(check):
        raise LoadError("_health.py has no function health().", file="_health.py")
    return check  # type: ignore[no-any-return]


def _share_current_context() -> None:
    """Where tool files use the real package, let its get_context() find the running call as well."""
    if "fastmcp" not in sys.modules or light.install():
        return
    try:
        real: Any = importlib.import_module("fastmcp.server.context")
    except ImportError:
        return  # a package without its server part has no get_context() either
    if hasattr(real, "_current_context"):
        real._current_context = context.current


# Errors of tool files.


def _explained(folder: str, file: str, error: BaseException) -> LoadError:
    where, line = _place(Path(folder), error)
    where = where or file
    if isinstance(error, SyntaxError):
        return LoadError(f"{error.msg} ({where}, line {line}).", file=where, line=line, kind="syntax")
    if isinstance(error, ImportError):
        return LoadError(_import_message(Path(folder), where, error), file=where, line=line, kind="import")
    if isinstance(error, SystemExit):
        message = f"{where} ends the process while it is imported (sys.exit); tools must only define functions."
        return LoadError(message, file=where, line=line)
    message = clean(f"{where} raised {type(error).__name__}: {error}")[:_MAX_MESSAGE]
    return LoadError(message, file=where, line=line)


def _place(folder: Path, error: BaseException) -> tuple[str | None, int | None]:
    """The innermost place within the folder: where a syntax error is, or where the traceback last was."""
    if isinstance(error, SyntaxError) and error.filename and (inside := _inside(folder, error.filename)):
        return inside, error.lineno
    found: tuple[str | None, int | None] = (None, None)
    trace = error.__traceback__
    while trace is not None:
        if inside := _inside(folder, trace.tb_frame.f_code.co_filename):
            found = (inside, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _inside(folder: Path, file: str) -> str | None:
    path = Path(file)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else None


def _import_message(folder: Path, where: str, error: ImportError) -> str:
    missing = (error.name or "").partition(".")[0]
    ours = (folder / f"{missing}.py").exists() or (folder / missing).is_dir()
    foreign = isinstance(error, ModuleNotFoundError) and missing and missing not in sys.stdlib_module_names
    if foreign and not ours and missing != "fastmcp":
        return f"{where} imports {missing}, which is not installed; add it to requirements.txt."
    return f"{where}: {error}"


# Tools, resources and prompts.


def _collect(modules: dict[str, ModuleType], health: Health | None) -> Loaded:
    loaded = Loaded({}, health)
    for file, found in _decorated(modules):
        kind = str(_kind(found))
        try:
            _add(loaded, file, found, kind)
        except LoadError:
            raise
        except schema.SchemaError as error:
            raise LoadError(f"{file}: the {kind} {_called(found)} {error}.", file=file, line=_line(found)) from error
        except Exception as error:
            # Types and decorators may hold anything, and fail in any way when they are looked at.
            why = clean(f"{type(error).__name__}: {error}")[:_MAX_MESSAGE]
            message = f"{file}: the {kind} {_called(found)} cannot be used as it is declared; {why}"
            raise LoadError(message, file=file, line=_line(found)) from error
    return loaded


def _add(loaded: Loaded, file: str, found: Any, kind: str) -> None:
    record, line = record_of(found), _line(found)
    fn = found.__func__ if isinstance(found, staticmethod) else found
    if kind == "tool":
        tool = tools.of_object(file, found, line) if record is None else tools.tool(file, fn, record, line)
        _add_to(loaded.tools, tool, "tool name")
        return
    # Only here: most namespaces have nothing but tools, and every module costs each worker.
    from tooldock_worker import readings

    if record is None:
        item = readings.of_object(file, found, line)
    else:
        item = (readings.prompt if kind == "prompt" else readings.resource)(file, fn, record, line)
    if isinstance(item, readings.TemplateReading):
        _add_to(loaded.templates, item, "URI template")
    elif kind == "prompt":
        _add_to(loaded.prompts, item, "prompt name")
    else:
        _add_to(loaded.resources, item, "URI")


def _add_to(known: dict[str, Any], item: LoadedTool | Reading | None, what: str) -> None:
    if item is None:
        return  # switched off
    if (other := known.get(item.key)) is not None:
        message = f"The {what} {item.key!r} is used twice, in {other.file} and in {item.file}; rename one."
        raise LoadError(message, file=item.file, line=item.line)
    known[item.key] = item


def _decorated(modules: dict[str, ModuleType]) -> Iterator[tuple[str, Any]]:
    """Everything decorated, once, each with the file that defines it.

    What another tool file defines is left to that file. What comes from a private file or a package belongs
    to the first tool file that imports it.
    """
    homes = {module.__name__: module for module in modules.values()}
    seen: set[int] = set()
    for file, module in modules.items():
        for value in list(vars(module).values()):
            if _kind(value) is None:
                continue
            home = homes.get(getattr(_code_owner(value), "__module__", None) or "")
            if id(value) in seen or (home is not None and home is not module):
                continue
            seen.add(id(value))
            yield file, value


def _code_owner(value: Any) -> Any:
    if _real_kind(value) is not None:
        value = getattr(value, "fn", value)
    while isinstance(value, functools.partial):
        value = value.func
    return value


def _kind(value: Any) -> str | None:
    """tool, resource or prompt; None for everything else."""
    record = record_of(value)
    return _real_kind(value) if record is None else str(record.type)


def _real_kind(value: Any) -> str | None:
    """What an object of the real package is, as its older decorators and transformations make them."""
    if inspect.isclass(value):
        return None
    return next(
        (
            _REAL[kind.__name__]
            for kind in type(value).__mro__
            if kind.__name__ in _REAL and str(kind.__module__).startswith("fastmcp.")
        ),
        None,
    )


def _called(value: Any) -> str:
    return str(getattr(value, "__name__", None) or type(value).__name__)


def _line(value: Any) -> int | None:
    owner = _code_owner(value)
    try:
        owner = inspect.unwrap(owner) if callable(owner) else value
    except ValueError:
        pass  # it wraps itself; its own line will do
    code = getattr(getattr(owner, "__func__", owner), "__code__", None)
    return getattr(code, "co_firstlineno", None)

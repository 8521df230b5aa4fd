"""`@tool`: leaves the function as it is and notes beside it what the author said about it.

`resources` and `prompts` do the same for theirs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


_RECORDS = {"ToolMeta": "tool", "ResourceMeta": "resource", "PromptMeta": "prompt"}


class Record:
    """What a decorator call said."""

    __slots__: tuple[str, ...] = ()
    type = ""

    def __init__(self, **said: Any) -> None:
        for name in self.__slots__:
            setattr(self, name, said[name])


class ToolMeta(Record):
    """What a decorator call said; has the attributes of the real package's record."""

    __slots__ = (
        "annotations",
        "auth",
        "description",
        "enabled",
        "icons",
        "meta",
        "name",
        "output_schema",
        "run_in_thread",
        "tags",
        "task",
        "timeout",
        "title",
        "version",
    )
    type = "tool"


@overload
def tool(name_or_fn: F, /) -> F: ...


@overload
def tool(
    name_or_fn: str | None = None,
    *,
    name: str | None = ...,
    version: str | int | None = ...,
    title: str | None = ...,
    description: str | None = ...,
    icons: Iterable[Any] | None = ...,
    tags: Iterable[str] | None = ...,
    output_schema: Any = ...,
    annotations: Any = ...,
    meta: Mapping[str, Any] | None = ...,
    task: Any = ...,
    timeout: float | None = ...,
    auth: Any = ...,
    run_in_thread: bool = ...,
    enabled: bool = ...,
) -> Callable[[F], F]: ...


def tool(
    name_or_fn: Any = None,
    *,
    name: str | None = None,
    version: str | int | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Iterable[Any] | None = None,
    tags: Iterable[str] | None = None,
    output_schema: Any = ...,
    annotations: Any = None,
    meta: Mapping[str, Any] | None = None,
    task: Any = None,
    timeout: float | None = None,
    auth: Any = None,
    run_in_thread: bool = True,
    enabled: bool = True,
) -> Any:
    """Mark a function as a tool: `@tool`, `@tool()`, `@tool("name")`, `@tool(name=..., title=..., ...)`."""
    direct, name = given_name("tool", name_or_fn, name)
    record = ToolMeta(
        name=name,
        version=version,
        title=title,
        description=description,
        icons=icons,
        tags=tags,
        output_schema=output_schema,
        annotations=annotations,
        meta=meta,
        task=task,
        timeout=timeout,
        auth=auth,
        run_in_thread=run_in_thread,
        enabled=enabled,
    )

    return mark(name_or_fn, record) if direct else lambda fn: mark(fn, record)


def given_name(kind: str, name_or_fn: Any, name: str | None) -> tuple[bool, str | None]:
    """Whether a decorator was handed the function itself, and the name it was handed."""
    if isinstance(name_or_fn, classmethod):
        raise TypeError(f"To make a class method a {kind}, put @classmethod above @{kind}.")
    if callable(name_or_fn) or isinstance(name_or_fn, staticmethod):
        return True, name
    if name_or_fn is None:
        return False, name
    if not isinstance(name_or_fn, str):
        raise TypeError(f"@{kind} takes a function or a name first, not {type(name_or_fn).__name__}.")
    if name is not None:
        raise TypeError(f"The {kind}'s name is given twice: as first argument and as name=.")
    return False, name_or_fn


def mark(fn: F, record: Record) -> F:
    """Note the record on a function."""
    target: Any = fn.__func__ if isinstance(fn, staticmethod | MethodType) else fn
    target.__fastmcp__ = record
    return fn


def record_of(value: Any) -> Any:
    """The record a decorator left on a value, this one's or the real package's; None if there is none."""
    if inspect.ismodule(value) or inspect.isclass(value):
        return None
    try:
        record = getattr(value, "__fastmcp__", None)
    except Exception:
        # A lazy proxy may fail in any way when it is looked at; it is no tool.
        return None
    kind = _RECORDS.get(type(record).__name__)
    return record if kind is not None and getattr(record, "type", "") == kind else None

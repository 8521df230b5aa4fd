"""From a function to one that can be called with all its arguments: what plain calling does not cover.

Generators give a list, what is awaitable is awaited, dependencies are found and closed again.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from tooldock_worker import schema
from tooldock_worker.light.dependencies import Dependency, resolve
from tooldock_worker.threads import on_thread


def is_async(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def runnable(fn: Any, parsed: schema.Parsed, record: Any) -> Callable[..., Any]:
    """The function itself where that will do, else a wrapper for what plain calling does not cover."""
    call = _collected(fn)
    in_thread = getattr(record, "run_in_thread", True)
    if parsed.dependencies:
        return _with_dependencies(fn, call, parsed.dependencies, in_thread)
    if not in_thread and not is_async(call):
        if record.timeout is not None:
            raise schema.SchemaError(
                "has run_in_thread=False and a timeout, but what blocks the event loop cannot be stopped"
            )
        return _on_loop(call)
    return call


def _collected(fn: Any) -> Callable[..., Any]:
    """A call that gives the finished result: a generator's items as a list, what is awaitable awaited."""
    if inspect.isasyncgenfunction(fn):

        @functools.wraps(fn)
        async def collect(**arguments: Any) -> list[Any]:
            return [item async for item in fn(**arguments)]

        return collect
    if inspect.isgeneratorfunction(fn):

        @functools.wraps(fn)
        def collect_sync(**arguments: Any) -> list[Any]:
            return list(fn(**arguments))

        return collect_sync
    if not is_async(fn) and is_async(inspect.unwrap(fn)):
        # A decorator that is a plain function around an async one: calling it gives something to await.

        @functools.wraps(fn)
        async def awaited(**arguments: Any) -> Any:
            value = fn(**arguments)
            return await value if inspect.isawaitable(value) else value

        return awaited
    return fn  # type: ignore[no-any-return]


def _on_loop(call: Callable[..., Any]) -> Callable[..., Any]:
    """For code that must not leave the main thread; the author asked for it."""

    async def run(**arguments: Any) -> Any:
        return call(**arguments)

    return run


def _with_dependencies(
    fn: Any, call: Callable[..., Any], dependencies: dict[str, Any], in_thread: bool
) -> Callable[..., Any]:
    """Dependencies are awaited on the loop; a sync tool then runs on a thread of its own."""
    ours = all(isinstance(item, Dependency) for item in dependencies.values())
    values = _our_values(dependencies) if ours else _real_values(fn, dependencies)

    async def run(**arguments: Any) -> Any:
        async with AsyncExitStack() as stack:
            arguments |= await values(arguments, stack)
            if is_async(call):
                return await call(**arguments)
            return await on_thread(functools.partial(call, **arguments)) if in_thread else call(**arguments)

    return run


Values = Callable[[dict[str, Any], AsyncExitStack], Awaitable[dict[str, Any]]]


def _our_values(dependencies: dict[str, Any]) -> Values:
    async def values(arguments: dict[str, Any], stack: AsyncExitStack) -> dict[str, Any]:
        return await resolve(dependencies, stack, {})

    return values


def _real_values(fn: Any, dependencies: dict[str, Any]) -> Values:
    async def values(arguments: dict[str, Any], stack: AsyncExitStack) -> dict[str, Any]:
        module = importlib.import_module("fastmcp.server.dependencies")
        found = await stack.enter_async_context(module.resolve_dependencies(fn, arguments))
        known = {name: found[name] for name in dependencies if name in found}
        ours = {name: item for name, item in dependencies.items() if isinstance(item, Dependency)}
        return known | await resolve(ours, stack, {})

    return values

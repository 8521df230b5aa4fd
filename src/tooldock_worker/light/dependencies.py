"""`Depends` and `CurrentContext`: parameters a tool is handed instead of being asked for."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import Any

from tooldock_worker.context import get_context


class Dependency:
    """A parameter's default that stands for a value found at call time."""

    __slots__ = ()

    async def resolve(self, stack: AsyncExitStack, known: dict[Any, Any]) -> Any:
        """The value; what to close after the call goes on `stack`, what the call shares into `known`."""
        raise NotImplementedError


class _CurrentContext(Dependency):
    __slots__ = ()

    async def resolve(self, stack: AsyncExitStack, known: dict[Any, Any]) -> Any:
        return get_context()


class _Depends(Dependency):
    __slots__ = ("bindings", "factory")

    def __init__(self, factory: Callable[..., Any], bindings: dict[str, Any]) -> None:
        self.factory = factory
        self.bindings = bindings

    async def resolve(self, stack: AsyncExitStack, known: dict[Any, Any]) -> Any:
        # One call asks each factory once; with bindings, once for each place that declares it.
        key = self if self.bindings else self.factory
        if key not in known:
            arguments = await resolve(dependencies_of(self.factory) | self.bindings, stack, known)
            known[key] = await _entered(self.factory(**arguments), stack)
        return known[key]


def Depends(factory: Callable[..., Any], **bindings: Any) -> Any:
    """A value made by `factory` for each call: a function or (async) context manager, sync or async."""
    return _Depends(factory, bindings)


def CurrentContext() -> Any:
    """The running call's `Context`, for a parameter that is not annotated with it."""
    return _CurrentContext()


def is_dependency(default: Any) -> bool:
    """Whether a default is one of these or the real package's."""
    return isinstance(default, Dependency) or any(
        kind.__name__ == "Dependency" and kind.__module__.partition(".")[0] in ("uncalled_for", "docket")
        for kind in type(default).__mro__
    )


def is_current_context(default: Any) -> bool:
    """Whether a default stands for the running call's context."""
    return is_dependency(default) and type(default).__name__ in ("_CurrentContext", "_OptionalCurrentContext")


def dependencies_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function that are dependencies."""
    parameters = inspect.signature(fn).parameters.values()
    return {item.name: item.default for item in parameters if is_dependency(item.default)}


async def resolve(wanted: dict[str, Any], stack: AsyncExitStack, known: dict[Any, Any]) -> dict[str, Any]:
    """Values for parameters; what is no dependency passes through."""
    return {
        name: await item.resolve(stack, known) if isinstance(item, Dependency) else item
        for name, item in wanted.items()
    }


async def _entered(value: Any, stack: AsyncExitStack) -> Any:
    if isinstance(value, AbstractAsyncContextManager):
        return await stack.enter_async_context(value)
    if isinstance(value, AbstractContextManager):
        return stack.enter_context(value)
    return await value if isinstance(value, Awaitable) else value

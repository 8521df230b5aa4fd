"""`@prompt`, and what a function so marked may return: `Message`, `PromptResult`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, overload

from tooldock_worker.jsontext import dumps
from tooldock_worker.light.decorator import Record, given_name, mark
from tooldock_worker.light.values import Block, kind_of

F = TypeVar("F", bound=Callable[..., Any])


class PromptMeta(Record):
    """What a decorator call said; has the attributes of the real package's record."""

    __slots__ = ("auth", "description", "enabled", "icons", "meta", "name", "tags", "title", "version")
    type = "prompt"


@overload
def prompt(name_or_fn: F, /) -> F: ...


@overload
def prompt(
    name_or_fn: str | None = None,
    *,
    name: str | None = ...,
    version: str | int | None = ...,
    title: str | None = ...,
    description: str | None = ...,
    icons: Iterable[Any] | None = ...,
    tags: Iterable[str] | None = ...,
    meta: Mapping[str, Any] | None = ...,
    auth: Any = ...,
) -> Callable[[F], F]: ...


def prompt(
    name_or_fn: Any = None,
    *,
    name: str | None = None,
    version: str | int | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Iterable[Any] | None = None,
    tags: Iterable[str] | None = None,
    meta: Mapping[str, Any] | None = None,
    auth: Any = None,
) -> Any:
    """Mark a function as a prompt: `@prompt`, `@prompt()`, `@prompt("name")`, `@prompt(name=..., title=..., ...)`."""
    direct, name = given_name("prompt", name_or_fn, name)
    record = PromptMeta(
        name=name,
        version=version,
        title=title,
        description=description,
        icons=icons,
        tags=tags,
        meta=meta,
        auth=auth,
        enabled=True,
    )
    return mark(name_or_fn, record) if direct else lambda fn: mark(fn, record)


class Message:
    """One message of a prompt: text and content blocks as they are, everything else as JSON text."""

    def __init__(self, content: Any, role: Literal["user", "assistant"] = "user") -> None:
        if role not in ("user", "assistant"):
            raise ValueError(f"A message is from the user or the assistant, not from {role!r}.")
        self.role = role
        if kind_of(type(content)) == "block":
            self.content = content
        else:
            text = content if isinstance(content, str) else dumps(content).decode()
            self.content = Block({"type": "text", "text": text})


class PromptResult:
    """Full control over a prompt: its messages, and what is said about them."""

    def __init__(self, messages: Any, description: str | None = None, meta: Mapping[str, Any] | None = None) -> None:
        items = messages if isinstance(messages, list) else [Message(messages)]
        for index, item in enumerate(items):
            if not isinstance(item, Message):
                raise TypeError(f"messages[{index}] must be a Message, not {type(item).__name__}.")
        self.messages: list[Message] = items
        self.description = description
        self.meta = meta

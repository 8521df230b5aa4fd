"""`@resource`, and what a function so marked may return: `ResourceContent`, `ResourceResult`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tooldock_worker.jsontext import dumps
from tooldock_worker.light.decorator import Record, mark

F = TypeVar("F", bound=Callable[..., Any])


class ResourceMeta(Record):
    """What a decorator call said; has the attributes of the real package's record."""

    __slots__ = (
        "annotations",
        "auth",
        "description",
        "enabled",
        "icons",
        "meta",
        "mime_type",
        "name",
        "security",
        "tags",
        "title",
        "uri",
        "version",
    )
    type = "resource"


@dataclass(frozen=True)
class ResourceSecurity:
    """Which values of a template's parameters are refused before the function sees them."""

    reject_path_traversal: bool = True
    reject_absolute_paths: bool = True
    reject_null_bytes: bool = True
    exempt_params: Set[str] = field(default_factory=frozenset)


class _Inherit:
    """Stands for the usual security; None switches it off."""

    __slots__ = ()


INHERIT_SECURITY = _Inherit()


def resource(
    uri: str,
    *,
    name: str | None = None,
    version: str | int | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Iterable[Any] | None = None,
    mime_type: str | None = None,
    tags: Iterable[str] | None = None,
    annotations: Any = None,
    meta: Mapping[str, Any] | None = None,
    auth: Any = None,
    security: Any = INHERIT_SECURITY,
) -> Callable[[F], F]:
    """Mark a function as a resource: `@resource("data://now")`, or a template: `@resource("user://{id}{?full}")`."""
    if not isinstance(uri, str):
        raise TypeError('@resource takes a URI first: @resource("data://...").')
    record = ResourceMeta(
        uri=uri,
        name=name,
        version=version,
        title=title,
        description=description,
        icons=icons,
        mime_type=mime_type,
        tags=tags,
        annotations=annotations,
        meta=meta,
        auth=auth,
        security=security,
        enabled=True,
    )
    return lambda fn: mark(fn, record)


class ResourceContent:
    """One part of what is read: text and bytes as they are, everything else as JSON."""

    def __init__(self, content: Any, mime_type: str | None = None, meta: Mapping[str, Any] | None = None) -> None:
        usual = "text/plain" if isinstance(content, str) else "application/octet-stream"
        if not isinstance(content, str | bytes):
            content, usual = dumps(content).decode(), "application/json"
        self.content: str | bytes = content
        self.mime_type = mime_type or usual
        self.meta = meta


class ResourceResult:
    """Full control over what is read: several parts, each with its own type."""

    def __init__(self, contents: Any, meta: Mapping[str, Any] | None = None) -> None:
        parts = contents if isinstance(contents, list) else [ResourceContent(contents)]
        for index, part in enumerate(parts):
            if not isinstance(part, ResourceContent):
                raise TypeError(f"contents[{index}] must be a ResourceContent, not {type(part).__name__}.")
        self.contents: list[ResourceContent] = parts
        self.meta = meta

"""What a tool may return besides plain values: `Image`, `Audio`, `File`, `ToolResult`, content blocks.

Recognises the real packages' classes as well, by name and module, so that nothing has to be imported for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

Kind = Literal["image", "audio", "file", "block", "result", "call_result", "input_required"]

_IMAGE_TYPES = {"jpg": "image/jpeg", "svg": "image/svg+xml", "tif": "image/tiff"}
_AUDIO_TYPES = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "m4a": "audio/mp4",
    "flac": "audio/flac",
}
_FILE_TYPES = {
    "plain": "text/plain",
    "txt": "text/plain",
    "text": "text/plain",
    "csv": "text/csv",
    "html": "text/html",
    "htm": "text/html",
    "md": "text/markdown",
    "markdown": "text/markdown",
}
_BINARY = "application/octet-stream"


class Block:
    """One content block, its members spelt as on the wire."""

    __slots__ = ("wire",)

    def __init__(self, wire: dict[str, Any]) -> None:
        self.wire = wire

    @property
    def type(self) -> str:
        return str(self.wire["type"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and other.wire == self.wire

    def __hash__(self) -> int:
        return hash(self.type)


class _Media:
    """Binary data from memory or from a file that is read when the result is sent."""

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        annotations: Any = None,
    ) -> None:
        if (path is None) == (data is None):
            raise ValueError("Exactly one of path and data must be given.")
        self.path = None if path is None else Path(os.path.expandvars(str(path))).expanduser()
        self.data = data
        self.annotations = annotations
        self._format = None if format is None else format.lower()

    def _bytes(self) -> bytes:
        if self.path is not None:
            return self.path.read_bytes()
        assert self.data is not None
        return self.data

    def _base64(self) -> str:
        import base64

        return base64.b64encode(self._bytes()).decode("ascii")

    def _annotated(self, wire: dict[str, Any], annotations: Any) -> Block:
        chosen = annotations or self.annotations
        return Block(wire if chosen is None else wire | {"annotations": on_wire(chosen)})


class Image(_Media):
    """A picture as a tool's result."""

    @property
    def _mime_type(self) -> str:
        if self._format:
            return _IMAGE_TYPES.get(self._format, f"image/{self._format}")
        return "image/png" if self.path is None else _guess(self.path, {"webp": "image/webp"})

    def to_image_content(self, mime_type: str | None = None, annotations: Any = None) -> Block:
        wire = {"type": "image", "data": self._base64(), "mimeType": mime_type or self._mime_type}
        return self._annotated(wire, annotations)

    def to_data_uri(self, mime_type: str | None = None) -> str:
        return f"data:{mime_type or self._mime_type};base64,{self._base64()}"


class Audio(_Media):
    """A sound as a tool's result."""

    @property
    def _mime_type(self) -> str:
        if self._format:
            return _AUDIO_TYPES.get(self._format, f"audio/{self._format}")
        if self.path is None:
            return "audio/wav"
        return _AUDIO_TYPES.get(self.path.suffix.lower().lstrip("."), _BINARY)

    def to_audio_content(self, mime_type: str | None = None, annotations: Any = None) -> Block:
        wire = {"type": "audio", "data": self._base64(), "mimeType": mime_type or self._mime_type}
        return self._annotated(wire, annotations)


class File(_Media):
    """Any other file as a tool's result."""

    def __init__(
        self,
        path: str | Path | None = None,
        data: bytes | None = None,
        format: str | None = None,
        name: str | None = None,
        annotations: Any = None,
    ) -> None:
        super().__init__(path, data, format, annotations)
        self._name = name

    @property
    def _mime_type(self) -> str:
        if self._format:
            return _FILE_TYPES.get(self._format, f"application/{self._format}")
        return _BINARY if self.path is None else _guess(self.path, {})

    def _uri(self) -> str:
        if self.path is not None:
            return self.path.resolve().as_uri()
        from urllib.parse import quote

        name = self._name or "resource"
        if not (self._name and Path(name).suffix):
            name += f".{self._format or self._mime_type.partition('/')[2]}"
        return f"file:///{quote(name)}"

    def to_resource_content(self, mime_type: str | None = None, annotations: Any = None) -> Block:
        mime = mime_type or self._mime_type
        resource = {"uri": self._uri(), "mimeType": mime}
        if mime.startswith("text/"):
            raw = self._bytes()
            try:
                resource["text"] = raw.decode("utf-8")
            except UnicodeDecodeError:
                resource["text"] = raw.decode("latin-1")
        else:
            resource["blob"] = self._base64()
        return self._annotated({"type": "resource", "resource": resource}, annotations)


class ToolResult:
    """Full control over a result: content for people and models, structured content for programs."""

    def __init__(
        self,
        content: Any = None,
        structured_content: Any = None,
        meta: Mapping[str, Any] | None = None,
        is_error: bool = False,
    ) -> None:
        if content is None and structured_content is None:
            raise ValueError("Either content or structured_content must be given.")
        self.content = structured_content if content is None else content
        self.structured_content = structured_content
        self.meta = meta
        self.is_error = is_error


_OURS: dict[type, Kind] = {
    Image: "image",
    Audio: "audio",
    File: "file",
    ToolResult: "result",
    Block: "block",
}
_REAL: dict[str, Kind] = {
    "fastmcp.Image": "image",
    "fastmcp.Audio": "audio",
    "fastmcp.File": "file",
    "fastmcp.ToolResult": "result",
    "mcp.CallToolResult": "call_result",
    "mcp.InputRequiredResult": "input_required",
    "mcp.TextContent": "block",
    "mcp.ImageContent": "block",
    "mcp.AudioContent": "block",
    "mcp.ResourceLink": "block",
    "mcp.EmbeddedResource": "block",
}
_kinds: WeakKeyDictionary[type, Kind | None] = WeakKeyDictionary()
"""Weak, because a tool may make a class for each call."""


def kind_of(cls: type) -> Kind | None:
    """What kind of content objects of a class are; None for plain data."""
    try:
        return _kinds[cls]
    except KeyError:
        kind = _kinds[cls] = next(filter(None, map(_own_kind, cls.__mro__)), None)
        return kind


def _own_kind(cls: type) -> Kind | None:
    if ours := _OURS.get(cls):
        return ours
    root = cls.__module__.partition(".")[0].replace("mcp_types", "mcp")
    return _REAL.get(f"{root}.{cls.__name__}")


def on_wire(value: Any) -> Any:
    """An object of the real packages, or a mapping, with its members spelt as on the wire."""
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json", by_alias=True, exclude_none=True)


def _guess(path: Path, known: Mapping[str, str]) -> str:
    import mimetypes

    guess = known.get(path.suffix.lower().lstrip("."))
    return guess or mimetypes.guess_type(path, strict=False)[0] or _BINARY

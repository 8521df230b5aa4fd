"""Secret values out of everything that leaves: `[redacted:NAME]` in their place.

A value is looked for as it is, JSON-escaped, in base64 (both alphabets, at every alignment, so that it is
found inside a larger encoded text) and URL-encoded. Values shorter than eight characters are left alone:
replacing every `admin` would damage more than it hides.

This is on the path of every call, and nearly every body is clean, so clean must be cheap however many values
there are. Read the body as 4-byte words: wherever a needle of seven bytes or more stands, it covers at least
one word completely. So the words of the body are compared, in C, with the set of words the needles have at
their first four offsets, and disjoint means clean. If all needles are longer, it is enough to look at every
second or fourth word. Only where a word is shared is anything compared. The cost is linear in the body and
does not grow with the number of values.

JSON may also spell any character as `\\uXXXX`. Such a body is looked at a second time with those undone, and
what is found is mapped back to where it stood.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, quote_plus

SHORTEST = 8
"""Characters; shorter values are not redacted."""

_SHORTEST_LINE = 16
"""Of a value with several lines each line of this length is looked for too: logs show them one by one."""
_ELLIPSIS = "…".encode()
_WORD = 4
_BLOCK = 16 * 1024
"""Words; a block without a shared one is passed over as a whole."""

Span = tuple[int, int, bytes]
"""Start, end, and what to write instead."""


class Redactor:
    """Knows one set of values; make a new one when they change."""

    __slots__ = ("_escape", "_gate", "_heads", "_longest", "_step", "_stride", "_table", "_words")

    def __init__(self, values: Iterable[tuple[str, str]]) -> None:
        needles = _needles(values)
        shortest = min(map(len, needles), default=SHORTEST)
        self._stride = 4 if shortest >= 4 * _WORD + 3 else 2 if shortest >= 2 * _WORD + 3 else 1
        self._step = self._stride * _WORD
        self._table: dict[int, list[tuple[int, bytes, bytes]]] = {}
        self._heads: dict[bytes, list[bytes]] = {}
        for needle, label in needles.items():
            for offset in range(self._step):
                self._table.setdefault(_word(needle, offset), []).append((offset, needle, label))
            self._heads.setdefault(needle[:1], []).append(needle)
        self._words = frozenset(self._table)
        self._longest = max(map(len, needles), default=0)
        # Values in ASCII can hide only behind escapes of ASCII; others need not be undone then.
        ascii_only = all(needle.isascii() for needle in needles)
        self._gate, self._escape = _ASCII_ESCAPE if ascii_only else _ANY_ESCAPE

    def __repr__(self) -> str:
        return "Redactor(***)"

    def redact(self, data: bytes) -> tuple[bytes, int]:
        """The data without the values, and how many places were replaced; clean data is returned as it is."""
        if not self._words or len(data) < SHORTEST:
            return data, 0
        words = memoryview(data)[: len(data) & -_WORD].cast("I")[:: self._stride]
        if self._words.isdisjoint(words) and b"\\u" not in data:
            return data, 0
        spans = self._spans(data)
        if not spans:
            return data, 0
        if any(_NUMBER.fullmatch(data, start, end) for start, end, _ in spans):
            spans = _quote_numbers(data, spans)
        return b"".join(_replaced(data, spans)), len(spans)

    def redact_text(self, text: str) -> str:
        """The text without the values.

        Messages are cut before they come here, at their end or where `…` stands; so of a value that was cut there
        everything is replaced as well, if it is long enough to tell.
        """
        clean = self.redact(text.encode("utf-8", "surrogatepass"))[0]
        pieces = [self._without_cut_value(piece) for piece in clean.split(_ELLIPSIS)]
        return _ELLIPSIS.join(pieces).decode("utf-8", "surrogatepass")

    def redact_beginning(self, data: bytes) -> bytes:
        """Of data whose end is missing: without the values, and without what may be the beginning of one."""
        return self.stream().feed(data)

    def _without_cut_value(self, data: bytes) -> bytes:
        start = self._unfinished(data)
        if len(data) - start < SHORTEST:
            return data
        rest = data[start:]
        needle = next(needle for needle in self._heads[rest[:1]] if needle.startswith(rest))
        label = next(label for _, known, label in self._table[_word(needle, 0)] if known == needle)
        return data[:start] + label

    def stream(self) -> RedactedStream:
        """For data that comes in pieces."""
        return RedactedStream(self)

    def _spans(self, data: bytes) -> list[Span]:
        """Where values stand: in order, overlapping ones merged."""
        spans = self._plain_spans(data)
        if self._words and self._gate.search(data):
            view = _Unescaped(data, self._escape)
            if hidden := self._plain_spans(view.data):
                mapped = [(*view.original(start, end), label) for start, end, label in hidden]
                spans = _merged(sorted([*spans, *mapped]))
        return spans

    def _plain_spans(self, data: bytes) -> list[Span]:
        spans: list[Span] = []
        if len(data) < SHORTEST:
            return spans
        words = memoryview(data)[: len(data) & -_WORD].cast("I")[:: self._stride]
        for first in range(0, len(words), _BLOCK):
            block = words[first : first + _BLOCK]
            if not self._words.isdisjoint(block):
                self._compare(data, first, block, spans)
        return spans

    def _compare(self, data: bytes, first: int, block: memoryview[int], spans: list[Span]) -> None:
        known = self._words
        for index, word in enumerate(block, first):
            if word not in known:
                continue
            for offset, needle, label in self._table[word]:
                start = index * self._step - offset
                end = start + len(needle)
                if spans and spans[-1][0] <= start and end <= spans[-1][1]:
                    continue  # already covered; without this, one repeated character would cost the most
                if start >= 0 and data.startswith(needle, start):
                    _add(spans, start, end, label)

    def _unfinished(self, data: bytes) -> int:
        """Where the earliest value that may still be arriving begins; the length of the data if none is."""
        for position in range(max(0, len(data) - self._longest + 1), len(data)):
            needles = self._heads.get(data[position : position + 1])
            if needles and any(needle.startswith(data[position:]) for needle in needles):
                return position
        return len(data)


class RedactedStream:
    """Redacts pieces of one text; a value cut in two by a boundary is still found.

    Only what may be the beginning of a value is held back, so that clean text is not delayed.
    """

    __slots__ = ("_buffer", "_hidden", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._buffer = b""
        self._hidden = 0
        """How many bytes at the start of the buffer are part of a value already replaced."""

    def feed(self, piece: bytes) -> bytes:
        data = self._buffer + piece
        return self._release(data, self._boundary(data))

    def finish(self) -> bytes:
        return self._release(self._buffer, len(self._buffer))

    def _boundary(self, data: bytes) -> int:
        """Everything before it is decided: no value that starts there can still grow."""
        boundary = self._redactor._unfinished(data)
        if self._redactor._words and b"\\" in data:
            end = _cut_escape(data)
            boundary = min(boundary, end)
            # The window is as long as a value spelt in escapes only.
            start = max(0, end - _LONGEST_ESCAPE * self._redactor._longest)
            view = _Unescaped(data[start:end], self._redactor._escape)
            position = self._redactor._unfinished(view.data)
            if position < len(view.data):
                boundary = min(boundary, start + view.original(position, position + 1)[0])
        return boundary

    def _release(self, data: bytes, boundary: int) -> bytes:
        released: list[bytes] = []
        done = self._hidden
        for start, end, label in self._redactor._spans(data):
            if start >= boundary and start >= done:
                break
            if start >= done:
                released += (data[done:start], label)
            # One that begins inside what is already replaced continues it, and needs no second label.
            done = max(done, end)
        if done < boundary:
            released.append(data[done:boundary])
            done = boundary
        self._buffer = data[boundary:]
        self._hidden = done - boundary
        return b"".join(released)


def _word(needle: bytes, offset: int) -> int:
    return int.from_bytes(needle[offset : offset + _WORD], sys.byteorder)


# Needles: every way a value may be written.


def _needles(values: Iterable[tuple[str, str]]) -> dict[bytes, bytes]:
    """Needle to label; where two names share a value, the first one's."""
    needles: dict[bytes, bytes] = {}
    for name, value in values:
        label = f"[redacted:{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}]".encode()
        for text in _texts(value):
            for form in _forms(text):
                needles.setdefault(form, label)
    return needles


def _texts(value: str) -> Iterator[str]:
    # Tools strip what they read from the environment; the stripped value is found in the complete one too.
    text = value.strip()
    if len(text) < SHORTEST:
        return
    yield text
    lines = text.splitlines()
    if len(lines) > 1:
        for line in lines:
            stripped = line.strip()
            if len(stripped) >= _SHORTEST_LINE and not stripped.startswith("-----"):
                yield stripped


def _forms(text: str) -> Iterator[bytes]:
    plain = text.encode("utf-8", "surrogatepass")
    yield plain
    yield from _json_forms(text)
    yield from _base64_forms(plain)
    yield from _url_forms(plain)


def _json_forms(text: str) -> Iterator[bytes]:
    for ascii_only in (False, True):
        escaped = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        # JSON inside a JSON string is escaped twice.
        for form in (escaped, json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]):
            for spelling in (form, form.replace("/", "\\/"), _UPPER_HEX.sub(_upper, form)):
                yield spelling.encode("utf-8", "surrogatepass")


_UPPER_HEX = re.compile(r"\\u[0-9a-f]{4}")


def _upper(found: re.Match[str]) -> str:
    return "\\u" + found[0][2:].upper()


def _base64_forms(plain: bytes) -> Iterator[bytes]:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        complete = encode(plain)
        for core in (complete, complete.rstrip(b"="), *_cores(plain, encode)):
            yield core
            yield core.replace(b"/", b"\\/")


def _cores(plain: bytes, encode: object) -> Iterator[bytes]:
    """What stays the same whatever stands before and after the value in the encoded text."""
    assert callable(encode)
    for before, unstable in ((0, 0), (1, 2), (2, 3)):
        encoded: bytes = encode(b"\0" * before + plain)
        bits = (before + len(plain)) * 8
        yield encoded[unstable : bits // 6]


def _url_forms(plain: bytes) -> Iterator[bytes]:
    # Encoders differ in what they leave alone: nothing, slashes, or the marks browsers leave.
    spellings = {quote(plain, safe=safe) for safe in ("", "/", "!*'()", "!*'();/?:@&=+$,#")}
    spellings.add(quote_plus(plain))
    for spelling in spellings:
        yield spelling.encode()
        yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), spelling).encode()


# Spans.


def _add(spans: list[Span], start: int, end: int, label: bytes) -> None:
    """Found in nearly ascending order, so merging happens at the end of the list only."""
    while spans and start < spans[-1][1] and spans[-1][0] < end:
        first_start, first_end, first_label = spans.pop()
        if first_start <= start:
            label = first_label
        start, end = min(start, first_start), max(end, first_end)
    spans.append((start, end, label))


def _merged(ordered: Iterable[Span]) -> list[Span]:
    spans: list[Span] = []
    for start, end, label in ordered:
        _add(spans, start, end, label)
    return spans


def _replaced(data: bytes, spans: Iterable[Span]) -> Iterator[bytes]:
    position = 0
    for start, end, label in spans:
        yield data[position:start]
        yield label
        position = end
    yield data[position:]


_NUMBER = re.compile(rb"[0-9.eE+-]+")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NUMBER_BYTES = frozenset(b"0123456789.eE+-")


def _quote_numbers(data: bytes, spans: list[Span]) -> list[Span]:
    """A value that stands as a bare JSON number becomes a string, or the body would stop being JSON."""
    if data.lstrip()[:1] not in (b"{", b"[", b"-") and not data.lstrip()[:1].isdigit():
        return spans
    strings = [found.span() for found in _STRING.finditer(data)]
    starts = [start for start, _ in strings]
    quoted: list[Span] = []
    for start, end, label in spans:
        inside = bisect_right(starts, start) - 1
        if _NUMBER.fullmatch(data, start, end) and not (inside >= 0 and start < strings[inside][1]):
            while start > 0 and data[start - 1] in _NUMBER_BYTES:
                start -= 1
            while end < len(data) and data[end] in _NUMBER_BYTES:
                end += 1
            label = b'"' + label + b'"'
        _add(quoted, start, end, label)
    return quoted


# Escapes.

_LONGEST_ESCAPE = 12
_ASCII_ESCAPE = (re.compile(rb"\\u00[0-7]"), re.compile(rb"\\(?:u(00[0-7][0-9a-fA-F])|.)", re.DOTALL))
_ANY_ESCAPE = (
    re.compile(rb"\\u"),
    re.compile(rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[0-9a-fA-F]{4})|.)", re.DOTALL),
)
"""What tells that there is one, and what finds each (and other escapes, or `\\\\u` would look like one)."""
_CUT_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?\Z")


class _Unescaped:
    """A text with its `\\uXXXX` undone, and the way back to where things stood."""

    __slots__ = ("_pieces", "_starts", "data")

    def __init__(self, data: bytes, escape: re.Pattern[bytes]) -> None:
        parts: list[bytes] = []
        self._starts: list[int] = []
        self._pieces: list[tuple[int, int, bool]] = []
        length = position = 0
        for found in escape.finditer(data):
            undone = _undone(found)
            if undone is None:
                continue
            start, end = found.span()
            for piece, begin, stop, whole in (
                (data[position:start], position, start, False),
                (undone, start, end, True),
            ):
                if piece:
                    parts.append(piece)
                    self._starts.append(length)
                    self._pieces.append((begin, stop, whole))
                    length += len(piece)
            position = end
        parts.append(data[position:])
        self._starts.append(length)
        self._pieces.append((position, len(data), False))
        self.data = b"".join(parts)

    def original(self, start: int, end: int) -> tuple[int, int]:
        return self._place(start)[0], self._place(end - 1)[1]

    def _place(self, position: int) -> tuple[int, int]:
        index = bisect_right(self._starts, position) - 1
        begin, stop, whole = self._pieces[index]
        if whole:
            return begin, stop
        exact = begin + position - self._starts[index]
        return exact, exact + 1


def _cut_escape(data: bytes) -> int:
    """Where an escape begins whose end has not arrived; the length of the data if there is none."""
    found = _CUT_ESCAPE.search(data, max(0, len(data) - _LONGEST_ESCAPE))
    if found is None:
        return len(data)
    before = found.start() - len(data[: found.start()].rstrip(b"\\"))
    # After an odd number of backslashes, this one is itself escaped and begins nothing.
    return len(data) if before % 2 else found.start()


def _undone(found: re.Match[bytes]) -> bytes | None:
    """What an escape stands for, in the spelling the needles have; None to leave it."""
    digits = found[1]
    if digits is None:
        return b"/" if found[0] == b"\\/" else None
    if len(digits) == 4:
        return _character(int(digits, 16))
    high, low = int(digits[:4], 16), int(digits[6:], 16)
    return _character(0x10000 + ((high & 0x3FF) << 10 | low & 0x3FF))


@lru_cache(maxsize=4096)
def _character(code: int) -> bytes:
    return json.dumps(chr(code), ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")

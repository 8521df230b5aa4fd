"""A value from a file together with the place it was written, so that every complaint can name that place.

Knows no YAML and no schema; `load.py` makes these, the modules beside it read them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tooldock.errors import ConfigError

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Place:
    file: str
    line: int
    column: int

    def error(self, message: str) -> ConfigError:
        return ConfigError(
            f"{self.file}:{self.line}:{self.column}: {message}",
            file=self.file,
            line=self.line,
            column=self.column,
        )


@dataclass(frozen=True, slots=True)
class Located:
    """One node: `value` is a scalar, a tuple of nodes, or a mapping from text to nodes."""

    value: Scalar | tuple[Located, ...] | Mapping[str, Located]
    place: Place
    raw: str = ""
    """A scalar as it was written: `1.10` is a number to YAML and a version to its author."""
    keys: Mapping[str, Place] = field(default_factory=dict)

    def plain(self) -> Any:
        """The same data without places."""
        if isinstance(self.value, Mapping):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, tuple):
            return [node.plain() for node in self.value]
        return self.value

    def fail(self, message: str) -> NoReturn:
        raise self.place.error(message)

    # Reading with a demand. Each takes the words to complain with, ending in an example.

    def mapping(self, complaint: str) -> Mapping[str, Located]:
        """An empty value counts as an empty mapping: that is what a key with everything commented out is."""
        if self.value is None:
            return {}
        if not isinstance(self.value, Mapping):
            self.fail(complaint)
        return self.value

    def sequence(self, complaint: str) -> tuple[Located, ...]:
        if self.value is None:
            return ()
        if not isinstance(self.value, tuple):
            self.fail(complaint)
        return self.value

    def text(self, complaint: str) -> str:
        """Text, or a number or switch as it was written."""
        if self.value is None or isinstance(self.value, tuple | Mapping):
            self.fail(complaint)
        return self.value if isinstance(self.value, str) else self.raw

    def switch(self, complaint: str) -> bool:
        if not isinstance(self.value, bool):
            self.fail(complaint)
        return self.value

    def whole(self, low: int, complaint: str) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < low:
            self.fail(complaint)
        return self.value

    def number(self, above: float, complaint: str) -> float:
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            self.fail(complaint)
        if not above < self.value < float("inf"):
            self.fail(complaint)
        return float(self.value)

    def only(self, known: Iterable[str], what: str) -> None:
        """Refuse keys nobody reads: a misspelt one would be a rule that silently does not hold."""
        names = tuple(known)
        for key, place in self.keys.items():
            if key in names:
                continue
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}."
            raise place.error(f"{key[:80]!r} is not a key of {what}; {hint}")

"""URI templates: which URIs one stands for, and the parameters a URI carries.

Of RFC 6570 what servers use: `{name}` takes one path segment, `{name*}` any number of them, `{?a,b}` parameters of
the query in any order, `{?a*}` one that may be repeated. Hyphens in names stand for underscores, since parameters
of functions have none.

The gateway uses this too, to find what a URI belongs to, so both sides agree. Callers choose the URIs: matching takes
time in proportion to their length, however a template is written, which is why this is no regular expression.
"""

from __future__ import annotations

import functools
import re
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

MAX_URI = 4096
"""Characters in a URI that a template is tried on."""
_MAX_PARAMETERS = 32
"""In one template: each costs a pass over the URI, also in the gateway."""

_RESERVED = ":/?#[]@!$&'()*+,;=%"
_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}")
_PARTS = re.compile(r"\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

Parameters = dict[str, str | list[str]]


class BadTemplate(ValueError):
    """A template that is none of those described above; its text says why."""


class Template:
    """One URI template, understood."""

    __slots__ = ("_literals", "_spans", "_with_fragment", "path", "query", "repeated", "spelt", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.path: tuple[str, ...] = ()
        """Parameters every URI has."""
        self.query: tuple[str, ...] = ()
        """Parameters a URI may have."""
        self.repeated: frozenset[str] = frozenset()
        """Parameters of the query that may be there more than once."""
        self.spelt: dict[str, str] = {}
        """Parameters as the template spells them."""
        self._spans: tuple[bool, ...] = ()
        self._with_fragment = "#" in text
        literals: list[str] = []
        last = 0
        for found in _PARTS.finditer(text):
            literals.append(text[last : found.start()])
            last = found.end()
            if found[1].startswith("?"):
                self._take_query(found[1][1:])
                literals[-1:] = [literals[-1] + "\0"]  # joined with what follows, below
            else:
                self._take_path(found[1])
        literals.append(text[last:])
        self._literals = tuple(canonical(literal) for literal in _joined(literals))
        if any("{" in literal or "}" in literal for literal in _joined(literals)):
            raise BadTemplate("has a brace without its partner")
        names: list[str] = [*self.path, *self.query]
        if len(set(names)) != len(names):
            raise BadTemplate("names a parameter twice")
        if len(names) > _MAX_PARAMETERS:
            raise BadTemplate(f"has more than {_MAX_PARAMETERS} parameters")

    def match(self, uri: str) -> Parameters | None:
        """The parameters of a URI, decoded; None if the template does not stand for it.

        Every value is a text, except that a repeatable parameter is a list of them.
        """
        if len(uri) > MAX_URI:
            return None
        if not self._with_fragment:
            uri = uri.partition("#")[0]
        path, _, query = uri.partition("?")
        values = self._match_path(canonical(path))
        if values is None:
            return None
        found: Parameters = {name: unquote(value) for name, value in zip(self.path, values, strict=True)}
        return found | self._match_query(query) if query and self.query else found

    def raw_query(self, uri: str) -> dict[str, str]:
        """The first value of each query parameter, as it is written in the URI."""
        raw: dict[str, str] = {}
        for pair in uri.partition("#")[0].partition("?")[2].split("&"):
            name, _, value = pair.partition("=")
            raw.setdefault(unquote_plus(name).replace("-", "_"), value)
        return raw

    # Reading the template.

    def _take_path(self, said: str) -> None:
        self.path += (self._named(said.removesuffix("*")),)
        self._spans += (said.endswith("*"),)

    def _take_query(self, said: str) -> None:
        if self.query:
            raise BadTemplate("has two {?...} parts")
        names = [name.strip() for name in said.split(",")]
        self.query = tuple(self._named(name.removesuffix("*")) for name in names)
        self.repeated = frozenset(self._named(name[:-1]) for name in names if name.endswith("*"))

    def _named(self, spelt: str) -> str:
        if not _NAME.fullmatch(spelt):
            raise BadTemplate(f"has a parameter {spelt!r} that is no name")
        name = spelt.replace("-", "_")
        self.spelt[name] = spelt
        return name

    # Matching.

    def _match_path(self, path: str) -> list[str] | None:
        """Values of the path's parameters, each as long as the rest allows; one pass over the path for each."""
        start = len(self._literals[0])
        size = len(path)  # of emoji, say, it may be twelve times what the caller wrote
        if size > MAX_URI or not path.startswith(self._literals[0]) or not path.endswith(self._literals[-1]):
            return None
        fits = bytearray(size + 1)  # whether what follows a place fits what is left of the template
        fits[size] = 1
        tables: list[list[int]] = []
        for index in reversed(range(len(self.path))):
            literal = self._literals[index + 1]
            tables.append(last_end := _last_ends(path, literal, fits))
            limit = size
            for place in range(size, -1, -1):
                if not self._spans[index] and path.startswith("/", place):
                    limit = place
                fits[place] = last_end[limit] > place
        if not fits[start]:
            return None
        values: list[str] = []
        for index, last_end in enumerate(reversed(tables)):
            slash = -1 if self._spans[index] else path.find("/", start)
            end = last_end[size if slash < 0 else slash]
            values.append(path[start:end])
            start = end + len(self._literals[index + 1])
        return values

    def _match_query(self, query: str) -> Parameters:
        found: Parameters = {}
        for raw, value in parse_qsl(query, keep_blank_values=True):
            name = raw.replace("-", "_")
            if name not in self.query:
                continue
            if name in self.repeated:
                known = found.setdefault(name, [])
                assert isinstance(known, list)
                known.append(value)
            else:
                found.setdefault(name, value)
        return found


def _last_ends(path: str, literal: str, fits: bytearray) -> list[int]:
    """For each place, the last one up to there at which a value may end: before the literal, and the rest fits."""
    last, ends = -1, []
    for place in range(len(path) + 1):
        after = place + len(literal)
        if after < len(fits) and fits[after] and path.startswith(literal, place):
            last = place
        ends.append(last)
    return ends


def split_list(raw: str) -> list[str]:
    """A list written as one value of a query: commas separate, a comma in an item is encoded."""
    return [unquote_plus(item) for item in raw.split(",")] if raw else []


def is_template(uri: str) -> bool:
    return "{" in uri


@functools.lru_cache(maxsize=16)  # one URI is tried on every template of a namespace
def canonical(text: str) -> str:
    """A URI or part of one, spelt in one way: what must be percent-encoded is, in upper case."""
    encoded = quote(text, safe=_RESERVED, errors="replace")
    return _TRIPLET.sub(lambda found: found[0].upper(), encoded)


def _joined(literals: list[str]) -> list[str]:
    """Literals around a query part are one: it takes no place in the path."""
    joined = [""]
    for index, literal in enumerate(literals):
        joined[-1] += literal.removesuffix("\0")
        if not literal.endswith("\0") and index < len(literals) - 1:
            joined.append("")
    return joined

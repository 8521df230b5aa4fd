"""What running tools say about their namespace, passed on at a bounded rate.

A tool may say in a loop that something changed. The first of a second are passed on as they come; what is more is
put together and passed on as one when that second is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tooldock.engine.registry import Change, Part, Registry
from tooldock.errors import InvalidArguments
from tooldock_worker.uris import MAX_URI

_AT_ONCE = 50
_SECONDS = 1.0
_MAX_URIS = 1000
"""Different resources that are remembered until the second is over; more are dropped."""

_LISTS: dict[str, Part] = {
    "notifications/tools/list_changed": "tools",
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}
_UPDATED = "notifications/resources/updated"


def understood(namespace: str, params: Mapping[str, Any]) -> Change:
    """A notification as a running tool spells it."""
    method, inner = params.get("method"), params.get("params")
    if isinstance(method, str) and method in _LISTS:
        return Change(namespace, frozenset({_LISTS[method]}))
    if method == _UPDATED:
        uri = inner.get("uri") if isinstance(inner, Mapping) else None
        if not isinstance(uri, str) or not 0 < len(uri) <= MAX_URI:
            raise InvalidArguments(f"{_UPDATED} takes the uri of a resource in its params.")
        return Change(namespace, frozenset(), frozenset({uri}))
    raise InvalidArguments(
        f"A tool can send {', '.join(_LISTS)} and {_UPDATED}; progress and log lines have methods of their own."
    )


class _Second:
    """One namespace's current second."""

    __slots__ = ("count", "pending")

    def __init__(self) -> None:
        self.count = 0
        self.pending: Change | None = None


class Announcer:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._seconds: dict[str, _Second] = {}

    def announce(self, change: Change) -> None:
        name = change.namespace
        second = self._seconds.get(name)
        if second is None:
            second = self._seconds[name] = _Second()
            asyncio.get_running_loop().call_later(_SECONDS, self._over, name)
        if second.count < _AT_ONCE:
            second.count += 1
            self._registry.announce(change)
        else:
            second.pending = change if second.pending is None else _together(second.pending, change)

    def _over(self, name: str) -> None:
        pending = self._seconds.pop(name).pending
        if pending is not None:
            self.announce(pending)


def _together(one: Change, other: Change) -> Change:
    uris = one.uris if len(one.uris) >= _MAX_URIS else one.uris | other.uris
    return Change(one.namespace, one.parts | other.parts, uris)

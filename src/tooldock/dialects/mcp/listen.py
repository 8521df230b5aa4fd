"""What a client wants to hear about: `subscriptions/listen` of the stateless revision.

A `Subscription` is pure: which changes concern it, and the messages about them, each tagged with its id. `Listeners`
holds those that are open over HTTP, one event stream for each, for as long as client and namespace are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tooldock.dialects.mcp import shape, sse
from tooldock.dialects.mcp.jsonrpc import INVALID_PARAMS, Id, RpcError, dump, notification, result
from tooldock.edge.http import Request, Response
from tooldock.edge.outlet import Outlet
from tooldock.errors import Unavailable

if TYPE_CHECKING:
    from tooldock.engine.registry import Change, Registry

METHOD = "subscriptions/listen"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
MAX_PER_CALLER = 256
MAX_TOTAL = 10_000
MAX_URIS = 400
MAX_URI = 2048
MAX_URIS_BYTES = 256 * 1024
"""What the URIs of one subscription may take together, as JSON text."""
MAX_PENDING = 1024 * 1024
"""Bytes a client may leave unread before its stream is dropped, from which it learns to fetch everything anew. One
change of everything a client can subscribe to is less."""

_KINDS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}


class Subscription:
    """One client's filter, and the messages it leads to."""

    __slots__ = ("_tag", "caller", "id", "namespace", "parts", "uris")

    def __init__(self, id: Id, namespace: str, params: Mapping[str, Any]) -> None:
        """Raises `RpcError` when the filter is none."""
        self.id = id
        self.namespace = namespace
        self.caller = ""
        """Whose it is, where that is counted."""
        self._tag = {SUBSCRIPTION_KEY: id}
        wanted = params.get("notifications")
        if type(wanted) is not dict:
            raise RpcError(INVALID_PARAMS, f"{METHOD} needs the member notifications: an object of what to send.")
        self.parts = tuple(part for name, part in _KINDS.items() if _flag(wanted, name))
        self.uris = _uris(wanted.get("resourceSubscriptions"))

    def acknowledged(self) -> bytes:
        """The first message: what will be sent of what was asked for."""
        honoured: dict[str, Any] = {name: True for name, part in _KINDS.items() if part in self.parts}
        if self.uris:
            honoured["resourceSubscriptions"] = list(self.uris)
        return self._message("subscriptions/acknowledged", notifications=honoured)

    def messages(self, change: Change) -> Iterator[bytes]:
        """What a change of its namespace means to it; nothing it did not ask for."""
        for part in self.parts:
            if part in change.parts:
                yield self._message(f"{part}/list_changed")
        for uri in self.uris:
            # New code behind a resource may say something new.
            if change.reloaded or uri in change.uris:
                yield self._message("resources/updated", uri=uri)

    def ended(self) -> bytes:
        """The last message: nothing more will come, and that is no failure."""
        meta = {**self._tag, "io.modelcontextprotocol/serverInfo": shape.SERVER_INFO}
        return result(self.id, dump({"resultType": "complete", "_meta": meta}))

    def _message(self, what: str, **params: Any) -> bytes:
        return notification(f"notifications/{what}", {**params, "_meta": self._tag})


class Listeners:
    """The subscriptions that are open over HTTP."""

    def __init__(
        self,
        registry: Registry,
        keepalive: sse.KeepAlive,
        *,
        per_caller: int = MAX_PER_CALLER,
        total: int = MAX_TOTAL,
    ) -> None:
        self._registry = registry
        self._keepalive = keepalive
        self._per_caller = per_caller
        self._total = total
        self._open: dict[str, dict[Subscription, Outlet]] = {}
        self._callers: dict[str, int] = {}
        self._closed = False

    def __len__(self) -> int:
        return sum(self._callers.values())

    def admit(self, caller: str) -> None:
        """Raises `Unavailable` when there are too many already."""
        if self._closed:
            raise Unavailable("The gateway is shutting down; try again in a moment.", retry_after=5)
        if self._callers.get(caller, 0) >= self._per_caller:
            raise Unavailable(
                f"This caller has {self._per_caller} subscriptions open, and may not have more. End one first.",
                retry_after=30,
            )
        if len(self) >= self._total:
            raise Unavailable("There are too many subscriptions open at the moment; try again later.", retry_after=30)

    async def listen(self, request: Request, subscription: Subscription) -> Response:
        """Answer an admitted caller with a stream that lasts."""
        caller = request.caller.name
        outlet = request.open(200, sse.HEADERS)
        outlet.max_pending = MAX_PENDING
        self._keepalive.stream(outlet)
        outlet.write(sse.event(subscription.acknowledged()))
        subscription.caller = caller
        self._callers[caller] = self._callers.get(caller, 0) + 1
        self._open.setdefault(subscription.namespace, {})[subscription] = outlet
        try:
            await outlet.over()
        finally:
            self._forget(subscription)
        return Response(200)

    def on_change(self, change: Change) -> None:
        concerned = self._open.get(change.namespace)
        if not concerned:
            return
        if change.namespace not in self._registry.catalogue.entries:
            _end(concerned)
            return
        for subscription, outlet in tuple(concerned.items()):
            for message in subscription.messages(change):
                if not outlet.write(sse.event(message)):
                    # The request itself goes when the server has given up sending.
                    self._forget(subscription)
                    break

    def close(self) -> None:
        """End every stream, and take no more."""
        self._closed = True
        for concerned in self._open.values():
            _end(concerned)

    def _forget(self, subscription: Subscription) -> None:
        concerned = self._open.get(subscription.namespace, {})
        if concerned.pop(subscription, None) is None:
            return
        if not concerned:
            del self._open[subscription.namespace]
        caller = subscription.caller
        self._callers[caller] -= 1
        if not self._callers[caller]:
            del self._callers[caller]


def _end(concerned: Mapping[Subscription, Outlet]) -> None:
    for subscription, outlet in concerned.items():
        if outlet.open:
            outlet.write(sse.event(subscription.ended()))
            outlet.end()


def _flag(wanted: Mapping[str, Any], name: str) -> bool:
    value = wanted.get(name, False)
    if type(value) is not bool:
        raise RpcError(INVALID_PARAMS, f"{name} in the notifications of {METHOD} is true or false.")
    return value


def _uris(value: Any) -> tuple[str, ...]:
    """The resources a client wants to hear about. Those beyond the bound are not honoured, and not acknowledged."""
    if value is None:
        return ()
    if type(value) is not list or any(type(uri) is not str for uri in value):
        raise RpcError(INVALID_PARAMS, f"resourceSubscriptions in the notifications of {METHOD} is a list of URIs.")
    honoured: dict[str, None] = {}
    room = MAX_URIS_BYTES
    for uri in value:
        if len(honoured) < MAX_URIS and len(uri) <= MAX_URI and uri not in honoured:
            room -= len(dump(uri))
            if room < 0:
                break
            honoured[uri] = None
    return tuple(honoured)

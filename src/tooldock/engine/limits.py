"""How many calls of one namespace run at once, and how many may wait.

A gate outlives reloads: calls that wait keep their place.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tooldock.errors import ExecutionTimeout, Unavailable


class Gate:
    """`try_enter`, or else `enter`; then `leave` exactly once."""

    __slots__ = ("active", "max_active", "max_waiting", "namespace", "waiting")

    def __init__(self, namespace: str, max_active: int, max_waiting: int) -> None:
        self.namespace = namespace
        self.max_active = max_active
        self.max_waiting = max_waiting
        self.active = 0
        self.waiting: deque[asyncio.Future[None]] = deque()

    def try_enter(self) -> bool:
        if self.active < self.max_active and not self.waiting:
            self.active += 1
            return True
        return False

    def enter_anyway(self) -> None:
        """For a call made by a tool that already holds a place: waiting for one could wait for itself."""
        self.active += 1

    async def enter(self, deadline: float) -> None:
        if len(self.waiting) >= self.max_waiting:
            raise Unavailable(
                f"Namespace {self.namespace!r} is busy: {self.active} calls run and {len(self.waiting)} wait. "
                "Try again shortly, or raise limits.max_concurrency in its tooldock.yaml.",
                namespace=self.namespace,
                retry_after=1,
                reason="queue_full",
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave()  # the place came just as we stopped waiting for it
            elif turn in self.waiting:  # unless a place that came free has already passed us by
                self.waiting.remove(turn)
            if isinstance(error, TimeoutError):
                raise ExecutionTimeout(
                    f"The call waited for a free place in namespace {self.namespace!r} until its deadline passed.",
                    namespace=self.namespace,
                    reason="queued",
                ) from None
            raise

    def leave(self) -> None:
        self.active -= 1
        self._admit()

    def resize(self, max_active: int, max_waiting: int) -> None:
        self.max_active, self.max_waiting = max_active, max_waiting
        self._admit()

    def _admit(self) -> None:
        while self.waiting and self.active < self.max_active:
            turn = self.waiting.popleft()
            if not turn.done():
                self.active += 1
                turn.set_result(None)

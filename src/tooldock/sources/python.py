"""Python functions of one namespace, run by its worker process: tools, resources and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import orjson

from tooldock.errors import DependencyError, ToolDockError, ToolFailed, Unavailable
from tooldock.model import Call, Channel, Item, Outcome, Prompt, Resource, Tool
from tooldock.sources import catalogue
from tooldock.sources.catalogue import Described
from tooldock.workers.launcher import Launcher
from tooldock.workers.output import Filter
from tooldock.workers.rpc import Answer, NotStarted
from tooldock.workers.states import State
from tooldock.workers.supervisor import Supervisor
from tooldock.workers.worker import Worker, WorkerSpec

_MAX_MESSAGE = 2_000
_OPS = {"resource": b"resources.read", "prompt": b"prompts.get"}


class Secrets(Protocol):
    """Removes a namespace's secrets from what its worker prints and says."""

    def stream(self) -> Filter: ...

    def redact(self, data: bytes) -> tuple[bytes, int]: ...

    def redact_text(self, text: str) -> str: ...


class PythonSource:
    """A `ToolSource` over a supervised worker. A new version of the namespace is a new source."""

    def __init__(
        self,
        spec: WorkerSpec,
        launcher: Launcher,
        secrets: Secrets,
        *,
        idle_seconds: float,
    ) -> None:
        self.spec = spec
        self._launcher = launcher
        self._secrets = secrets
        self._tools: tuple[Tool, ...] = ()
        self._resources: tuple[Resource, ...] = ()
        self._templates: tuple[Resource, ...] = ()
        self._prompts: tuple[Prompt, ...] = ()
        self.supervisor: Supervisor[Worker] = Supervisor(spec.namespace, self._start, idle_seconds=idle_seconds)

    def list(self) -> Sequence[Tool]:
        return self._tools

    def resources(self) -> Sequence[Resource]:
        return self._resources

    def templates(self) -> Sequence[Resource]:
        return self._templates

    def prompts(self) -> Sequence[Prompt]:
        return self._prompts

    def know(self, described: Described) -> Described:
        """Take what there is as described earlier, so that no worker has to run for a listing.

        Returns it as it is served: without secrets, which a file may have put into a description.
        """
        name = self.spec.namespace
        clean, hits = self._secrets.redact(orjson.dumps(described.as_json()))
        if hits:
            described = Described.of(orjson.loads(clean))
        self._tools = tuple(catalogue.tool(name, item) for item in described.tools)
        self._resources = tuple(catalogue.resource(name, item) for item in described.resources)
        self._templates = tuple(catalogue.resource(name, item) for item in described.templates)
        self._prompts = tuple(catalogue.prompt(name, item) for item in described.prompts)
        return described

    async def learn(self) -> Described:
        """Start a worker and take what it loads. Raises what kept it from loading."""
        worker = await self._start()
        self.supervisor.adopt(worker)
        try:
            return self.know(Described.of(worker.described))
        except (KeyError, TypeError, ValueError):
            # Only a tool file that writes to our socket can cause this.
            raise DependencyError(
                f"The worker of namespace {self.spec.namespace!r} described its tools in a way nobody understands.",
                namespace=self.spec.namespace,
            ) from None

    async def call(self, call: Call, item: Item, deadline: float, channel: Channel, /) -> Outcome:
        supervisor = self.supervisor
        info = {"request_id": call.request_id, "caller": call.caller.name}
        if meta := call.meta:
            if session := meta.get("session_id"):
                info["session_id"] = session
            if capabilities := meta.get("client_capabilities"):
                info["capabilities"] = capabilities
        op = b"tools.call" if call.kind == "tool" else _OPS[call.kind]
        while True:
            worker = supervisor.current or await supervisor.get(deadline)
            try:
                answer = await worker.call(call.tool, call.arguments, info, deadline, channel, op)
            except NotStarted:
                if supervisor.current is worker:
                    await supervisor.after(worker, deadline)
                continue
            return _outcome(answer)

    async def close(self) -> None:
        await self.supervisor.close()

    @property
    def pid(self) -> int | None:
        worker = self.supervisor.current
        return None if worker is None else worker.pid

    async def health(self, seconds: float) -> Any:
        """The namespace's own opinion of its dependencies; None when no worker runs or it has none."""
        worker = self.supervisor.current
        if worker is None or self.supervisor.state is not State.READY:
            return None
        try:
            answer = await worker.health(seconds)
        except NotStarted:
            raise Unavailable("The worker is being restarted.", retry_after=1) from None
        except ToolDockError as error:
            raise self._redacted(error) from None
        return orjson.loads(self._secrets.redact(orjson.dumps(answer))[0])

    def _redacted(self, error: ToolDockError) -> ToolDockError:
        """What user code said goes on to people and logs, so not with a secret in it."""
        return type(error)(self._secrets.redact_text(error.message), **error.details)

    async def _start(self) -> Worker:
        try:
            worker = await Worker.start(self._launcher, self.spec, self._secrets.stream())
        except ToolDockError as error:
            raise self._redacted(error) from None
        worker.on_given_up = self.supervisor.retire
        return worker


def _outcome(answer: Answer) -> Outcome:
    frame = answer.frame
    if frame is None:
        return Outcome("ok", answer.body)
    if frame.get("cut"):
        return Outcome("ok", answer.body, partial=frame["cut"], total_bytes=int(frame["total"]))
    content = frame.get("content")
    failed = bool(frame.get("is_error"))
    return Outcome(
        "error" if failed else "ok",
        answer.body,
        content=None if content is None else tuple(content),
        error=_reported(content or ()) if failed else None,
        meta=frame.get("meta"),
        exit_code=1 if failed else None,
    )


def _reported(content: Sequence[dict[str, Any]]) -> ToolFailed:
    """The error of a tool that did not raise, but said in its answer that it failed."""
    text = "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")
    return ToolFailed(text[:_MAX_MESSAGE] or "The tool reported an error without a text.")

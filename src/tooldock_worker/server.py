"""The worker's event loop: reads frames, runs tools, reads resources, renders prompts, writes answers.

Async tools run as tasks on the loop, sync tools on a pool of threads, so that `ping` and `cancel` are answered
while a tool computes. It knows no policy and no other namespace; when its socket ends, so does the process.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

import pydantic_core

from tooldock_worker import context as contexts
from tooldock_worker.context import AskFailed, Context
from tooldock_worker.frames import MAX_FRAME, Lines, dumps
from tooldock_worker.load import Loaded, LoadError
from tooldock_worker.results import EncodeError, encode, encode_error
from tooldock_worker.threads import Pool
from tooldock_worker.tools import LoadedTool

if TYPE_CHECKING:
    from tooldock_worker.readings import Reading

_READ = 1 << 18
_MARGIN = 4096
"""Bytes sent beyond the cut, so that the gateway finds a secret that lies across it."""

_MAX_BACKLOG = 1 << 20
"""Bytes waiting for the socket, beyond which progress and log lines are dropped; a tool may say them in a loop."""

_SHORT = 1000
"""Characters kept of a message that is too long to be sent."""

Message = dict[str, Any]
Item: TypeAlias = "LoadedTool | Reading"
Encode: TypeAlias = Callable[[Any, Any], bytes]
"""The item and what its function gave, as the members of a success frame."""


class Writer:
    """Lines to the gateway, from any thread.

    The loop collects what it has to say and sends it once per iteration; threads send at once. What the socket
    does not take is kept, in order, and sent by the loop when it can.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._sock = sock
        self._loop = loop
        self._lock = threading.Lock()  # guards _backlog and the order of bytes on the socket
        self._backlog = bytearray()
        self._batch: list[bytes] = []  # the loop's alone

    def later(self, line: bytes, *, last: bool = False) -> None:
        """From the loop: send with whatever else this iteration produces; at once if nothing more is expected."""
        if not self._batch and not last:
            self._loop.call_soon(self.push)
        self._batch.append(line)
        if last:
            self.push()

    def now(self, line: bytes, *, may_drop: bool = False) -> None:
        """From any thread: send at once. What may be dropped is, while too much is waiting already."""
        with self._lock:
            if self._backlog:
                if not may_drop or len(self._backlog) < _MAX_BACKLOG:
                    self._backlog += line
                return
            try:
                sent = self._sock.send(line)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # the gateway is gone; the loop notices and ends the process
            if sent == len(line):
                return
            self._backlog += memoryview(line)[sent:]
        self._loop.call_soon_threadsafe(self._loop.add_writer, self._sock, self._send_backlog)

    def flush(self) -> None:
        """Before exiting: hand over everything, waiting for the socket."""
        self.push()
        self._sock.settimeout(2)
        with self._lock:
            try:
                self._sock.sendall(self._backlog)
            except OSError:
                pass  # nobody is listening any more
            self._backlog.clear()

    def push(self) -> None:
        """From the loop: send what has been collected so far."""
        if self._batch:
            data = b"".join(self._batch)
            self._batch.clear()
            self.now(data)

    def _send_backlog(self) -> None:
        with self._lock:
            try:
                sent = self._sock.send(self._backlog)
            except BlockingIOError:
                return
            except OSError:
                self._backlog.clear()
                sent = 0
            del self._backlog[:sent]
            if not self._backlog:
                self._loop.remove_writer(self._sock)


class Server:
    """One namespace's tools behind one socket."""

    def __init__(
        self,
        namespace: str,
        loaded: Loaded,
        sock: socket.socket,
        *,
        begun: memoryview,
        threads: int = 128,
        max_output: int = 1 << 20,
        max_frame: int = MAX_FRAME,
    ) -> None:
        self.namespace = namespace
        self._loaded = loaded
        self._tools = loaded.tools
        self._sock = sock
        self._begun = begun
        self._forbidden = begun[1:] if len(begun) > 1 else memoryview(bytes(8)).cast("Q")
        self._max_output = max_output
        self._max_frame = max_frame
        self._lines = Lines(max_frame)
        self._pool = Pool(threads)
        self._running: dict[str, tuple[asyncio.Task[None] | None, Context]] = {}
        self._asks: dict[str, asyncio.Future[Any]] = {}
        self._ask_ids = itertools.count(1)
        self._others = {
            "answer": self._on_answer,
            "cancel": self._on_cancel,
            "ping": self._on_ping,
            "tools.list": self._on_list,
            "tools.get_schema": self._on_schema,
            "resources.read": self._on_read,
            "prompts.get": self._on_prompt,
            "health": self._on_health,
            "drain": self._on_drain,
            "shutdown": self._on_shutdown,
        }
        self._reading = False
        self._loop: asyncio.AbstractEventLoop
        self._thread: int
        self._writer: Writer
        self._stopped: asyncio.Event

    async def serve(self) -> None:
        """Announce the tools and serve until the gateway says `shutdown` or is gone. Raises `LoadError`."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._stopped = asyncio.Event()
        self._sock.setblocking(False)
        self._writer = Writer(self._sock, self._loop)
        ready = dumps({"op": "ready", "namespace": self.namespace, **self._loaded.describe()})
        if len(ready) >= self._max_frame:  # the gateway would hang up on it
            raise LoadError(
                f"Its tools, resources and prompts take {len(ready):,} bytes to describe; {self._max_frame:,} are "
                "allowed. Offer fewer, or raise WORKER_MAX_FRAME."
            )
        self._writer.later(ready + b"\n")
        self._loop.add_reader(self._sock, self._on_readable)
        try:
            await self._stopped.wait()
        finally:
            self._loop.remove_reader(self._sock)
            for task, context in list(self._running.values()):
                context.cancelled = True
                if task is not None:
                    task.cancel()
            await asyncio.sleep(0)
            self._writer.flush()

    # What tools say while they run (the Backend that Context talks through).

    def emit(self, message: Message) -> None:
        line = dumps(message)
        if len(line) >= self._max_frame:  # the gateway would hang up on it
            # What a tool says on the way must never fail it.
            line = dumps({**message, "message": _shortened(str(message["message"])), "data": None})
        self._writer.now(line + b"\n", may_drop=True)

    async def ask(self, call_id: str, kind: str, params: Message) -> Any:
        ask_id = f"{call_id}.{next(self._ask_ids)}"
        line = dumps({"op": "ask", "id": call_id, "ask": ask_id, "kind": kind, "params": params})
        if len(line) >= self._max_frame:  # the gateway would hang up on it
            raise EncodeError(f"The question is larger than the {self._max_frame:,} bytes it may have.")
        answer = self._asks[ask_id] = self._loop.create_future()
        try:
            # Together with what else is asked now: some wires can put several questions only at once.
            self._writer.later(line + b"\n")
            return await answer
        finally:
            del self._asks[ask_id]

    def ask_sync(self, call_id: str, kind: str, params: Message) -> Any:
        if threading.get_ident() == self._thread:
            # The answer would arrive on the thread that waits for it, and nothing else would run meanwhile.
            raise RuntimeError("ctx.sync waits for the answer and would stop every other call; await ctx instead.")
        return asyncio.run_coroutine_threadsafe(self.ask(call_id, kind, params), self._loop).result()

    # Reading.

    def _on_readable(self) -> None:
        try:
            data = self._sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            # The gateway is gone, perhaps killed. Nothing may outlive it, whatever the tools are doing.
            os._exit(0)
        self._reading = True
        for line in self._lines.feed(data):
            message = pydantic_core.from_json(line)
            if message["op"] == "tools.call":
                self._on_call(message)
            else:
                self._on_other(message)
        self._reading = False
        self._writer.push()

    def _on_other(self, message: Message) -> None:
        handler = self._others.get(message["op"])
        if handler is None:
            self._answer_error(message.get("id"), "internal_error", f"unknown op {message['op']!r}")
        else:
            handler(message)

    # Calls.

    def _on_call(self, message: Message) -> None:
        call_id: str = message["id"]
        self._begun[0] = int(call_id)
        if self._forbidden[0]:
            return  # the gateway took it back and gave it to another worker
        tool = self._tools.get(message["tool"])
        if tool is None:
            self._answer_error(call_id, "tool_not_found", f"no tool {message['tool']!r} in this worker")
            return
        self._begin(message, tool, message["arguments"], encode)

    def _on_read(self, message: Message) -> None:
        """A resource: `tool` is its URI, which holds the arguments."""
        call_id, uri = message["id"], message["tool"]
        self._begun[0] = int(call_id)
        if self._forbidden[0]:
            return
        found = self._loaded.resource(uri)
        if found is None:
            self._answer_error(call_id, "resource_not_found", f"There is no resource at {uri!r}.")
            return
        self._begin(message, *found, lambda item, value: self._whole(item.encode(value, uri), "resource"))

    def _on_prompt(self, message: Message) -> None:
        """A prompt: `tool` is its name."""
        call_id, name = message["id"], message["tool"]
        self._begun[0] = int(call_id)
        if self._forbidden[0]:
            return
        prompt = self._loaded.prompts.get(name)
        if prompt is None:
            self._answer_error(call_id, "prompt_not_found", f"There is no prompt {name!r}.")
            return
        arguments = message["arguments"]
        self._begin(message, prompt, arguments, lambda item, value: self._whole(item.encode(value, ""), "prompt"))

    def _begin(self, message: Message, tool: Item, arguments: Message, encode: Encode) -> None:
        call_id: str = message["id"]
        context = Context(self, call_id, self.namespace, tool.name, message.get("info") or {})
        self._running[call_id] = (None, context)
        if tool.is_async:
            task = self._spawn(self._run_async(call_id, tool, arguments, context, encode))
            if call_id in self._running:  # it may be done already
                self._running[call_id] = (task, context)
        else:
            self._pool.submit(call_id, lambda: self._take_up(call_id, tool, arguments, context, encode))

    def _spawn(self, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task for one call; where Python can, it starts at once, which saves a turn of the loop."""
        if sys.version_info >= (3, 12):
            return asyncio.Task(run, loop=self._loop, eager_start=True)
        return self._loop.create_task(run)

    async def _run_async(self, call_id: str, tool: Item, arguments: Message, context: Context, encode: Encode) -> None:
        started = time.perf_counter()
        contexts.current.set(context)
        try:
            kwargs = tool.bind(arguments)
            if tool.context_parameter is not None:
                kwargs[tool.context_parameter] = context
            members = self._fit(encode(tool, await tool.fn(**kwargs)))
            head = '{"id":"%s","ok":true,"latency_ms":%.3f,'
        except BaseException as error:
            # A tool may also trip over a task of its own that was cancelled; that is its failure.
            stopped = isinstance(error, asyncio.CancelledError) and context.cancelled
            members = _CANCELLED if stopped else self._failure(error, tool.kind)
            head = '{"id":"%s","ok":false,"latency_ms":%.3f,'
        self._running.pop(call_id, None)
        elapsed = (time.perf_counter() - started) * 1000
        line = (head % (call_id, elapsed)).encode() + members + b"}\n"
        self._writer.later(line, last=not self._running and not self._reading)

    def _take_up(self, call_id: str, tool: Item, arguments: Message, context: Context, encode: Encode) -> None:
        if not context.cancelled:
            self._run_sync(call_id, tool, arguments, context, encode)
            return
        # Cancelled while it waited for a thread: its caller has been told, so it must have no effect any more.
        self._running.pop(call_id, None)
        self._writer.now(b'{"id":"%s","ok":false,"latency_ms":0.0,%s}\n' % (call_id.encode(), _CANCELLED))

    def _run_sync(self, call_id: str, tool: Item, arguments: Message, context: Context, encode: Encode) -> None:
        started = time.perf_counter()
        contexts.current.set(context)
        try:
            kwargs = tool.bind(arguments)
            if tool.context_parameter is not None:
                kwargs[tool.context_parameter] = context
            members = self._fit(encode(tool, tool.fn(**kwargs)))
            head = '{"id":"%s","ok":true,"latency_ms":%.3f,'
        except BaseException as error:
            members = self._failure(error, tool.kind)
            head = '{"id":"%s","ok":false,"latency_ms":%.3f,'
        self._running.pop(call_id, None)
        elapsed = (time.perf_counter() - started) * 1000
        self._writer.now((head % (call_id, elapsed)).encode() + members + b"}\n")

    def _failure(self, error: BaseException, kind: str = "tool") -> bytes:
        facts = encode_error(error, kind)
        members = b'"error":' + dumps(facts)
        if len(members) <= self._room:
            return members
        return _error(facts["code"], _shortened(facts["message"]))

    @property
    def _room(self) -> int:
        """Bytes the members of an answer may have."""
        return min(self._max_output, self._max_frame - 2 * _MARGIN) + _MARGIN

    def _whole(self, result: bytes, kind: str) -> bytes:
        """The members of a success frame; half a resource or prompt would be of no use to anyone."""
        members = b'"result":' + result
        if len(members) <= self._room:
            return members
        raise EncodeError(
            f"The {kind} has {len(result):,} bytes; {self._max_output:,} are allowed. Serve it in smaller parts, "
            "or raise max_output_size for this namespace."
        )

    def _fit(self, members: bytes) -> bytes:
        """Members of a success frame, cut when they are larger than the namespace may answer."""
        total = len(members)
        if total <= self._room:
            return members
        if not members.startswith(b'"result":'):
            raise EncodeError(
                f"The tool returned {total:,} bytes of content; {self._max_output:,} are allowed. "
                "Return less, or raise max_output_size for this namespace."
            )
        result = members[len(b'"result":') :]
        is_text = result.startswith(b'"')
        text = (pydantic_core.from_json(result) if is_text else result.decode()).encode()
        room = self._room
        while len(shown := dumps(text[:room].decode(errors="ignore"))) >= self._max_frame - _MARGIN:
            room //= 2  # escaped, a character may take six times its room
        return b'"cut":%s,"total":%d,"result":%s' % (b'"text"' if is_text else b'"json"', len(text), shown)

    # Everything else.

    def _on_answer(self, message: Message) -> None:
        waiting = self._asks.get(message["ask"])
        if waiting is None or waiting.done():
            return
        if message["ok"]:
            waiting.set_result(message.get("result"))
        else:
            error = message["error"]
            waiting.set_exception(AskFailed(error["code"], error["message"], error.get("details") or {}))

    def _on_cancel(self, message: Message) -> None:
        running = self._running.get(message["call"])
        if running is not None:
            task, context = running
            context.cancelled = True
            if task is not None:
                # Not at once: a task cancelled before its first step never runs, so it would never answer.
                self._loop.call_soon(task.cancel)
            self._withdraw_questions(message["call"])
        self._answer(message["id"], running is not None)

    def _withdraw_questions(self, call_id: str) -> None:
        """Nobody will answer them any more; a thread that waits for one must go on, or it would never end."""
        for ask_id, waiting in self._asks.items():
            if ask_id.rpartition(".")[0] == call_id and not waiting.done():
                waiting.set_exception(AskFailed("cancelled", "The call was cancelled while the question was open."))

    def _on_ping(self, message: Message) -> None:
        self._answer(message["id"], "pong")

    def _on_list(self, message: Message) -> None:
        self._answer(message["id"], self._loaded.describe())

    def _on_schema(self, message: Message) -> None:
        tool = self._tools.get(message["tool"])
        if tool is None:
            self._answer_error(message["id"], "tool_not_found", f"no tool {message['tool']!r} in this worker")
        else:
            self._answer(message["id"], tool.describe())

    def _on_health(self, message: Message) -> None:
        check = self._loaded.health
        if check is None:
            self._answer(message["id"], None)
            return
        call_id: str = message["id"]
        context = Context(self, call_id, self.namespace, "health", {})
        self._running[call_id] = (self._loop.create_task(self._run_health(call_id)), context)

    async def _run_health(self, call_id: str) -> None:
        check = self._loaded.health
        assert check is not None
        try:
            value = check() if asyncio.iscoroutinefunction(check) else await asyncio.to_thread(check)
            if hasattr(value, "__await__"):
                value = await value
            self._answer(call_id, pydantic_core.to_jsonable_python(value))
        except BaseException as error:
            self._writer.later(b'{"id":"%s","ok":false,%s}\n' % (call_id.encode(), self._failure(error)))
        finally:
            self._running.pop(call_id, None)

    def _on_drain(self, message: Message) -> None:
        names = self._pool.drain()
        for call_id in names:
            self._running.pop(call_id, None)
            self._answer_error(call_id, "not_started", "the call had not begun")
        self._answer(message["id"], len(names))

    def _on_shutdown(self, message: Message) -> None:
        self._answer(message["id"], True)
        self._stopped.set()

    def _say(self, message: Message) -> None:
        self._writer.later(dumps(message) + b"\n")

    def _answer(self, request_id: str, result: Any) -> None:
        self._say({"id": request_id, "ok": True, "result": result})

    def _answer_error(self, request_id: str | None, code: str, message: str) -> None:
        self._say({"id": request_id, "ok": False, "error": {"code": code, "message": message, "details": {}}})


def _error(code: str, message: str) -> bytes:
    return b'"error":' + dumps({"code": code, "message": message, "details": {}})


_CANCELLED = _error("cancelled", "The call was cancelled.")


def _shortened(text: str) -> str:
    return f"{text[:_SHORT]}… [cut: the first {_SHORT:,} of {len(text):,} characters are shown]"

"""The real server: limits while streaming, departures, abuse of the wire, TLS, and ports that are taken."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import socket
import ssl
import sys
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.edge.world import BEARER, TOKEN, exchange, front, read_response, serve
from tooldock.edge import Metrics, Request, Response, Tls
from tooldock.edge import server as server_module
from tooldock.edge.holder import holder
from tooldock.edge.server import bind
from tooldock.edge.watch import Watch
from tooldock.errors import SettingsError

HEAD = f"POST /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


async def test_a_request_over_a_socket() -> None:
    async with serve(front()) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        response = await client.post("/x", headers=BEARER, content=b"hi")
    assert response.status_code == 200
    assert response.json()["body"] == "hi"
    assert "server" not in response.headers
    assert response.headers["x-request-id"]


async def test_a_stream_without_end_is_answered_at_the_limit_and_then_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "DISCARD_SECONDS", 0.1)
    async with serve(front(max_body=100_000)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
        async with asyncio.timeout(10):
            answer = asyncio.create_task(read_response(reader))
            with pytest.raises(ConnectionError):
                await _send_for_ever(writer, chunk)
        writer.close()
    assert (await answer).startswith(b"HTTP/1.1 413 ")
    assert b'"too_large"' in await answer


async def _send_for_ever(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    while True:
        writer.write(chunk)
        await writer.drain()
        await asyncio.sleep(0)


async def test_a_request_after_a_discarded_body_is_in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for the rest of a body must not run on into the next request on the connection."""
    monkeypatch.setattr(server_module, "DISCARD_SECONDS", 0.05)

    async def handler(request: Request) -> Response:
        await request.read()
        await asyncio.sleep(0.15)
        return Response(200, b"slow")

    async with serve(front(handler, max_body=1000)) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Content-Length: 2000\r\n\r\n")
        assert (await read_response(reader))[9:12] == b"413"
        writer.write(b"x" * 2000 + HEAD + b"Content-Length: 2\r\n\r\n{}")
        assert (await read_response(reader)).endswith(b"slow")
        writer.close()
        await writer.wait_closed()


async def test_the_connection_survives_errors_and_what_was_not_read() -> None:
    async with serve(front(max_body=1000)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        statuses = []
        for _ in range(3):
            writer.write(HEAD + b"Content-Length: 5000\r\n\r\n" + b"x" * 5000)
            statuses.append((await read_response(reader))[9:12])
            writer.write(b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello")
            statuses.append((await read_response(reader))[9:12])
            writer.write(HEAD + b"Content-Length: 2\r\n\r\nok")
            statuses.append((await read_response(reader))[9:12])
        writer.close()
        await writer.wait_closed()
    assert statuses == [b"413", b"401", b"200"] * 3


async def test_a_client_that_waits_for_continue_is_not_taken_for_the_next_request() -> None:
    async with serve(front(max_body=10)) as port:
        received = await exchange(port, HEAD + b"Content-Length: 50\r\nExpect: 100-continue\r\n\r\n")
        accepted = await exchange(
            port, HEAD + b"Content-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\nok"
        )
    assert received.startswith(b"HTTP/1.1 413 ")
    assert accepted.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")


async def test_leaving_a_slow_call_cancels_it() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        await request.read()
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    metrics = Metrics()
    async with serve(front(handler, metrics=metrics, watch=Watch(tick=0.01))) as port, asyncio.timeout(10):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Content-Length: 2\r\n\r\n{}")
        await begun.wait()
        writer.close()
        await writer.wait_closed()
        await ended.wait()
    assert metrics.face("core").by_status == {499: 1}


@pytest.mark.parametrize("at_once", [True, False])
async def test_leaving_is_noticed_behind_a_request_that_waits_for_its_turn(at_once: bool) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    watched: list[Request] = []

    async def handler(request: Request) -> Response:
        watched.append(request)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    waiting = HEAD + b"Content-Length: 2\r\n\r\n{}"
    async with serve(front(handler, watch=Watch(tick=0.01))) as port, asyncio.timeout(10):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET" + HEAD[4:] + b"\r\n" + (waiting if at_once else b""))
        await begun.wait()
        while watched[0].watcher is None:
            await asyncio.sleep(0.01)
        if not at_once:
            writer.write(waiting)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        await ended.wait()
    assert len(watched) == 1


@pytest.mark.parametrize("pause", [True, False])
async def test_a_request_that_would_rather_change_the_protocol_keeps_its_body(pause: bool) -> None:
    """Some clients offer HTTP/2 with their first request; its body must not be lost, nor taken for a request."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    inner = HEAD + b"Content-Length: 0\r\n\r\n"
    async with serve(front()) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(HEAD + upgrade + b"Content-Length: %d\r\n\r\n" % len(inner))
            if pause:
                await writer.drain()
                await asyncio.sleep(0.05)  # so that it comes in a packet of its own
            writer.write(inner)
        writer.write(HEAD + upgrade + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
        writer.write(b"GET" + HEAD[4:] + upgrade + b"\r\n" + HEAD + b"Content-Length: 4\r\n\r\nlast")
        bodies = [json.loads((await read_response(reader)).partition(b"\r\n\r\n")[2])["body"] for _ in range(5)]
        writer.close()
        await writer.wait_closed()
    assert bodies == [inner.decode(), inner.decode(), "hi", "", "last"]


async def test_a_slow_call_on_a_kept_connection_is_answered_and_the_next_one_too() -> None:
    async def handler(request: Request) -> Response:
        await request.read()
        await asyncio.sleep(0.05)  # longer than two ticks: watched
        return Response(200, b"slow")

    async with serve(front(handler, watch=Watch(tick=0.01))) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(HEAD + b"Content-Length: 2\r\n\r\n{}")
            assert (await read_response(reader)).endswith(b"slow")
        writer.close()
        await writer.wait_closed()


async def test_a_kept_connection_on_which_nothing_is_asked_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_SWEEP_SECONDS", 0.05)
    async with serve(front(), keep_alive_seconds=0) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(HEAD + b"Content-Length: 2\r\n\r\nhi")
            assert (await read_response(reader)).startswith(b"HTTP/1.1 200 ")
        assert await reader.read() == b""
        writer.close()


async def test_a_kept_connection_stays_while_a_slow_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_SWEEP_SECONDS", 0.01)

    async def handler(request: Request) -> Response:
        await request.read()
        await asyncio.sleep(0.2)
        return Response(200, b"late")

    async with serve(front(handler), keep_alive_seconds=0) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Content-Length: 2\r\n\r\nhi")
        assert (await read_response(reader)).endswith(b"late")
        writer.close()


@pytest.mark.parametrize("extra", [b"", b"Origin: http://localhost:3000\r\n", b"Connection: close\r\n"])
async def test_both_ways_of_answering_say_the_same(extra: bytes) -> None:
    """Ordinary requests are answered past ASGI, those with an Origin or about to close through it."""
    async with serve(front()) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + extra + b"X-Request-ID: abc\r\nContent-Length: 2\r\n\r\nhi")
        answer = await read_response(reader)
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = set(head.split(b"\r\n"))
    assert {b"HTTP/1.1 200 OK", b"x-request-id: abc", b"x-content-type-options: nosniff"} <= lines
    assert b"content-length: %d" % len(body) in lines
    assert json.loads(body)["body"] == "hi"
    assert sum(line.startswith(b"date: ") for line in lines) == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serve(front()) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(HEAD + b"Content-Length: 1\r\n\r\n%d" % number for number in range(5)))
        bodies = [json.loads((await read_response(reader)).partition(b"\r\n\r\n")[2])["body"] for _ in range(5)]
        writer.close()
        await writer.wait_closed()
    assert bodies == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS on a plain port
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_bytes_that_are_not_http_are_refused_in_json(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(front()) as port:
        received = await exchange(port, data)
        assert (await exchange(port, b"GET /health HTTP/1.0\r\n\r\n"))[9:12] == b"200"
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head
    assert json.loads(body)["error"]["code"] == "malformed_request"
    assert not [record for record in caplog.records if record.name == "asyncio"]


@pytest.mark.parametrize("tail", [b"\x00nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHo"])
async def test_a_bad_request_behind_a_good_one_takes_nobodys_answer_away(
    tail: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither that of the good one, nor those that are ready for other clients in the same turn of the loop."""
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.05)
    began, finish = asyncio.Semaphore(0), asyncio.Event()

    async def handler(request: Request) -> Response:
        await request.read()
        began.release()
        await finish.wait()
        return Response(200, b"done")

    async with serve(front(handler)) as port, asyncio.timeout(10):
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for number, (_, writer) in enumerate(clients):
            writer.write(HEAD + b"Content-Length: 2\r\n\r\n{}" + (b"" if number else tail))
            await began.acquire()
        await asyncio.sleep(0.1)  # by now the tail is refused
        finish.set()
        answers = [await read_response(reader) for reader, _ in clients]
        assert await clients[0][0].read() == b""
        for _, writer in clients:
            writer.close()
    assert [answer[9:12] + answer[-4:] for answer in answers] == [b"200done"] * 4
    assert b"connection: close" in answers[0]


async def test_an_answer_that_is_ready_after_its_body_was_refused_harms_nobody() -> None:
    began, finish = asyncio.Semaphore(0), asyncio.Event()

    async def handler(request: Request) -> Response:
        began.release()
        await finish.wait()
        return Response(200, b"done")

    async with serve(front(handler)) as port, asyncio.timeout(10):
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for number, (_, writer) in enumerate(clients):
            writer.write(HEAD + (b"Content-Length: 0\r\n\r\n" if number else b"Transfer-Encoding: chunked\r\n\r\n"))
            await began.acquire()
        clients[0][1].write(b"ZZ\r\n")
        assert (await read_response(clients[0][0]))[9:12] == b"400"
        finish.set()
        answers = [await read_response(reader) for reader, _ in clients[1:]]
        for _, writer in clients:
            writer.close()
    assert [answer[-4:] for answer in answers] == [b"done"] * 3


async def test_requests_cannot_be_piled_up_without_end() -> None:
    seen = 0

    async def handler(request: Request) -> Response:
        nonlocal seen
        seen += 1
        await asyncio.sleep(0)
        return Response(200, b"done")

    async with serve(front(handler)) as port:
        received = await exchange(port, (HEAD + b"\r\n") * 2000)
    assert seen == received.count(b"HTTP/1.1 200 ")
    assert server_module.MAX_PIPELINED <= seen < 2000


async def test_a_connection_whose_client_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(server_module, "UNREAD_SECONDS", 0.3)

    async def handler(request: Request) -> Response:
        return Response(200, b"x" * 20_000_000)

    lost = asyncio.Event()
    connection_lost = server_module.Protocol.connection_lost

    def lose(self: server_module.Protocol, exc: Exception | None) -> None:
        connection_lost(self, exc)
        lost.set()

    monkeypatch.setattr(server_module.Protocol, "connection_lost", lose)
    async with serve(front(handler), keep_alive_seconds=0) as port, asyncio.timeout(10):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write(HEAD + b"\r\n")
        await lost.wait()
        writer.close()


async def test_a_client_that_reads_slowly_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(server_module, "UNREAD_SECONDS", 0.5)

    async def handler(request: Request) -> Response:
        return Response(200, b"x" * 20_000_000)

    async with serve(front(handler), keep_alive_seconds=0) as port, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=100_000)
        writer.write(HEAD + b"\r\n")
        size = 0
        while piece := await reader.read(2_000_000):
            size += len(piece)
            await asyncio.sleep(0.01)
        writer.close()
    assert size > 20_000_000


@pytest.mark.parametrize("line", [b"X-Long: " + b"a" * 400_000, b"\r\n".join(b"X-%d: y" % n for n in range(60_000))])
async def test_a_head_without_end_is_refused(line: bytes) -> None:
    async with serve(front()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(10):
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            for start in range(0, len(line), 10_000):
                writer.write(line[start : start + 10_000])
                await writer.drain()
            received = await reader.read()
        writer.close()
    assert received.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(("sent", "answer"), [(b"", b""), (b"GET / HTTP/1.1\r\nHost: l", b"HTTP/1.1 408 ")])
async def test_a_head_that_does_not_come_is_not_waited_for(
    sent: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.05)
    async with serve(front()) as port:
        received = await exchange(port, sent)
    assert received[:13] == answer


async def test_a_slow_head_on_a_kept_connection_is_not_waited_for_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serve(front()) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Content-Length: 2\r\n\r\nok")
        assert (await read_response(reader))[9:12] == b"200"
        monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.05)
        writer.write(b"GET / HTTP/1.1\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_a_body_that_does_not_come_ends_the_connection() -> None:
    async with serve(front(watch=Watch(tick=0.01, body_seconds=0.05))) as port:
        received = await exchange(port, HEAD + b"Content-Length: 20\r\n\r\nhi")
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in received


def _certificate(folder: Path, password: bytes | None = None) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    return cert_file, key_file


@pytest.mark.parametrize("password", [None, "open sesame"])
async def test_tls_with_a_certificate_of_ones_own(tmp_path: Path, password: str | None) -> None:
    cert, key = _certificate(tmp_path, password.encode() if password else None)
    trust = ssl.create_default_context(cafile=str(cert))
    async with serve(front(), Tls(cert, key, password)) as port, httpx.AsyncClient(verify=trust) as client:
        response = await client.get(f"https://localhost:{port}/x", headers=BEARER)
        plain = await exchange(port, b"GET / HTTP/1.0\r\n\r\n")
    assert response.json()["scheme"] == "https"
    assert not plain.startswith(b"HTTP/1.1 2")


def test_tls_mistakes_are_found_at_start_and_named(tmp_path: Path) -> None:
    cert, key = _certificate(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    other_cert, locked_key = _certificate(other, b"pass")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for tls, text in (
        (Tls(tmp_path / "none.pem", key), "TLS_CERT: .*none.pem cannot be read: No such file"),
        (Tls(cert, tmp_path / "none.pem"), "TLS_KEY: .*none.pem cannot be read"),
        (Tls(other_cert, key), "TLS_KEY .* does not belong to the certificate"),
        (Tls(empty, key), "TLS_CERT .* cannot be used"),
        (Tls(other_cert, locked_key), "is encrypted and TLS_KEY_PASSWORD is not set"),
        (Tls(other_cert, locked_key, "wrong-guess"), "TLS_KEY_PASSWORD does not open it"),
    ):
        with pytest.raises(SettingsError, match=text) as caught:
            tls.check()
        assert "wrong-guess" not in str(caught.value)


def test_a_taken_port_names_its_holder_and_the_setting() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError) as caught:
            bind("127.0.0.1", port, setting="CORE_PORT")
    message = str(caught.value)
    assert f"Port {port} on 127.0.0.1 is taken" in message
    assert "CORE_PORT" in message
    if sys.platform == "linux":
        assert f"(pid {os.getpid()})" in message


def test_a_bound_port_is_held_before_anybody_serves_it() -> None:
    with bind("127.0.0.1", 0) as listener:
        with socket.create_connection(listener.getsockname(), timeout=5):
            pass
        assert listener.getblocking() is False


async def test_answers_are_not_held_back_by_nagle() -> None:
    async with serve(front()) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        loop = asyncio.get_running_loop()
        durations = []
        for _ in range(20):
            started = loop.time()
            writer.write(HEAD + b"Content-Length: 2\r\n\r\nok")
            await read_response(reader)
            durations.append(loop.time() - started)
        writer.close()
        await writer.wait_closed()
    assert sorted(durations)[10] < 0.03  # the delay is 0.04 s, each time


def test_a_host_that_is_not_here_is_named() -> None:
    with pytest.raises(SettingsError, match=r"HOST 203\.0\.113\.1 is not an address of this machine"):
        bind("203.0.113.1", 0)
    with pytest.raises(SettingsError, match="HOST 'no such host'"):
        bind("no such host", 0)


def test_nobody_holds_a_free_port() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    assert holder(port) is None


async def test_nothing_leaves_before_what_has_to_be_done_first() -> None:
    order: list[str] = []

    async def answering(request: Request) -> Response:
        order.append("answered")
        return Response(200, b"x")

    async with serve(front(answering), before_answers=lambda: order.append("before")) as port:
        answer = await exchange(port, b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        order.append("received")
    assert answer.endswith(b"x")
    assert order == ["answered", "before", "received"]

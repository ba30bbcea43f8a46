"""What an exchange says of a request: never sent, broken, or answered. Real sockets on loopback."""

import asyncio
import gzip
import random
import re
import socket
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from helpers.raw import raw_server, says
from rollmake.core.backoff import retry_after_s
from rollmake.core.errors import InputError
from rollmake.core.outcome import Answered, Broken, NeverSent
from rollmake.edge.connector import CleanConnector
from rollmake.edge.exchange import Target, exchange
from rollmake.edge.http import client


async def post(url, timeout_s=5.0, max_bytes=1 << 20, idle_timeout_s=None):
    async with client(4, connect_timeout_s=2.0, idle_timeout_s=idle_timeout_s) as session:
        return await exchange(session, Target(f"{url}/run"), b'{"a":1}', timeout_s=timeout_s, max_bytes=max_bytes)


async def test_a_whole_reply_is_answered_with_its_status_and_retry_after():
    head = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"
    async with raw_server(says(head)) as url:
        assert await post(url) == Answered(503, b"busy", "7")


async def test_a_closed_port_was_never_sent():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = await post(f"http://127.0.0.1:{port}")
    assert isinstance(result, NeverSent)
    assert str(port) in result.message


async def test_a_host_that_cannot_be_resolved_was_never_sent():
    assert isinstance(await post("http://no-such-host.invalid:1"), NeverSent)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", None),
        (b"HTTP/1.1 200", None),
        (b"garbage\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", None),
        (b"HTTP/1.1 100 Continue\r\n\r\n", None),
    ],
)
async def test_a_reply_that_is_cut_may_have_been_delivered(data, status):
    async with raw_server(says(data)) as url:
        result = await post(url)
    assert isinstance(result, Broken)
    assert result.status == status
    assert result.message
    assert not result.message.startswith("400")


def address(server):
    """Where a server of asyncio is posted to."""
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/run"


LINES = [b"200 OK", b"500 Oops", b"204 No", b"304 No", b"101 Sw", b"302 Found", b"999 X", b"20000 X", b"-1 x", b"200 \xff",
         b"200", b"100 Continue\r\n\r\nHTTP/1.1 200 OK"]  # fmt: skip
HEADS = [b"Content-Length: 14", b"Content-Length: -1", b"Content-Length: 5\r\nContent-Length: 7",
         b"Content-Length: 9" + b"9" * 30, b"Transfer-Encoding: chunked", b"Content-Encoding: gzip", b"Content-Encoding: deflate",
         b"Content-Encoding: no",
         b"Connection: upgrade\r\nUpgrade: websocket", b"Content-Type: a; charset=\xff", b"Retry-After: \xff", b"no header",
         b"Set-Cookie: \1=\2", b"Location: http://[::bad", b": empty", b"X:\r\n folded", b"X: " + b"y" * 9000]  # fmt: skip
BODIES = [b'{"reward":1.0}', gzip.compress(b'{"reward":1}'), gzip.compress(bytes(1 << 22)), b"5\r\nhello\r\n0\r\n\r\n",
          b"f" * 20 + b"\r\nx", b"-1\r\n", b"5;e=\xff\r\nhello\r\n0\r\nX: y\r\n\r\n", b"", bytes(range(256))]  # fmt: skip


async def test_no_reply_however_broken_is_more_than_answered_or_broken():
    chance = random.Random(4)
    hostile = b""

    async def reply(writer):
        cut = chance.randrange(len(hostile) + 1)
        writer.write(hostile[:cut])
        await asyncio.sleep(0)
        writer.write(hostile[cut:])
        if chance.random() < 0.2:
            writer.transport.abort()

    async with raw_server(reply) as url, client(4, connect_timeout_s=2.0) as session:
        for _ in range(400):
            heads = b"".join(chance.choice(HEADS) + b"\r\n" for _ in range(chance.randrange(3)))
            hostile = b"HTTP/1.1 " + chance.choice(LINES) + b"\r\n" + heads + b"\r\n" + chance.choice(BODIES)
            at = chance.randrange(len(hostile))
            if chance.random() < 0.3:
                hostile = hostile[:at] + chance.randbytes(2) + hostile[at + 1 :]
            answer = await exchange(session, Target(f"{url}/run"), b"{}", timeout_s=10.0, max_bytes=1 << 20)
            assert isinstance(answer, (Answered, Broken)), hostile
            assert getattr(answer, "kind", "") != "TimeoutError", hostile
            if isinstance(answer, Answered):
                assert len(answer.body) <= 1 << 20
                assert retry_after_s(answer.retry_after) is None


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
DEFLATED = b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: 2\r\n\r\n"
BAD_BODIES = [b"zz\r\n", b"-1\r\n", b"5\r\nhelloX\r\n0\r\n\r\n", b"f" * 20 + b"\r\nx", b"0\r\nno trailer\r\n\r\n"]


@pytest.mark.parametrize(("head", "body"), [*((CHUNKED, body) for body in BAD_BODIES), (DEFLATED, b"\xff\xff")])
async def test_a_body_that_turns_out_to_be_broken_after_its_head_is_broken_at_once(head, body):
    async with raw_server(says(head, body)) as url:
        result = await asyncio.wait_for(post(url, timeout_s=None), 10)
    assert (result.kind, result.status) == ("ClientPayloadError", 200)
    assert "\n" not in result.message


async def test_a_length_of_many_digits_is_a_length():
    async with raw_server(says(b"HTTP/1.1 200 OK\r\nContent-Length: " + b"0" * 5000 + b"2\r\n\r\n{}")) as url:
        assert await post(url) == Answered(200, b"{}")


async def test_a_reply_that_grows_when_it_is_unpacked_is_too_large_by_what_it_holds():
    packed = gzip.compress(bytes(3 << 20))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with raw_server(says(head + packed)) as url:
        assert (await post(url)).kind == "ResponseTooLarge"
        assert await post(url, max_bytes=3 << 20) == Answered(200, bytes(3 << 20))


@asynccontextmanager
async def keeping_server(after):
    """Replies to every request on a connection with its number, then does `after(writer)`."""

    async def serve(reader, writer):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                number = await reader.readexactly(1)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + number)
                await after(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def replies(url, count, pause_s=0.0):
    """What is answered to requests with the numbers from 0, one after another."""
    found = []
    async with client(1, connect_timeout_s=2.0) as session:
        target = Target(f"{url}/run")
        for number in range(count):
            found.append(await exchange(session, target, b"%d" % number, timeout_s=5.0, max_bytes=9))
            await asyncio.sleep(pause_s)
    return found


async def test_a_server_that_closes_connections_without_saying_so_costs_no_attempt():
    async def close(writer):
        writer.close()

    async with keeping_server(close) as url:
        assert await replies(url, 9) == [Answered(200, b"%d" % number) for number in range(9)]


async def test_a_reply_that_nobody_asked_for_is_not_taken_for_the_next_one():
    async def once_more(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")

    async with keeping_server(once_more) as url:
        assert await replies(url, 9, pause_s=0.01) == [Answered(200, b"%d" % number) for number in range(9)]


async def test_an_undisturbed_connection_is_used_again():
    made = set()

    async def note(writer):
        made.add(writer)

    async with keeping_server(note) as url:
        await replies(url, 9)
    assert len(made) == 1


async def test_a_reset_after_sending_may_have_been_delivered():
    async def reset(writer):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    async with raw_server(reset) as url:
        assert isinstance(await post(url), Broken)


async def test_a_reply_that_takes_too_long_is_broken_and_says_how_long():
    async def silent(writer):
        await asyncio.sleep(30)

    async with raw_server(silent) as url:
        result = await post(url, timeout_s=0.05)
    assert result == Broken("TimeoutError", "no whole reply within 0.05 s", None)


@asynccontextmanager
async def web_server(handle):
    """A server that calls `handle` for every request."""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


async def test_a_redirect_is_not_followed():
    asked = []

    async def handle(request):
        asked.append(request.path)
        raise web.HTTPFound("/elsewhere")

    async with web_server(handle) as url:
        result = await post(url)
    assert result.status == 302
    assert asked == ["/run"]


@pytest.mark.parametrize("size", [0, 7, 20_000_000])
async def test_a_server_receives_one_json_request_with_the_body_byte_by_byte(size):
    body, seen = random.Random(size).randbytes(size), []

    async def handle(request):
        seen.append((request.method, request.path, request.host, dict(request.headers), await request.read()))
        return web.Response(body=b"{}")

    async with web_server(handle) as url, client(1, connect_timeout_s=2.0) as session:
        assert await exchange(session, Target(f"{url}/run"), body, timeout_s=None, max_bytes=9) == Answered(200, b"{}")
    [(method, path, host, headers, received)] = seen
    assert (method, path, f"http://{host}") == ("POST", "/run", url)
    assert headers["Content-Type"] == "application/json"
    assert headers["Content-Length"] == str(size)
    assert {"Accept", "Accept-Encoding", "User-Agent"} <= headers.keys()
    assert received == body


async def test_the_reply_is_what_comes_after_the_notes_that_the_server_is_at_it():
    notes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
    async with raw_server(says(notes + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")) as url:
        assert await post(url) == Answered(200, b"{}")


async def test_the_rest_of_a_request_that_was_answered_early_does_not_go_before_the_next_one():
    heads = []

    async def serve(reader, writer):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 413 Too large\r\nContent-Length: 0\r\n\r\n")
            heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 12)
    async with server, client(1, connect_timeout_s=2.0) as session:
        for _ in range(3):
            answer = await exchange(session, Target(address(server)), b"x" * 30_000_000, timeout_s=5.0, max_bytes=9)
            assert answer == Answered(413, b"", None)
    assert len(heads) == 3
    assert all(head.startswith(b"POST /run HTTP/1.1\r\n") for head in heads)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 413 Too large\r\n\r\nbig"])
async def test_a_server_that_says_its_last_word_before_it_took_the_request_is_not_waited_for(said):
    done = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.write_eof()
        await done.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 12)
    async with server, client(1, connect_timeout_s=2.0) as session:
        asking = exchange(session, Target(address(server)), b"x" * 30_000_000, timeout_s=None, max_bytes=9)
        result = await asyncio.wait_for(asking, 10)
        done.set()
    assert result == Answered(413, b"big", None) if said else isinstance(result, Broken)


async def test_the_rest_of_a_request_that_took_too_long_is_not_sent():
    given_up, ended, received = asyncio.Event(), asyncio.Event(), []

    async def serve(reader, writer):
        await given_up.wait()
        with suppress(ConnectionError):
            while part := await reader.read(1 << 20):
                received.append(len(part))
        ended.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 12)
    async with server, client(1, connect_timeout_s=2.0) as session:
        result = await exchange(session, Target(address(server)), b"x" * 30_000_000, timeout_s=0.3, max_bytes=9)
        given_up.set()
        await asyncio.wait_for(ended.wait(), 20)
    assert result.kind == "TimeoutError"
    assert sum(received) < 30_000_000


async def test_a_server_that_takes_a_request_slowly_is_not_silent():
    async def serve(reader, writer):
        for _ in range(30):
            await reader.readexactly(1_000_000)
            await asyncio.sleep(0.1)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 12)
    async with server, client(1, connect_timeout_s=2.0, idle_timeout_s=2.0) as session:
        body = b"x" * 30_000_000
        assert await exchange(session, Target(address(server)), body, timeout_s=None, max_bytes=9) == Answered(
            200, b"{}"
        )


@pytest.mark.parametrize("note", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_server_that_takes_no_more_and_says_nothing_is_silent(note):
    done = asyncio.Event()

    async def serve(reader, writer):
        writer.write(note)
        await done.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 12)
    async with server, client(1, connect_timeout_s=2.0, idle_timeout_s=0.2) as session:
        for body in (b"{}", b"x" * 30_000_000):
            result = await exchange(session, Target(address(server)), body, timeout_s=20.0, max_bytes=9)
            assert result.kind == "TimeoutError"
            assert "nothing came for too long" in result.message
        done.set()


async def test_a_time_out_is_over_with_the_reply_that_came_with_its_note():
    async def serve(reader, writer):
        with suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n{}")
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, client(1, connect_timeout_s=2.0, idle_timeout_s=60.0) as session:
        for _ in range(2):
            asking = exchange(session, Target(address(server)), b"{}", timeout_s=None, max_bytes=9)
            assert await asking == Answered(200, b"{}")
            [[(protocol, _)]] = session.connector._conns.values()
            assert protocol._read_timeout_handle is None


async def test_a_request_that_is_given_up_leaves_no_connection():
    gone = asyncio.Event()

    async def serve(reader, writer):
        await reader.read()
        gone.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, client(1, connect_timeout_s=2.0) as session:
        asking = asyncio.create_task(exchange(session, Target(address(server)), b"{}", timeout_s=None, max_bytes=9))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(gone.wait(), 10)


class LosingConnector(CleanConnector):
    """Each of its connections is lost before it can be used."""

    async def connect(self, req, traces, timeout):
        connection = await super().connect(req, traces, timeout)
        lost = connection.protocol.closed
        connection.transport.abort()
        await lost
        return connection


async def test_a_connection_that_is_lost_before_anything_is_sent_is_broken():
    async with raw_server(says(b"")) as url, aiohttp.ClientSession(connector=LosingConnector()) as session:
        result = await exchange(session, Target(f"{url}/run"), b"{}", timeout_s=5.0, max_bytes=9)
    assert isinstance(result, Broken)
    assert "before anything was sent" in result.message


async def test_an_address_that_nothing_can_be_sent_to_is_refused_with_its_text():
    for url in ("http://:80/run", "http://h:999999/run"):
        with pytest.raises(InputError, match=re.escape(repr(url))):
            Target(url)


@pytest.mark.parametrize("framing", [b"Content-Length: 3000\r\n\r\n", b"Connection: close\r\n\r\n", b"\r\n"])
async def test_a_reply_that_is_too_large_is_a_failure_with_its_size(framing):
    async with raw_server(says(b"HTTP/1.1 200 OK\r\n" + framing + b"x" * 3000)) as url:
        result = await post(url, max_bytes=2999)
        assert (result.kind, result.status) == ("ResponseTooLarge", 200)
        assert "allowed are 2999" in result.message
        assert await post(url, max_bytes=3000) == Answered(200, b"x" * 3000)


async def test_of_an_error_only_the_first_8_kb_are_read():
    async def endless(writer):
        writer.write(b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()

    async with raw_server(endless) as url:
        result = await post(url)
    assert result == Answered(500, b"x" * 8192)


async def test_a_server_that_falls_silent_is_broken_if_idleness_is_bounded():
    async def silent(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await asyncio.sleep(30)

    async with raw_server(silent) as url:
        result = await post(url, timeout_s=None, idle_timeout_s=0.05)
    assert (result.kind, result.status) == ("TimeoutError", 200)
    assert "nothing came for too long" in result.message

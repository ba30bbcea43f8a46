"""What an exchange says of a request: never sent, broken, or answered. Real sockets on loopback."""

import asyncio
import resource
import socket
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from yarl import URL

from rollmake.core.errors import InputError
from rollmake.core.outcome import Answered, Broken, NeverSent
from rollmake.edge import http


@asynccontextmanager
async def raw_server(reply):
    """A server that reads a request's head and then does `reply(reader, writer)`."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await reply(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def post(url, timeout_s=5.0, max_bytes=1 << 20, idle_timeout_s=None):
    async with http.client(4, connect_timeout_s=2.0, idle_timeout_s=idle_timeout_s) as session:
        return await http.exchange(session, URL(f"{url}/run"), b'{"a":1}', timeout_s=timeout_s, max_bytes=max_bytes)


def says(data):
    async def reply(writer):
        writer.write(data)
        await writer.drain()

    return reply


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
    ],
)
async def test_a_reply_that_is_cut_may_have_been_delivered(data, status):
    async with raw_server(says(data)) as url:
        result = await post(url)
    assert isinstance(result, Broken)
    assert result.status == status
    assert result.message


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


async def test_a_redirect_is_not_followed():
    asked = []

    async def handle(request):
        asked.append(request.path)
        raise web.HTTPFound("/elsewhere")

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        result = await post(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}")
    finally:
        await runner.cleanup()
    assert result.status == 302
    assert asked == ["/run"]


async def test_reachable_means_that_anything_is_said():
    reply = says(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
    async with raw_server(reply) as url, http.client(1, connect_timeout_s=1) as session:
        assert await http.reachable(session, url)
    async with http.client(1, connect_timeout_s=1) as session:
        assert not await http.reachable(session, url)


def test_the_file_limit_is_raised_or_refused_with_a_number_that_works():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 256), hard))
        http.raise_file_limit(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        if hard != resource.RLIM_INFINITY:
            with pytest.raises(InputError, match=f"Set it to at most {hard - http.SPARE_FILES}"):
                http.raise_file_limit(hard + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("framing", [b"Content-Length: 3000\r\n\r\n", b"Connection: close\r\n\r\n"])
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

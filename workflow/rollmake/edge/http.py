"""The HTTP session to environment servers: its connections, how many there may be, which are used again; and health."""

import asyncio
import resource
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.connector import Connection

from rollmake.core.errors import InputError

# Shorter than servers keep idle connections, so that a request rarely meets a connection that is just being closed.
KEEPALIVE_S = 4.0
SPARE_FILES = 64
PROBE_TIMEOUT_S = 10.0


class CleanConnector(aiohttp.TCPConnector):
    """Reuses no connection that the server has closed, or on which something came that nobody had asked for.

    The one would spend an attempt for nothing, the other would be taken for the reply to the next request.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Asks the system about the socket of each connection that was made.
        self._sockets: WeakKeyDictionary[Any, select.poll] = WeakKeyDictionary()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[aiohttp.tracing.Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """A connection that was just made, or one on which nothing has happened since its last reply."""
        while True:
            connection = await super().connect(req, traces, timeout)
            socket = self._sockets.get(connection.protocol)
            if socket is None:
                if not connection.closed:
                    self._sockets[connection.protocol] = _socket(connection)
                return connection
            if not _disturbed(connection, socket):
                return connection
            connection.close()


def _socket(connection: Connection) -> select.poll:
    assert connection.transport is not None
    socket = select.poll()
    socket.register(connection.transport.get_extra_info("socket").fileno(), select.POLLIN)
    return socket


def _disturbed(connection: Connection, socket: select.poll) -> bool:
    protocol = connection.protocol
    return protocol is None or protocol.transport is None or protocol.should_close or bool(socket.poll(0))


@asynccontextmanager
async def client(
    connections: int, *, connect_timeout_s: float, idle_timeout_s: float | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """A session for `connections` requests at once; nothing limits how long a rollout takes but silence, if asked for."""
    raise_file_limit(connections + SPARE_FILES)
    connector = CleanConnector(
        limit=0, keepalive_timeout=KEEPALIVE_S, ttl_dns_cache=60, socket_factory=keepalive_socket
    )
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s, sock_read=idle_timeout_s)
    cookies = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=cookies) as session:
        yield session


async def reachable(session: aiohttp.ClientSession, url: str) -> bool:
    """Whether the server at `url` says of itself that it is well, or at least not that it is not."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S), session.get(f"{url}/health", allow_redirects=False) as response:
            return response.status < 500
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


def keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices within about two minutes that the other side is gone, however long a rollout takes."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6)
    return made


def raise_file_limit(needed: int) -> None:
    """Allow this process `needed` open files. Raises InputError if the hard limit is below."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise InputError(
                f"{needed} open files are needed, but the hard limit is {hard}",
                where="num_samples_in_parallel",
                remedy=f"Set it to at most {hard - SPARE_FILES}, or raise the limit (ulimit -Hn)",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

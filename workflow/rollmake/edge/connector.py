"""Connections to environment servers that are used again only if they are clean, and whose every end is noticed."""

import asyncio
import functools
import select
import socket
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError


class NoticingHandler(ResponseHandler):
    """One connection, where nobody waits for what can no longer come.

    In aiohttp's own the reader of a body does not hear that its framing is broken; and a server that does not take the
    rest of a request keeps the connection, though it or we have closed it, or counts as silent while it does take it.
    """

    # Whether anything was asked on it yet.
    used = False
    # What of the request had not been sent when the time-out for silence began, in bytes.
    _unsent_then = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    @property
    def disturbed(self) -> bool:
        """Whether anything has happened since the last reply, as far as the system knows by now."""
        return self.transport is None or self.should_close or bool(self._poll.poll(0))

    @property
    def unsent(self) -> int:
        """How many bytes of the request still wait to be sent."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Tell whoever waits for a head, and who reads a body."""
        super().set_exception(exc, *cause)
        if self._payload is not None and not self._payload.is_eof():
            broken = aiohttp.ClientPayloadError(exc.message) if isinstance(exc, HttpProcessingError) else exc
            self._payload.set_exception(broken, *cause)

    def close(self) -> None:
        """Do not send the rest of a request first."""
        if self.unsent:
            self.abort()
        else:
            super().close()

    def eof_received(self) -> None:
        """Nothing more will come, so what is left of the request is not for anybody."""
        super().eof_received()
        if self.unsent and self.transport is not None:
            self.transport.abort()

    def start_timeout(self) -> None:
        """Begin to wait for a sign of life: something that comes, or something that is taken."""
        self._unsent_then = self.unsent
        super().start_timeout()

    def _on_read_timeout(self) -> None:
        if self.unsent < self._unsent_then:
            self.start_timeout()
        else:
            super()._on_read_timeout()


class CleanConnector(aiohttp.TCPConnector):
    """Reuses no connection that the server has closed, or on which something came that nobody had asked for.

    The one would spend an attempt for nothing, the other would be taken for the reply to the next request.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = functools.partial(NoticingHandler, loop=self._loop)

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[aiohttp.tracing.Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """A connection that was just made, or one on which nothing has happened since its last reply."""
        while True:
            connection = await super().connect(req, traces, timeout)
            handler = connection.protocol
            if not handler.used or not handler.disturbed:
                handler.used = True
                return connection
            connection.close()


def keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices within about two minutes that the other side is gone, however long a rollout takes."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6)
    return made

"""One HTTP exchange with an environment server, told apart by what may have happened to the request.

It speaks over the connections of an aiohttp session, and its parser reads the reply; what `ClientSession.post` does around
that costs more than all the rest of a small rollout (docs/decisions/0008-below-the-session.md).
"""

import asyncio
import functools
from contextlib import nullcontext

import aiohttp
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from yarl import URL

from rollmake.core.errors import InputError
from rollmake.core.excerpts import one_line
from rollmake.core.outcome import Answered, Broken, Exchange, NeverSent

HEADERS = {"Content-Type": "application/json"}
ERROR_BYTES = 8192
UNLIMITED = nullcontext()
SWITCHING_PROTOCOLS = 101
MESSAGE_LENGTH = 300


class SameRequest(aiohttp.ClientRequest):
    """A request that is sent again and again."""

    @functools.cached_property
    def connection_key(self) -> ConnectionKey:
        """Where it goes; put together once."""
        return super().connection_key


class Target:
    """Where requests are posted to: all of them begin alike, and go over the same kind of connection.

    Raises InputError for a URL that nothing can be sent to. Has to be made where an event loop runs.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self.request = SameRequest("POST", URL(url), headers=HEADERS)
        except ValueError as error:
            raise InputError(
                f"{url!r} is no address of a server: {error}", remedy="Correct it in the topology"
            ) from None
        fields = [f"{name}: {value}" for name, value in self.request.headers.items() if name != "Content-Length"]
        lines = [f"POST {self.request.url.raw_path_qs} HTTP/1.1", *fields, "Content-Length: "]
        self._begin = "\r\n".join(lines).encode("ascii")

    def head(self, body: bytes) -> bytes:
        """What goes before `body`."""
        return b"%b%d\r\n\r\n" % (self._begin, len(body))


async def exchange(
    session: aiohttp.ClientSession, target: Target, body: bytes, *, timeout_s: float | None, max_bytes: int
) -> Exchange:
    """POST `body` to `target` and read the whole reply; never raises for what the network or the server does.

    Redirects are not followed, nothing is sent twice. `timeout_s` bounds the whole exchange, None does not. A reply of
    more than `max_bytes` is not kept; of an error's body the first 8 kB are read.
    """
    connection = status = None
    try:
        async with asyncio.timeout(timeout_s) if timeout_s is not None else UNLIMITED:
            connection = await _connected(session, target)
            message, content = await _asked(connection, target, body, session.timeout.sock_read)
            status = message.code
            answer = await _answer(message, content, max_bytes)
            # The rest of a request that was answered before all of it was sent would be taken for the next one.
            if content.at_eof() and not connection.protocol.unsent:
                connection.release()
            return answer
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        return NeverSent(type(error).__name__, str(error))
    except TimeoutError as error:
        waited = f"no whole reply within {timeout_s} s" if not str(error) else f"nothing came for too long ({error})"
        return Broken("TimeoutError", waited, status)
    except HttpProcessingError as error:
        # Its own text begins with a status that the server never sent. The name is that of aiohttp's session.
        return Broken("ClientResponseError", one_line(f"no valid reply: {error.message}", MESSAGE_LENGTH), status)
    except (aiohttp.ClientError, OSError) as error:
        return Broken(type(error).__name__, one_line(str(error) or repr(error), MESSAGE_LENGTH), status)
    finally:
        if connection is not None:
            connection.close()  # Unless it was released.


async def _connected(session: aiohttp.ClientSession, target: Target) -> Connection:
    assert session.connector is not None
    try:
        return await session.connector.connect(target.request, [], session.timeout)
    except TimeoutError:
        seconds = session.timeout.sock_connect
        raise aiohttp.ConnectionTimeoutError(f"no connection to {target.url} within {seconds} s") from None


async def _asked(
    connection: Connection, target: Target, body: bytes, idle_timeout_s: float | None
) -> tuple[RawResponseMessage, aiohttp.StreamReader]:
    """The head of the reply to `body`, and what gives the rest of it."""
    if connection.closed:
        raise aiohttp.ClientConnectionResetError("the connection was lost before anything was sent")
    protocol = connection.protocol
    protocol.set_response_params(read_until_eof=True, read_timeout=idle_timeout_s)
    protocol.transport.writelines((target.head(body), body))
    protocol.start_timeout()
    message, content = await protocol.read()
    while 100 <= message.code < 200 and message.code != SWITCHING_PROTOCOLS:
        if not len(protocol):  # A note ends the time-out, and the reply is not there yet.
            protocol.start_timeout()
        message, content = await protocol.read()
    return message, content


async def _answer(message: RawResponseMessage, content: aiohttp.StreamReader, max_bytes: int) -> Answered | Broken:
    status, headers = message.code, message.headers
    if not 200 <= status < 300:
        return Answered(status, await _first(content, ERROR_BYTES), headers.get("Retry-After"))
    # Without the zeros in front: Python reads no number of many thousand digits.
    size = headers.get("Content-Length", "").lstrip("0")
    # Compressed, the length says nothing of what comes out.
    if not size or int(size) <= max_bytes or "Content-Encoding" in headers:
        body = await _first(content, max_bytes + 1)
        if len(body) <= max_bytes:
            return Answered(status, body)
        size = f"more than {max_bytes}"
    return Broken("ResponseTooLarge", f"the reply has {size} bytes, allowed are {max_bytes}", status)


async def _first(content: aiohttp.StreamReader, limit: int) -> bytes:
    """The body up to `limit` bytes."""
    parts, size = [], 0
    while size < limit and not content.at_eof():
        # Whatever reads more than one part at once puts a large body together several times.
        part, _ = await content.readchunk()
        parts.append(part)
        size += len(part)
    if size > limit:
        parts[-1] = parts[-1][: limit - size]
    return b"".join(parts)

"""Servers that answer with the bytes they are given, whatever these are."""

import asyncio
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def raw_server(reply):
    """A server that reads a request's head and then does `reply(writer)`."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await reply(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def says(*parts):
    """What writes these parts, and lets the other side read each before the next."""

    async def reply(writer):
        with suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
                for _ in range(5 if len(parts) > 1 else 0):  # Turns of the loop, however slow the machine is.
                    await asyncio.sleep(0.01)

    return reply

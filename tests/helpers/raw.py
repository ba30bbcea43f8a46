"""Servers that answer with the bytes they are given, whatever these are."""

import asyncio
from contextlib import asynccontextmanager


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


def says(data):
    async def reply(writer):
        writer.write(data)
        await writer.drain()

    return reply

"""The HTTP session to environment servers: how many connections it may have, and whether a server is well."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from rollmake.core.errors import InputError
from rollmake.edge.connector import CleanConnector, keepalive_socket

# Shorter than servers keep idle connections, so that a request rarely meets a connection that is just being closed.
KEEPALIVE_S = 4.0
SPARE_FILES = 64
PROBE_TIMEOUT_S = 10.0


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

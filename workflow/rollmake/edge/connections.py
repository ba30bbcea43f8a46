"""What the engine needs of the servers: their addresses, a gate for each, and a way to send to them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import aiohttp

from rollmake.core.backoff import backoff
from rollmake.core.errors import ServerError
from rollmake.core.outcome import Exchange
from rollmake.edge.engine import Send
from rollmake.edge.exchange import Target, exchange
from rollmake.edge.gate import Gate
from rollmake.edge.http import reachable

FIRST_S, CAP_S = 0.2, 10.0
T = TypeVar("T")
log = logging.getLogger(__name__)


async def patiently(
    ask: Callable[[], T],
    patience_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """What `ask`, which blocks, returns; while it raises ServerError it is asked again, for `patience_s` seconds.

    Raises ServerError, with the last reason, after that.
    """
    deadline = clock() + patience_s
    tries = 0
    while True:
        try:
            return await asyncio.to_thread(ask)
        except ServerError as error:
            if clock() >= deadline:
                waited = f"{error.found}; waited {patience_s:g} s for it"
                raise ServerError(waited, where=error.where, remedy=error.remedy) from None
            if tries == 0:
                log.warning("%s; waiting for it", error)
        await sleep(backoff(tries, FIRST_S, CAP_S, 0.5))
        tries += 1


def server_gates(session: aiohttp.ClientSession, urls: Mapping[str, str], patience_s: float) -> dict[str, Gate]:
    """A gate for each environment server of `urls`, which map names to addresses; close them at the end."""
    return {name: _gate(session, url, patience_s) for name, url in urls.items()}


def sender(session: aiohttp.ClientSession, urls: Mapping[str, str], *, timeout_s: float | None, max_bytes: int) -> Send:
    """Sends a body to `/run` of the server with a name, see `edge.exchange`."""
    targets = {name: Target(f"{url}/run") for name, url in urls.items()}

    def send(name: str, body: bytes) -> Awaitable[Exchange]:
        return exchange(session, targets[name], body, timeout_s=timeout_s, max_bytes=max_bytes)

    return send


def _gate(session: aiohttp.ClientSession, url: str, patience_s: float) -> Gate:
    async def probe() -> bool:
        return await reachable(session, url)

    return Gate(url, probe, patience_s=patience_s)

"""Ask an environment server for the metrics over its rollouts: POST /aggregate_metrics."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson

from rollmake.core.aggregate import refusal
from rollmake.core.backoff import backoff, retry_after_s
from rollmake.core.errors import ServerError
from rollmake.core.outcome import Answered, Exchange
from rollmake.edge.exchange import Target, exchange
from rollmake.edge.http import client

TRIES = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
CONNECT_TIMEOUT_S = 30.0
# Scoring may take long; of a million rollouts a reply has some hundred megabytes.
LIMITS: dict[str, Any] = {"timeout_s": None, "max_bytes": 1 << 33}
# What the server refuses for good: 4xx but for 429.
FINAL_STATUSES = frozenset(range(400, 500)) - {429}
Pause = Callable[[float], Awaitable[None]]
log = logging.getLogger(__name__)


async def server_metrics(server: str, url: str, items: Sequence[bytes], pause: Pause = asyncio.sleep) -> Any:
    """The decoded reply of the environment server `server` at `url` to `items`, each a record as JSON.

    What fails is tried three times, since asking again changes nothing; `pause` waits between the tries. Raises
    ServerError with the last status and an excerpt of its body.
    """
    body = b'{"verify_responses":[' + b",".join(items) + b"]}"
    tries = 0
    async with client(1, connect_timeout_s=CONNECT_TIMEOUT_S) as session:
        target = Target(f"{url}/aggregate_metrics")
        while True:
            found, tries = await exchange(session, target, body, **LIMITS), tries + 1
            if isinstance(found, Answered) and 200 <= found.status < 300:
                return decoded(server, url, found.body)
            if tries == TRIES or (isinstance(found, Answered) and found.status in FINAL_STATUSES):
                raise failed(server, url, found, items)
            log.warning("environment server %r at %s: try %d of %d failed", server, url, tries, TRIES)
            await pause(wait_s(found, tries))


def wait_s(found: Exchange, tries: int) -> float:
    """Seconds to wait after try number `tries`: what the server asks for, else a doubling time."""
    asked = retry_after_s(found.retry_after) if isinstance(found, Answered) else None
    return min(LONGEST_PAUSE_S, backoff(tries - 1, FIRST_PAUSE_S, LONGEST_PAUSE_S, 0.0) if asked is None else asked)


def decoded(server: str, url: str, body: bytes) -> Any:
    """The JSON in the body of a success."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        where = f"environment server {server!r} at {url}"
        raise ServerError(f"its reply is no JSON ({error})", where=where, remedy="See the server's log") from None


def failed(server: str, url: str, found: Exchange, items: Sequence[bytes]) -> ServerError:
    """The error that names what an exchange without a usable reply came to."""
    where = f"environment server {server!r} at {url}"
    if isinstance(found, Answered):
        message, remedy = refusal(found.status, found.body, map(orjson.loads, items))
        return ServerError(message, where=where, remedy=remedy)
    return ServerError(f"no reply ({found.kind}: {found.message})", where=where, remedy="Is the server running?")

"""Admission to one environment server: open, slowed down by a gateway status, or closed while the server is down."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from rollmake.core.backoff import backoff

log = logging.getLogger(__name__)
PROBE_FIRST_S, PROBE_CAP_S = 0.2, 15.0
Sleep = Callable[[float], Awaitable[None]]


class Gate:
    """`probe` says whether the server takes requests; `patience_s` bounds how long it may take none."""

    def __init__(
        self,
        url: str,
        probe: Callable[[], Awaitable[bool]],
        *,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        chance: random.Random | None = None,
    ) -> None:
        self.url, self.patience_s = url, patience_s
        self._probe, self._clock, self._sleep = probe, clock, sleep
        self._chance = chance or random.Random()
        self._open = asyncio.Event()
        self._open.set()
        self._not_before = 0.0
        self._down_since: float | None = None
        self._probing: asyncio.Task[None] | None = None
        self.gave_up: str | None = None

    async def admitted(self) -> bool:
        """Wait until a request may be sent; False if the server stayed down for longer than `patience_s`."""
        while True:
            await self._open.wait()
            if self.gave_up:
                return False
            delay = self._not_before - self._clock()
            if delay <= 0:
                return True
            await self._sleep(delay * self._chance.uniform(1.0, 1.5))

    def slow_down(self, seconds: float) -> None:
        """Send nothing for `seconds`: the gateway said that it cannot take more."""
        self._not_before = max(self._not_before, self._clock() + seconds)

    def answered(self) -> None:
        """The server gave a reply, whatever it says: it is up."""
        self._down_since = None

    def trip(self, cause: str) -> None:
        """A request did not reach the server: close, and probe until it takes requests again."""
        if not self._open.is_set() or self.gave_up:
            return
        if self._down_since is None:
            self._down_since = self._clock()
            log.warning("%s cannot be reached (%s); waiting for it, no attempt is spent", self.url, cause)
        self._open.clear()
        self._probing = asyncio.get_running_loop().create_task(self._reopen(cause))

    async def close(self) -> None:
        """Stop probing."""
        if self._probing:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)

    async def _reopen(self, cause: str) -> None:
        tries = 0
        since = self._down_since if self._down_since is not None else self._clock()
        while self._clock() - since < self.patience_s:
            await self._sleep(backoff(tries, PROBE_FIRST_S, PROBE_CAP_S, self._chance.random()))
            tries += 1
            if await self._probe():
                log.info("%s takes requests again", self.url)
                self._open.set()
                return
        self.gave_up = f"{self.url} could not be reached for {self.patience_s:g} s ({cause})"
        self._open.set()

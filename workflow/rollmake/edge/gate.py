"""Admission to one environment server: open, slowed down by a gateway status, or closed while the server is down."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any

from rollmake.core.backoff import backoff

log = logging.getLogger(__name__)
PROBE_FIRST_S, PROBE_CAP_S = 0.2, 15.0
# So many exchanges in a row that broke, with not one answer between them, mean that the server is down and not the rows;
# each time that turns out to be wrong, twice as many.
BROKEN_LIMIT = 8
# A request that is still in flight after so long shows that the server does more than take connections.
TRIAL_S = 5.0
# So many outages without an answer between them are waited for one by one; further ones count as the last of these.
OUTAGES = 5


class State(Enum):
    """Who is let in: everybody, one request on trial, or nobody."""

    OPEN = "open"
    READY = "ready for a trial"
    TRIAL = "trial"
    DOWN = "down"


class Gate:
    """`probe` says whether the server takes requests; `patience_s` bounds how long it may give no answer."""

    def __init__(
        self,
        url: str,
        probe: Callable[[], Awaitable[bool]],
        *,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: random.Random | None = None,
    ) -> None:
        self.url, self.patience_s = url, patience_s
        self._probe, self._clock, self._sleep = probe, clock, sleep
        self._chance = chance or random.Random()
        self._state = State.OPEN
        self._changed = asyncio.Event()
        self._changed.set()
        self._not_before = 0.0
        self._down_since: float | None = None
        self._outages = 0
        self._trusted = False
        self._tries = 0
        self._broken, self._limit = 0, BROKEN_LIMIT
        self._task: asyncio.Task[None] | None = None
        self.gave_up: str | None = None
        # Replies so far that say that the server is up.
        self.answers = 0

    @property
    def open(self) -> bool:
        """Whether a request may be sent without waiting."""
        return self._state is State.OPEN and self._not_before <= self._clock()

    @property
    def shut(self) -> bool:
        """Whether who comes now has to wait for the server."""
        return self._state in (State.DOWN, State.TRIAL)

    async def admitted(self) -> bool:
        """Wait until a request may be sent; False if the server gave no answer for longer than `patience_s`."""
        while True:
            await self._changed.wait()
            if self.gave_up:
                return False
            if (delay := self._not_before - self._clock()) > 0:
                await self._sleep(delay * self._chance.uniform(1.0, 1.5))
            elif self._state is State.OPEN:
                return True
            elif self._state is State.READY:
                self._enter(State.TRIAL, self._trust())
                return True

    def slow_down(self, seconds: float) -> None:
        """Send nothing for `seconds`: the gateway said that it cannot take more."""
        self._not_before = max(self._not_before, self._clock() + seconds)

    def answered(self) -> None:
        """The server gave a reply, whatever it says: it is up."""
        self.answers += 1
        self._limit = BROKEN_LIMIT
        self._well()

    def refused(self) -> None:
        """The server gave a reply, but one that says that nothing ran."""
        self._broken = 0
        if self._state is State.TRIAL:
            self._enter(State.OPEN)

    async def healthy(self) -> bool:
        """Whether the server says of itself that it takes requests."""
        return await self._probe()

    def broken(self, cause: str, *, again: bool) -> None:
        """A request may have reached the server, but no answer came: harmless, unless nothing else comes any more.

        `again` says that the rollout had been tried before. If such a one breaks after the server said that it is well,
        it is the rollout and not the server.
        """
        if again and self._down_since is not None and self._state in (State.OPEN, State.TRIAL):
            self._limit *= 2
            self._well()
            return
        self._broken += 1
        if self._broken >= self._limit:
            self.trip(cause)

    def _well(self) -> None:
        """There is no outage, or it is over."""
        self._down_since, self._trusted = None, False
        self._broken = self._tries = self._outages = 0
        if self._state is State.TRIAL:
            self._enter(State.OPEN)

    def trip(self, cause: str) -> None:
        """The server is down: let nobody in, and probe until it takes requests again."""
        if self._state in (State.DOWN, State.READY) or self.gave_up:
            return
        if self._trusted and self._outages < OUTAGES:
            self._down_since = None
        self._trusted = False
        if self._down_since is None:
            self._outages += 1
            self._down_since = self._clock()
            log.warning("%s does not answer (%s); nothing is sent until it does", self.url, cause)
        self._enter(State.DOWN, self._reopen(cause, self._down_since))

    async def close(self) -> None:
        """Stop probing."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _enter(self, state: State, then: Coroutine[Any, Any, None] | None = None) -> None:
        self._state = state
        if state in (State.OPEN, State.READY):
            self._changed.set()
        else:
            self._changed.clear()
        if self._task and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(then) if then else None

    async def _trust(self) -> None:
        await self._sleep(TRIAL_S)
        self._trusted = True
        self._enter(State.OPEN)

    async def _reopen(self, cause: str, since: float) -> None:
        while self._clock() - since < self.patience_s:
            await self._sleep(backoff(self._tries, PROBE_FIRST_S, PROBE_CAP_S, self._chance.random()))
            self._tries += 1
            if await self._probe():
                log.info("%s takes requests again", self.url)
                self._enter(State.READY)
                return
        self.gave_up = f"{self.url} did not answer for {self.patience_s:g} s ({cause})"
        self._changed.set()

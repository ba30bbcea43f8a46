"""The engine: workers take requests lazily and send each once an attempt, through the gate of its server.

It acts asynchronously (gates, HTTP) and decides nothing about rollouts: what to ask for and what becomes of an answer is
the business of its `Work`, a shard with its journal or the rows of a library call.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from rollmake.core.backoff import backoff, retry_after_s
from rollmake.core.contract import ATTEMPT
from rollmake.core.deadline import Deadline
from rollmake.core.errors import InputError
from rollmake.core.excerpts import one_line
from rollmake.core.outcome import GATEWAY_STATUSES, Answered, Broken, Exchange, NeverSent
from rollmake.core.tally import Tally
from rollmake.edge.gate import Gate

log = logging.getLogger(__name__)
GATEWAY_FIRST_S, GATEWAY_CAP_S = 1.0, 60.0
# With these a reply that was cut does not come from the environment server.
SAYS_NOTHING = GATEWAY_STATUSES | {None}
RETRY_AFTER_CAP_S = 600.0
SAID_LENGTH = 300
# Kinds of failures that are told apart.
MOST_KINDS = 100
# Seconds between two looks at the budget while requests wait for a server.
WATCH_S = 1.0
# So many workers start together, the next ones so much later (s).
RAMP, RAMP_S = 256, 0.05
NONE: Set[str] = frozenset()

Send = Callable[[str, bytes], Awaitable[Exchange]]


class Request(msgspec.Struct, frozen=True, gc=False):
    """One attempt: its place in the work, the row as it is dispatched, the name of the server, and what is sent."""

    position: int
    row: Mapping[str, Any]
    server: str
    body: bytes


class Notices:
    """Logs the first failure of each kind at once, and in the end how often it came."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def note(self, kind: str, cause: str, url: str, consequence: str, body: bytes = b"") -> None:
        """Log `cause` with the beginning of what the server said, unless one of its kind was logged for this server."""
        if (kind, url) not in self._counts and len(self._counts) >= MOST_KINDS:
            return
        self._counts[kind, url] += 1
        if self._counts[kind, url] == 1:
            said = one_line(body[: 4 * SAID_LENGTH].decode("utf-8", "replace"), SAID_LENGTH)
            log.warning(
                "%s from %s: %s%s", one_line(cause, SAID_LENGTH), url, consequence, f"; it said: {said}" if said else ""
            )

    def sum_up(self) -> None:
        """Log how often each kind came that came again."""
        for (kind, url), count in self._counts.items():
            if count > 1:
                log.warning("%s from %s: %d times in all", kind, url, count)


class Work(Protocol):
    """What there is to ask for, in passes, and what becomes of the answers."""

    notices: Notices

    def start_pass(self, lost: set[str]) -> int:
        """How many requests may be in flight in the next pass, 0 if there is nothing more to ask.

        `lost` are the names of servers that gave no answer for too long.
        """

    async def take(self, shut: Set[str]) -> Request | None:
        """The next request of the pass, None at its end. One for the servers `shut` would have to wait, others would not."""

    async def settle(self, request: Request, answer: Answered | Broken, url: str, latency_s: float) -> str | None:
        """Take in what came back; returns why nothing more is to be started, if that is so."""

    def unsent(self, request: Request, lost: str | None) -> str | None:
        """Take back a request that was not answered: its server gave no answer for too long, as `lost` says, or nothing
        is started any more. Returns why the others are not to be started either, if that is so."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine goes about it; none of it changes a result."""

    num_samples_in_parallel: int
    gateway_retries: int
    grace_s: float


class Engine:
    """Asks for what its work has to ask for, until that is done or stopped, or nothing more can be asked."""

    def __init__(
        self,
        work: Work,
        tally: Tally,
        gates: Mapping[str, Gate],
        send: Send,
        limits: Limits,
        deadline: Deadline,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work, self._tally, self._gates, self._send = work, tally, gates, send
        self._limits, self._deadline, self._clock = limits, deadline, clock
        self._chance = random.Random()
        # Set when nothing new is started, and when what is in flight is to end soon.
        self._over, self._stop = asyncio.Event(), asyncio.Event()
        self.stopped_by: str | None = None

    def stop(self, reason: str) -> None:
        """Start nothing new; what is in flight may still end within `grace_s`."""
        if self.stopped_by is None:
            self.stopped_by = reason
            log.warning("%s: nothing new is started, %d in flight may still end", reason, self._tally.in_flight)
        self._over.set()
        self._stop.set()

    async def run(self) -> None:
        """Passes over what is owed until nothing is, or nothing more can be asked by this job."""
        watch = asyncio.create_task(self._watch())
        try:
            while not self._drained():
                count = self._work.start_pass({name for name, gate in self._gates.items() if gate.gave_up})
                if count == 0:
                    return
                await self._pass(min(self._limits.num_samples_in_parallel, count))
        finally:
            await _ended(watch)
            self._work.notices.sum_up()

    async def _watch(self) -> None:
        """Call back those who wait for a server when the budget is spent."""
        while not self._drained():
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_S):
                    await self._over.wait()

    async def _pass(self, count: int) -> None:
        workers = [asyncio.create_task(self._worker(number)) for number in range(count)]
        # One future for all of them: waiting for thousands of tasks anew each time one ends would cost more than the work.
        everything = asyncio.gather(*workers)
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({everything, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not everything.done():
                await asyncio.wait({everything}, timeout=self._limits.grace_s)
            if everything.done():
                everything.result()
        finally:
            await _ended(everything, *workers, stop)

    async def _worker(self, number: int) -> None:
        # Not all connect at once: a server's queue of connections is finite.
        if number >= RAMP:
            await asyncio.sleep(number // RAMP * RAMP_S)
        while not self._drained():
            request = await self._work.take(self._shut())
            if request is None:
                return
            await self._attempt(request)

    def _shut(self) -> Set[str]:
        """The servers that are waited for, while others are not."""
        if len(self._gates) == 1:
            return NONE
        shut = frozenset(name for name, gate in self._gates.items() if gate.shut)
        return shut if len(shut) < len(self._gates) else NONE

    def _drained(self) -> bool:
        """Whether nothing new is to be started; when the budget ends, what is in flight may end however long it takes."""
        if self.stopped_by is None and not self._deadline.admits(self._clock()):
            self.stopped_by = "the time to start rollouts (dispatch_budget_s) is over"
            log.warning("%s: %d in flight may still end", self.stopped_by, self._tally.in_flight)
            self._over.set()
        return self.stopped_by is not None

    async def _admitted(self, gate: Gate) -> bool:
        """Wait until the gate lets a request in; False if it does not, or if nothing is started any more."""
        entry, over = asyncio.ensure_future(gate.admitted()), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({entry, over}, return_when=asyncio.FIRST_COMPLETED)
            return entry.done() and entry.result()
        finally:
            await _ended(entry, over)

    async def _attempt(self, request: Request) -> None:
        gate = self._gates[request.server]
        tries, answers = 0, gate.answers
        while (gate.open or await self._admitted(gate)) and not self._drained():
            answer, latency_s = await self._exchange(request)
            if isinstance(answer, NeverSent):
                gate.trip(f"{answer.kind}: {answer.message}")
                continue
            if isinstance(answer, Broken) and answer.status in SAYS_NOTHING:
                gate.broken(f"{answer.kind}: {answer.message}", again=ATTEMPT in request.row)
            elif isinstance(answer, Broken) or answer.status not in GATEWAY_STATUSES:
                gate.answered()
            elif tries < self._limits.gateway_retries:
                gate.refused()
                gate.slow_down(self._gateway_delay(answer, tries))
                self._note(answer, gate, "it is sent again after a while")
                tries += 1
                continue
            elif gate.answers == answers and not await gate.healthy():
                self._note(answer, gate, "it is waited for")
                gate.trip(f"status {answer.status}, and it does not say that it is healthy")
                tries = 0
                continue
            else:
                gate.refused()
            self._deadline.note(latency_s)
            self._end(await self._work.settle(request, answer, gate.url, latency_s))
            return
        self._end(self._work.unsent(request, gate.gave_up))

    def _note(self, answer: Answered, gate: Gate, consequence: str) -> None:
        status = f"status {answer.status}"
        self._work.notices.note(f"{status}, waited out", status, gate.url, consequence, answer.body)

    def _end(self, refusal: str | None) -> None:
        if refusal:
            self.stop(refusal)

    async def _exchange(self, request: Request) -> tuple[Exchange, float]:
        started = self._clock()
        self._tally.in_flight += 1
        try:
            answer = await self._send(request.server, request.body)
        finally:
            self._tally.in_flight -= 1
        self._tally.requests += not isinstance(answer, NeverSent)
        return answer, self._clock() - started

    def _gateway_delay(self, answer: Answered, tries: int) -> float:
        asked = retry_after_s(answer.retry_after)
        if asked is not None:
            return min(asked, RETRY_AFTER_CAP_S)
        return backoff(tries, GATEWAY_FIRST_S, GATEWAY_CAP_S, self._chance.random())


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks, and wait until nothing of them is left."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def unknown_servers(needed: set[str], known: Mapping[str, str]) -> None:
    """Raise InputError if the plan names environment servers that have no address now."""
    missing = sorted(needed - known.keys())
    if missing:
        raise InputError(
            f"no address is known of the environment server{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            where="environment",
            remedy=f"Known now: {', '.join(sorted(known)) or 'none'}. Start it, or run the stages environment and "
            "materialize again if it was renamed",
        )

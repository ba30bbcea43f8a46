"""The engine: workers pull rollouts lazily, send each once an attempt, and journal what comes back.

It decides synchronously (ledger, outcome) and acts asynchronously (gates, HTTP). One engine serves one shard.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
import numpy as np
import orjson

from rollmake.core import contract as c
from rollmake.core.backoff import backoff, retry_after_s
from rollmake.core.deadline import Deadline
from rollmake.core.episodes import episode_request, taskset_of
from rollmake.core.errors import InputError
from rollmake.core.ledger import Ledger
from rollmake.core.outcome import GATEWAY_STATUSES, Answered, Broken, Destination, Exchange, NeverSent, Outcome, outcome
from rollmake.core.tally import Tally
from rollmake.edge.gate import Gate
from rollmake.edge.journal import DiskFullError

log = logging.getLogger(__name__)
GATEWAY_FIRST_S, GATEWAY_CAP_S = 1.0, 60.0
RETRY_AFTER_CAP_S = 600.0
DISK_FIRST_S, DISK_CAP_S = 0.5, 10.0

Send = Callable[[str, bytes], Awaitable[Exchange]]


class Store(Protocol):
    """Where records go: the journal."""

    def append(self, destination: Destination, line: bytes) -> None:
        """Keep one line; raises DiskFullError."""


class Rows(Protocol):
    """The shard's rows, read when they are needed."""

    def line(self, position: int) -> bytes:
        """The materialized row at a position, as it is sent."""

    def server(self, position: int) -> str:
        """The name of the environment server that answers it."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine goes about it; none of it changes a result."""

    num_samples_in_parallel: int
    gateway_retries: int
    grace_s: float
    route_failures_to_sidecar: bool


class Engine:
    """Brings the ledger of a shard forward until it is settled, stopped, or nothing more can be asked."""

    def __init__(
        self,
        rows: Rows,
        ledger: Ledger,
        tally: Tally,
        store: Store,
        gates: Mapping[str, Gate],
        send: Send,
        limits: Limits,
        deadline: Deadline,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows, self._ledger, self._tally, self._store = rows, ledger, tally, store
        self._gates, self._send, self._limits, self._clock = gates, send, limits, clock
        self._deadline = deadline
        self._chance = random.Random()
        self._stop = asyncio.Event()
        self._seen: set[tuple[str, str]] = set()
        self.stopped_by: str | None = None
        self.refused: str | None = None

    def stop(self, reason: str) -> None:
        """Start nothing new; what is in flight may still end within `grace_s`."""
        if self.stopped_by is None:
            self.stopped_by = reason
            log.warning("%s: nothing new is started, %d in flight may still end", reason, self._tally.in_flight)
        self._stop.set()

    async def run(self) -> None:
        """Passes over what is owed until nothing is, or nothing more can be asked by this job."""
        while not self._stop.is_set() and not self._drained():
            todo = self._ledger.to_dispatch()
            if any(gate.gave_up for gate in self._gates.values()):
                todo = todo[[not self._gates[self._rows.server(p)].gave_up for p in todo.tolist()]]
            if len(todo) == 0:
                return
            await self._pass(todo)

    async def _pass(self, todo: np.ndarray) -> None:
        positions = iter(todo.tolist())
        count = min(self._limits.num_samples_in_parallel, len(todo))
        workers = {asyncio.create_task(self._work(positions)) for _ in range(count)}
        stop = asyncio.create_task(self._stop.wait())
        try:
            pending: set[asyncio.Task[Any]] = set(workers)
            while pending and not self._stop.is_set():
                done, _ = await asyncio.wait({*pending, stop}, return_when=asyncio.FIRST_COMPLETED)
                for task in done - {stop}:
                    task.result()
                pending -= done
            if pending:
                done, pending = await asyncio.wait(pending, timeout=self._limits.grace_s)
                for task in done:
                    task.result()
        finally:
            for task in (*workers, stop):
                task.cancel()
            await asyncio.gather(*workers, stop, return_exceptions=True)

    async def _work(self, positions: Iterator[int]) -> None:
        for position in positions:
            if self._stop.is_set() or self._drained():
                return
            await self._attempt(position)

    def _drained(self) -> bool:
        """Whether the time to start rollouts is over; what is in flight then may end, however long it takes."""
        if self.stopped_by is None and not self._deadline.admits(self._clock()):
            self.stopped_by = "the time to start rollouts (dispatch_budget_s) is over"
            log.warning("%s: %d in flight may still end", self.stopped_by, self._tally.in_flight)
        return self.stopped_by is not None

    async def _attempt(self, position: int) -> None:
        row, body = request(self._rows.line(position), self._ledger, position)
        name = self._rows.server(position)
        gate = self._gates[name]
        tries = 0
        while await gate.admitted() and not self._stop.is_set() and not self._drained():
            answer, latency_s = await self._exchange(name, body)
            if isinstance(answer, NeverSent):
                gate.trip(f"{answer.kind}: {answer.message}")
                continue
            if isinstance(answer, Broken):
                gate.broken(f"{answer.kind}: {answer.message}")
            else:
                gate.answered()
                if answer.status in GATEWAY_STATUSES and tries < self._limits.gateway_retries:
                    gate.slow_down(self._gateway_delay(answer, tries))
                    self._note(f"status {answer.status}", gate.url, "it is sent again after a while")
                    tries += 1
                    continue
            await self._settle(position, row, gate.url, answer, latency_s)
            return

    async def _exchange(self, name: str, body: bytes) -> tuple[Exchange, float]:
        started = self._clock()
        self._tally.in_flight += 1
        try:
            answer = await self._send(name, body)
        finally:
            self._tally.in_flight -= 1
        self._tally.requests += not isinstance(answer, NeverSent)
        return answer, self._clock() - started

    async def _settle(
        self, position: int, row: Mapping[str, Any], url: str, answer: Answered | Broken, latency_s: float
    ) -> None:
        result = outcome(answer, row)
        if result.infrastructure:
            cause = answer.message if isinstance(answer, Broken) else f"status {answer.status}"
            self._note(cause, url, f"class {result.failure_class}")
            if not self._limits.route_failures_to_sidecar:
                self.refused = self.refused or f"task {row[c.TASK]}, rollout {row[c.ROLLOUT]}: {cause} from {url}"
                self.stop("a rollout failed, and route_failures_to_sidecar is off")
                return
        if result.destination is not Destination.NOWHERE:
            await self._keep(result)
        self._ledger.record(position, result)
        self._tally.add(result, latency_s)
        self._deadline.note(latency_s)

    async def _keep(self, result: Outcome) -> None:
        """Journal a record; on a full disk hold on to it, and to this worker, until there is room again."""
        tries = 0
        while True:
            try:
                self._store.append(result.destination, result.line)
                return
            except DiskFullError as error:
                if tries == 0:
                    log.error("the disk of %s is full; holding on to what was answered until there is room", error)
                await asyncio.sleep(backoff(tries, DISK_FIRST_S, DISK_CAP_S, self._chance.random()))
                tries += 1

    def _gateway_delay(self, answer: Answered, tries: int) -> float:
        asked = retry_after_s(answer.retry_after)
        if asked is not None:
            return min(asked, RETRY_AFTER_CAP_S)
        return backoff(tries, GATEWAY_FIRST_S, GATEWAY_CAP_S, self._chance.random())

    def _note(self, cause: str, url: str, consequence: str) -> None:
        """Log the first failure of each kind at once; the tally counts the rest."""
        if (cause, url) not in self._seen and len(self._seen) < 100:
            self._seen.add((cause, url))
            log.warning("%s from %s: %s", cause, url, consequence)


def request(line: bytes, ledger: Ledger, position: int) -> tuple[dict[str, Any], bytes]:
    """The row as it is dispatched, and the body to send; the first attempt at a flat row sends the bytes of the plan."""
    row = orjson.loads(line)
    extra: dict[str, Any] = {}
    if attempts := int(ledger.attempts[position]):
        extra[c.ATTEMPT] = attempts
    if ledger.reuse[position]:
        extra[c.REUSE] = True
    row |= extra
    if taskset_of(row) is not None:
        return row, orjson.dumps(episode_request(row))
    return row, orjson.dumps(row) if extra else line


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

"""The work of a shard: its ledger says what to ask for, and what comes back is journalled before it counts."""

import asyncio
import logging
import random
from array import array
from collections.abc import Iterator, Set
from contextlib import suppress
from typing import Any, Protocol

import orjson

from rollmake.core import contract as c
from rollmake.core.backoff import backoff
from rollmake.core.episodes import episode_request, taskset_of
from rollmake.core.errors import DataError
from rollmake.core.excerpts import one_line
from rollmake.core.ledger import Ledger
from rollmake.core.outcome import Answered, Broken, Destination, Outcome, outcome
from rollmake.core.tally import Tally
from rollmake.edge.engine import Notices, Request
from rollmake.edge.journal import DiskFullError
from rollmake.edge.plan import REMEDY

log = logging.getLogger(__name__)
DISK_FIRST_S, DISK_CAP_S = 0.5, 10.0


class Store(Protocol):
    """Where records go: the journal."""

    def append(self, destination: Destination, *parts: bytes | memoryview) -> None:
        """Keep one line, given in parts; raises DiskFullError."""


class Rows(Protocol):
    """The shard's rows, read when they are needed."""

    def line(self, position: int) -> bytes:
        """The materialized row at a position, as it is sent."""

    def server(self, position: int) -> str:
        """The name of the environment server that answers it."""


class ShardWork:
    """Brings the ledger of a shard forward, see `engine.Work`.

    Without `route_failures_to_sidecar` the first infrastructure failure is not kept but named by `refused`, and ends it.
    """

    def __init__(
        self, rows: Rows, ledger: Ledger, tally: Tally, store: Store, *, route_failures_to_sidecar: bool
    ) -> None:
        self._rows, self._ledger, self._tally, self._store = rows, ledger, tally, store
        self._routes_failures = route_failures_to_sidecar
        self._positions: Iterator[int] = iter(())
        # Rows that are left for the end of the pass, since their server is waited for; None then.
        self._later: array[int] | None = None
        self._chance = random.Random()
        self.notices = Notices()
        self.refused: str | None = None

    def start_pass(self, lost: set[str]) -> int:
        """Go over everything that is owed and whose server is not lost; returns how much that is."""
        todo = self._ledger.to_dispatch()
        if lost:
            todo = todo[[self._rows.server(position) not in lost for position in todo]]
        self._positions, self._later = map(int, todo), array("q")
        return len(todo)

    async def take(self, shut: Set[str]) -> Request | None:
        """The next row of the pass as its next attempt is sent, None at its end; those of servers `shut` come last."""
        position = self._next(shut)
        if position is None:
            return None
        row, body = request(self._rows.line(position), self._ledger, position)
        return Request(position, row, self._rows.server(position), body)

    def _next(self, shut: Set[str]) -> int | None:
        for position in self._positions:
            if self._later is None or not shut or self._rows.server(position) not in shut:
                return position
            self._later.append(position)
        if not self._later:
            return None
        self._positions, self._later = iter(self._later), None
        return next(self._positions)

    def unsent(self, request: Request, lost: str | None) -> str | None:
        """It is owed as before, and the others are none the worse for it."""
        return None

    async def settle(self, request: Request, answer: Answered | Broken, url: str, latency_s: float) -> str | None:
        """Journal the record, then count it; returns why the shard ends here, if it does."""
        result = outcome(answer, request.row)
        if result.failed is not None:
            failed = result.failed
            body = answer.body if isinstance(answer, Answered) else b""
            self.notices.note(failed.cause, failed.text, url, f"class {failed.failure_class}", body)
            if not self._routes_failures:
                task, rollout = request.row[c.TASK], request.row[c.ROLLOUT]
                self.refused = self.refused or f"task {task}, rollout {rollout}: {failed.text} from {url}"
                return "a rollout failed, and route_failures_to_sidecar is off"
        if result.destination is not Destination.NOWHERE:
            try:
                self._store.append(result.destination, *result.parts)
            except DiskFullError as error:
                log.error("the disk of %s is full; holding on to what was answered until there is room", error)
                await self._keep(result)
        self._ledger.record(request.position, result)
        self._tally.add(result, latency_s)
        return None

    async def _keep(self, result: Outcome) -> None:
        """Hold on to a record, and to this worker, until the disk has room for it."""
        tries = 0
        while True:
            await asyncio.sleep(backoff(tries, DISK_FIRST_S, DISK_CAP_S, self._chance.random()))
            tries += 1
            with suppress(DiskFullError):
                self._store.append(result.destination, *result.parts)
                return


def request(line: bytes, ledger: Ledger, position: int) -> tuple[dict[str, Any], bytes]:
    """The row as it is dispatched, and the body to send; the first attempt at a flat row sends the bytes of the plan.

    Raises DataError if the line is no row.
    """
    row = _materialized(line)
    extra: dict[str, Any] = {}
    if attempts := int(ledger.attempts[position]):
        extra[c.ATTEMPT] = attempts
    if ledger.reuse[position]:
        extra[c.REUSE] = True
    row |= extra
    if taskset_of(row) is not None:
        return row, orjson.dumps(episode_request(row))
    return row, orjson.dumps(row) if extra else line


def _materialized(line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        row = None
    if not isinstance(row, dict) or c.TASK not in row or c.ROLLOUT not in row:
        found = f"this is no row with indices, where its plan has one: {one_line(line.decode(errors='replace'), 80)}"
        raise DataError(found, where=c.MATERIALIZED_NAME, remedy=REMEDY)
    return row

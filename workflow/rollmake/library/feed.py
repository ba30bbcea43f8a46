"""The work of a library call: rows are pulled when there is room for them, rollouts handed over as they come."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Set
from typing import Any

from rollmake.core import contract as c
from rollmake.core.errors import InputError, raise_all
from rollmake.core.outcome import Answered, Broken, Failed, reading
from rollmake.edge.engine import NONE, Notices, Request
from rollmake.library.addressing import Addressing, place, problems_in
from rollmake.library.types import Rollout, RolloutError

Rows = Iterable[dict[str, Any]] | AsyncIterable[dict[str, Any]]
FAILED = "a rollout failed, and route_failures_to_sidecar is off"
NOT_SENT = "not sent: the time to start rollouts (dispatch_budget_s) is over"
_END: Any = object()


class Channel:
    """Rollouts on their way to the caller; places are reserved before a row is pulled, and free once it is taken."""

    def __init__(self, places: int) -> None:
        self._free = asyncio.Semaphore(places)
        self._items: asyncio.Queue[Rollout | RolloutError | None] = asyncio.Queue()

    async def reserve(self) -> None:
        """Wait until a place is free."""
        await self._free.acquire()

    def put(self, item: Rollout | RolloutError | None) -> None:
        """Hand over what became of a row that has a place; None is the end."""
        self._items.put_nowait(item)

    async def take(self) -> Rollout | RolloutError | None:
        """The next in the order of `put`."""
        item = await self._items.get()
        self._free.release()
        return item


class Feed:
    """Turns rows into requests and answers into rollouts, see `engine.Work`.

    Without `route_failures_to_sidecar` a failure is an error in the channel, behind which nothing is looked at, and
    `failed` is set.
    """

    def __init__(
        self, rows: Rows, addressing: Addressing, channel: Channel, *, parallel: int, route_failures_to_sidecar: bool
    ) -> None:
        self._pull, self._addressing, self._channel = _puller(rows), addressing, channel
        self._parallel = parallel
        self._routes_failures = route_failures_to_sidecar
        self._turn = asyncio.Lock()
        self._pulled = 0
        self._ended = False
        self.notices = Notices()
        self.failed = False

    def start_pass(self, lost: set[str]) -> int:
        """There is one pass, over all rows; those of lost servers come back as failures."""
        parallel, self._parallel = self._parallel, 0
        return parallel

    async def take(self, shut: Set[str] = NONE) -> Request | None:
        """The next row, in the order given, once there is room for it. Raises InputError for one that cannot be sent."""
        async with self._turn:
            if self._ended:
                return None
            await self._channel.reserve()
            position, row = self._pulled, await self._pull()
            self._pulled += 1
            if row is _END:
                self._ended = True
                return None
            try:
                return self._addressing.request(position, row)
            except InputError as error:
                raise_all([InputError(e.found, where=place(position), remedy=e.remedy) for e in problems_in(error)])

    async def settle(self, request: Request, answer: Answered | Broken, url: str, latency_s: float) -> str | None:
        """Hand over the reply, or what failed."""
        found = reading(answer, request.row)
        if isinstance(found, Failed):
            return self._fail(request, found, url, latency_s)
        record = found.record
        if found.episode:
            # An episode's record names its task, which the row beside it does here.
            del record[c.TASK_ID]
        self._channel.put(Rollout(request.row, record, request.server, latency_s))
        return None

    def unsent(self, request: Request, lost: str | None) -> str | None:
        """Hand over a failure if the server is lost, else the drained row."""
        if lost is not None:
            return self._fail(request, Failed("ServerError", lost), request.server, None)
        self._channel.put(_drained(request))
        return None

    async def drain(self) -> None:
        """Hand over all rows that are left as drained."""
        while (request := await self.take()) is not None:
            self._channel.put(_drained(request))

    def _fail(self, request: Request, failed: Failed, url: str, latency_s: float | None) -> str | None:
        self.notices.note(failed.cause, failed.text, url, f"class {failed.failure_class}")
        if self._routes_failures:
            self._channel.put(Rollout(request.row, failed.fields, request.server, latency_s))
            return None
        self.failed = True
        where = place(request.position, request.row)
        self._channel.put(RolloutError(request.row, failed, where=where, url=url))
        return FAILED


async def handed_over(channel: Channel, produce: Callable[[], Awaitable[None]]) -> AsyncGenerator[Rollout, None]:
    """The rollouts that `produce` puts into the channel, from its start to its end or to the first error.

    However it is left, `produce` has ended then.
    """
    producer = asyncio.ensure_future(produce())
    producer.add_done_callback(lambda _: channel.put(None))
    try:
        while (item := await channel.take()) is not None:
            if isinstance(item, RolloutError):
                raise item
            yield item
        producer.result()
    finally:
        producer.cancel()
        await asyncio.gather(producer, return_exceptions=True)


def _puller(rows: Rows) -> Callable[[], Awaitable[Any]]:
    """The next row each time it is called, then `_END`."""
    if isinstance(rows, AsyncIterable):
        others = aiter(rows)

        async def pull() -> Any:
            return await anext(others, _END)
    else:
        plain = iter(rows)

        async def pull() -> Any:
            return next(plain, _END)

    return pull


def _drained(request: Request) -> Rollout:
    """The result of a row that the budget left no time for (NeMo Gym contract 3.3)."""
    result = {c.FAILURE_CLASS: "cancelled", c.NO_PERSIST: True, c.DRAINED: True, "error_message": NOT_SENT}
    return Rollout(request.row, result, request.server, None)

"""Rows that a caller holds -> rollouts, asked for while he takes them."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sized
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from rollmake.core.config import problems, stage_options
from rollmake.core.deadline import Deadline
from rollmake.core.errors import InputError, raise_all
from rollmake.core.router import unchecked_pairings
from rollmake.core.tally import Tally
from rollmake.core.topology import Topology
from rollmake.edge import http
from rollmake.edge.connections import patiently, sender, server_gates
from rollmake.edge.engine import Engine, Limits, Send
from rollmake.edge.gate import Gate
from rollmake.edge.servers import environment_servers
from rollmake.edge.settings import as_text, environment_mapping, schema
from rollmake.edge.topology import load_topology
from rollmake.library.addressing import Addressing
from rollmake.library.examples import given_topology
from rollmake.library.feed import Channel, Feed, Rows, handed_over
from rollmake.library.types import Rollout

STAGES = ("materialize", "collect")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the config that the library has too."""

    num_samples_in_parallel: int
    max_resident_rollout_tasks: int | None
    dispatch_budget_s: float | None
    drain_margin_s: float | None
    route_failures_to_sidecar: bool
    allow_unsupported_pairing: bool
    connect_timeout_s: float
    rollout_timeout_s: float | None
    idle_timeout_s: float | None
    max_response_bytes: int
    gateway_retries: int
    outage_patience_s: float

    @property
    def resident(self) -> int:
        """Rows that may be pulled and not yet yielded: by default as many as are in flight, and as many answered ones."""
        return self.max_resident_rollout_tasks or 2 * self.num_samples_in_parallel

    @property
    def connections(self) -> int:
        """Requests that may be in flight."""
        return min(self.num_samples_in_parallel, self.resident)

    @property
    def limits(self) -> Limits:
        """What the engine needs of it. Nobody is left to take what would end after a stop."""
        return Limits(num_samples_in_parallel=self.connections, gateway_retries=self.gateway_retries, grace_s=0.0)


class Source(msgspec.Struct, frozen=True):
    """Where the environment servers are: the config's `environment`, or a topology that was given as it is."""

    environment: dict[str, Any]
    topology: Topology | None = None

    def ask(self, head: str | None) -> Topology:
        """The topology now. Raises InputError and ServerError."""
        return self.topology or load_topology(self.environment, head)


def run_examples(
    rows: Rows,
    *,
    head_server: str | None = None,
    topology: Mapping[str, Any] | str | Path | None = None,
    environment: Mapping[str, Any] | None = None,
    num_samples_in_parallel: int = 64,
    max_resident_rollout_tasks: int | None = None,
    dispatch_budget_s: float | None = None,
    drain_margin_s: float | None = None,
    route_failures_to_sidecar: bool = False,
    allow_unsupported_pairing: bool = False,
    connect_timeout_s: float = 30.0,
    rollout_timeout_s: float | None = None,
    idle_timeout_s: float | None = None,
    max_response_bytes: int = 1 << 30,
    gateway_retries: int = 5,
    outage_patience_s: float = 600.0,
) -> AsyncGenerator[Rollout, None]:
    """Ask for the rollouts of `rows`, each once, and yield `(row, result)` in the order in which they end.

    Nothing is sent before the first result is asked for. Rows are sent as they are and in their order; a list is checked
    in whole before, an iterator or asynchronous iterator is pulled when there is room and checked row by row. The servers
    are named by one of `head_server` (its address), `topology` (a mapping, or the path of a YAML file) and `environment`
    (as in the config; `embedded` and `serve` are started and stopped). The options mean what they do in the config; times
    are in seconds. What never reached a server is sent again, what may have reached it is not.

    A row that ran comes with the reply as the server gave it (of an episode: its `result`); one that the server itself
    calls failed or not to be stored has its `_ng_failure_class` or `_ng_no_persist` in there. A row for which
    `dispatch_budget_s` left no time comes with class `cancelled` (NeMo Gym contract 2.2, 3.3). At the first row without a
    usable result RolloutError is raised once those answered before are yielded; with `route_failures_to_sidecar` such a
    row comes with the fields of a failure instead.

    Raises InputError at once for options, and at the first result for rows; ServerError if the servers cannot be found.
    However the iteration ends, no request and no task is left; to be sure when, use `contextlib.aclosing`.
    """
    settings = Settings(
        num_samples_in_parallel=num_samples_in_parallel,
        max_resident_rollout_tasks=max_resident_rollout_tasks,
        dispatch_budget_s=dispatch_budget_s,
        drain_margin_s=drain_margin_s,
        route_failures_to_sidecar=route_failures_to_sidecar,
        allow_unsupported_pairing=unchecked_pairings(allow_unsupported_pairing, os.environ),
        connect_timeout_s=connect_timeout_s,
        rollout_timeout_s=rollout_timeout_s,
        idle_timeout_s=idle_timeout_s,
        max_response_bytes=max_response_bytes,
        gateway_retries=gateway_retries,
        outage_patience_s=outage_patience_s,
    )
    check_settings(settings)
    source = source_of(head_server=head_server, topology=topology, environment=environment)
    channel = Channel(settings.resident)
    return handed_over(channel, lambda: _produce(rows, source, settings, channel))


def check_settings(settings: Settings) -> None:
    """Raise InputError with every option whose value the config would refuse, or that has no meaning here."""
    known = {name: option for stage in STAGES for name, option in stage_options(schema("config"), stage).items()}
    given = msgspec.structs.asdict(settings)
    found = [p for name in given for p in problems(given[name], known[name], root=schema("config"), where=name)]
    if settings.dispatch_budget_s == "auto":
        remedy = "Give seconds, or None"
        found.append(
            InputError("there is no job whose time limit it could be", where="dispatch_budget_s", remedy=remedy)
        )
    raise_all(found)


def source_of(
    *,
    head_server: str | None,
    topology: Mapping[str, Any] | str | Path | None,
    environment: Mapping[str, Any] | None,
) -> Source:
    """The one of the three that is given. Raises InputError unless it is one, and as the config has it."""
    ways = {"head_server": head_server, "topology": topology, "environment": environment}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        found = f"exactly one of {', '.join(ways)} is needed, not {' and '.join(given) or 'none'}"
        raise InputError(found, where="run_examples", remedy="Say where the environment servers are")
    if topology is not None:
        return Source({}, given_topology(topology))
    return Source(environment_mapping(as_text(environment or {"head_server": head_server})))


async def _produce(rows: Rows, source: Source, settings: Settings, channel: Channel) -> None:
    async with _servers(source.environment) as head:
        topology = await patiently(lambda: source.ask(head), settings.outage_patience_s)
        addressing = Addressing(topology, allow_unsupported_pairing=settings.allow_unsupported_pairing)
        parallel, routing = settings.connections, settings.route_failures_to_sidecar
        if isinstance(rows, Sized) and not isinstance(rows, Iterator):
            addressing.check(rows)
            parallel = min(parallel, len(rows))
        feed = Feed(rows, addressing, channel, parallel=parallel, route_failures_to_sidecar=routing)
        timeouts = {"connect_timeout_s": settings.connect_timeout_s, "idle_timeout_s": settings.idle_timeout_s}
        timeout_s, max_bytes = settings.rollout_timeout_s, settings.max_response_bytes
        async with http.client(parallel, **timeouts) as session:
            gates = server_gates(session, addressing.urls, settings.outage_patience_s)
            send = sender(session, addressing.urls, timeout_s=timeout_s, max_bytes=max_bytes)
            await dispatch(feed, gates, send, settings)


async def dispatch(
    feed: Feed,
    gates: Mapping[str, Gate],
    send: Send,
    settings: Settings,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Send what the feed has; the budget begins now. At its end the rows that are left are handed over as drained."""
    budget = settings.dispatch_budget_s
    deadline = Deadline(None if budget is None else clock() + budget, settings.drain_margin_s)
    engine = Engine(feed, Tally(), gates, send, settings.limits, deadline, clock)
    try:
        await engine.run()
    finally:
        for gate in gates.values():
            await gate.close()
    if not feed.failed:
        await feed.drain()


@asynccontextmanager
async def _servers(environment: dict[str, Any]) -> AsyncIterator[str | None]:
    """As `environment_servers`, which blocks while servers start and stop."""
    with TemporaryDirectory(prefix="rollmake-") as folder:
        stack, servers = ExitStack(), environment_servers(environment, log=Path(folder) / "servers.log")
        starting = asyncio.ensure_future(asyncio.to_thread(stack.enter_context, servers))
        try:
            yield await asyncio.shield(starting)
        finally:
            # What is just being started cannot be stopped before it is.
            await asyncio.gather(starting, return_exceptions=True)
            await asyncio.to_thread(stack.close)

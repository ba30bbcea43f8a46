"""Stage collect: ask the environment servers for the rollouts of one shard, until every one of them is settled.

In the workflow the job of a shard also cleans what it collected, as `rollmake repair` does: a second job for each shard
would double the time that Snakemake plans, and on a cluster the jobs.
"""

import asyncio
import logging
import math
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import uvloop

from rollmake.core.deadline import Deadline
from rollmake.core.errors import OwedError, RollmakeError, ServerError
from rollmake.core.progress import opening_line, progress_line
from rollmake.edge import http
from rollmake.edge.connections import patiently, sender, server_gates
from rollmake.edge.engine import Engine, Limits, unknown_servers
from rollmake.edge.memory import settle_in
from rollmake.edge.servers import environment_servers
from rollmake.edge.settings import environment_mapping
from rollmake.edge.shard import SEALED_BY_HAND, Settling, Shard, open_shard
from rollmake.edge.shard_work import ShardWork
from rollmake.edge.terminal import INTERVAL_S, progress_bar
from rollmake.edge.topology import server_addresses
from rollmake.stages import repair

HELP = "Collect the rollouts of one shard."
REMEDY = "Run it again to go on from here, or set accept_partial to publish what there is"
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
log = logging.getLogger(__name__)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    plan: Annotated[Path, msgspec.Meta(description="plan.json of the run; its table and rows lie beside it")]
    shard: Annotated[str, msgspec.Meta(description="the shard to collect, like 0000-of-0003")]
    journal: Annotated[Path, msgspec.Meta(description="folder of the run's journals")]
    output: Annotated[Path, msgspec.Meta(description="the shard's rollouts.jsonl; the others appear beside it")]
    environment: Annotated[str, msgspec.Meta(description="the config's `environment`, as YAML")]
    repaired: Annotated[
        Path | None, msgspec.Meta(description="where to write the shard's rollouts.jsonl as `rollmake repair` does")
    ] = None
    texts: Annotated[list[str], msgspec.Meta(description="as of `rollmake repair`")] = []


class Settings(Settling, frozen=True, kw_only=True):
    """The options of the config that this stage reads."""

    accept_partial: bool
    route_failures_to_sidecar: bool
    num_samples_in_parallel: int
    max_resident_rollout_tasks: int | None
    connect_timeout_s: float
    idle_timeout_s: float | None
    rollout_timeout_s: float | None
    max_response_bytes: int
    dispatch_budget_s: float | str | None
    drain_margin_s: float | None
    gateway_retries: int
    outage_patience_s: float
    grace_s: float
    fsync_interval_s: float
    progress_interval_s: float

    @property
    def at_once(self) -> int:
        """Requests in flight: no more than asked for, and no more than rows may be held."""
        return min(self.num_samples_in_parallel, self.max_resident_rollout_tasks or sys.maxsize)


def run(files: Files, settings: Settings) -> None:
    """Collect until the shard is settled, then publish it, and clean it if that is asked for.

    Raises OwedError, with the numbers and the reasons, if rollouts are still owed: run the stage again.
    """
    # The time of the budget runs while the shard or a server is waited for.
    deadline = _deadline(settings)
    with open_shard(files.plan, files.shard, files.journal, settings) as shard:
        # In the workflow's job, the first after `rollmake seal`, the shard is only cleaned.
        accepting = settings.accept_partial or (files.repaired is not None and shard.sealed_by_hand)
        log.info(opening_line(shard.figures(shard.end), accepting=accepting))
        reasons: list[str] = []
        if shard.ledger.owed and not accepting:
            reasons = _collect(files, settings, shard, deadline)
        log.info(progress_line(shard.figures(shard.end)))
        if shard.ledger.owed and not accepting:
            raise OwedError(_owed_message(shard, reasons), where=f"shard {files.shard}", remedy=REMEDY)
        shard.publish(files.output)
    if files.repaired is not None:
        _repair(files.output, files.repaired, files.texts, settings)
    (files.journal / files.shard / SEALED_BY_HAND).unlink(missing_ok=True)


def _repair(rollouts: Path, output: Path, texts: list[str], settings: Settings) -> None:
    repairing = repair.Settings(retry_invalid_judge_responses=settings.retry_invalid_judge_responses)
    repair.run(repair.Files(rollouts=rollouts, output=output, texts=texts), repairing)


def _collect(files: Files, settings: Settings, shard: Shard, deadline: Deadline) -> list[str]:
    """Start the servers if they are ours, and ask for what is owed; returns why it stopped before the end, if it did."""
    environment = environment_mapping(files.environment)
    with environment_servers(environment, log=shard.folder / "servers.log") as head:
        settle_in()
        return uvloop.run(_dispatch(environment, head, settings, shard, deadline))


async def _dispatch(
    environment: dict[str, Any], head: str | None, settings: Settings, shard: Shard, deadline: Deadline
) -> list[str]:
    left_s = math.inf if deadline.at is None else max(deadline.at - time.monotonic(), 0.0)
    addresses = await _addresses(environment, head, min(settings.outage_patience_s, left_s))
    unknown_servers(shard.rows.servers, addresses)
    urls = {name: addresses[name] for name in shard.rows.servers}
    routing = settings.route_failures_to_sidecar
    work = ShardWork(shard.rows, shard.ledger, shard.tally, shard.journal, route_failures_to_sidecar=routing)
    limits = Limits(
        num_samples_in_parallel=settings.at_once, gateway_retries=settings.gateway_retries, grace_s=settings.grace_s
    )
    timeouts = {"connect_timeout_s": settings.connect_timeout_s, "idle_timeout_s": settings.idle_timeout_s}
    async with http.client(settings.at_once, **timeouts) as session:
        gates = server_gates(session, urls, settings.outage_patience_s)
        send = sender(session, urls, timeout_s=settings.rollout_timeout_s, max_bytes=settings.max_response_bytes)
        engine = Engine(work, shard.tally, gates, send, limits, deadline)
        _stop_on_signals(engine)
        try:
            with progress_bar(len(shard.ledger)) as bar:
                await _beside(engine.run(), _tickers(settings, shard, bar))
        finally:
            for gate in gates.values():
                await gate.close()
            # Nothing is in flight any more: Ctrl-C ends what follows, the other signals let it end.
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    if work.refused:
        raise RollmakeError(work.refused, where=f"shard {shard.name}", remedy="What was answered is kept")
    return [reason for reason in (engine.stopped_by, *(gate.gave_up for gate in gates.values())) if reason]


def _deadline(settings: Settings) -> Deadline:
    """When this job stops starting rollouts. By hand there is no time limit that `auto` could take."""
    budget = settings.dispatch_budget_s
    at = time.monotonic() + float(budget) if budget is not None and budget != "auto" else None
    return Deadline(at, settings.drain_margin_s)


async def _addresses(environment: dict[str, Any], head: str | None, patience_s: float) -> Mapping[str, str]:
    """Where the environment servers are now; a head server that is down is waited for."""
    received: list[str] = []
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in SIGNALS:
        loop.add_signal_handler(number, lambda name=number.name: (received.append(name), task.cancel()))
    try:
        return await patiently(lambda: server_addresses(environment, head), patience_s)
    except ServerError as error:
        raise OwedError(str(error), remedy=REMEDY) from None
    except asyncio.CancelledError:
        if received:
            raise OwedError(f"received {received[0]} before anything was asked", remedy=REMEDY) from None
        raise


def _stop_on_signals(engine: Engine) -> None:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, engine.stop, f"received {number.name}")


def _tickers(settings: Settings, shard: Shard, bar: Callable[[int, str], None] | None) -> list[Awaitable[None]]:
    async def sync() -> None:
        try:
            await asyncio.to_thread(shard.journal.sync)
        except OSError as error:  # It is tried again, at the latest when the journal is closed, where it ends the job.
            log.warning("%s: cannot sync the journal: %s", shard.name, error)

    async def report() -> None:
        figures = shard.write_progress("running")
        if bar is None:
            log.info(progress_line(figures))

    tickers = [_every(settings.fsync_interval_s, sync), _every(settings.progress_interval_s, report)]
    if bar is not None:

        async def draw() -> None:
            figures = shard.figures("running")
            bar(figures["done"] + figures["gated"], progress_line(figures))

        tickers.append(_every(INTERVAL_S, draw))
    return tickers


async def _every(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await act()


async def _beside(main: Awaitable[None], tickers: list[Awaitable[None]]) -> None:
    """Run `main` to its end, and the tickers as long."""
    tasks = [asyncio.ensure_future(ticker) for ticker in tickers]
    try:
        await main
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


def _owed_message(shard: Shard, reasons: list[str]) -> str:
    why = list(reasons)
    if unstored := int(shard.ledger.unstored.sum()):
        why.append(f"{unstored} answered, but not to be stored (`_ng_no_persist`)")
    owed = f"{shard.ledger.owed} of {len(shard.ledger)} rollouts are still owed"
    return f"{owed}: {'; '.join(why)}" if why else owed

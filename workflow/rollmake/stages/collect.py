"""Stage collect: ask the environment servers for the rollouts of one shard, until every one of them is settled."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import msgspec
import polars as pl
import uvloop

from rollmake.core.backoff import backoff
from rollmake.core.contract import MATERIALIZED_NAME, materialized_path
from rollmake.core.deadline import Deadline
from rollmake.core.errors import OwedError, RollmakeError, ServerError
from rollmake.core.latency import LatencySummary
from rollmake.core.ledger import Ledger
from rollmake.core.progress import progress, progress_line
from rollmake.core.settlement import failure_facts, max_attempts, settlement, success_keys
from rollmake.core.tally import Tally
from rollmake.edge import http, jobs
from rollmake.edge.carry import carry_over, written_under
from rollmake.edge.engine import Engine, Limits, unknown_servers
from rollmake.edge.files import replacing, write_atomic
from rollmake.edge.gate import Gate
from rollmake.edge.journal import Journal, lines
from rollmake.edge.judges import move_invalid_judges
from rollmake.edge.lock import exclusive
from rollmake.edge.plan import ShardRows, read_plan, read_shard
from rollmake.edge.servers import environment_servers
from rollmake.edge.settings import environment_mapping
from rollmake.edge.topology import server_addresses

HELP = "Collect the rollouts of one shard."
COLLECTION_VERSION = 1
SEALED, PARTIAL, OWED = "sealed", "accepted partial", "owed"
log = logging.getLogger(__name__)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    plan: Annotated[Path, msgspec.Meta(description="plan.json of the run; its table and rows lie beside it")]
    shard: Annotated[str, msgspec.Meta(description="the shard to collect, like 0000-of-0003")]
    journal: Annotated[Path, msgspec.Meta(description="folder of the run's journals")]
    output: Annotated[
        Path, msgspec.Meta(description="rollouts.jsonl of the shard, sealed; the others appear beside it")
    ]
    environment: Annotated[str, msgspec.Meta(description="the config's `environment`, as YAML")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the config that this stage reads."""

    max_attempts: int | None
    accept_partial: bool
    retry_terminal_timeouts: bool
    retry_invalid_judge_responses: bool
    dispatch_longest_first: bool
    route_failures_to_sidecar: bool
    num_samples_in_parallel: int
    connect_timeout_s: float
    rollout_timeout_s: float | None
    idle_timeout_s: float | None
    max_response_bytes: int
    max_resident_rollout_tasks: int | None
    dispatch_budget_s: float | str | None
    drain_margin_s: float | None
    gateway_retries: int
    outage_patience_s: float
    grace_s: float
    fsync_interval_s: float
    progress_interval_s: float


class Shard:
    """One shard while this job holds its lock: its rows, its journal, and how far it is."""

    def __init__(self, files: Files, settings: Settings, table: pl.DataFrame, rows: ShardRows) -> None:
        self.name, self.rows = files.shard, rows
        self.folder = files.journal / files.shard
        self.journal = Journal(self.folder)
        if settings.retry_invalid_judge_responses:
            moved = move_invalid_judges(self.journal.rollouts, self.journal.failures)
            log.info("%s: %d rows without a valid verdict of their judge are tried again", self.name, moved)
            self.journal = Journal(self.folder)
        successes = success_keys(lines(self.journal.rollouts))
        failures = failure_facts(lines(self.journal.failures), settings.retry_terminal_timeouts)
        limit = max_attempts(settings.max_attempts, os.environ)
        settled = settlement(table.select("task", "rollout"), successes, failures)
        self.ledger = Ledger(settled, limit, longest_first=settings.dispatch_longest_first)
        self.tally = Tally(_earlier_latency(self.folder / "progress.json"))
        self.started = time.monotonic()

    def figures(self, state: str) -> dict[str, Any]:
        """How far the shard is, see `core.progress`."""
        elapsed_s = time.monotonic() - self.started
        return progress(self.name, self.ledger, self.tally, elapsed_s=elapsed_s, state=state)

    def write_progress(self, state: str) -> dict[str, Any]:
        """Replace progress.json, and return what it says."""
        figures = self.figures(state)
        last_row = max(path.stat().st_mtime_ns for path in (self.journal.rollouts, self.journal.failures))
        figures |= {"updated": jobs.now(), "last_row": jobs.iso(last_row)}
        write_atomic(self.folder / "progress.json", msgspec.json.encode(figures) + b"\n")
        return figures


def run(files: Files, settings: Settings) -> None:
    """Collect until the shard is settled, then publish it.

    Raises OwedError, with the numbers and the reasons, if rollouts are still owed: run the stage again.
    """
    plan = read_plan(files.plan)
    table = read_shard(files.plan, files.shard)
    carry_over(files.journal, files.plan)
    with ExitStack() as stack:
        holder = stack.enter_context(exclusive(files.journal / f"{files.shard}.lock"))
        if written_under(files.journal) != plan:
            raise OwedError(
                "the plan changed while the shard was waited for", where=f"shard {files.shard}", remedy=_REMEDY
            )
        rows = stack.enter_context(ShardRows(table, files.plan.with_name(MATERIALIZED_NAME)))
        shard = Shard(files, settings, table, rows)
        job = jobs.start(shard.folder / "jobs.jsonl", holder)
        reasons: list[str] = []
        try:
            if shard.ledger.owed and not settings.accept_partial:
                reasons = _collect(files, settings, shard)
        finally:
            shard.journal.close()
            end = OWED if shard.ledger.owed else SEALED
            if end == OWED and settings.accept_partial:
                end = PARTIAL
            jobs.finish(shard.folder / "jobs.jsonl", job, end, shard.tally.requests)
            log.info(progress_line(shard.write_progress(end), shard.tally))
        if end == OWED:
            raise OwedError(_owed_message(shard, reasons), where=f"shard {files.shard}", remedy=_REMEDY)
        _seal(files, shard)


_REMEDY = "Run it again to go on from here, or set accept_partial to publish what there is"


def _collect(files: Files, settings: Settings, shard: Shard) -> list[str]:
    """Start the servers if they are ours, and ask for what is owed; returns why it stopped before the end, if it did."""
    environment = environment_mapping(files.environment)
    with environment_servers(environment, log=shard.folder / "servers.log") as head:
        return uvloop.run(_dispatch(environment, head, settings, shard))


async def _dispatch(environment: dict[str, Any], head: str | None, settings: Settings, shard: Shard) -> list[str]:
    addresses = await _addresses(environment, head, settings.outage_patience_s)
    unknown_servers(shard.rows.servers, addresses)
    connections = min(settings.num_samples_in_parallel, settings.max_resident_rollout_tasks or sys.maxsize)
    limits = Limits(
        num_samples_in_parallel=connections,
        gateway_retries=settings.gateway_retries,
        grace_s=settings.grace_s,
        route_failures_to_sidecar=settings.route_failures_to_sidecar,
    )
    timeouts = {"connect_timeout_s": settings.connect_timeout_s, "idle_timeout_s": settings.idle_timeout_s}
    async with http.client(connections, **timeouts) as session:
        gates = {name: _gate(session, addresses[name], settings) for name in shard.rows.servers}
        urls = {name: f"{addresses[name]}/run" for name in gates}

        def send(name: str, body: bytes) -> Any:
            timeout_s, max_bytes = settings.rollout_timeout_s, settings.max_response_bytes
            return http.exchange(session, urls[name], body, timeout_s=timeout_s, max_bytes=max_bytes)

        deadline = _deadline(settings)
        engine = Engine(shard.rows, shard.ledger, shard.tally, shard.journal, gates, send, limits, deadline)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            loop.add_signal_handler(number, engine.stop, f"received {number.name}")
        tickers = [
            asyncio.create_task(_every(settings.fsync_interval_s, lambda: asyncio.to_thread(shard.journal.sync))),
            asyncio.create_task(_every(settings.progress_interval_s, lambda: _report(shard))),
        ]
        try:
            await engine.run()
        finally:
            await _end(tickers)
            for gate in gates.values():
                await gate.close()
    if engine.refused:
        raise RollmakeError(engine.refused, where=f"shard {shard.name}", remedy="What was answered is kept")
    return [reason for reason in (engine.stopped_by, *(gate.gave_up for gate in gates.values())) if reason]


def _deadline(settings: Settings) -> Deadline:
    """When this job stops starting rollouts. By hand there is no time limit that `auto` could take."""
    budget = settings.dispatch_budget_s
    at = time.monotonic() + float(budget) if budget is not None and budget != "auto" else None
    return Deadline(at, settings.drain_margin_s)


async def _addresses(environment: dict[str, Any], head: str | None, patience_s: float) -> Mapping[str, str]:
    """Where the environment servers are now; a head server that is down is waited for."""
    deadline = time.monotonic() + patience_s
    tries = 0
    while True:
        try:
            return await asyncio.to_thread(server_addresses, environment, head)
        except ServerError as error:
            if time.monotonic() >= deadline:
                raise OwedError(f"{error}; waited {patience_s:g} s for it", remedy=_REMEDY) from None
            if tries == 0:
                log.warning("%s; waiting for it", error)
        await asyncio.sleep(backoff(tries, 0.2, 10.0, 0.5))
        tries += 1


def _gate(session: aiohttp.ClientSession, url: str, settings: Settings) -> Gate:
    async def probe() -> bool:
        return await http.reachable(session, url)

    return Gate(url, probe, patience_s=settings.outage_patience_s)


async def _report(shard: Shard) -> None:
    log.info(progress_line(shard.write_progress("running"), shard.tally))


async def _every(seconds: float, act: Any) -> None:
    while True:
        await asyncio.sleep(seconds)
        await act()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
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


def _seal(files: Files, shard: Shard) -> None:
    """Publish the shard: its rows, the sidecar, what was asked, and collection.json."""
    with replacing(materialized_path(files.output)) as file:
        for position in range(len(shard.rows)):
            file.write(shard.rows.line(position) + b"\n")
    figures = shard.figures(SEALED)
    history = jobs.read(shard.folder / "jobs.jsonl")
    collection = {
        "version": COLLECTION_VERSION,
        "shard": files.shard,
        "owed": figures["owed"],
        "succeeded": figures["done"],
        "failed_by_class": figures["failed_by_class"],
        "gated": figures["gated"],
        "missing": figures["unsettled"],
        "requests": sum(job.requests for job in history),
        "latency": figures["latency"],
        "jobs": history,
    }
    write_atomic(files.output.with_name("collection.json"), msgspec.json.encode(collection) + b"\n")
    shard.journal.publish(files.output)


def _earlier_latency(path: Path) -> LatencySummary | None:
    """The latencies that earlier jobs saw; a killed job loses those since it last wrote them down."""
    try:
        return LatencySummary.from_dict(msgspec.json.decode(path.read_bytes())["latency"])
    except (FileNotFoundError, msgspec.MsgspecError, KeyError, TypeError):
        return None

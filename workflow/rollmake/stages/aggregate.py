"""The metrics of a run by its environment servers' own word, and the coverage that they rest on."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import orjson
import polars as pl

from rollmake.core.aggregate import entry, refuse_empty
from rollmake.core.contract import ROLLOUT, TASK, failures_path, materialized_path
from rollmake.core.coverage import coverage
from rollmake.core.errors import DataError, ServerError
from rollmake.core.imputation import Record, Scoring, stripped
from rollmake.core.routing import agent_of_server, label_runs
from rollmake.core.shards import shard_names
from rollmake.core.topology import decode_environment
from rollmake.edge.files import write_atomic
from rollmake.edge.journal import lines
from rollmake.edge.metrics_client import server_metrics
from rollmake.edge.plan import read_plan, table_path
from rollmake.edge.servers import environment_servers
from rollmake.edge.settings import environment_mapping
from rollmake.edge.topology import server_addresses

HELP = "Have the environment servers score their rollouts, and say what the scores rest on."
COLUMNS = ("task", "rollout", "shard", "server", "agent")
REPAIR = "Collect and repair that shard again"
# The environment server of each key of a shard.
Servers = Mapping[tuple[int, int], str | None]
log = logging.getLogger(__name__)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    plan: Annotated[Path, msgspec.Meta(description="plan.json of the run; plan.parquet lies beside it")]
    environment_file: Annotated[Path, msgspec.Meta(description="environment.json of the run")]
    repaired: Annotated[Path, msgspec.Meta(description="folder with one folder per repaired shard")]
    environment: Annotated[str, msgspec.Meta(description="the config's `environment`, as YAML")]
    output: Annotated[Path, msgspec.Meta(description="rollouts_aggregate_metrics.json, to be written")]
    coverage: Annotated[Path, msgspec.Meta(description="coverage.json, to be written")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the config that this stage reads."""

    count_failure_classes_as_zero: list[str]
    count_missing_rollouts_as_zero: bool


def run(files: Files, settings: Settings) -> None:
    """Write `files.coverage`, then the metrics of all environment servers to `files.output`.

    Raises DataError for shards that are not what the plan owes, and if rollouts are owed but none has a result;
    ServerError for a server that has no address or does not answer. The coverage is written before servers are asked.
    """
    owed = planned(files.plan)
    scoring = Scoring(
        sent,
        count_classes=settings.count_failure_classes_as_zero,
        count_missing=settings.count_missing_rollouts_as_zero,
    )
    shards = [files.repaired / name / "rollouts.jsonl" for name in shard_names(read_plan(files.plan).shards)]
    for shard, servers in dealt(owed, shards):
        take_records(shard, servers, scoring)
    numbers = coverage(scoring.settle(owed))
    write_atomic(files.coverage, orjson.dumps(numbers, option=orjson.OPT_INDENT_2))
    refuse_empty(numbers)
    for shard, servers in dealt(owed, shards):
        impute(shard, servers, scoring)
    entries = ask_servers(files, dict(scoring.items()))
    write_atomic(files.output, orjson.dumps(entries, option=orjson.OPT_INDENT_2))


def sent(record: Record) -> bytes:
    """The JSON of what is sent of a record. It is a copy, since orjson's own bytes hold on to more than a kilobyte."""
    return bytes(memoryview(orjson.dumps(stripped(record))))


def planned(plan: Path) -> pl.DataFrame:
    """What the plan owes: task, rollout, shard, server and agent. Raises DataError if its files are damaged or do not fit."""
    table, expected = table_path(plan), read_plan(plan).rollouts
    remedy = "Run the stage materialize again"
    try:
        owed = pl.read_parquet(table, columns=list(COLUMNS))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"cannot be read: {error}", where=str(table), remedy=remedy) from None
    if len(owed) != expected:
        raise DataError(f"{len(owed)} rollouts, but {plan} has {expected}", where=str(table), remedy=remedy)
    return owed


def dealt(owed: pl.DataFrame, shards: list[Path]) -> Iterator[tuple[Path, Servers]]:
    """Each shard's rollouts file, with the environment server of every rollout that the plan deals to it."""
    by_shard = owed.select("shard", "task", "rollout", "server").partition_by("shard", as_dict=True, include_key=False)
    nothing = owed.select("task", "rollout", "server").clear()
    for index, shard in enumerate(shards):
        rows = by_shard.get((index,), nothing)
        yield shard, {(task, rollout): server for task, rollout, server in rows.iter_rows()}


def take_records(shard: Path, servers: Servers, scoring: Scoring[bytes]) -> None:
    """Read a shard's rollouts and sidecar into `scoring`."""
    seen: set[tuple[int, int]] = set()
    for place, key, record in records(shard, servers):
        server = servers[key]
        if key in seen or server is None:
            found = "is there twice" if key in seen else "has no environment server in the plan"
            raise DataError(f"the rollout of task {key[0]}, rollout {key[1]} {found}", where=place, remedy=REPAIR)
        seen.add(key)
        scoring.add_rollout(server, record)
    for _, key, record in records(failures_path(shard), servers):
        scoring.add_failure(servers[key], record)


def impute(shard: Path, servers: Servers, scoring: Scoring[bytes]) -> None:
    """Read a shard's materialized rows if any of its rollouts waits for one."""
    if any((server, *key) in scoring.waiting for key, server in servers.items()):
        for _, key, row in records(materialized_path(shard), servers):
            scoring.impute(servers[key], row)


def records(path: Path, servers: Servers) -> Iterator[tuple[str, tuple[int, int], Record]]:
    """The place, key and content of each line of a repaired file, all of them owed. Raises DataError."""
    if not path.is_file():
        raise DataError("there is no such file", where=str(path), remedy="Repair that shard first")
    for number, line in enumerate(lines(path), 1):
        place = f"{path}:{number}"
        try:
            record = orjson.loads(line)
            key = record[TASK], record[ROLLOUT]
            owed = key in servers
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise DataError("this line is no record with indices", where=place, remedy=REPAIR) from None
        if not owed:
            found = f"the plan does not deal task {key[0]}, rollout {key[1]} to this shard"
            raise DataError(found, where=place, remedy=REPAIR)
        yield place, key, record


def ask_servers(files: Files, items: Mapping[str, list[bytes]]) -> list[dict[str, Any]]:
    """The entries of the aggregate file, sorted by server; nothing is started if there is nothing to score."""
    if not items:
        return []
    topology = decode_environment(files.environment_file.read_bytes(), str(files.environment_file)).topology
    labels = label_runs({server: agent_of_server(topology, server) for server in sorted(items)})
    mapping = environment_mapping(files.environment)
    with environment_servers(mapping, log=files.output.with_name("logs") / "aggregate_servers.log") as head:
        addresses = server_addresses(mapping, head)
        return [
            entry(
                server,
                labels[server],
                asyncio.run(server_metrics(server, address_of(server, addresses), items[server])),
            )
            for server in sorted(items)
        ]


def address_of(server: str, addresses: Mapping[str, str]) -> str:
    """The address of an environment server. Raises ServerError if it has none."""
    if server not in addresses:
        known = ", ".join(sorted(addresses)) or "none"
        where, remedy = f"environment server {server!r}", "Start it, or correct `environment` in the config"
        raise ServerError(f"it has no address now; those that have are: {known}", where=where, remedy=remedy)
    return addresses[server]

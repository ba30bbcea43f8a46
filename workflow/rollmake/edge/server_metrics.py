"""The metrics of a run by its environment servers' own word."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from rollmake.core.aggregate import GROUPS, entry
from rollmake.core.contract import failures_path, materialized_path
from rollmake.core.errors import DataError, ServerError
from rollmake.core.imputation import Record, Scoring, stripped
from rollmake.edge.metrics_client import server_metrics
from rollmake.edge.records import REPAIR, Servers, dealt, records
from rollmake.edge.servers import environment_servers
from rollmake.edge.settings import environment_mapping
from rollmake.edge.topology import server_addresses


class ServerMetrics:
    """What became of every rollout (`states`, see `core/coverage.py`), and what servers say of those that count."""

    def __init__(
        self,
        owed: pl.DataFrame,
        shards: Sequence[Path],
        *,
        count_classes: Collection[str],
        count_missing: bool,
        environment: str,
        log: Path,
    ) -> None:
        """`owed` as of `records.planned`, `shards` are the repaired rollouts files, `environment` is YAML of the config.

        `log` gets what servers say that are started for this. Raises DataError for shards that are not what is owed.
        """
        self._owed, self._shards, self._environment, self._log = owed, shards, environment, log
        self._scoring = Scoring(sent, count_classes=count_classes, count_missing=count_missing)
        for shard, servers in dealt(owed, shards):
            take_records(shard, servers, self._scoring)
        self.states = self._scoring.settle(owed)
        self._items: dict[str, list[bytes]] = {}

    def servers(self) -> list[str]:
        """The environment servers that have something to score, sorted."""
        for shard, servers in dealt(self._owed, self._shards):
            impute(shard, servers, self._scoring)
        self._items = dict(self._scoring.items())
        return sorted(self._items)

    def entries(self, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The entries of the aggregate file, in the order of `labels`; without any no server is started."""
        if not labels:
            return
        mapping = environment_mapping(self._environment)
        with environment_servers(mapping, log=self._log) as head:
            addresses = server_addresses(mapping, head)
            for server, label in labels.items():
                address = address_of(server, addresses)
                found = entry(server, label, asyncio.run(server_metrics(server, address, self._items[server])))
                yield found | {GROUPS: [found[GROUPS]]}


def sent(record: Record) -> bytes:
    """The JSON of what is sent of a record. It is a copy, since orjson's own bytes hold on to more than a kilobyte."""
    return bytes(memoryview(orjson.dumps(stripped(record))))


def take_records(shard: Path, servers: Servers, scoring: Scoring[bytes]) -> None:
    """Read a shard's rollouts and sidecar into `scoring`."""
    seen: set[tuple[int, int]] = set()
    for place, key, record in records(shard, servers):
        if key in seen:
            found = f"the rollout of task {key[0]}, rollout {key[1]} is there twice"
            raise DataError(found, where=place, remedy=REPAIR)
        seen.add(key)
        scoring.add_rollout(servers[key], record)
    for _, key, record in records(failures_path(shard), servers):
        scoring.outcomes.add_failure(servers[key], record)


def impute(shard: Path, servers: Servers, scoring: Scoring[bytes]) -> None:
    """Read a shard's materialized rows if any of its rollouts waits for one."""
    if any((server, *key) in scoring.outcomes.waiting for key, server in servers.items()):
        for _, key, row in records(materialized_path(shard), servers):
            scoring.impute(servers[key], row)


def address_of(server: str, addresses: Mapping[str, str]) -> str:
    """The address of an environment server. Raises ServerError if it has none."""
    if server not in addresses:
        known = ", ".join(sorted(addresses)) or "none"
        where, remedy = f"environment server {server!r}", "Start it, or correct `environment` in the config"
        raise ServerError(f"it has no address now; those that have are: {known}", where=where, remedy=remedy)
    return addresses[server]

"""The metrics of a run, by its environment servers' own word or computed here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rollmake.core.aggregate import GROUPS, entry, refuse_empty
from rollmake.core.chosen import Metrics, chosen_metrics, require_fields
from rollmake.core.coverage import numbers
from rollmake.core.metrics import Scored
from rollmake.core.routing import agent_of_server, label_runs
from rollmake.core.topology import decode_environment
from rollmake.edge.files import replacing
from rollmake.edge.metrics_file import write_entries
from rollmake.edge.records import planned, repaired_shards
from rollmake.edge.run_scores import RunScores
from rollmake.edge.server_metrics import ServerMetrics

HELP = "Score the rollouts of a run."


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    plan: Annotated[Path, msgspec.Meta(description="plan.json of the run; plan.parquet lies beside it")]
    environment_file: Annotated[Path, msgspec.Meta(description="environment.json of the run")]
    repaired: Annotated[Path, msgspec.Meta(description="folder with one folder per repaired shard")]
    environment: Annotated[str, msgspec.Meta(description="the config's `environment`, as YAML")]
    output: Annotated[Path, msgspec.Meta(description="rollouts_aggregate_metrics.json, to be written")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the config that this stage reads."""

    metrics: Metrics
    count_failure_classes_as_zero: list[str]
    count_missing_rollouts_as_zero: bool


class LocalMetrics:
    """The metrics of the default environment, from the scores of repaired shards; no server is needed."""

    def __init__(self, files: Files, settings: Settings) -> None:
        self._chosen = settings.metrics.chosen
        self._run = RunScores(
            planned(files.plan),
            repaired_shards(files.plan, files.repaired),
            count_classes=settings.count_failure_classes_as_zero,
            count_missing=settings.count_missing_rollouts_as_zero,
            texts=self._chosen.texts,
            subset_key=self._chosen.subset_key,
        )
        self.states = self._run.states

    def servers(self) -> list[str]:
        """The environment servers that have something to score, sorted. Raises InputError for a field that none has."""
        servers = self._run.impute()
        if servers:
            require_fields((self._run.scores(server) for server in servers), self._chosen)
        return servers

    def entries(self, labels: dict[str, str]) -> Iterator[dict[str, Any]]:
        """The entries of the aggregate file, in the order of `labels`."""
        for server, label in labels.items():
            whole = Scored(self._run.scores(server))
            found = whole.overall(*chosen_metrics(whole.measured, self._chosen))
            yield entry(server, label, found | {GROUPS: []}) | {GROUPS: whole.groups()}


def run(files: Files, settings: Settings) -> None:
    """Write the metrics of all environment servers to `files.output`.

    Raises DataError for shards that are not what the plan owes, and if rollouts are owed but none has a result;
    ServerError for a server that has no address or does not answer.
    """
    local = settings.metrics.backend == "local"
    work = LocalMetrics(files, settings) if local else server_metrics(files, settings)
    refuse_empty(numbers(work.states))
    labels = labelled(files.environment_file, work.servers())
    with replacing(files.output) as file:
        write_entries(file, work.entries(labels))


def server_metrics(files: Files, settings: Settings) -> ServerMetrics:
    """The metrics that environment servers compute."""
    return ServerMetrics(
        planned(files.plan),
        repaired_shards(files.plan, files.repaired),
        count_classes=settings.count_failure_classes_as_zero,
        count_missing=settings.count_missing_rollouts_as_zero,
        environment=files.environment,
        log=files.output.with_name("logs") / "aggregate_servers.log",
    )


def labelled(environment_file: Path, servers: list[str]) -> dict[str, str]:
    """The label of each server in the aggregate file."""
    if not servers:
        return {}
    topology = decode_environment(environment_file.read_bytes(), str(environment_file)).topology
    return label_runs({server: agent_of_server(topology, server) for server in servers})

"""Stage plan: before a night, what is owed and when it will end; after it, what held each shard up. Reads only."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl

from rollmake.core.deadline import budget_s
from rollmake.core.errors import InputError
from rollmake.core.latency import LatencySummary
from rollmake.core.outlook import Evidence, Site, evidence, fewest_jobs, next_time, outlook, window_s
from rollmake.core.outlook_text import Held, evidence_line, held_lines, no_outlook_lines, outlook_lines, rate_line
from rollmake.core.scores import FIELD, PERF
from rollmake.core.status import ShardStatus
from rollmake.edge.run_files import optional
from rollmake.edge.settings import load_config, read_yaml
from rollmake.stages.status import statuses

HELP = "Say what is owed, how long it will take on a cluster, and what held the shards up."
POSITIONAL = ("config",)
# Where repaired rollouts say how long they took, if they do: the column, and how many of its units make a second.
DURATIONS = ((f"{FIELD}elapsed_seconds", 1.0), (f"{PERF}total_latency_ms", 1000.0))


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """The config, and what there will be to run on."""

    config: Annotated[Path, msgspec.Meta(description="the config; its `results` are looked for below this folder")]
    runtime_min: Annotated[float | None, msgspec.Meta(description="minutes of an allocation (job.runtime)")] = None
    jobs: Annotated[int, msgspec.Meta(description="jobs at once (1)", ge=1)] = 1
    in_flight: Annotated[int | None, msgspec.Meta(description="requests at once over all jobs", ge=1)] = None
    max_per_s: Annotated[float | None, msgspec.Meta(description="rollouts per second that the servers can take")] = None
    by: Annotated[str | None, msgspec.Meta(description="when it must have ended, as HH:MM or an ISO time")] = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options come from the config."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the config as it lies on disk."""

    name: str
    options: Mapping[str, Any]
    shards: Sequence[ShardStatus]
    latencies: Sequence[LatencySummary | None]
    folder: Path


def run(files: Files, settings: Settings) -> None:
    """Print the plan of every run. Raises InputError for a config or time that cannot be used."""
    now = datetime.now().astimezone()
    within_s = _within_s(files.by, now)
    try:
        text = files.config.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError("there is no such config", where=str(files.config), remedy="Name your config file") from None
    config = load_config(read_yaml(text, str(files.config)), [files.config])
    if files.runtime_min is None:
        files = msgspec.structs.replace(files, runtime_min=config["job"].get("runtime"))
    collecting = {name: options for name, options in config["runs"].items() if options["input_glob"] is None}
    runs = [_found(Path(config["results"]), name, options, now) for name, options in collecting.items()]
    pooled = evidence(_pooled(latency for run in runs if run is not None for latency in run.latencies))
    for name in (name for name in config["runs"] if name not in collecting):
        print(f"run {name}: something else collected it (`input_glob`), so nothing is owed")
    for name, found in zip(collecting, runs, strict=True):
        command = f"snakemake --cores 1 {config['results']}/{name}/plan.json --configfile {files.config}"
        lines = [f"run {name}: it is not planned yet; `{command}` plans it"]
        print("\n".join(lines if found is None else _lines(found, files, pooled, now, within_s)))


def _within_s(by: str | None, now: datetime) -> float | None:
    try:
        return None if by is None else (next_time(by, now) - now).total_seconds()
    except ValueError:
        raise InputError(f"{by!r} is no time", where="--by", remedy="Give it as HH:MM or 2026-01-31T08:00") from None


def _found(results: Path, name: str, options: Mapping[str, Any], now: datetime) -> Run | None:
    folder = results / name
    if not (folder / "plan.json").exists():
        return None
    shards = statuses(folder, now)
    latencies = [_latency(folder, shard.name) for shard in shards]
    return Run(name=name, options=options, shards=shards, latencies=latencies, folder=folder)


def _latency(folder: Path, shard: str) -> LatencySummary | None:
    for path in (folder / "journal" / shard / "progress.json", folder / "shards" / shard / "collection.json"):
        figures = optional(path)
        if figures is not None:
            return LatencySummary.from_dict(figures["latency"])
    return None


def _rate(folder: Path, shard: str) -> float | None:
    """Rollouts per second of the shard's latest job, None if it has not said so."""
    figures = optional(folder / "journal" / shard / "progress.json")
    return None if figures is None else figures["rate_per_s"]


def _pooled(latencies: Iterator[LatencySummary | None] | Sequence[LatencySummary | None]) -> LatencySummary:
    whole = LatencySummary()
    for latency in latencies:
        if latency is not None:
            whole.merge(latency)
    return whole


def _lines(run: Run, files: Files, pooled: Evidence | None, now: datetime, within_s: float | None) -> Iterator[str]:
    owed = [shard.owed for shard in run.shards]
    own = evidence(_pooled(run.latencies))
    yield f"run {run.name}: {sum(owed):,} rollouts owed, in {sum(map(bool, owed)):,} of {len(owed):,} shards"
    seen = own or pooled
    yield evidence_line(seen, borrowed=own is None)
    rates = [rate for rate in (_rate(run.folder, shard.name) for shard in run.shards) if rate]
    if rates and own is not None:
        yield rate_line(rates, _parallel(run.options), own.mean_s)
    if any(owed) and seen is not None:
        site = _site(run.options, files, seen)
        found = outlook(owed, site, seen)
        if found is None:
            yield from no_outlook_lines(seen, files.runtime_min, run.options["grace_s"])
        else:
            best = None if within_s is None else fewest_jobs(owed, site, seen, within_s)
            yield from outlook_lines(found, site, now, within_s, best)
    yield from held_lines(_held(run))


def _site(options: Mapping[str, Any], files: Files, seen: Evidence) -> Site:
    budget = budget_s(options["dispatch_budget_s"], files.runtime_min, options["grace_s"])
    margin_s = seen.margin_s if options["drain_margin_s"] is None else float(options["drain_margin_s"])
    return Site(
        jobs=files.jobs,
        parallel=_parallel(options),
        window_s=window_s(budget, margin_s),
        in_flight=files.in_flight,
        max_per_s=files.max_per_s,
    )


def _parallel(options: Mapping[str, Any]) -> int:
    """Rollouts that a shard has in flight."""
    resident, parallel = options["max_resident_rollout_tasks"], options["num_samples_in_parallel"]
    return parallel if resident is None else min(parallel, resident)


def _held(run: Run) -> Iterator[Held]:
    """What held up each shard that is sealed."""
    for shard, latency in zip(run.shards, run.latencies, strict=True):
        collection = optional(run.folder / "shards" / shard.name / "collection.json")
        if collection is None or latency is None or not latency.count:
            continue
        spans = [
            datetime.fromisoformat(job["ended"]) - datetime.fromisoformat(job["started"])
            for job in collection["jobs"]
            if job["ended"]
        ]
        yield Held(
            shard=shard.name,
            jobs=len(collection["jobs"]),
            seconds=sum(span.total_seconds() for span in spans),
            p50_s=latency.quantile(0.5) or 0.0,
            longest_s=latency.max_s,
            busy_s=latency.sum_s,
            parallel=run.options["num_samples_in_parallel"],
            slowest=_slowest(run.folder / "repaired" / shard.name / "scores.parquet"),
        )


def _slowest(path: Path) -> tuple[int, int, float] | None:
    """Task, rollout and seconds of the slowest rollout of a shard, by its own word; None if none says so."""
    if not path.exists():
        return None
    known = pl.read_parquet_schema(path)
    for column, unit in DURATIONS:
        if column in known:
            frame = pl.scan_parquet(path).select("task", "rollout", pl.col(column) / unit).drop_nulls()
            rows = frame.sort(column, descending=True).head(1).collect().rows()
            return rows[0] if rows else None
    return None

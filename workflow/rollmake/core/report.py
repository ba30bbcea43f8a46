"""What the report shows, from the content of a run's files: scores, and beside each the coverage it rests on."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rollmake.core import contract as c
from rollmake.core.bins import Bin, histogram
from rollmake.core.errors import DataError

# More tasks than this are shown as a histogram of their means.
TASKS_SHOWN = 40
REPEATS_SHOWN = 64
SHARDS_SHOWN = 50
BINS = 20
STATISTICS = ("mean", "se", "ci_low_95", "ci_high_95")
ACROSS = "_across_repeats/mean/reward"


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the expected rollouts: `kind` is scored, imputed, unscored, masked, unrouted, failed or missing."""

    kind: str
    label: str
    count: int
    percent: float


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """Coverage: disjoint segments whose counts add up to `expected`, empty ones left out."""

    expected: int
    scored: int
    imputed: int
    segments: list[Segment]

    @property
    def complete(self) -> bool:
        """Whether every expected rollout is measured and scored."""
        return self.scored == self.expected and not self.imputed


class TaskReward(msgspec.Struct, frozen=True):
    """The rewards of one task's rollouts."""

    task: int
    rollouts: int
    mean: float
    min: float
    max: float


class Repeat(msgspec.Struct, frozen=True):
    """The mean reward of one repeat over its tasks, and the standard error of that mean."""

    rollout: int
    tasks: int
    mean: float
    error: float


class NamedScore(msgspec.Struct, frozen=True):
    """The mean of the score that the config names, with its 95 % interval if one is known."""

    name: str
    mean: float
    interval: tuple[float, float] | None


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The mean reward of one environment server, or None, with its spread and the coverage it rests on.

    `named` is the score of the config beside it, if it names another.
    """

    label: str
    server: str
    mean: float | None
    std: float | None
    low: float | None
    high: float | None
    across: dict[str, float]
    interval: tuple[float, float] | None
    named: NamedScore | None
    basis: Basis
    tasks: list[TaskReward]
    histogram: list[Bin]
    repeats: list[Repeat]
    metrics: list[tuple[str, float]]


class FailureClass(msgspec.Struct, frozen=True):
    """Rollouts without a success whose last attempt failed like this; `counted` ones are in the score all the same."""

    name: str
    count: int
    counted: bool


class ShardRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table of shards; without a collection.json only the name is known."""

    name: str
    known: bool = True
    owed: int = 0
    succeeded: int = 0
    failed: int = 0
    gated: int = 0
    missing: int = 0
    requests: int = 0
    jobs: str = ""

    @property
    def troubled(self) -> bool:
        """Whether a reader should look at it first."""
        return not self.known or self.succeeded < self.owed


def basis(numbers: Mapping[str, Any]) -> Basis:
    """The coverage of one environment server or of the run, from its numbers in coverage.json."""
    failed = {
        str(name): count
        for name, count in sorted(numbers["failed_by_class"].items(), key=lambda one: (-one[1], one[0]))
    }
    parts = [(kind, kind, numbers[kind]) for kind in ("scored", "imputed", "unscored", "masked", "unrouted")]
    parts += [("failed", f"failed: {name}", count) for name, count in failed.items()]
    parts.append(("missing", "missing", numbers["missing"]))
    whole = max(numbers["expected"], sum(count for _, _, count in parts))
    segments = [
        Segment(kind=kind, label=label, count=count, percent=100 * count / whole)
        for kind, label, count in parts
        if count
    ]
    return Basis(expected=numbers["expected"], scored=numbers["scored"], imputed=numbers["imputed"], segments=segments)


def scores(
    entries: Sequence[Mapping[str, Any]], coverage: Mapping[str, Any], statistics: Mapping[str, Any] | None = None
) -> list[Score]:
    """One score per environment server: those with metrics (NeMo Gym contract 5.5) in their order, then the others.

    `statistics` is the content of statistics.json, if there is one. Raises DataError if the coverage of one is not known,
    since no score stands alone.
    """
    unscored = dict(coverage["servers"])
    found = []
    for entry in entries:
        server = entry.get(c.SERVER) or ""
        if server not in unscored:
            remedy = "The two files are of different runs: aggregate again"
            raise DataError(
                f"coverage.json names no environment server {server!r}", where="aggregate metrics", remedy=remedy
            )
        found.append(_score(entry, unscored.pop(server), _named(statistics, server)))
    return found + [_score({c.SERVER: name}, numbers, None) for name, numbers in sorted(unscored.items())]


def _named(statistics: Mapping[str, Any] | None, server: str) -> NamedScore | None:
    """The mean of a server by statistics.json, whatever it is over."""
    mean = statistics["servers"].get(server, {}).get("mean") if statistics else None
    if not statistics or mean is None or mean["estimate"] is None:
        return None
    interval = None if mean["low"] is None else (mean["low"], mean["high"])
    return NamedScore(statistics["score"], mean["estimate"], interval)


def _score(entry: Mapping[str, Any], numbers: Mapping[str, Any], named: NamedScore | None) -> Score:
    metrics = entry.get("agent_metrics") or {}
    tasks = task_rewards(entry.get("group_level_metrics") or [])
    many = len(tasks) > TASKS_SHOWN
    server = entry.get(c.SERVER) or ""
    return Score(
        label=(entry.get(c.AGENT_REF) or {}).get("name") or server or "(no server)",
        server=server,
        mean=_number(metrics, "mean/reward"),
        std=_number(metrics, "std/reward"),
        low=_number(metrics, "min/reward"),
        high=_number(metrics, "max/reward"),
        across={name: value for name in STATISTICS if (value := _number(metrics, name + ACROSS)) is not None},
        interval=named.interval if named and named.name == c.REWARD else None,
        named=named if named and named.name != c.REWARD else None,
        basis=basis(numbers),
        tasks=[] if many else tasks,
        histogram=histogram([task.mean for task in tasks], BINS) if many else [],
        repeats=repeat_rewards(entry.get("repeat_level_metrics") or []),
        metrics=[
            (name, value) for name, value in (entry.get("key_metrics") or {}).items() if isinstance(value, int | float)
        ],
    )


def failure_classes(coverage: Mapping[str, Any], collections: Iterable[Mapping[str, Any] | None]) -> list[FailureClass]:
    """The classes of failure, the largest first.

    A class that counts in the score is none of `failed_by_class` of coverage.json; only collection.json tells of it.
    """
    collected: Counter[str] = Counter()
    for collection in collections:
        collected.update((collection or {"failed_by_class": {}})["failed_by_class"])
    failed = coverage["failed_by_class"]
    classes = [FailureClass(name, count, False) for name, count in failed.items()]
    classes += [FailureClass(name, count, True) for name, count in collected.items() if name not in failed and count]
    return sorted(classes, key=lambda one: (-one.count, one.name))


def _number(metrics: Mapping[str, Any], name: str) -> float | None:
    """A metric, if it is there and a number: servers may reply with metrics of their own making."""
    value = metrics.get(name)
    return value if isinstance(value, int | float) else None


def task_rewards(groups: Iterable[Mapping[str, Any]]) -> list[TaskReward]:
    """The tasks that have a reward, from `group_level_metrics`, by index."""
    found = []
    for group in groups:
        numbers = [_number(group, name) for name in (c.TASK, "num_rollouts", "mean/reward", "min/reward", "max/reward")]
        if None not in numbers:
            found.append(TaskReward(*numbers))
    return sorted(found, key=lambda task: task.task)


def repeat_rewards(repeats: Iterable[Mapping[str, Any]]) -> list[Repeat]:
    """The repeats that have a reward, from `repeat_level_metrics`."""
    found = []
    for one in repeats:
        numbers = [_number(one, name) for name in (c.ROLLOUT, "sample_count", "mean/reward", "sem/reward")]
        if None not in numbers:
            found.append(Repeat(*numbers))
    return found[:REPEATS_SHOWN]


def shard_row(name: str, collection: Mapping[str, Any] | None) -> ShardRow:
    """A shard's line, from its collection.json if there is one."""
    if collection is None:
        return ShardRow(name=name, known=False)
    counts = {key: collection[key] for key in ("owed", "succeeded", "gated", "missing", "requests")}
    ends = Counter(job["end"] for job in collection["jobs"])
    jobs = f"{ends.total()}: " + ", ".join(f"{count} {end}" if ends.total() > 1 else end for end, count in ends.items())
    return ShardRow(
        name=name, failed=sum(collection["failed_by_class"].values()), jobs=jobs if ends else "none", **counts
    )


def shard_total(rows: Sequence[ShardRow]) -> ShardRow:
    """All shards in one line."""
    names = ("owed", "succeeded", "failed", "gated", "missing", "requests")
    return ShardRow(name=f"all {len(rows)}", **{name: sum(getattr(row, name) for row in rows) for name in names})


def shards_shown(rows: Sequence[ShardRow]) -> list[ShardRow]:
    """At most SHARDS_SHOWN shards: those that lack something before the others, each kind in order."""
    return sorted(rows, key=lambda row: not row.troubled)[:SHARDS_SHOWN]


class Repair(msgspec.Struct, frozen=True):
    """What repair did in all shards to one file, for one reason."""

    file: str
    reason: str
    count: int


def plan_facts(plan: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """What was owed."""
    if plan is None:
        return [("plan", "none: the shards were collected by something else")]
    size = f"{plan['rollouts']:,} rollouts of {plan['tasks']:,} tasks in {plan['shards']:,} shards"
    return [("plan", size), ("digest of the plan", plan["digest"]), ("environment", plan["environment"])]


def job_facts(collections: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """When and where it was collected."""
    jobs = [job for collection in collections for job in collection["jobs"]]
    if not jobs:
        return [("collected", "unknown: no collection.json names a job")]
    hosts = sorted({job["host"] for job in jobs})
    named = ", ".join(hosts[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")
    span = f"{min(job['started'] for job in jobs)} to {max(job['ended'] or job['started'] for job in jobs)}"
    return [("collected", span), ("jobs", f"{len(jobs):,} on {named}")]


def repairs(contents: Iterable[Mapping[str, Any] | None]) -> list[Repair]:
    """What repair took out or put right in all shards, from their repair.json, by file and reason."""
    counts: Counter[tuple[str, str]] = Counter()
    for content in contents:
        for file, facts in (content or {"files": {}})["files"].items():
            counts.update({(file, reason): count for reason, count in facts["removed"].items()})
            counts.update({(file, f"{reason}, put right"): count for reason, count in facts["changed"].items()})
    return [Repair(*key, count) for key, count in sorted(counts.items())]

"""What a night on a cluster will give: how long what is owed takes in allocations of a given size, and what bounds it.

The model: a shard keeps `parallel` rollouts in flight, each of which takes the mean latency, and as its last one the
longest that was seen. An allocation starts rollouts until its dispatch budget, less the drain margin, is over. Shards
take the jobs in order, the next free job each. Waiting in the queue of the cluster is not in it.
"""

import heapq
import math
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from rollmake.core.latency import MARGIN_QUANTILE, MARGIN_SAMPLES, LatencySummary
from rollmake.core.progress import duration

FEW = 30


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was observed of rollouts that were answered (s)."""

    rollouts: int
    mean_s: float
    p50_s: float
    margin_s: float
    longest_s: float


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to run on. `window_s`: how long an allocation starts rollouts; None for no time limit."""

    jobs: int
    parallel: int
    window_s: float | None = None
    in_flight: int | None = None
    max_per_s: float | None = None


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """`links`: allocations that each shard with something owed takes; `bound`: what ends it no earlier."""

    rollouts: int
    jobs: int
    links: int
    allocations: int
    seconds: float
    bound: str


def evidence(latency: LatencySummary) -> Evidence | None:
    """What a summary of latencies says, None if it is empty."""
    mean, median, longest = latency.mean, latency.quantile(0.5), latency.quantile(1.0)
    margin = latency.quantile(MARGIN_QUANTILE)
    if mean is None or median is None or longest is None or margin is None:
        return None
    return Evidence(
        rollouts=latency.count,
        mean_s=mean,
        p50_s=median,
        margin_s=margin if latency.count >= MARGIN_SAMPLES else 0.0,
        longest_s=longest,
    )


def window_s(budget_s: float | None, margin_s: float) -> float | None:
    """How long an allocation starts rollouts (s); 0 if its budget is no longer than the margin at its end."""
    return None if budget_s is None else max(budget_s - margin_s, 0.0)


def capacity(site: Site, mean_s: float) -> float:
    """Rollouts that one allocation gets done: a slot starts one whenever the last ended, until the window is over."""
    if site.window_s is None:
        return math.inf
    if site.window_s <= 0:
        return 0
    return site.parallel * max(math.ceil(site.window_s / mean_s), 1) if mean_s > 0 else math.inf


def shard_s(owed: int, site: Site, seen: Evidence) -> float:
    """Seconds that a shard collects: its rollouts through its slots, but no less than the longest takes."""
    return max(owed * seen.mean_s / site.parallel, seen.longest_s) if owed else 0.0


def at_once(site: Site, shards: int) -> int:
    """Jobs that run at once: `jobs`, unless fewer shards are owed or fewer jobs' requests fit below `in_flight`."""
    fit = site.jobs if site.in_flight is None else max(site.in_flight // site.parallel, 1)
    return min(site.jobs, fit, shards)


def outlook(owed: Sequence[int], site: Site, seen: Evidence) -> Outlook | None:
    """How the shards that owe `owed` rollouts each will fare; None if an allocation is too short to start any."""
    work = [count for count in owed if count]
    most = capacity(site, seen.mean_s)
    if work and not most:
        return None
    links = [math.ceil(count / most) if most < math.inf else 1 for count in work]
    spans = [shard_s(count, site, seen) for count in work]
    jobs = at_once(site, len(work))
    seconds, limit = makespan(spans, jobs), sum(work) / site.max_per_s if site.max_per_s else 0.0
    return Outlook(
        rollouts=sum(work),
        jobs=jobs,
        links=max(links, default=0),
        allocations=sum(links),
        seconds=max(seconds, limit),
        bound=_bound(work, site, seen, jobs, limited=limit > seconds),
    )


def makespan(spans: Sequence[float], jobs: int) -> float:
    """Seconds until the last of `spans` ends if each in turn takes the first free of `jobs` jobs."""
    free = [0.0] * jobs
    for span in spans:
        heapq.heappush(free, heapq.heappop(free) + span)
    return max(free, default=0.0)


def _bound(work: Sequence[int], site: Site, seen: Evidence, jobs: int, *, limited: bool) -> str:
    if not work:
        return "nothing is owed"
    if limited:
        return f"the servers: {site.max_per_s:g} rollouts per second"
    if jobs < len(work):
        by_cap = site.in_flight is not None and jobs < min(site.jobs, len(work))
        why = f"in_flight: {site.in_flight} requests at once" if by_cap else f"the number of jobs: {site.jobs} at once"
        return f"{why}, for {len(work)} shards"
    if seen.longest_s >= max(work) * seen.mean_s / site.parallel:
        return f"the longest rollout: {duration(seen.longest_s)}"
    return (
        f"concurrency: num_samples_in_parallel {site.parallel} in each shard, and the largest shard owes {max(work):,}"
    )


def fewest_jobs(owed: Sequence[int], site: Site, seen: Evidence, within_s: float) -> Outlook | None:
    """The outlook with the smallest number of jobs at once that ends within `within_s`; None if no number does."""
    shards = sum(1 for count in owed if count)
    low, high = 1, max(at_once(msgspec.structs.replace(site, jobs=max(shards, 1)), shards), 1)

    def ending(jobs: int) -> Outlook | None:
        found = outlook(owed, msgspec.structs.replace(site, jobs=jobs), seen)
        return found if found is not None and found.seconds <= within_s else None

    best = ending(high)
    while best is not None and low < high:
        middle = (low + high) // 2
        found = ending(middle)
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best


def next_time(text: str, now: datetime) -> datetime:
    """The time that `HH:MM` names next, or an ISO time, in the zone of `now`. Raises ValueError."""
    if len(text) <= len("HH:MM"):
        clock = datetime.strptime(text, "%H:%M")
        then = now.replace(hour=clock.hour, minute=clock.minute, second=0, microsecond=0)
        return then if then > now else then + timedelta(days=1)
    then = datetime.fromisoformat(text)
    return then if then.tzinfo else then.replace(tzinfo=now.tzinfo)

"""The outlook and the tail report in words; every number with the evidence that it rests on."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from rollmake.core.deadline import TEARDOWN_S
from rollmake.core.outlook import FEW, Evidence, Outlook, Site
from rollmake.core.progress import duration

# Shards that the tail report names.
WORST = 5


def span(seconds: float) -> str:
    """A span of time to three digits, in minutes and hours where these read better."""
    return f"{seconds:.3g} s" if seconds < 100 else duration(seconds)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """How a sealed shard was collected: seconds that its jobs ran, and seconds that its slots were busy in all."""

    shard: str
    jobs: int
    seconds: float
    p50_s: float
    longest_s: float
    busy_s: float
    parallel: int
    slowest: tuple[int, int, float] | None = None

    @property
    def idle_s(self) -> float:
        """Seconds that the shard took longer than with all its slots busy."""
        return max(self.seconds - self.busy_s / self.parallel, 0.0)


def evidence_line(seen: Evidence | None, *, borrowed: bool) -> str:
    """What is known about how long rollouts take."""
    if seen is None:
        return (
            "  evidence: none; no rollout was answered yet, so nothing is said about time. Collect some first (`limit`)"
        )
    source = "of the config's other runs, since this one has none yet, " if borrowed else ""
    few = f"; with fewer than {FEW} take it as a guess" if seen.rollouts < FEW else ""
    return (
        f"  evidence: {seen.rollouts:,} answered rollouts {source}took {span(seen.mean_s)} on average, "
        f"half of them at most {span(seen.p50_s)}, the longest {span(seen.longest_s)}{few}"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def rate_line(rates: Sequence[float], parallel: int, mean_s: float) -> str:
    """How fast jobs were, beside what their slots would have given; `rates` are rollouts per second, one a shard."""
    shards, slots = _counted(len(rates), "shard"), _counted(parallel, "slot")
    observed = f"{sum(rates) / len(rates):.3g} rollouts/s a job, over the latest jobs of {shards}"
    model = f"; {slots} always busy would give {parallel / mean_s:.3g}/s, which is reckoned with" if mean_s > 0 else ""
    return f"  observed rate: {observed}{model}"


def outlook_lines(
    found: Outlook, site: Site, now: datetime, within_s: float | None, best: Outlook | None
) -> Iterator[str]:
    """When it ends, how many allocations it takes, what bounds it, and what it takes to end in time."""
    end = now + timedelta(seconds=found.seconds)
    yield (
        f"  with {found.jobs} job{'s' if found.jobs != 1 else ''} at once: {duration(found.seconds)}, until about "
        f"{end:%Y-%m-%d %H:%M}, without waiting in the queue"
    )
    yield f"  bound by {found.bound}"
    if site.window_s is None:
        yield "  allocations: as many as shards, if none has a time limit (--runtime-min)"
    else:
        yield (
            f"  allocations: {found.allocations:,}, up to {found.links:,} a shard, each starting rollouts for "
            f"{duration(site.window_s)}; `retries` must be {max(found.links - 1, 0):,} or more"
        )
    if within_s is None:
        return
    if best is None:
        yield "  it does not end in time with any number of jobs"
    else:
        yield f"  to end in time: {best.jobs} at once, {best.allocations:,} in all, {duration(best.seconds)}"


def no_outlook_lines(seen: Evidence, runtime_min: float | None, grace_s: float) -> Iterator[str]:
    """Why an allocation cannot start anything."""
    limit = "its dispatch budget" if runtime_min is None else f"{runtime_min:g} min"
    yield (
        f"  an allocation of {limit} starts no rollout: of it go a grace of {grace_s:g} s, {TEARDOWN_S:g} s for the end "
        f"and a drain margin of {span(seen.margin_s)}. Ask for a longer one, or set `drain_margin_s`"
    )


def held_lines(shards: Iterable[Held]) -> Iterator[str]:
    """The shards that lost most time to their tails, and the rows behind it where these say how long they took."""
    found = sorted(shards, key=lambda held: held.idle_s, reverse=True)
    if not found:
        return
    yield f"  held up, of {len(found):,} sealed shard{'s' if len(found) != 1 else ''}:"
    for held in found[:WORST]:
        row = ""
        if held.slowest is not None:
            task, rollout, seconds = held.slowest
            row = f"; its slowest rollout is task {task}, rollout {rollout}: {span(seconds)}"
        yield (
            f"    {held.shard}: {duration(held.seconds)} in {held.jobs} job{'s' if held.jobs != 1 else ''}, "
            f"{duration(held.idle_s)} of it with idle slots; half took at most {span(held.p50_s)}, the longest "
            f"{span(held.longest_s)}{row}"
        )

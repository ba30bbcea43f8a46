"""How far a shard is: the figures that the log, progress.json and collection.json share."""

from collections.abc import Mapping
from typing import Any

from rollmake.core.excerpts import one_line
from rollmake.core.ledger import Ledger
from rollmake.core.tally import Tally

PROGRESS_VERSION = 1
# Classes of failures that a line names, those of most rollouts, and characters of each name.
MOST_NAMES, NAME_LENGTH = 5, 80


def progress(shard: str, ledger: Ledger, tally: Tally, *, elapsed_s: float, state: str) -> dict[str, Any]:
    """The content of progress.json without its times; `elapsed_s` is how long this job has been collecting."""
    rate = tally.stored / elapsed_s if elapsed_s > 0 and tally.stored else None
    done = int(ledger.done.sum())
    return {
        "version": PROGRESS_VERSION,
        "shard": shard,
        "state": state,
        "owed": len(ledger),
        "done": done,
        "unsettled": ledger.owed,
        "failed_by_class": ledger.failed_by_class(),
        "gated": int(ledger.gated.sum()),
        "omitted": tally.unstored,
        "in_flight": tally.in_flight,
        "requests": tally.requests,
        "rate_per_s": rate,
        "eta_s": ledger.owed / rate if rate else None,
        "reward": ratio(tally.reward_sum, tally.scored),
        "reward_unmasked": ratio(tally.unmasked_sum, tally.unmasked),
        # If everything that is missing, failed or masked counted as 0.
        "reward_lower_bound": ratio(tally.unmasked_sum, len(ledger)),
        "masked_share": ratio(tally.masked, done),
        "latency_s": {name: tally.latency.quantile(q) for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))},
        "latency": tally.latency.to_dict(),
    }


def ratio(part: float, whole: int) -> float | None:
    """`part` of `whole`, None of nothing."""
    return part / whole if whole else None


def opening_line(figures: dict[str, Any], *, accepting: bool = False) -> str:
    """One line for the log at the start of a job: what is kept of earlier ones, and what is asked for.

    With `accepting` nothing is: the shard is published as it is.
    """
    given_up = f", {figures['gated']} given up" if figures["gated"] else ""
    kept = f"{figures['done']} of {figures['owed']} rollouts are kept, " if figures["done"] else ""
    fate = "owed, and published without them" if accepting and figures["unsettled"] else "to be asked for"
    return f"{figures['shard']}: {kept}{figures['unsettled']} {fate}{given_up}"


def progress_line(figures: dict[str, Any]) -> str:
    """One line for the log: done of owed, failures by class, rate, time left, latency, reward so far."""
    parts = [f"{figures['shard']}: {figures['done']} of {figures['owed']} done"]
    parts += [f"{count} {name}" for name, count in frequent(figures["failed_by_class"])]
    parts += [f"{figures[key]} {text}" for key, text in (("gated", "given up"), ("omitted", "omitted")) if figures[key]]
    parts.append(f"{figures['in_flight']} in flight")
    if figures["rate_per_s"]:
        parts.append(f"{figures['rate_per_s']:.3g}/s, about {duration(figures['eta_s'])} left")
    if figures["latency_s"]["p50"] is not None:
        parts.append("latency " + " ".join(f"{name} {value:.3g} s" for name, value in figures["latency_s"].items()))
    return ", ".join(parts + _rewards(figures))


def frequent(by_class: Mapping[str, int]) -> list[tuple[str, int]]:
    """The classes with most rollouts, as people read their names, and all others in one."""
    named = sorted(by_class.items(), key=lambda item: -item[1])
    found = [(one_line(name, NAME_LENGTH) or "unnamed failure", count) for name, count in named[:MOST_NAMES]]
    if rest := named[MOST_NAMES:]:
        found.append(("of other classes", sum(count for _, count in rest)))
    return found


def _rewards(figures: dict[str, Any]) -> list[str]:
    if figures["reward"] is None:
        return []
    parts = [f"reward {figures['reward']:.4f}, at least {figures['reward_lower_bound']:.4f} in the end"]
    if figures["masked_share"] or figures["omitted"]:
        unmasked = figures["reward_unmasked"]
        rest = "" if unmasked is None else f", reward over the others {unmasked:.4f}"
        parts.append(f"{figures['masked_share'] or 0:.1%} masked{rest}")
    return parts


def duration(seconds: float) -> str:
    """A span of time for people: `42 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"

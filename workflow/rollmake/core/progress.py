"""How far a shard is: the one figure that the log, progress.json and collection.json share."""

from typing import Any

from rollmake.core.ledger import Ledger
from rollmake.core.tally import Tally

PROGRESS_VERSION = 1


def progress(shard: str, ledger: Ledger, tally: Tally, *, elapsed_s: float, state: str) -> dict[str, Any]:
    """The content of progress.json without its times; `elapsed_s` is how long this job has been collecting."""
    rate = tally.stored / elapsed_s if elapsed_s > 0 and tally.stored else None
    return {
        "version": PROGRESS_VERSION,
        "shard": shard,
        "state": state,
        "owed": len(ledger),
        "done": int(ledger.done.sum()),
        "unsettled": ledger.owed,
        "failed_by_class": ledger.failed_by_class(),
        "gated": int(ledger.gated.sum()),
        "in_flight": tally.in_flight,
        "requests": tally.requests,
        "rate_per_s": rate,
        "eta_s": ledger.owed / rate if rate else None,
        "latency_s": {name: tally.latency.quantile(q) for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))},
        "latency": tally.latency.to_dict(),
    }


def progress_line(figures: dict[str, Any], tally: Tally) -> str:
    """One line for the log: done of owed, failures by class, rate, time left, latency, reward so far."""
    parts = [f"{figures['shard']}: {figures['done']} of {figures['owed']} done"]
    parts += [f"{count} {name}" for name, count in figures["failed_by_class"].items()]
    if figures["gated"]:
        parts.append(f"{figures['gated']} given up")
    parts.append(f"{figures['in_flight']} in flight")
    if figures["rate_per_s"]:
        parts.append(f"{figures['rate_per_s']:.3g}/s, about {duration(figures['eta_s'])} left")
    if figures["latency_s"]["p50"] is not None:
        parts.append("latency " + " ".join(f"{name} {value:.3g} s" for name, value in figures["latency_s"].items()))
    if tally.scored:
        parts.append(f"mean reward {tally.reward_sum / tally.scored:.4f} of {tally.scored} in this job")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A span of time for people: `42 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"

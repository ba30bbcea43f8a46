"""What a collector counts while it runs, for its progress and for collection.json."""

from rollmake.core.latency import LatencySummary
from rollmake.core.outcome import Destination, Outcome


class Tally:
    """Counts of one job; `latency` goes on from what earlier jobs of the shard saw."""

    def __init__(self, latency: LatencySummary | None = None) -> None:
        self.latency = latency or LatencySummary()
        self.requests = 0
        self.in_flight = 0
        self.stored = 0
        self.unstored = 0
        self.scored = 0
        self.reward_sum = 0.0

    def add(self, outcome: Outcome, latency_s: float) -> None:
        """Count what became of an attempt that took `latency_s` seconds."""
        if outcome.destination is Destination.NOWHERE:
            self.unstored += 1
            return
        self.stored += 1
        if outcome.destination is Destination.ROLLOUTS:
            self.latency.add(latency_s)
            if outcome.reward is not None and not outcome.masked:
                self.scored += 1
                self.reward_sum += outcome.reward

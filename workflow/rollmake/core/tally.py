"""What a collector counts while it runs, for its progress and for collection.json."""

import polars as pl

from rollmake.core.latency import LatencySummary
from rollmake.core.outcome import Destination, Outcome


class Tally:
    """Counts of one job; rewards and `latency` go on from what earlier jobs of the shard stored and saw."""

    def __init__(self, latency: LatencySummary | None = None) -> None:
        self.latency = latency or LatencySummary()
        self.requests = 0
        self.in_flight = 0
        # Records that this job stored, and answers that were not to be stored.
        self.stored = 0
        self.unstored = 0
        # Stored rollouts whose reward is a number: all of them, and those that are not masked.
        self.scored = self.unmasked = 0
        self.reward_sum = self.unmasked_sum = 0.0
        self.masked = 0

    def begin(self, facts: pl.DataFrame) -> None:
        """Take in the rollouts that earlier jobs stored (columns reward, masked)."""
        scored = facts.filter(pl.col("reward").is_not_null())
        unmasked = scored.filter(~pl.col("masked"))
        self.masked += int(facts["masked"].sum())
        self.scored, self.reward_sum = len(scored), float(scored["reward"].sum())
        self.unmasked, self.unmasked_sum = len(unmasked), float(unmasked["reward"].sum())

    def add(self, outcome: Outcome, latency_s: float) -> None:
        """Count what became of an attempt that took `latency_s` seconds."""
        if outcome.destination is Destination.NOWHERE:
            self.unstored += 1
            return
        self.stored += 1
        if outcome.destination is Destination.ROLLOUTS:
            self.latency.add(latency_s)
            self._add_reward(outcome.reward, outcome.masked)

    def _add_reward(self, reward: float | None, masked: bool) -> None:
        self.masked += masked
        if reward is None:
            return
        self.scored += 1
        self.reward_sum += reward
        if not masked:
            self.unmasked += 1
            self.unmasked_sum += reward

"""The standing of every rollout of a shard while it is collected: a few bytes each, whatever the replies weigh."""

from collections import Counter

import numpy as np
import polars as pl

from rollmake.core.outcome import Destination, Outcome
from rollmake.core.settlement import still_owed


class Ledger:
    """Built from a `settlement` frame, position by position; `limit` is `max_attempts`."""

    def __init__(self, settled: pl.DataFrame, limit: int, *, longest_first: bool = False) -> None:
        self.limit = limit
        self.done = settled["done"].to_numpy().astype(bool)
        self.terminal = settled["terminal"].to_numpy().astype(bool)
        self.attempts = settled["attempts"].to_numpy().astype(np.int32)
        self.reuse = settled["reuse"].to_numpy().astype(bool)
        self._classes: list[str] = []
        self._class_ids: dict[str, int] = {}
        self._last = np.array([self._class_id(name) for name in settled["failure_class"]], dtype=np.int16)
        self._order = still_owed(settled, limit, longest_first=longest_first).to_numpy()
        # Not stored by the wish of the server: owed, but not asked for again by this job.
        self.unstored = np.zeros(len(self.done), dtype=bool)

    def __len__(self) -> int:
        return len(self.done)

    @property
    def settled(self) -> np.ndarray:
        """Whether each rollout needs nothing more: succeeded, terminal, or out of attempts."""
        return self.done | self.gated

    @property
    def gated(self) -> np.ndarray:
        """Whether each rollout has failed for good: terminal, or out of attempts."""
        return ~self.done & (self.terminal | (self.attempts >= self.limit))

    @property
    def owed(self) -> int:
        """How many rollouts are not settled."""
        return int(len(self) - self.settled.sum())

    def to_dispatch(self) -> np.ndarray:
        """The positions to ask for in the next pass, in order."""
        wanted = ~self.settled & ~self.unstored
        return self._order[wanted[self._order]]

    def record(self, position: int, outcome: Outcome) -> None:
        """Take note of what became of an attempt."""
        match outcome.destination:
            case Destination.ROLLOUTS:
                self.done[position] = True
            case Destination.SIDECAR:
                self.attempts[position] += 1
                self.terminal[position] |= outcome.terminal
                self._last[position] = self._class_id(outcome.failure_class)
            case Destination.NOWHERE:
                self.unstored[position] = True

    def failed_by_class(self) -> dict[str, int]:
        """Rollouts without a success that were tried, by the class of their last attempt."""
        ids = self._last[~self.done & (self._last >= 0)]
        counts = Counter(self._classes[i] for i in ids)
        return dict(sorted(counts.items()))

    def _class_id(self, name: str | None) -> int:
        if name is None:
            return -1
        if name not in self._class_ids:
            self._class_ids[name] = len(self._classes)
            self._classes.append(name)
        return self._class_ids[name]

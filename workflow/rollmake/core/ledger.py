"""The standing of every rollout of a shard while it is collected: a few bytes each, whatever the replies weigh."""

import numpy as np
import polars as pl

from rollmake.core.outcome import Destination, Outcome
from rollmake.core.settlement import ends_tries, given_up

KEY = ["task", "rollout"]
# Classes of failures that are counted apart; a server that names ever new ones must not fill the memory.
MOST_CLASSES = 1000
OTHERS = "(other classes)"


class Ledger:
    """What is done, tried and given up, position by position in the order of the plan.

    `owed` has the keys of the shard (task, rollout), `successes` and `failures` are what `core.settlement` reads in its
    journal; rows of other keys say nothing. `limit` is `max_attempts`. With `longest_first` the rollouts that are known
    to take long are dispatched first.
    """

    def __init__(
        self,
        owed: pl.DataFrame,
        successes: pl.DataFrame,
        failures: pl.DataFrame,
        limit: int,
        *,
        longest_first: bool = False,
        retry_terminal_timeouts: bool = False,
    ) -> None:
        self.limit = limit
        self._retries_timeouts = retry_terminal_timeouts
        self.done = np.zeros(len(owed), dtype=bool)
        self.terminal = np.zeros(len(owed), dtype=bool)
        self.reuse = np.zeros(len(owed), dtype=bool)
        # Not stored by the wish of the server: owed, but not asked for again by this job.
        self.unstored = np.zeros(len(owed), dtype=bool)
        self.attempts = np.zeros(len(owed), dtype=np.int32)
        self._classes: list[str] = []
        self._class_ids: dict[str, int] = {}
        self._last = np.full(len(owed), -1, dtype=np.int16)
        self._order: np.ndarray | None = None
        if len(successes) or len(failures):
            places = positions(owed, pl.concat([successes.select(KEY), failures.select(KEY)]))
            successful, failed = places[: len(successes)], places[len(successes) :]
            self.done[successful[successful >= 0]] = True
            self._take_in(failures.filter(pl.Series(failed >= 0)), failed[failed >= 0], longest_first)

    def _take_in(self, failures: pl.DataFrame, places: np.ndarray, longest_first: bool) -> None:
        """Count what was tried; the last row of a rollout names its class."""
        np.add.at(self.attempts, places, 1)
        self.terminal[places[failures["terminal"].to_numpy()]] = True
        self.reuse[places[failures["reuse"].to_numpy()]] = True
        ids = {name: self._class_id(name) for name in failures["failure_class"].unique(maintain_order=True)}
        self._last[places] = failures["failure_class"].replace_strict(ids, return_dtype=pl.Int16).to_numpy()
        if longest_first:
            elapsed = np.full(len(self), -1.0)
            np.maximum.at(elapsed, places, failures["elapsed_s"].fill_null(-1.0).to_numpy())
            self._order = np.argsort(-elapsed, kind="stable")

    def __len__(self) -> int:
        return len(self.done)

    @property
    def settled(self) -> np.ndarray:
        """Whether each rollout needs nothing more: succeeded, terminal, or out of attempts."""
        return self.done | self.gated

    @property
    def gated(self) -> np.ndarray:
        """Whether each rollout has failed for good: terminal, or out of attempts."""
        return given_up(self.done, self.terminal, self.attempts, self.limit)

    @property
    def owed(self) -> int:
        """How many rollouts are not settled."""
        return int(len(self) - self.settled.sum())

    def to_dispatch(self) -> np.ndarray:
        """The positions to ask for in the next pass, in order."""
        wanted = ~self.settled & ~self.unstored
        return np.flatnonzero(wanted) if self._order is None else self._order[wanted[self._order]]

    def record(self, position: int, outcome: Outcome) -> None:
        """Take note of what became of an attempt."""
        match outcome.destination:
            case Destination.ROLLOUTS:
                self.done[position] = True
            case Destination.SIDECAR:
                self.attempts[position] += 1
                ends = ends_tries(outcome.failure_class, outcome.terminal, self._retries_timeouts)
                self.terminal[position] |= ends
                self.reuse[position] |= outcome.reuse
                self._last[position] = self._class_id(str(outcome.failure_class))
            case Destination.NOWHERE:
                self.unstored[position] = True

    def failed_by_class(self) -> dict[str, int]:
        """Rollouts without a success that were tried, by the class of their last attempt."""
        counts = np.bincount(self._last[~self.done & (self._last >= 0)], minlength=len(self._classes)).tolist()
        return {name: count for name, count in sorted(zip(self._classes, counts, strict=True)) if count}

    def _class_id(self, name: str) -> int:
        if name not in self._class_ids and len(self._classes) >= MOST_CLASSES:
            name = OTHERS
        if name not in self._class_ids:
            self._class_ids[name] = len(self._classes)
            self._classes.append(name)
        return self._class_ids[name]


def positions(owed: pl.DataFrame, keys: pl.DataFrame) -> np.ndarray:
    """Where each of `keys` stands in `owed` (both with task and rollout), -1 for one that it does not have."""
    tasks, span = owed["task"].to_numpy(), int(owed["rollout"].max() or 0) + 1
    known = np.unique(tasks)
    place = np.searchsorted(known, keys["task"].to_numpy()).clip(max=max(len(known) - 1, 0))
    found = known[place] == keys["task"].to_numpy() if len(known) else np.zeros(len(keys), dtype=bool)
    mine = np.searchsorted(known, tasks) * span + owed["rollout"].to_numpy()
    rollouts = keys["rollout"].to_numpy()
    found &= (rollouts >= 0) & (rollouts < span)
    theirs = place * span + np.where(found, rollouts, 0)
    order = np.argsort(mine, kind="stable")
    at = np.searchsorted(mine, theirs, sorter=order).clip(max=max(len(mine) - 1, 0))
    if len(mine):
        found &= mine[order[at]] == theirs
        return np.where(found, order[at], -1)
    return np.full(len(keys), -1)

"""When to stop starting rollouts, so that what is started can still end (NeMo Gym contract, section 3.3)."""

from array import array

from rollmake.core.latency import drain_margin

# The margin is worked out again when the number of finished rollouts has grown by this much.
GROWTH = 1.05
# What a job needs beside its grace to seal its shard and to stop servers before its time limit kills it.
TEARDOWN_S = 60.0


class Deadline:
    """Admits a rollout while more time remains than `margin_s`, or than three quarters of the finished ones took.

    `at` is on the caller's clock (s), None for no deadline. Durations take 8 bytes each, and only with a deadline.
    """

    def __init__(self, at: float | None, margin_s: float | None) -> None:
        self.at = at
        self._configured = margin_s
        self._durations = array("d")
        self._margin = drain_margin(self._durations, margin_s)
        self._due = 1

    def note(self, duration_s: float) -> None:
        """Take in how long a rollout took that is finished."""
        if self.at is None or self._configured is not None:
            return
        self._durations.append(duration_s)
        if len(self._durations) >= self._due:
            self._margin = drain_margin(self._durations, None)
            self._due = max(len(self._durations) + 1, int(len(self._durations) * GROWTH))

    def admits(self, now: float) -> bool:
        """Whether a rollout may start at `now`."""
        if self.at is None:
            return True
        remaining = self.at - now
        return remaining > 0 and (self._margin is None or remaining >= self._margin)


def budget_s(option: float | str | None, runtime_min: float | None, grace_s: float) -> float | None:
    """Seconds that a job may start rollouts for; `auto` is its own time limit less what it takes to end in good order."""
    if option != "auto":
        return None if option is None else float(option)
    return None if runtime_min is None else max(0.0, runtime_min * 60.0 - grace_s - TEARDOWN_S)

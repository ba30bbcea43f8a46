"""What the report shows of subsets: the score of each, and beside it the coverage it rests on."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rollmake.core.passk import AVERAGE_OF_K, NO_ANSWER, highest_k
from rollmake.core.report import Basis, Score, basis


class Subset(msgspec.Struct, frozen=True, kw_only=True):
    """One subset of the tasks, over all servers; the name is empty for tasks without one.

    `scores` are label of the server, name of the metric, and its value in per cent.
    """

    name: str
    basis: Basis
    missing: int
    failed: int
    scores: list[tuple[str, str, float]]


def subsets(entries: Sequence[Mapping[str, Any]], scores: Sequence[Score], coverage: Mapping[str, Any]) -> list[Subset]:
    """The subsets by name; none if the config names no `subset_key`. `scores` are those of `entries`, in their order."""
    found = []
    for name, numbers in sorted(coverage.get("subsets", {}).items()):
        means = [
            (score.label, metric, value)
            for entry, score in zip(entries, scores, strict=False)
            for metric, value in _means(entry.get("agent_metrics") or {}, name).items()
        ]
        failed = sum(numbers["failed_by_class"].values())
        row = Subset(name=name, basis=basis(numbers), missing=numbers["missing"], failed=failed, scores=means)
        found.append(row)
    return found


def _means(metrics: Mapping[str, Any], subset: str) -> dict[str, float]:
    """The mean over the tasks of a subset, of as many repeats as there are, by the name of its score."""
    start = f"{subset}/"
    own = {name.removeprefix(start): value for name, value in metrics.items() if subset and name.startswith(start)}
    highest = highest_k(own, AVERAGE_OF_K)
    return {
        name: value
        for name, value in highest.items()
        if isinstance(value, int | float) and not name.endswith(f"/{NO_ANSWER}")
    }

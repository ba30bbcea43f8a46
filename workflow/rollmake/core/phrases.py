"""Numbers and coverage in words."""

from collections.abc import Mapping
from typing import Any

from rollmake.core.report import Basis


def headline(basis: Basis, unreadable: int = 0) -> str:
    """What every score of the run rests on, in one sentence; `unreadable` lines may be rollouts that are owed as well."""
    if unreadable and basis.expected:
        lines = f"{plural(unreadable, 'line')} that may be more of them cannot be read"
        return f"The score rests on {basis.scored:,} of {plural(basis.expected, 'known rollout')}; {lines}."
    if not basis.expected and not unreadable:
        return "This run expects no rollouts, so there is nothing to score."
    if basis.complete and not unreadable:
        return f"Complete: {basis.scored:,} of {plural(basis.expected, 'expected rollout')} scored."
    if not basis.scored and not basis.imputed:
        return f"No score: none of {plural(basis.expected, 'expected rollout')} was scored."
    return f"The score rests on {basis.scored:,} of {plural(basis.expected, 'expected rollout')}."


def warnings(numbers: Mapping[str, Any], scored_servers: int) -> list[str]:
    """What qualifies the scores, worst first, by the run's numbers in coverage.json."""
    failed = numbers["failed_by_class"]
    ordered = sorted(failed.items(), key=lambda one: (-one[1], one[0]))
    classes = ", ".join(f"{name} {count:,}" for name, count in ordered)
    counts = {
        "left no row at all and {are} in no score": numbers["missing"],
        f"failed ({classes}) and {{are}} in no score": sum(failed.values()),
        "{have} no result, but {count} in the score as configured": numbers["imputed"],
        "without result {are} not asked for again: terminal, or out of attempts": numbers["gated"],
        "{are} masked: answered, but left out of the score": numbers["masked"],
        "{have} no numeric reward and {are} in no score": numbers["unscored"],
        "{are} answered, but without the name of an agent or server, and {are} in no score": numbers["unrouted"],
    }
    said = [f"{plural(count, 'rollout')} {_verbs(what, count)}." for what, count in counts.items() if count]
    said += _lost(numbers["lost_lines"], sum(numbers["unreadable_lines"].values()))
    if numbers["expected"] and not scored_servers:
        said.append("There are no aggregate metrics, so this page shows no score.")
    return said


def _lost(lines: Mapping[str, int], unreadable: int) -> list[str]:
    reasons, count = ", ".join(f"{name} {count:,}" for name, count in lines.items()), sum(lines.values())
    where = "see quarantine.jsonl of the shards"
    taken = f"{plural(count, 'damaged line')} {_verbs('{were}', count)} taken out of the rollouts ({reasons}); {where}."
    each = (
        f"{plural(unreadable, 'damaged line')} may each be one more rollout: nothing else says what is owed; {where}."
    )
    return [text for text, there in ((each, unreadable), (taken, count)) if there]


def _verbs(what: str, count: int) -> str:
    for verb, one in (("are", "is"), ("were", "was"), ("have", "has"), ("count", "counts")):
        what = what.replace(f"{{{verb}}}", one if count == 1 else verb)
    return what


def plural(count: int, noun: str) -> str:
    """`1 rollout`, `1,200 rollouts`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number(value: float) -> str:
    """Four significant digits, whole numbers whole, thousands apart."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def percent(share: float) -> str:
    """A percentage that is 0 % or 100 % only if it is exactly that."""
    if 0 < share < 0.1:
        return "under 0.1 %"
    if 99.9 < share < 100:
        return "over 99.9 %"
    return f"{share:.1f} %".replace(".0 %", " %")


def seconds(value: float) -> str:
    """A duration with three significant digits in the unit that fits it."""
    for limit, unit, size in ((1, "ms", 1e-3), (120, "s", 1), (7200, "min", 60)):
        if value < limit:
            return f"{value / size:.3g} {unit}"
    return f"{value / 3600:,.1f} h"

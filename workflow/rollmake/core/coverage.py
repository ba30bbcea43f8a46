"""What stands beside every score: what it rests on, and what became of the others (NeMo Gym contract 3.4)."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

import polars as pl

from rollmake.core.lost import NOTHING_LOST, Lost
from rollmake.core.settlement import given_up

KEY = ["server", "task", "rollout"]
UNCLASSIFIED = "unclassified"
LISTED_KEYS = 1000
NAMED_KEYS = 5


class State(StrEnum):
    """What became of a rollout; each is in exactly one of these."""

    SCORED = "scored"  # answered, with a numeric reward
    UNSCORED = "unscored"  # answered, or counted although it failed, but without a numeric reward
    MASKED = "masked"  # answered, but its verifier said to leave it out
    UNROUTED = "unrouted"  # answered, but with neither a server nor an agent named, so that nobody scores it
    IMPUTED = "imputed"  # no result, but in the score all the same, by `count_*_as_zero`
    FAILED = "failed"  # no result: only rows in the sidecar, and the class of the last one does not count
    MISSING = "missing"  # no row at all


def states(
    owed: pl.DataFrame,
    stored: pl.DataFrame,
    failures: pl.DataFrame,
    *,
    count_classes: Collection[str] = (),
    count_missing: bool = False,
) -> pl.DataFrame:
    """One line for each rollout that is owed or has a row: KEY, agent, failure_class, state, stored, attempts, terminal.

    All frames have server, task and rollout; `owed` has agent, `stored` masked and numeric (is the reward a number?).
    `failures` has failure_class and numeric (would its reward be a number?) of a rollout's last row in the sidecar, how
    many rows that are (`attempts`), and whether one of them says that it must not be tried again (`terminal`). A rollout
    without a server cannot be imputed. `failure_class` is null for a rollout without a row in the sidecar.
    """
    last = failures.rename({"numeric": "failure_numeric"}).with_columns(
        pl.col("failure_class").fill_null(UNCLASSIFIED), failed=True
    )
    keys = pl.concat([owed.select(KEY), stored.select(KEY), last.select(KEY)]).unique(maintain_order=True)
    known = keys.join(owed.unique(KEY), on=KEY, how="left", nulls_equal=True)
    known = known.join(stored.with_columns(stored=True), on=KEY, how="left", nulls_equal=True)
    known = known.join(last, on=KEY, how="left", nulls_equal=True)
    counted = pl.col("failure_class").is_in(list(count_classes))
    imputable = pl.lit(count_missing) & pl.col("server").is_not_null()
    state = (
        pl.when(pl.col("stored"), pl.col("server").is_null())
        .then(pl.lit(State.UNROUTED))
        .when("stored", "masked")
        .then(pl.lit(State.MASKED))
        .when("stored", "numeric")
        .then(pl.lit(State.SCORED))
        .when("stored")
        .then(pl.lit(State.UNSCORED))
        .when(pl.col("failed") & ~counted)
        .then(pl.lit(State.FAILED))
        .when(pl.col("failed") & ~pl.col("failure_numeric"))
        .then(pl.lit(State.UNSCORED))
        .when(pl.col("failed") | imputable)
        .then(pl.lit(State.IMPUTED))
        .otherwise(pl.lit(State.MISSING))
    )
    return known.select(
        *KEY,
        "agent",
        "failure_class",
        state=state,
        stored=pl.col("stored").fill_null(False),
        attempts=pl.col("attempts").fill_null(0),
        terminal=pl.col("terminal").fill_null(False),
    )


def coverage(
    states: pl.DataFrame, max_attempts: int, lost: Lost = NOTHING_LOST, *, repaired: str = ""
) -> dict[str, Any]:
    """The content of coverage.json: the numbers of the run, and the same by server, agent and, if it is known, subset.

    `expected` = `scored` + `unscored` + `masked` + `unrouted` + `imputed` + the sum of `failed_by_class` + `missing`.
    `recorded` is what the reference calls scored: every rollout with a row in the metrics, `answered` every one with a
    result of its own, whatever that says. `gated` are those without one that are not to be asked for again, since they
    are terminal or had `max_attempts`; they are among the failed, imputed and unscored. `imputed_missing` are those of
    `imputed` that left no row. `missing_keys`, `imputed_keys` and `unrouted_keys` list the first 1000 of those as
    [task, rollout]. The name of an absent server, agent or subset is empty. `lost_lines` and `unreadable_lines` are what
    `lost` says: what is unreadable is in no other number. `repaired` is the digest of the shards that this is about.
    """
    gated = given_up(pl.col("stored"), pl.col("terminal"), pl.col("attempts"), max_attempts)
    states = states.with_columns(gated=gated)
    parts = {
        f"{column}s": {
            name: _gated_numbers(part)
            for (name,), part in states.with_columns(pl.col(column).fill_null(""))
            .sort(column)
            .partition_by(column, as_dict=True, maintain_order=True)
            .items()
        }
        for column in ("server", "agent", "subset")
        if column in states.columns
    }
    about = {"lost_lines": lost.by_reason, "unreadable_lines": lost.unreadable, "repaired": repaired}
    return _gated_numbers(states) | about | parts


def _gated_numbers(states: pl.DataFrame) -> dict[str, Any]:
    return numbers(states) | {"gated": int(states["gated"].sum())}


def numbers(states: pl.DataFrame) -> dict[str, Any]:
    """The numbers of some rollouts."""
    counts = dict(states.group_by("state").len().iter_rows())
    failed = states.filter(pl.col("state") == State.FAILED).group_by("failure_class").len().sort("failure_class")
    found = {state.value: counts.get(state.value, 0) for state in State if state is not State.FAILED}
    return {
        "expected": len(states),
        "recorded": sum(found.values()) - found["missing"] - found["unrouted"],
        "answered": int(states["stored"].sum()),
        **found,
        "imputed_missing": len(states.filter(pl.col("state") == State.IMPUTED, pl.col("failure_class").is_null())),
        "failed_by_class": dict(failed.iter_rows()),
        "missing_keys": _keys(states, State.MISSING),
        "imputed_keys": _keys(states, State.IMPUTED),
        "unrouted_keys": _keys(states, State.UNROUTED),
    }


def _keys(states: pl.DataFrame, state: State) -> list[list[int]]:
    keys = states.filter(pl.col("state") == state).select("task", "rollout").sort("task", "rollout")
    return [list(key) for key in keys.head(LISTED_KEYS).iter_rows()]


def incomplete(numbers: Mapping[str, Any]) -> str | None:
    """What a run lacks by its coverage.json, in words; None if every rollout that is owed has a result."""
    lacking = numbers["expected"] - numbers["answered"]
    found = [f"{lacking} of {numbers['expected']} rollouts have no result{_lacking(numbers)}"] if lacking else []
    if unreadable := numbers["unreadable_lines"]:
        shards = [f"{name} {count}" for name, count in list(unreadable.items())[:NAMED_KEYS]]
        more = f" and {len(unreadable) - NAMED_KEYS} more" if len(unreadable) > NAMED_KEYS else ""
        found.append(
            f"damaged lines may each be a rollout that nothing else says to be owed ({sum(unreadable.values())} in all), "
            f"see repaired/SHARD/quarantine.jsonl of {', '.join(shards)}{more}"
        )
    if not numbers["expected"] and not unreadable:
        found.append("no rollout is owed")
    return "; ".join(found) or None


def _lacking(numbers: Mapping[str, Any]) -> str:
    failed = [f"{name} {count}" for name, count in numbers["failed_by_class"].items()]
    parts = [f"{numbers['missing']} left no row"] if numbers["missing"] else []
    parts += [f"failed: {', '.join(failed)}"] if failed else []
    parts += [f"{numbers['imputed']} only count as zero"] if numbers["imputed"] else []
    keys = ", ".join(f"task {task} rollout {rollout}" for task, rollout in numbers["missing_keys"][:NAMED_KEYS])
    said = f" ({'; '.join(parts)})" if parts else ""
    return said + (f"; the first that left none: {keys}" if keys else "")

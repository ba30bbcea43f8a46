"""Which rollouts of a shard are settled, and which are still owed, given what its journal holds."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import polars as pl

from rollmake.core.contract import FAILURE_CLASS, FAILURE_TERMINAL, MASK, REUSE, REWARD, ROLLOUT, TASK
from rollmake.core.latency import elapsed_seconds

DEFAULT_ATTEMPTS = 3
ATTEMPTS_VARIABLE = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
# With `retry_terminal_timeouts` these are asked again whatever their flag says, and `skipped` never is.
NEVER_TERMINAL = frozenset({"timeout_exceeded", "reference_missing", "eval_missing", "transport_ineligible"})
ALWAYS_TERMINAL = frozenset({"skipped"})

KEY = {"task": pl.Int64, "rollout": pl.Int64}
SUCCESS = {**KEY, "reward": pl.Float64, "masked": pl.Boolean}
FAILURE = {**KEY, "failure_class": pl.String, "terminal": pl.Boolean, "reuse": pl.Boolean, "elapsed_s": pl.Float64}


class _Key(msgspec.Struct):
    task: int | None = msgspec.field(name=TASK, default=None)
    rollout: int | None = msgspec.field(name=ROLLOUT, default=None)


class _Success(_Key):
    reward: Any = msgspec.field(name=REWARD, default=None)
    masked: Any = msgspec.field(name=MASK, default=None)


NO_KEY = _Key()


def max_attempts(configured: int | None, variables: Mapping[str, str]) -> int:
    """Attempts that a rollout gets: the option, else the environment variable, else 3 (NeMo Gym contract, section 3)."""
    if configured is not None:
        return configured
    text = variables.get(ATTEMPTS_VARIABLE, "")
    try:
        return int(text) if int(text) >= 1 else DEFAULT_ATTEMPTS
    except ValueError:
        return DEFAULT_ATTEMPTS


def is_terminal(failure: Mapping[str, Any], retry_terminal_timeouts: bool = False) -> bool:
    """Whether a sidecar row says that its rollout must not be tried again (NeMo Gym contract, section 3)."""
    if retry_terminal_timeouts and failure.get(FAILURE_CLASS) in NEVER_TERMINAL:
        return False
    if retry_terminal_timeouts and failure.get(FAILURE_CLASS) in ALWAYS_TERMINAL:
        return True
    return bool(failure.get(FAILURE_TERMINAL))


def keys(lines: Iterable[bytes]) -> pl.DataFrame:
    """The key of every line, `KEY` columns; both are null for one that is blank, unreadable or without identity."""
    decoder = msgspec.json.Decoder(_Key)
    tasks: list[int | None] = []
    rollouts: list[int | None] = []
    for line in lines:
        try:
            key = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            key = NO_KEY
        whole = key.task is not None and key.rollout is not None
        tasks.append(key.task if whole else None)
        rollouts.append(key.rollout if whole else None)
    return pl.DataFrame({"task": tasks, "rollout": rollouts}, schema=KEY)


def success_facts(lines: Iterable[bytes]) -> pl.DataFrame:
    """Key, reward (null if it is no number) and mask of stored rollouts, `SUCCESS` columns; lines without key are left out."""
    decoder = msgspec.json.Decoder(_Success)
    facts = []
    for line in lines:
        try:
            row = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if row.task is not None and row.rollout is not None:
            reward = float(row.reward) if isinstance(row.reward, (int, float)) else None
            facts.append((row.task, row.rollout, reward, bool(row.masked)))
    return pl.DataFrame(facts, schema=SUCCESS, orient="row")


def failure_facts(lines: Iterable[bytes], retry_terminal_timeouts: bool = False) -> pl.DataFrame:
    """What the rows of a sidecar say of their rollouts, `FAILURE` columns in the order of the file."""
    facts = []
    for line in lines:
        try:
            row = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if not isinstance(row, dict) or not isinstance(row.get(TASK), int) or not isinstance(row.get(ROLLOUT), int):
            continue
        facts.append(failure_fact(row, retry_terminal_timeouts))
    return pl.DataFrame(facts, schema=FAILURE, orient="row")


def failure_fact(
    row: Mapping[str, Any], retry_terminal_timeouts: bool
) -> tuple[int, int, str, bool, bool, float | None]:
    """One sidecar row with identity as a `FAILURE` line."""
    return (
        row[TASK],
        row[ROLLOUT],
        str(row.get(FAILURE_CLASS)),
        is_terminal(row, retry_terminal_timeouts),
        bool(row.get(REUSE)),
        elapsed_seconds(row),
    )


def settlement(owed: pl.DataFrame, successes: pl.DataFrame, failures: pl.DataFrame) -> pl.DataFrame:
    """`owed` (columns task, rollout, any others; its order is kept) with what is known of each rollout.

    Added: `done` (a success is stored), `attempts` (sidecar rows), `terminal`, `reuse`, `failure_class` (of the last
    attempt, or null), `elapsed_s` (longest known duration, or null).
    """
    tried = failures.group_by("task", "rollout").agg(
        attempts=pl.len().cast(pl.Int32),
        terminal=pl.col("terminal").any(),
        reuse=pl.col("reuse").any(),
        failure_class=pl.col("failure_class").last(),
        elapsed_s=pl.col("elapsed_s").max(),
    )
    done = successes.select("task", "rollout").unique().with_columns(done=pl.lit(True))
    joined = owed.join(done, on=["task", "rollout"], how="left", maintain_order="left")
    joined = joined.join(tried, on=["task", "rollout"], how="left", maintain_order="left")
    return joined.with_columns(
        pl.col("done").fill_null(False),
        pl.col("attempts").fill_null(0),
        pl.col("terminal").fill_null(False),
        pl.col("reuse").fill_null(False),
    )


def still_owed(settled: pl.DataFrame, limit: int, *, longest_first: bool = False) -> pl.Series:
    """Positions in `settled` of the rollouts to dispatch, in order; `limit` is `max_attempts`.

    With `longest_first` those with a known duration come first, the longest first; the rest keeps its order behind.
    """
    todo = settled.with_row_index("position").filter(
        ~pl.col("done") & ~pl.col("terminal") & (pl.col("attempts") < limit)
    )
    if longest_first:
        todo = todo.sort("elapsed_s", descending=True, nulls_last=True, maintain_order=True)
    return todo["position"]

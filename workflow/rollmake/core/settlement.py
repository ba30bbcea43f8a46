"""What the rows of a journal say of their rollouts, and what ends the tries of one (NeMo Gym contract, section 3)."""

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
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
    tasks, rollouts, rewards, masked = array("q"), array("q"), array("d"), bytearray()
    for line in lines:
        try:
            row = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if row.task is not None and row.rollout is not None:
            tasks.append(row.task)
            rollouts.append(row.rollout)
            rewards.append(row.reward if isinstance(row.reward, (int, float)) else math.nan)
            masked.append(bool(row.masked))
    columns = {
        name: np.asarray(column) for name, column in (("task", tasks), ("rollout", rollouts), ("reward", rewards))
    }
    frame = pl.DataFrame({**columns, "masked": np.frombuffer(masked, dtype=bool)}, schema=SUCCESS)
    return frame.with_columns(pl.col("reward").fill_nan(None))


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

"""What the rows of a journal say of their rollouts, and what ends the tries of one (NeMo Gym contract, section 3)."""

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import polars as pl

from rollmake.core.contract import FAILURE_CLASS, FAILURE_TERMINAL, MASK, RESPONSE, REUSE, REWARD, ROLLOUT, TASK
from rollmake.core.latency import ELAPSED, elapsed_seconds
from rollmake.core.nesting import decode

DEFAULT_ATTEMPTS = 3
ATTEMPTS_VARIABLE = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
# With `retry_terminal_timeouts` these are asked again whatever their flag says, and `skipped` never is.
NEVER_TERMINAL = frozenset({"timeout_exceeded", "reference_missing", "eval_missing", "transport_ineligible"})
ALWAYS_TERMINAL = frozenset({"skipped"})

KEY = {"task": pl.Int64, "rollout": pl.Int64}
SUCCESS = {**KEY, "reward": pl.Float64, "masked": pl.Boolean}
FAILURE = {**KEY, "failure_class": pl.String, "terminal": pl.Boolean, "reuse": pl.Boolean, "elapsed_s": pl.Float64}


Index = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Key(msgspec.Struct, gc=False):
    task: Index | None = msgspec.field(name=TASK, default=None)
    rollout: Index | None = msgspec.field(name=ROLLOUT, default=None)


class _Success(_Key, gc=False):
    reward: Any = msgspec.field(name=REWARD, default=None)
    masked: Any = msgspec.field(name=MASK, default=None)


class _Failure(_Key, gc=False):
    failure_class: Any = msgspec.field(name=FAILURE_CLASS, default=None)
    terminal: Any = msgspec.field(name=FAILURE_TERMINAL, default=None)
    reuse: Any = msgspec.field(name=REUSE, default=None)
    elapsed: Any = msgspec.field(name=ELAPSED, default=None)
    # The most of a row, and hardly ever of interest.
    response: msgspec.Raw = msgspec.field(name=RESPONSE, default=msgspec.Raw())


# Arrays of NumPy, or expressions of polars.
Flags = TypeVar("Flags", bound=Any)
NO_KEY = _Key()
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
ELAPSED_MARK = ELAPSED.encode()


def max_attempts(configured: int | None, variables: Mapping[str, str]) -> int:
    """Attempts that a rollout gets: the option, else the environment variable, else 3 (NeMo Gym contract, section 3)."""
    if configured is not None:
        return configured
    text = variables.get(ATTEMPTS_VARIABLE, "")
    try:
        return int(text) if int(text) >= 1 else DEFAULT_ATTEMPTS
    except ValueError:
        return DEFAULT_ATTEMPTS


def given_up(done: Flags, terminal: Flags, attempts: Flags, limit: int) -> Flags:
    """Which rollouts have failed for good: they have no success, and a terminal failure or as many as `limit`.

    The first three are arrays or expressions of the same kind, one value a rollout, and so is what comes back.
    """
    return ~done & (terminal | (attempts >= limit))


def is_terminal(failure: Mapping[str, Any], retry_terminal_timeouts: bool = False) -> bool:
    """Whether a sidecar row says that its rollout must not be tried again (NeMo Gym contract, section 3)."""
    return ends_tries(failure.get(FAILURE_CLASS), failure.get(FAILURE_TERMINAL), retry_terminal_timeouts)


def ends_tries(failure_class: Any, flag: Any, retry_terminal_timeouts: bool) -> bool:
    """The same of a failure's class and its terminal flag."""
    if retry_terminal_timeouts and isinstance(failure_class, str):
        if failure_class in NEVER_TERMINAL:
            return False
        if failure_class in ALWAYS_TERMINAL:
            return True
    return bool(flag)


def keys(lines: Iterable[bytes]) -> pl.DataFrame:
    """The key of every line, `KEY` columns; both are null for one that is blank, unreadable or without identity."""
    decoder = msgspec.json.Decoder(_Key).decode
    tasks: list[int | None] = []
    rollouts: list[int | None] = []
    for line in lines:
        try:
            key = decode(decoder, line)
        except UNREADABLE:
            key = NO_KEY
        whole = key.task is not None and key.rollout is not None
        tasks.append(key.task if whole else None)
        rollouts.append(key.rollout if whole else None)
    return pl.DataFrame({"task": tasks, "rollout": rollouts}, schema=KEY)


def success_facts(lines: Iterable[bytes]) -> pl.DataFrame:
    """Key, reward (null if it is no number) and mask of stored rollouts, `SUCCESS` columns; lines without key are left out."""
    decoder = msgspec.json.Decoder(_Success).decode
    tasks, rollouts, rewards, masked = array("q"), array("q"), array("d"), bytearray()
    for line in lines:
        try:
            row = decode(decoder, line)
        except UNREADABLE:
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
    decoder = msgspec.json.Decoder(_Failure).decode
    tasks, rollouts, classes, elapsed = array("q"), array("q"), array("l"), array("d")
    terminal, reuse = bytearray(), bytearray()
    names: dict[str, int] = {}
    for line in lines:
        try:
            row = decode(decoder, line)
            seconds = _elapsed(row) if ELAPSED_MARK in line else None
        except UNREADABLE:
            continue
        if row.task is not None and row.rollout is not None:
            tasks.append(row.task)
            rollouts.append(row.rollout)
            classes.append(names.setdefault(str(row.failure_class), len(names)))
            terminal.append(ends_tries(row.failure_class, row.terminal, retry_terminal_timeouts))
            reuse.append(bool(row.reuse))
            elapsed.append(math.nan if seconds is None else seconds)
    columns = {
        "task": np.asarray(tasks),
        "rollout": np.asarray(rollouts),
        "failure_class": pl.Series(list(names), dtype=pl.String).gather(np.asarray(classes)),
        "terminal": np.frombuffer(terminal, dtype=bool),
        "reuse": np.frombuffer(reuse, dtype=bool),
        "elapsed_s": np.asarray(elapsed),
    }
    return pl.DataFrame(columns, schema=FAILURE).with_columns(pl.col("elapsed_s").fill_nan(None))


def _elapsed(row: _Failure) -> float | None:
    response = decode(msgspec.json.decode, bytes(row.response)) if len(bytes(row.response)) else None
    return elapsed_seconds({ELAPSED: row.elapsed, RESPONSE: response})

"""What the `ng_perf` blocks of a run add up to (NeMo Gym contract 5.4)."""

from typing import Any

import polars as pl

from rollmake.core.columns import OBSERVED
from rollmake.core.scores import PERF

TOKENS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")
LATENCY, TURNS, COVERAGE = "total_latency_ms", "num_turns", "token_observability_coverage"


def perf_summary(frame: pl.DataFrame) -> dict[str, Any] | None:
    """The summary over all lines of a frame in the form of `core/scores.py`, or None if no line carries `ng_perf`."""
    perf = {name: frame[PERF + name].drop_nulls() for name in (*TOKENS, TURNS, LATENCY) if PERF + name in frame.columns}
    perf = {name: values for name, values in perf.items() if len(values)}
    carriers = carrier_count(frame)
    if not carriers:
        return None
    found: dict[str, Any] = {
        "overall_observability_coverage": carriers / len(frame),
        "token_observability_coverage": token_coverage(frame),
    }
    for name in TOKENS:
        if name in perf:
            found |= {
                f"mean_{name}": perf[name].mean(),
                f"median_{name}": median(perf[name]),
                f"total_{name}": perf[name].sum(),
            }
    return found | turn_statistics(perf.get(TURNS)) | tokens_per_turn(frame) | latency(perf.get(LATENCY))


def carrier_count(frame: pl.DataFrame) -> int:
    """How many lines come from a record with `ng_perf`; a frame without that column is judged by its numbers."""
    if OBSERVED in frame.columns:
        return frame[OBSERVED].sum()
    names = [name for name in frame.columns if name.startswith(PERF)]
    return frame.select(pl.any_horizontal(pl.col(*names).is_not_null()).sum()).item() if names else 0


def token_coverage(frame: pl.DataFrame) -> float:
    """The share of lines whose own token coverage is above 0."""
    return (frame[PERF + COVERAGE] > 0).sum() / len(frame) if PERF + COVERAGE in frame.columns else 0.0


def turn_statistics(turns: pl.Series | None) -> dict[str, Any]:
    """Statistics of the number of turns, with the standard deviation of a population."""
    if turns is None:
        return {}
    return {
        "mean_num_turns": turns.mean(),
        "median_num_turns": median(turns),
        "std_num_turns": turns.std(ddof=0),
        "min_num_turns": turns.min(),
        "p90_num_turns": turns.quantile(0.9, interpolation="linear"),
        "max_num_turns": turns.max(),
    }


def tokens_per_turn(frame: pl.DataFrame) -> dict[str, float]:
    """Completion tokens by turn, over the lines that have both."""
    if not {PERF + TURNS, PERF + "completion_tokens"} <= set(frame.columns):
        return {}
    both = frame.filter(pl.col(PERF + TURNS) > 0, pl.col(PERF + "completion_tokens").is_not_null())
    ratio = both[PERF + "completion_tokens"] / both[PERF + TURNS]
    return {"mean_tokens_per_turn": ratio.mean(), "median_tokens_per_turn": ratio.median()} if len(ratio) else {}


def latency(values: pl.Series | None) -> dict[str, float]:
    """Quantiles and mean of the total latency, in milliseconds."""
    if values is None:
        return {}
    quantiles = {
        f"total_latency_p{percent}_ms": values.quantile(percent / 100, interpolation="linear")
        for percent in (50, 90, 99)
    }
    return quantiles | {"total_latency_mean_ms": values.mean()}


def median(values: pl.Series) -> int | float:
    """The median, a whole number where it is the middle one of whole numbers."""
    found = values.median()
    return int(found) if values.dtype.is_integer() and len(values) % 2 else found

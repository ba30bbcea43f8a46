"""The summary of `ng_perf`: the contract's example, and plain statistics."""

import statistics

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmake.core.columns import frame_of
from rollmake.core.perf import perf_summary

TOKENS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")
BLOCK = st.fixed_dictionaries(
    {},
    optional={name: st.integers(0, 1000) for name in (*TOKENS, "num_turns")}
    | {"token_observability_coverage": st.floats(0, 1), "total_latency_ms": st.floats(0, 1e6)},
)


def summary(*blocks):
    rows = [{"_ng_task_index": task} | ({} if perf is None else {"ng_perf": perf}) for task, perf in enumerate(blocks)]
    return perf_summary(frame_of(rows))


def test_four_items_of_which_three_carry():
    found = summary(
        {
            "num_turns": 2,
            "token_observability_coverage": 1.0,
            "prompt_tokens": 100,
            "completion_tokens": 40,
            "total_latency_ms": 1000,
        },
        {"num_turns": 5, "token_observability_coverage": 0, "total_latency_ms": 3000},
        {
            "num_turns": 3,
            "token_observability_coverage": 0.5,
            "prompt_tokens": 50,
            "completion_tokens": 30,
            "cached_prompt_tokens": 10,
        },
        None,
    )
    expected = {
        "overall_observability_coverage": 0.75,
        "token_observability_coverage": 0.5,
        "mean_num_turns": 10 / 3,
        "std_num_turns": 1.247219128924647,
        "p90_num_turns": 4.6,
        "median_num_turns": 3,
        "mean_tokens_per_turn": 15.0,
        "total_prompt_tokens": 150,
        "median_cached_prompt_tokens": 10,
        "total_latency_p50_ms": 2000,
        "total_latency_p90_ms": 2800,
        "total_latency_p99_ms": 2980,
        "total_latency_mean_ms": 2000,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert "total_reasoning_tokens" not in found


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.none(), BLOCK), min_size=1, max_size=8))
def test_against_plain_statistics(blocks):
    found, carried = summary(*blocks), [block for block in blocks if block is not None]
    if not carried:
        assert found is None
        return
    assert found.pop("overall_observability_coverage") == len(carried) / len(blocks)
    seen = sum(block.get("token_observability_coverage", 0) > 0 for block in carried)
    assert found.pop("token_observability_coverage") == seen / len(blocks)
    expected = {}
    for name in TOKENS:
        if values := [block[name] for block in carried if name in block]:
            expected |= {f"mean_{name}": statistics.fmean(values), f"median_{name}": statistics.median(values)}
            expected[f"total_{name}"] = sum(values)
    if turns := [block["num_turns"] for block in carried if "num_turns" in block]:
        expected |= {"mean_num_turns": statistics.fmean(turns), "median_num_turns": statistics.median(turns)}
        expected |= {"std_num_turns": statistics.pstdev(turns), "p90_num_turns": np.quantile(turns, 0.9)}
        expected |= {"min_num_turns": min(turns), "max_num_turns": max(turns)}
    ratios = [
        b["completion_tokens"] / b["num_turns"] for b in carried if b.get("num_turns") and "completion_tokens" in b
    ]
    if ratios:
        expected["mean_tokens_per_turn"] = statistics.fmean(ratios)
        expected["median_tokens_per_turn"] = statistics.median(ratios)
    if latencies := [block["total_latency_ms"] for block in carried if "total_latency_ms" in block]:
        expected |= {f"total_latency_p{p}_ms": np.quantile(latencies, p / 100) for p in (50, 90, 99)}
        expected["total_latency_mean_ms"] = statistics.fmean(latencies)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_whole_numbers_stay_whole():
    found = summary({"num_turns": 2, "prompt_tokens": 5})
    whole = [name for name, value in found.items() if type(value) is int]
    assert whole == [
        "median_prompt_tokens",
        "total_prompt_tokens",
        "median_num_turns",
        "min_num_turns",
        "max_num_turns",
    ]


def test_an_empty_block_carries_but_measures_nothing():
    assert summary({}, None) == {"overall_observability_coverage": 0.5, "token_observability_coverage": 0.0}


def test_a_frame_that_does_not_say_who_carries_is_judged_by_its_numbers():
    frame = frame_of([{"_ng_task_index": 0, "ng_perf": {"num_turns": 1}}, {"_ng_task_index": 1}]).drop("observed")
    assert perf_summary(frame)["overall_observability_coverage"] == 0.5
    assert perf_summary(frame.select(pl.exclude("^perf/.*$"))) is None

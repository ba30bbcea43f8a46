"""Names of shards and of files."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.contract import aggregate_path, failures_path, materialized_path
from rollmake.core.shards import parse_shard, shard_name, shard_names


@given(st.integers(1, 20_000), st.data())
def test_a_name_parses_back(count, data):
    index = data.draw(st.integers(0, count - 1))
    assert parse_shard(shard_name(index, count)) == (index, count)


def test_names_are_padded_so_that_they_sort():
    assert shard_names(3) == ["0000-of-0003", "0001-of-0003", "0002-of-0003"]


@pytest.mark.parametrize("name", ["3-of-16", "0016-of-0016", "0000-of-0000", "0001-of-0002 ", "00001-of-0002", "x"])
def test_other_names_are_refused_with_an_example(name):
    with pytest.raises(ValueError, match="shards are called like 0003-of-0016"):
        parse_shard(name)


@pytest.mark.parametrize(
    ("rollouts", "failures"),
    [
        ("res/rollouts.jsonl", "res/rollouts_failures.jsonl"),
        ("b.c.jsonl", "b.c_failures.jsonl"),
        ("out", "out_failures.jsonl"),
        ("out.json", "out_failures.jsonl"),
        ("x.jsonl.gz", "x.jsonl_failures.jsonl"),
        (".jsonl", ".jsonl_failures.jsonl"),
    ],
)
def test_only_the_last_suffix_makes_way(rollouts, failures):
    assert failures_path(PurePosixPath(rollouts)) == PurePosixPath(failures)


def test_the_other_siblings():
    path = PurePosixPath("res/rollouts.jsonl")
    assert materialized_path(path).name == "rollouts_materialized_inputs.jsonl"
    assert aggregate_path(path).name == "rollouts_aggregate_metrics.json"

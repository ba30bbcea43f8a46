"""Which matches are shards."""

import pytest

from rollmake.core.globs import shards_among, split_patterns


@pytest.mark.parametrize(
    ("text", "patterns"), [("a", ["a"]), (" a , b,,", ["a", "b"]), ("", []), (" , ", []), ("a b", ["a b"])]
)
def test_patterns(text, patterns):
    assert split_patterns(text) == patterns


def test_matches_are_sorted_by_pattern_and_named_once():
    assert shards_among([["r/b.jsonl", "r/a.jsonl"], ["q/c.jsonl", "r/a.jsonl"]]) == [
        "r/a.jsonl",
        "r/b.jsonl",
        "q/c.jsonl",
    ]


def test_companions_are_left_out_by_their_stem():
    matches = [
        "a.jsonl",
        "a_failures.jsonl",
        "a_materialized_inputs.jsonl",
        "a_failures",
        "a_failures.jsonl.gz",
        "failures.jsonl",
    ]
    assert shards_among([matches]) == ["a.jsonl", "a_failures.jsonl.gz", "failures.jsonl"]

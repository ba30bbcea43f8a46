"""Metrics over the fields that the config names."""

import polars as pl
import pytest

from rollmake.core.blocks import ScoreBlocks
from rollmake.core.chosen import Chosen, chosen_metrics, decoded, require_fields, with_subsets
from rollmake.core.errors import DataError, InputError
from rollmake.core.metrics import Scored
from rollmake.core.passk import highest_k, pass_at_k, subset_metrics


def row(task, rollout, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **fields}


ROWS = [
    row(0, 1, reward=0.0, ok=False, said="B", kind="easy"),
    row(0, 0, reward=1.0, ok=True, said="A", kind="easy"),
    row(0, 2, reward=1.0, ok=True, said="A", kind=""),
    row(1, 0, reward=0.0, ok=True, said=None, kind=None),
    row(1, 1, reward=0.0, ok=True, kind="hard"),
    row(1, 2, reward=1, ok=False, said=4),
    row(2, 0, reward=0.0),
    row(3, 0, reward=1.0, ok=True, said="A", mask_sample=True),
    row(4, 0, reward=None, said="A"),
]


def metrics(chosen, rows=ROWS):
    blocks = ScoreBlocks(chosen.texts)
    blocks.add(rows)
    return chosen_metrics(Scored(blocks.frame()).measured, chosen)


def tasks(score, among=(0, 1, 2)):
    """What the helper gets of the rows: by task and repeat, without masked and unscored ones."""
    found = [
        sorted((one for one in ROWS if one["_ng_task_index"] == t), key=lambda one: one["_ng_rollout_index"])
        for t in among
    ]
    return [[one for one in some if score in one] for some in found]


def test_nothing_is_added_unless_a_field_is_named():
    assert metrics(Chosen()) == ({}, {})


@pytest.mark.parametrize("score", [None, "reward", "ok"])
def test_they_are_the_helpers_own_over_scored_rollouts(score):
    name, among = score or "reward", (0, 1) if score == "ok" else (0, 1, 2)
    agent, keys = metrics(Chosen(score=score, answer_key="said", subset_key="kind"))
    expected = pass_at_k(tasks(name, among), answer_key="said", score=name)
    subsets = subset_metrics(tasks(name, among), "kind", answer_key="said", score=name)
    assert agent == expected | subsets
    assert {key.partition("/")[0] for key in subsets} == {"easy", "hard"}
    wanted = ("pass@{k}", "pass@1[avg-of-{k}]", "majority@{k}")
    assert keys == {key: value for pattern in wanted for key, value in highest_k(expected, pattern).items()}
    assert f"majority@3/{'accuracy' if name == 'reward' else name}" in keys


def test_answers_of_different_types_are_different():
    assert decoded(pl.Series(['"4"', "4", None, "4.5", "true", '"4"'])) == ["4", 4, None, 4.5, True, "4"]


def test_one_field_may_be_score_and_answer_at_once():
    agent, _ = metrics(Chosen(score="reward", answer_key="reward"))
    assert agent["majority@1/accuracy"] == agent["pass@1/accuracy"]


def test_a_server_without_the_score_has_none_of_these_metrics():
    assert metrics(Chosen(score="other", answer_key="said")) == ({}, {})


def test_an_answer_that_cannot_be_counted_is_refused():
    with pytest.raises(DataError, match="cannot be counted"):
        metrics(Chosen(answer_key="said"), [row(0, 0, reward=1, said=["a"])])


def test_a_field_may_be_missing_at_one_server_but_not_at_all():
    frames = []
    for rows in (ROWS, [row(0, 0, reward=1)]):
        blocks = ScoreBlocks(["said", "kind", "none"])
        blocks.add(rows)
        frames.append(blocks.frame())
    require_fields(frames, Chosen(score="ok", answer_key="said", subset_key="kind"))
    require_fields(frames, Chosen())
    with pytest.raises(InputError, match=r"metrics.subset_key: no rollout has the field 'none'"):
        require_fields(frames, Chosen(subset_key="none"))
    with pytest.raises(InputError, match=r"metrics.score: no rollout has the number 'kind'"):
        require_fields(frames, Chosen(score="kind"))


def test_a_tasks_subset_is_the_first_truthy_value_of_its_repeats():
    blocks = ScoreBlocks(["kind"])
    blocks.add(ROWS)
    stored = blocks.frame().with_columns(server=pl.lit("s"))
    keys = [("s", task, rollout) for task in (0, 1, 2, 7) for rollout in range(2)]
    states = pl.DataFrame(keys, schema=["server", "task", "rollout"], orient="row")
    assert with_subsets(states, stored, "kind")["subset"].to_list() == [
        "easy",
        "easy",
        "hard",
        "hard",
        None,
        None,
        None,
        None,
    ]

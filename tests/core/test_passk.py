"""pass@k and its kin: the contract's example, and brute force over all draws."""

import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmake.core.errors import DataError
from rollmake.core.passk import ANY_OF_K, AVERAGE_OF_K, highest_k, pass_at_k, subset_metrics

BINARY = st.lists(st.lists(st.sampled_from([0, 1, True, False, 0.0, 1.0]), max_size=5), min_size=1, max_size=5)
SCORES = st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=5)


def tasks_of(scores):
    return [[{"reward": reward} for reward in rewards] for rewards in scores]


def test_the_example_of_the_contract():
    answers = [["A", "B", "A"], ["C", None, "D"], [None]]
    rewards = [[1, 0, 1], [0, 0, 1], [0]]
    tasks = [[{"reward": r, "a": a} for r, a in zip(*pair, strict=True)] for pair in zip(rewards, answers, strict=True)]
    found = pass_at_k(tasks, answer_key="a")
    expected = {
        "pass@1/accuracy": 100 / 3,
        "pass@2/accuracy": 250 / 3,
        "pass@3/accuracy": 100.0,
        "pass@1[avg-of-2]/accuracy": 50 / 3,
        "pass@1[avg-of-3]/accuracy": 100 / 3,
        "majority@1/accuracy": 100 / 3,
        "majority@2/accuracy": 50 / 3,
        "majority@3/accuracy": 50.0,
        "pass@1[avg-of-2]/accuracy/std_dev_across_runs": 23.570226039551585,
        "pass@1[avg-of-2]/accuracy/std_err_across_runs": 16.666666666666668,
        "pass@1[avg-of-3]/accuracy/avg_sample_std_dev": 0.5773502691896258,
        "pass@1[avg-of-1]/no_answer": 100 / 3,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["per_sample_aggregate"]["accuracy"] == pytest.approx([100 / 3, 0.0, 100.0])
    assert highest_k(found, ANY_OF_K) == {name: found[name] for name in ("pass@3/accuracy", "pass@3/no_answer")}


@settings(deadline=None, max_examples=60)
@given(BINARY)
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(scores):
    found = pass_at_k(tasks_of(scores))
    for k in range(1, max(map(len, scores)) + 1):
        long = [rewards for rewards in scores if len(rewards) >= k]
        shares = [statistics.fmean(any(draw) for draw in itertools.combinations(rewards, k)) for rewards in long]
        assert found[f"pass@{k}/accuracy"] == pytest.approx(100 * statistics.fmean(shares))


@settings(deadline=None, max_examples=60)
@given(SCORES)
def test_averages_and_deviations(scores):
    found = pass_at_k(tasks_of(scores))
    most = max(map(len, scores))
    runs = [100 * statistics.fmean(r[i] for r in scores if len(r) > i) for i in range(most)]
    assert found["per_sample_aggregate"] == {"accuracy": pytest.approx(runs)}
    for k in range(1, most + 1):
        key = f"pass@1[avg-of-{k}]/accuracy"
        assert found[key] == pytest.approx(100 * statistics.fmean(statistics.fmean(r[:k]) for r in scores))
        if k == 1:
            assert f"{key}/std_dev_across_runs" not in found
            continue
        deviation = np.std(runs[:k], ddof=1)
        assert found[f"{key}/std_dev_across_runs"] == pytest.approx(deviation, abs=1e-9)
        assert found[f"{key}/std_err_across_runs"] == pytest.approx(deviation / k**0.5, abs=1e-9)
        spread = statistics.fmean(statistics.stdev(r[:k]) for r in scores if len(r) > 1)
        assert found[f"{key}/avg_sample_std_dev"] == pytest.approx(spread, abs=1e-9)


def test_other_scores_count_by_their_best():
    found = pass_at_k(tasks_of([[0.3, 0.9], [0.5, 0.1]]))
    assert (found["pass@1/accuracy"], found["pass@2/accuracy"]) == pytest.approx((40.0, 70.0))


def test_ties_of_the_majority_are_averaged_and_an_answer_with_two_scores_is_two():
    task = [{"reward": 1.0, "a": "x"}, {"reward": 0.0, "a": "x"}, {"reward": 0.0, "a": "x"}, {"reward": 1.0, "a": "y"}]
    found = pass_at_k([task], answer_key="a")
    assert [found[f"majority@{k}/accuracy"] for k in (1, 2, 3, 4)] == [100.0, 50.0, 0.0, 0.0]


def test_a_task_without_answer_counts_as_0_for_the_majority():
    found = pass_at_k([[{"reward": 1, "a": None}], [{"reward": 1, "a": "x"}], []], answer_key="a")
    assert found["majority@1/accuracy"] == pytest.approx(100 / 3)
    assert found["pass@1/accuracy"] == 100.0


def test_the_highest_k_is_a_number_and_statistics_and_subsets_are_left_out():
    found = {f"pass@1[avg-of-{k}]/accuracy{s}": k for k in (2, 9, 10) for s in ("", "/std_dev_across_runs")}
    found |= {"easy/pass@1[avg-of-11]/accuracy": 11, "pass@12/accuracy": 12}
    assert highest_k(found, AVERAGE_OF_K) == {"pass@1[avg-of-10]/accuracy": 10}
    assert highest_k(found, ANY_OF_K) == {"pass@12/accuracy": 12}
    assert highest_k({}, ANY_OF_K) == {}


def test_a_task_belongs_to_the_first_subset_that_is_named():
    tasks = [[{"reward": 1, "s": ""}, {"reward": 0, "s": "hard"}], [{"reward": 1, "s": "hard"}], [{"reward": 0}]]
    found = subset_metrics(tasks, "s")
    assert found["hard/pass@1/accuracy"] == 75.0
    assert {name.partition("/")[0] for name in found} == {"hard"}
    assert "hard/per_sample_aggregate" not in found
    assert not any(name.endswith("avg_sample_std_dev") for name in found)


def test_no_tasks_and_no_rollouts():
    assert pass_at_k([]) == {}
    assert pass_at_k([[], []]) == {"per_sample_aggregate": {}}


@pytest.mark.parametrize("reward", [None, "1", [1]])
def test_a_reward_that_is_no_number_is_refused(reward):
    with pytest.raises(DataError, match="no number"):
        pass_at_k([[{"reward": reward}]])


def test_an_answer_that_cannot_be_counted_is_refused():
    with pytest.raises(DataError, match="cannot be counted"):
        pass_at_k([[{"reward": 1, "a": ["x"]}]], answer_key="a")

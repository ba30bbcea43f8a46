"""pass@k, pass@1[avg-of-k] and majority@k over the repeats of tasks (NeMo Gym contract 5.3). All in per cent."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollmake.core.contract import REWARD
from rollmake.core.errors import DataError

ACCURACY, NO_ANSWER = "accuracy", "no_answer"
ANY_OF_K, AVERAGE_OF_K, MAJORITY_OF_K = "pass@{k}", "pass@1[avg-of-{k}]", "majority@{k}"
STATISTICS = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev")
Rollouts = list[dict[str, Any]]
# Scores, one line a task, one column a repeat; NaN where a task has fewer repeats than others.
Scores = NDArray[np.float64]


def pass_at_k(tasks: list[Rollouts], *, answer_key: str | None = None, score: str = REWARD) -> dict[str, Any]:
    """All metrics of `tasks`, each a list of its rollouts in the order of repeats, for k = 1 .. the most repeats.

    The score is the reward, called `accuracy`, or the field `score`, called as it is; truth values are 0 and 1. With
    `answer_key`, the field with the answer that was extracted, there is a score `no_answer` and a majority@k. Raises
    DataError for a rollout without a number as its score, and for an answer that is a list or an object.
    """
    if not tasks:
        return {}
    called = ACCURACY if score == REWARD else score
    scores = {called: matrix([[score_of(one, score) for one in rollouts] for rollouts in tasks])}
    if answer_key is not None:
        missing = [[float(one.get(answer_key) is None) for one in rollouts] for rollouts in tasks]
        scores[NO_ANSWER] = matrix(missing)
    metrics: dict[str, Any] = {
        "per_sample_aggregate": {name: run_means(score) for name, score in scores.items() if score.size}
    }
    for name, score in scores.items():
        metrics |= any_of_k(name, score) | average_of_k(name, score)
        if answer_key is not None:
            metrics |= majority_of_k(name, score, [[one.get(answer_key) for one in rollouts] for rollouts in tasks])
    return metrics


def subset_metrics(
    tasks: list[Rollouts], subset_key: str, *, answer_key: str | None = None, score: str = REWARD
) -> dict[str, float]:
    """The metrics of each subset, as `{subset}/{metric}`, without what compares samples.

    A task belongs to the first truthy value of the field `subset_key` among its rollouts, or to no subset.
    """
    subsets: dict[str, list[Rollouts]] = {}
    for rollouts in tasks:
        value = next((one[subset_key] for one in rollouts if one.get(subset_key)), None)
        if value is not None:
            subsets.setdefault(str(value), []).append(rollouts)
    return {
        f"{subset}/{name}": value
        for subset, members in subsets.items()
        for name, value in pass_at_k(members, answer_key=answer_key, score=score).items()
        if name != "per_sample_aggregate" and not name.endswith(STATISTICS[-1])
    }


def highest_k(metrics: dict[str, Any], pattern: str) -> dict[str, float]:
    """The metrics of the highest k among those called `pattern/NAME`, where `{k}` in the pattern is a number."""
    before, after = map(re.escape, pattern.split("{k}"))
    name = re.compile(rf"{before}(\d+){after}/(.+)")
    matches = {key: match for key in metrics if (match := name.fullmatch(key)) and not key.endswith(STATISTICS)}
    highest = max((int(match[1]) for match in matches.values()), default=0)
    return {key: metrics[key] for key, match in matches.items() if int(match[1]) == highest}


def score_of(rollout: dict[str, Any], name: str) -> float:
    """The score of a rollout, which must be a number."""
    score = rollout.get(name)
    if not isinstance(score, int | float):
        raise DataError(f"{name} is {score!r}, which is no number", remedy="Leave out rollouts that are not scored.")
    return float(score)


def matrix(scores: list[list[float]]) -> Scores:
    """Lists of different lengths as one array, filled up with NaN."""
    found = np.full((len(scores), max(map(len, scores), default=0)), np.nan)
    for line, values in enumerate(scores):
        found[line, : len(values)] = values
    return found


def run_means(scores: Scores) -> list[float]:
    """The mean of each repeat over the tasks that have it."""
    return (100 * np.nanmean(scores, axis=0)).tolist()


def any_of_k(name: str, scores: Scores) -> dict[str, float]:
    """`pass@k`: the mean of `any_of_k_by_task` over tasks with at least k rollouts."""
    counts, values = np.count_nonzero(~np.isnan(scores), axis=1), any_of_k_by_task(scores)
    return {f"pass@{k}/{name}": 100 * float(values[counts >= k, k - 1].mean()) for k in range(1, scores.shape[1] + 1)}


def any_of_k_by_task(scores: Scores) -> Scores:
    """The chance that one of k rollouts drawn from a task is right, one column for each k = 1 .. columns of `scores`.

    For scores other than 0 and 1, the best of a task's first k. Of a task with fewer than k rollouts it means nothing.
    """
    counts = np.count_nonzero(~np.isnan(scores), axis=1)
    binary = ((scores == 0) | (scores == 1) | np.isnan(scores)).all(axis=1)
    wrong = np.count_nonzero(scores == 0, axis=1)
    best = np.fmax.accumulate(scores, axis=1)
    none_right = np.ones(len(scores))
    found = np.empty_like(scores)
    for k in range(1, scores.shape[1] + 1):
        # C(wrong, k) / C(count, k), one factor more for each k; it stays 0 once fewer than k are wrong.
        none_right = none_right * np.maximum(wrong - k + 1, 0) / np.maximum(counts - k + 1, 1)
        found[:, k - 1] = np.where(binary, 1 - none_right, best[:, k - 1])
    return found


def average_of_k(name: str, scores: Scores) -> dict[str, float]:
    """`pass@1[avg-of-k]`: the mean over tasks of the mean of up to k first rollouts, and how much that varies."""
    runs = run_means(scores)
    scores = scores[~np.isnan(scores).all(axis=1)]
    found = {}
    for k in range(1, scores.shape[1] + 1):
        key, first = f"pass@1[avg-of-{k}]/{name}", scores[:, :k]
        found[key] = 100 * float(np.nanmean(first, axis=1).mean())
        if k >= 2:
            deviation = float(np.std(runs[:k], ddof=1))
            several = first[~np.isnan(first[:, 1])]
            values = (deviation, deviation / k**0.5, float(np.nanstd(several, axis=1, ddof=1).mean()))
            found |= {f"{key}/{statistic}": value for statistic, value in zip(STATISTICS, values, strict=True)}
    return found


def majority_of_k(name: str, scores: Scores, answers: list[list[Any]]) -> dict[str, float]:
    """`majority@k`: the score of the most frequent answer among a task's first k, 0 without an answer or a rollout."""
    votes = np.array([majorities(line, given) for line, given in zip(scores.tolist(), answers, strict=True)])
    return {f"majority@{k + 1}/{name}": 100 * float(votes[:, k].mean()) for k in range(scores.shape[1])}


def majorities(scores: Iterable[float], answers: list[Any]) -> list[float]:
    """The majority's score after each repeat of one task; an answer with two scores counts as two answers."""
    votes: dict[tuple[Any, float], int] = {}
    most, winners, total, found = 0, 0, 0.0, []
    for repeat, score in enumerate(scores):
        if repeat < len(answers) and answers[repeat] is not None:
            vote = ballot(answers[repeat]), score
            count = votes[vote] = votes.get(vote, 0) + 1
            if count > most:
                most, winners, total = count, 1, score
            elif count == most:
                winners, total = winners + 1, total + score
        found.append(total / winners if winners else 0.0)
    return found


def ballot(answer: Any) -> Any:
    """An answer that can be counted."""
    if isinstance(answer, list | dict):
        raise DataError(
            f"the answer {answer!r:.60} cannot be counted", remedy="An answer is a text, number or truth value."
        )
    return answer

"""The stages statistics and compare on repaired shards."""

from pathlib import Path

import orjson
import polars as pl
import pytest
import yaml
from jsonschema import Draft202012Validator

from rollmake.core.chosen import Metrics
from rollmake.core.errors import DataError, InputError
from rollmake.stages import compare, statistics
from stages.test_aggregate import Run, answered, counted, failed

SCHEMAS = Path(__file__).parents[2] / "schemas"


def read(path, name):
    content = orjson.loads(path.read_bytes())
    Draft202012Validator(yaml.safe_load((SCHEMAS / f"{name}.schema.yaml").read_text(encoding="utf-8"))).validate(
        content
    )
    return content


def statistics_of(run, classes=(), missing=False, score=None):
    files = statistics.Files(
        plan=run.folder / "plan.json",
        repaired=run.folder / "repaired",
        output=run.folder / "statistics.json",
        tasks=run.folder / "task_rewards.parquet",
    )
    metrics = Metrics(backend="local", score=score)
    statistics.run(files, statistics.Settings(metrics=metrics, **counted(classes, missing)))
    content = read(files.output, "statistics")
    assert content["score"] == score or (score is None and content["score"] == "reward")
    return content["servers"]


def a_run(folder, rewards, server="s"):
    """One shard in which each task has these rewards, in the order of repeats; None failed."""
    folder.mkdir(exist_ok=True)
    keys = [(task, repeat) for task, some in enumerate(rewards) for repeat in range(len(some))]
    run = Run(folder, [(*key, 0, server, "a") for key in keys], {server: ("a", 1)})
    found = {key: rewards[key[0]][key[1]] for key in keys}
    rows = [answered(*key, reward) for key, reward in found.items() if reward is not None]
    run.shard(0, rows, [failed(*key) for key, reward in found.items() if reward is None])
    run.repair()
    return run


def compared(first, second, output):
    files = [folder / "task_rewards.parquet" for folder in (first, second)]
    compare.run(compare.Files(first=files[0], second=files[1], output=output), compare.Settings())
    return read(output, "compare")


def test_what_is_missing_counts_as_the_config_says_and_what_it_could_change_is_said(tmp_path):
    run = a_run(tmp_path, [[1.0, None], [0.0, 1.0], [1.0, 1.0]])
    plain = statistics_of(run)["s"]
    counted = statistics_of(run, ["agent_run_error"])["s"]
    assert (plain["rollouts"], plain["mean"]["estimate"], plain["unknown"]) == (5, 0.8, 1)
    assert (counted["rollouts"], counted["imputed"], counted["mean"]["estimate"]) == (6, 1, pytest.approx(4 / 6))
    for found in (plain, counted):
        assert (found["if_unknown_failed"], found["if_unknown_passed"]) == (pytest.approx(4 / 6), pytest.approx(5 / 6))
        assert 0 <= found["mean"]["low"] <= found["mean"]["estimate"] <= found["mean"]["high"] <= 1
    assert [entry["tasks"] for entry in plain["pass_at_k"]] == [3, 2]


def test_a_run_with_nothing_to_score_has_no_numbers(tmp_path):
    run = Run(tmp_path, [], {})
    run.repair()
    assert statistics_of(run) == {}
    assert pl.read_parquet(tmp_path / "task_rewards.parquet").is_empty()


def test_the_file_is_the_same_every_time(tmp_path):
    run = a_run(tmp_path, [[1.0], [0.25], [0.5]])
    assert statistics_of(run) == statistics_of(run)


def test_two_runs_are_compared_over_the_tasks_that_both_scored(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    statistics_of(a_run(first, [[0.0], [0.0], [1.0], [None]]))
    statistics_of(a_run(second, [[1.0], [0.0], [1.0], [1.0]]))
    found = compared(first, second, tmp_path / "compare/out.json")
    assert (found["first"], found["second"]) == ("first", "second")
    [pair] = found["comparisons"]
    assert (pair["tasks"], pair["only_first"], pair["only_second"]) == (3, 0, 1)
    assert (pair["test"], pair["better"], pair["worse"], pair["p"]) == ("mcnemar_exact", 1, 0, 1.0)


def graded(folder, grades):
    """One shard of rollouts with the reward 1 and these grades; None has none, and there is one that failed."""
    folder.mkdir(exist_ok=True)
    this = Run(folder, [(task, 0, 0, "s", "a") for task in range(len(grades) + 1)], {"s": ("a", 1)})
    rows = [answered(task, **({} if grade is None else {"grade": grade})) for task, grade in enumerate(grades)]
    this.shard(0, rows, [failed(len(grades))])
    this.repair()
    return this


def test_the_score_that_the_config_names_is_what_the_numbers_are_over(tmp_path):
    this = graded(tmp_path, [0.25, True, 0, None])
    [found] = statistics_of(this, ["agent_run_error"], score="grade").values()
    assert (found["rollouts"], found["imputed"], found["mean"]["estimate"]) == (3, 0, pytest.approx(1.25 / 3))
    assert (found["unknown"], found["if_unknown_failed"], found["if_unknown_passed"]) == (2, 1.25 / 5, 3.25 / 5)
    [plain] = statistics_of(this, ["agent_run_error"]).values()
    assert (plain["rollouts"], plain["imputed"], plain["mean"]["estimate"], plain["unknown"]) == (5, 1, 0.8, 1)


def test_where_servers_compute_the_numbers_are_over_the_reward(tmp_path):
    this = graded(tmp_path, [0.25])
    expected = statistics_of(this)
    metrics = Metrics(backend="server", score="grade")
    files = statistics.Files(
        plan=tmp_path / "plan.json", repaired=tmp_path / "repaired", output=tmp_path / "a", tasks=tmp_path / "b"
    )
    statistics.run(files, statistics.Settings(metrics=metrics, **counted()))
    assert read(tmp_path / "a", "statistics")["servers"] == expected


def test_a_score_that_no_rollout_has_is_named(tmp_path):
    with pytest.raises(InputError, match=r"metrics.score: no rollout has the number 'level2'"):
        statistics_of(graded(tmp_path, [0.25]), score="level2")


def test_runs_over_different_scores_are_not_compared(tmp_path):
    for name, score in (("first", None), ("second", "grade")):
        statistics_of(graded(tmp_path / name, [0.5, 1.0]), score=score)
    with pytest.raises(DataError, match="different scores, grade and reward"):
        compared(tmp_path / "first", tmp_path / "second", tmp_path / "out.json")
    statistics_of(graded(tmp_path / "third", [1.0, 0.5]), score="grade")
    found = compared(tmp_path / "second", tmp_path / "third", tmp_path / "out.json")
    assert (found["score"], found["comparisons"][0]["mean_first"]) == ("grade", 0.75)


def test_runs_without_a_common_task_are_compared_as_such(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    statistics_of(a_run(first, [[None], [1.0]]))
    statistics_of(a_run(second, [[1.0], [None]]))
    [pair] = compared(first, second, tmp_path / "out.json")["comparisons"]
    assert (pair["tasks"], pair["only_first"], pair["only_second"]) == (0, 1, 1)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match=r"task_rewards.parquet: cannot be read"):
        compared(tmp_path, tmp_path, tmp_path / "out.json")

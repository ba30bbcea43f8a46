"""No score without its coverage, and no part of the coverage left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core import report
from rollmake.core.errors import DataError

COUNT = st.integers(0, 50)
NUMBERS = {"expected": 10, "scored": 4, "unscored": 1, "masked": 1, "imputed": 0, "missing": 1, "unrouted": 0}
NUMBERS |= {"failed_by_class": {"b": 1, "a": 1, "worst": 1}}
COLLECTION = {
    "owed": 10,
    "succeeded": 6,
    "failed_by_class": {"a": 2, "b": 1},
    "gated": 3,
    "missing": 1,
    "requests": 20,
    "jobs": [{"end": "killed"}, {"end": "owed"}, {"end": "owed"}],
}


def entry(server="s", **metrics):
    return {"agent_ref": {"name": "quiz"}, "_ng_environment_server": server, "agent_metrics": metrics}


@given(COUNT, COUNT, COUNT, COUNT, st.dictionaries(st.text(max_size=3), COUNT, max_size=4))
def test_segments_add_up_to_what_was_expected(scored, unscored, masked, missing, failed):
    expected = scored + unscored + masked + missing + sum(failed.values())
    counts = {"scored": scored, "unscored": unscored, "masked": masked, "missing": missing, "imputed": 0, "unrouted": 0}
    basis = report.basis(counts | {"expected": expected, "failed_by_class": failed})
    assert sum(segment.count for segment in basis.segments) == expected
    assert sum(segment.percent for segment in basis.segments) == pytest.approx(100 if expected else 0)
    assert all(segment.count for segment in basis.segments)
    assert basis.complete == (scored == expected)


def test_failed_classes_are_told_apart_the_largest_first():
    basis = report.basis(NUMBERS | {"failed_by_class": {"a": 1, "b": 2, "c": 1}, "expected": 11})
    labels = [segment.label for segment in basis.segments]
    assert labels == ["scored", "unscored", "masked", "failed: b", "failed: a", "failed: c", "missing"]


def test_a_score_stands_beside_the_coverage_of_its_server():
    coverage = {"servers": {"s": NUMBERS, "silent": NUMBERS | {"scored": 0, "expected": 6}}}
    statistics = {"mean/reward": 0.5, "std/reward": 0.1, "min/reward": 0, "max/reward": 1}
    across = {"mean_across_repeats/mean/reward": 0.4, "se_across_repeats/mean/reward": 0.2}
    scored, silent = report.scores([entry(**statistics, **across)], coverage)
    assert (scored.label, scored.mean, scored.std, scored.low, scored.high) == ("quiz", 0.5, 0.1, 0, 1)
    assert scored.across == {"mean": 0.4, "se": 0.2}
    assert (scored.basis.scored, scored.basis.expected) == (4, 10)
    assert (silent.label, silent.mean, silent.basis.scored, silent.basis.expected) == ("silent", None, 0, 6)


@pytest.mark.parametrize(
    ("servers", "interval"),
    [
        ({"s": {"mean": {"estimate": 0.5, "low": 0.25, "high": 0.75}}}, (0.25, 0.75)),
        ({"s": {"mean": {"estimate": 0.5, "low": None, "high": None}}}, None),
        ({}, None),
    ],
)
def test_a_score_has_an_interval_if_it_is_known(servers, interval):
    [score] = report.scores([entry()], {"servers": {"s": NUMBERS}}, {"score": "reward", "servers": servers})
    assert (score.interval, score.named) == (interval, None)
    [score] = report.scores([entry()], {"servers": {"s": NUMBERS}}, {"score": "grade", "servers": servers})
    assert (score.interval, score.named) == (None, report.NamedScore("grade", 0.5, interval) if servers else None)
    assert report.scores([entry()], {"servers": {"s": NUMBERS}})[0].interval is None


def test_a_score_whose_coverage_is_unknown_is_refused():
    with pytest.raises(DataError, match=r"'other'.*aggregate again"):
        report.scores([entry("other")], {"servers": {"s": NUMBERS}})


def test_classes_that_count_in_the_score_are_told_from_the_others():
    coverage = {"failed_by_class": {"small": 1, "large": 9}}
    collections = [
        {"failed_by_class": {"large": 9, "counted": 2}},
        None,
        {"failed_by_class": {"counted": 3, "none": 0}},
    ]
    found = [(one.name, one.count, one.counted) for one in report.failure_classes(coverage, collections)]
    assert found == [("large", 9, False), ("counted", 5, True), ("small", 1, False)]


def test_few_tasks_are_shown_one_by_one_and_many_as_a_histogram():
    def groups(count):
        statistics = {"mean/reward": 0.5, "min/reward": 0.0, "max/reward": 1.0, "num_rollouts": 2}
        return [{"_ng_task_index": task} | statistics for task in reversed(range(count))]

    coverage = {"servers": {"s": NUMBERS}}
    few = report.scores([entry() | {"group_level_metrics": groups(3)}], coverage)[0]
    assert [task.task for task in few.tasks] == [0, 1, 2]
    assert few.histogram == []
    many = report.scores([entry() | {"group_level_metrics": groups(report.TASKS_SHOWN + 1)}], coverage)[0]
    assert many.tasks == []
    assert sum(one.count for one in many.histogram) == report.TASKS_SHOWN + 1


def test_tasks_and_repeats_without_numbers_are_left_out():
    statistics = {"mean/reward": 0.5, "min/reward": 0, "max/reward": 1}
    groups = [{"_ng_task_index": 0, "num_rollouts": 2}, {"_ng_task_index": 1, "num_rollouts": 2} | statistics]
    assert report.task_rewards(groups) == [report.TaskReward(1, 2, 0.5, 0, 1)]
    assert report.task_rewards([groups[1] | {"mean/reward": "high"}]) == []
    repeats = [
        {"_ng_rollout_index": 0, "sample_count": 2, "mean/reward": 0.5, "sem/reward": 0.1},
        {"_ng_rollout_index": 1},
    ]
    assert report.repeat_rewards(repeats) == [report.Repeat(0, 2, 0.5, 0.1)]


def test_a_server_may_leave_statistics_out():
    score = report.scores([entry(**{"mean/reward": 0.5, "max/reward": None})], {"servers": {"s": NUMBERS}})[0]
    assert (score.mean, score.std, score.low, score.high, score.across) == (0.5, None, None, None, {})
    assert report.scores([entry(**{"mean/reward": "high"})], {"servers": {"s": NUMBERS}})[0].mean is None


def test_a_shard_says_how_its_jobs_ended():
    row = report.shard_row("0000-of-0002", COLLECTION)
    assert (row.owed, row.succeeded, row.failed, row.gated, row.missing, row.requests) == (10, 6, 3, 3, 1, 20)
    assert row.jobs == "3: 1 killed, 2 owed"
    assert report.shard_row("s", COLLECTION | {"jobs": [{"end": "sealed"}]}).jobs == "1: sealed"
    assert report.shard_row("s", COLLECTION | {"jobs": []}).jobs == "none"
    assert not report.shard_row("s", None).known


def test_troubled_shards_come_first_and_the_list_is_limited():
    fine = [report.ShardRow(name=f"fine{i}", owed=1, succeeded=1) for i in range(report.SHARDS_SHOWN)]
    troubled = [report.ShardRow(name="short", owed=2, succeeded=1), report.shard_row("unknown", None)]
    shown = report.shards_shown(fine + troubled)
    assert [row.name for row in shown[:3]] == ["short", "unknown", "fine0"]
    assert len(shown) == report.SHARDS_SHOWN


def test_the_total_adds_all_shards():
    rows = [report.shard_row("a", COLLECTION), report.shard_row("b", COLLECTION), report.shard_row("c", None)]
    total = report.shard_total(rows)
    assert (total.name, total.owed, total.failed, total.requests) == ("all 3", 20, 6, 40)


def test_repairs_are_added_up_over_shards():
    file = {"removed": {"torn": 1, "duplicate": 2}, "changed": {"white_space": 1}}
    contents = [
        {"files": {"rollouts.jsonl": file}},
        None,
        {"files": {"rollouts.jsonl": file, "b.jsonl": file | {"removed": {}}}},
    ]
    found = [(one.file, one.reason, one.count) for one in report.repairs(contents)]
    assert found == [
        ("b.jsonl", "white_space, put right", 1),
        ("rollouts.jsonl", "duplicate", 4),
        ("rollouts.jsonl", "torn", 2),
        ("rollouts.jsonl", "white_space, put right", 2),
    ]


def test_facts_name_plan_and_jobs():
    job = {"host": "n1", "started": "2026-01-01T00:00:00Z", "ended": None}
    later = {"host": "n2", "started": "2026-01-02T00:00:00Z", "ended": "2026-01-03T00:00:00Z"}
    facts = dict(report.job_facts([{"jobs": [later, job]}, {"jobs": [job]}]))
    assert facts == {"collected": "2026-01-01T00:00:00Z to 2026-01-03T00:00:00Z", "jobs": "3 on n1, n2"}
    many = report.job_facts([{"jobs": [job | {"host": f"n{index:02d}"} for index in range(11)]}])
    assert many[1][1].endswith("n07 and 3 more")
    assert "unknown" in report.job_facts([])[0][1]
    plan = {"rollouts": 4000, "tasks": 1000, "shards": 2, "digest": "ab", "environment": "e"}
    assert report.plan_facts(plan)[0] == ("plan", "4,000 rollouts of 1,000 tasks in 2 shards")
    assert report.plan_facts(plan)[2] == ("environment", "e")
    assert "none" in report.plan_facts(None)[0][1]

"""Invalid-judge rows: what moves, what it becomes, and that nothing moves twice."""

import pytest

from rollmake.core.judge import JudgeMigration, migrate_invalid_judges

KEY = {"_ng_task_index": 0, "_ng_rollout_index": 0}
INVALID = {**KEY, "invalid_judge_response": True}
MOVED = {**INVALID, "_ng_failure_class": "judge_invalid", "_ng_migrated_invalid_judge_response": True}


def migrate(rollouts, failures=(), delivered=()):
    return migrate_invalid_judges(rollouts, failures, lambda folder: folder in delivered)


def test_an_invalid_row_becomes_a_failure_and_the_others_stay():
    valid = [
        {**KEY, "_ng_rollout_index": i, "invalid_judge_response": value} for i, value in enumerate((None, 0, ""), 1)
    ]
    assert migrate([INVALID, *valid, KEY]) == ([*valid, KEY], [MOVED])


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({"_ng_failure_class": "judge_failed"}, {"_ng_failure_class": "judge_failed"}),
        ({"_ng_failure_class": ""}, {}),
        ({"_ng_failure_class": None}, {}),
        ({"_ng_failure_terminal": True}, {}),
        ({"reuse_cached_deliverable": True}, {}),
        ({"deliverables_dir": "empty", "reuse_cached_deliverable": True}, {"deliverables_dir": "empty"}),
        ({"deliverables_dir": "full"}, {"deliverables_dir": "full", "reuse_cached_deliverable": True}),
        ({"deliverables_dir": 5}, {"deliverables_dir": 5}),
        ({"deliverables_dir": ""}, {"deliverables_dir": ""}),
    ],
)
def test_what_a_moved_row_becomes(fields, changes):
    before = {**INVALID, **fields}
    copy = dict(before)
    assert migrate([before], delivered={"full", ""}) == ([], [{**MOVED, **changes}])
    assert before == copy


@pytest.mark.parametrize(
    ("rollout", "marker", "gained"),
    [
        ({}, {}, 0),
        ({"_ng_attempt_index": 0, "stage_index": 0}, {}, 0),
        ({"_ng_attempt_index": 1}, {"_ng_attempt_index": 1}, 0),
        ({"_ng_attempt_index": 2}, {"_ng_attempt_index": 1}, 1),
        ({"stage_index": 1}, {}, 1),
        ({"stage_index": [1]}, {"stage_index": [1]}, 0),
        ({}, {"_ng_migrated_invalid_judge_response": False}, 1),
        ({}, {"_ng_task_index": 1}, 1),
    ],
)
def test_a_row_leaves_in_any_case_but_is_added_only_once(rollout, marker, gained):
    failure = {**KEY, "_ng_migrated_invalid_judge_response": True, **marker}
    stay, added = migrate([{**INVALID, **rollout}], [failure])
    assert (stay, len(added)) == ([], gained)


def test_two_invalid_rows_of_one_attempt_are_added_once():
    assert migrate([{**INVALID, "n": 1}, {**INVALID, "n": 2}]) == ([], [{**MOVED, "n": 1}])


def test_a_second_migration_finds_nothing():
    stay, gained = migrate([INVALID, {**KEY, "_ng_task_index": 1}])
    assert migrate(stay, gained) == (stay, [])


def test_migration_remembers_identity_only():
    migration = JudgeMigration(lambda folder: False)
    assert migration.move({**INVALID, "text": "x" * 1000}) is not None
    assert migration.move({**INVALID, "text": "y"}) is None

"""What the report says about coverage, in words that cannot be misread."""

import pytest

from rollmake.core.phrases import headline, number, percent, plural, seconds, warnings
from rollmake.core.report import basis

NOTHING = {"expected": 0, "scored": 0, "unscored": 0, "masked": 0, "imputed": 0, "failed_by_class": {}, "missing": 0}
NOTHING |= {"unrouted": 0, "gated": 0, "lost_lines": {}, "unreadable_lines": {}}


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({}, "This run expects no rollouts, so there is nothing to score."),
        ({"expected": 80, "scored": 80}, "Complete: 80 of 80 expected rollouts scored."),
        ({"expected": 80, "scored": 60, "missing": 20}, "The score rests on 60 of 80 expected rollouts."),
        ({"expected": 2000, "missing": 2000}, "No score: none of 2,000 expected rollouts was scored."),
        ({"expected": 9, "imputed": 9}, "The score rests on 0 of 9 expected rollouts."),
        ({"expected": 1, "missing": 1}, "No score: none of 1 expected rollout was scored."),
    ],
)
def test_the_headline_tells_what_the_score_rests_on(numbers, said):
    assert headline(basis(NOTHING | numbers)) == said


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"expected": 4, "scored": 4}, "The score rests on 4 of 4 known rollouts; 2 lines that may be more of them"),
        ({}, "No score: none of 0 expected rollouts was scored."),
    ],
)
def test_no_run_is_complete_while_lines_may_be_owed(numbers, said):
    assert headline(basis(NOTHING | numbers), 2).startswith(said)


def test_lost_lines_are_named_whatever_is_owed():
    lost = NOTHING | {"lost_lines": {"not_finite": 2, "torn": 1}}
    taken = "3 damaged lines were taken out of the rollouts (not_finite 2, torn 1); see quarantine.jsonl of the shards."
    assert warnings(lost, 1) == [taken]
    assert warnings(lost | {"unreadable_lines": {"a": 1, "b": 1}}, 1) == [
        "2 damaged lines may each be one more rollout: nothing else says what is owed; see quarantine.jsonl of the shards.",
        taken,
    ]
    assert warnings(lost | {"lost_lines": {"torn": 1}}, 1)[0].startswith("1 damaged line was taken out")


def test_warnings_name_everything_that_is_not_scored():
    failed = {"judge_failed": 2, "agent_run_error": 10}
    numbers = {"expected": 80, "scored": 60, "unscored": 1, "masked": 2, "imputed": 1, "missing": 4, "unrouted": 3}
    numbers |= {"gated": 5}
    said = warnings(NOTHING | numbers | {"failed_by_class": failed}, 1)
    assert said == [
        "4 rollouts left no row at all and are in no score.",
        "12 rollouts failed (agent_run_error 10, judge_failed 2) and are in no score.",
        "1 rollout has no result, but counts in the score as configured.",
        "5 rollouts without result are not asked for again: terminal, or out of attempts.",
        "2 rollouts are masked: answered, but left out of the score.",
        "1 rollout has no numeric reward and is in no score.",
        "3 rollouts are answered, but without the name of an agent or server, and are in no score.",
    ]


def test_a_complete_run_has_no_warning_but_a_missing_file_has():
    complete = NOTHING | {"expected": 8, "scored": 8}
    assert warnings(complete, 1) == []
    assert warnings(complete, 0) == ["There are no aggregate metrics, so this page shows no score."]
    assert warnings(NOTHING, 0) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.75, "0.75"),
        (1.0, "1"),
        (2 / 3, "0.6667"),
        (12345.678, "12,345.7"),
        (12345, "12,345"),
        (1e-9, "1e-09"),
        (-0.5, "-0.5"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.01, "under 0.1 %"), (12.34, "12.3 %"), (10, "10 %"), (99.99, "over 99.9 %"), (100, "100 %")],
)
def test_percentages_are_0_or_100_only_if_exactly_so(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "12.3 ms"), (1.5, "1.5 s"), (119, "119 s"), (600, "10 min"), (36000, "10.0 h")]
)
def test_durations(value, text):
    assert seconds(value) == text


def test_plural():
    assert [plural(count, "row") for count in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]

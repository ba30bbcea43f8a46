"""What can be told of lines that are no record any more."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.lines import Reason, judge_line
from rollmake.core.lost import LOST, lost_by_reason, lost_row, says_what_is_owed

START = '{"_ng_task_index": 3, "_ng_rollout_index": 1'
NAMED = START + ', "_ng_environment_server": "quiz", "agent_ref": {"name": "solver"}'


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (NAMED + ', "reward": NaN}', (3, 1, "quiz", "solver")),
        (NAMED + ', "reward": -Infinity}', (3, 1, "quiz", "solver")),
        ('{"reward": 1e999, "_ng_rollout_index": 1, "_ng_task_index": 3}', (3, 1, None, None)),
        (NAMED + ', "reward": 0.', (3, 1, "quiz", "solver")),
        (START + ', "response": {"output": [{"te', (3, 1, None, None)),
        (START + ', "text": "\ud800', (3, 1, None, None)),
        ("\ufeff\0" + START + ', "reward": nan', (3, 1, None, None)),
        (START + ', "response": {"_ng_task_index": 9}, "reward": NaN}', (3, 1, None, None)),
        (START + ', "agent_ref": {"name": [1]}, "_ng_environment_server": 7, "reward": NaN}', (3, 1, None, None)),
        (START + ', "agent_ref": "solver", "reward": NaN}', (3, 1, None, None)),
        # The number may have gone on.
        (START, None),
        ('{"_ng_task_index": 3, "reward": NaN}', None),
        ('{"_ng_task_index": "3", "_ng_rollout_index": 1, "reward": NaN}', None),
        ('{"_ng_task_index": true, "_ng_rollout_index": 1, "reward": NaN}', None),
        ('{"_ng_task_index": 9223372036854775808, "_ng_rollout_index": 1, "reward": NaN}', None),
        # Only inside: it is not the record's own.
        ('{"response": ' + START + "}, ", None),
        # Two records, or the start of one and another.
        (START + "}" + START + "}", None),
        (START + ', "rew' + START + "}", None),
        ("[1]", None),
        ('"' + START, None),
        ("{", None),
        ("{1: 2}", None),
        ("", None),
        ("[" * 20000, None),
        ('{"a": ' + "[" * 20000, None),
    ],
)
def test_a_key_counts_only_if_it_can_be_told(line, row):
    assert lost_row(line.encode(errors="surrogatepass")) == row


@given(
    st.dictionaries(st.text(max_size=4), st.one_of(st.floats(), st.text(max_size=9), st.integers()), max_size=4),
    st.permutations(["task", "rollout", "rest"]),
    st.data(),
)
def test_whatever_is_torn_off_no_other_key_is_told(rest, order, data):
    parts = {"task": {"_ng_task_index": 12}, "rollout": {"_ng_rollout_index": 34}, "rest": {"x": rest}}
    record = {name: value for part in order for name, value in parts[part].items()}
    text = json.dumps(record, ensure_ascii=False).encode(errors="surrogatepass")
    assert lost_row(text) == (12, 34, None, None)
    assert lost_row(text[: data.draw(st.integers(0, len(text)))]) in (None, (12, 34, None, None))


@given(st.binary(max_size=60))
def test_no_bytes_fail(line):
    row = lost_row(line)
    assert row is None or judge_line(line).reason in LOST | {None}


def repair(**removed):
    files = {"a.jsonl": {"removed": removed}, "a_failures.jsonl": {"removed": {"torn": 9}}}
    return {"source": "raw/a.jsonl", "files": files}


def test_only_lines_of_rollouts_that_may_have_been_a_result_are_counted():
    counts = {reason.value: 1 for reason in Reason}
    assert lost_by_reason([repair(**counts), repair(torn=2), repair()]) == {
        "no_identity": 1,
        "not_finite": 1,
        "not_json": 1,
        "not_object": 1,
        "not_utf8": 1,
        "nul": 1,
        "torn": 3,
    }


@pytest.mark.parametrize(("owed", "said"), [(None, False), (0, False), (3, True)])
def test_without_rows_nothing_says_what_is_owed(owed, said):
    assert says_what_is_owed({"keys": {"owed": owed}}) == said

"""Entries of the aggregate file, and what is said when there is none."""

import pytest

from rollmake.core.aggregate import entry, oversized_fields, refusal, refuse_empty
from rollmake.core.errors import DataError, ServerError

REPLY = {
    "group_level_metrics": [1],
    "agent_metrics": {"mean/reward": 1.0},
    "key_metrics": {"k": 1},
    "repeat_level_metrics": [],
}
NUMBERS = {"expected": 3, "recorded": 0, "failed_by_class": {"agent_run_error": 2}, "missing": 1}


def test_an_entry_has_its_members_in_the_order_of_the_file():
    found = entry("env", "agent", REPLY | {"perf_summary": None, "more": 1})
    assert found == {"agent_ref": {"name": "agent"}, "_ng_environment_server": "env", **REPLY}
    assert list(found)[2:] == ["agent_metrics", "key_metrics", "group_level_metrics", "repeat_level_metrics"]
    assert list(entry("env", "agent", REPLY | {"perf_summary": {"x": 1}}))[-1] == "perf_summary"


@pytest.mark.parametrize("reply", [[], None, {}, REPLY | {"key_metrics": None}, {**REPLY, "key_metrics": []}])
def test_a_reply_that_is_none_is_refused(reply):
    with pytest.raises(ServerError, match=r"'env'.*key_metrics"):
        entry("env", "agent", reply)


def test_nothing_to_score_is_said_with_its_reasons():
    with pytest.raises(DataError, match=r"none of 3 owed .*2 failed as agent_run_error, 1 left no row"):
        refuse_empty(NUMBERS)
    refuse_empty(NUMBERS | {"recorded": 1})
    refuse_empty({"expected": 0, "recorded": 0, "failed_by_class": {}, "missing": 0})


def test_a_refusal_names_the_fields_that_are_too_large():
    records = [
        {"reward": 1.0, "t_ns": 2**47, "ok": True},
        {"id": -(2.0**50), "small": 2**47 - 1, "_ng_x": 2**60, "s": "x"},
    ]
    found, remedy = refusal(500, b'"boom"', records)
    assert found == '/aggregate_metrics answered with status 500: "boom"'
    assert remedy.endswith(": id, t_ns")
    assert refusal(403, b"", records) == (
        "/aggregate_metrics answered with status 403: no body",
        "See the server's log",
    )
    assert oversized_fields([]) == []


@pytest.mark.parametrize("status", [404, 405, 501])
def test_where_there_is_no_such_endpoint_the_metrics_can_be_computed_here(status):
    _, remedy = refusal(status, b"", [{"t_ns": 2**47}])
    assert (
        remedy == "See the server's log, or, if it does not serve /aggregate_metrics, set `metrics: {backend: local}`"
    )


def test_a_refusal_quotes_only_the_start_of_a_long_body_and_of_a_long_list():
    found, remedy = refusal(500, b"x" * 1000, [{f"field{i:02d}": 2**60 for i in range(15)}])
    assert found.endswith("x" * 500 + "…")
    assert remedy.endswith("field09 and 5 more")

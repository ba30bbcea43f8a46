"""Every reply has one destination and one line that a strict reader accepts."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.outcome import (
    STAMPS,
    Answered,
    Broken,
    Destination,
    Failed,
    Reading,
    error_body,
    outcome,
    reading,
    stamped,
    stamps,
)
from rollmake.core.reply import LARGE

ROW = {
    "responses_create_params": {"input": "q"},
    "agent_ref": {"name": "a", "more": [1]},
    "_ng_task_index": 3,
    "_ng_rollout_index": 1,
    "subset": "easy",
}
MARKS = stamps(ROW)


def answer(body, status=200):
    return outcome(Answered(status, body if isinstance(body, bytes) else json.dumps(body).encode()), ROW)


def test_a_success_keeps_the_replys_own_bytes_and_gets_the_stamps_behind_them():
    result = answer(b'{"reward":0.5,"x":1e3}')
    assert result.destination is Destination.ROLLOUTS
    assert json.loads(result.line) == {"reward": 0.5, "x": 1000.0, **MARKS}
    assert answer(b'{"reward":0.5,"x":[1,"\\u00e9"]}').line.endswith(orjson.dumps(MARKS)[1:])
    assert answer('{"reward":0.5,"x":"é"}'.encode()).line.startswith('{"reward":0.5,"x":"é",'.encode())


def test_only_the_rows_framework_keys_are_stamped_in_order():
    assert list(stamps({**ROW, "_ng_attempt_index": 2})) == [
        key for key in STAMPS if key in {*ROW, "_ng_attempt_index"}
    ]
    assert "subset" not in json.loads(answer({"reward": 1}).line)


def test_a_stamped_key_of_the_reply_is_overwritten_where_it_stands():
    line = answer(b'{"_ng_task_index":9,"reward":1,"agent_ref":null}').line
    assert list(json.loads(line)) == ["_ng_task_index", "reward", "agent_ref", "_ng_rollout_index"]
    assert json.loads(line)["_ng_task_index"] == 3
    assert line.count(b'"_ng_task_index"') == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":2}',
        b'{"b":{"a":1,"a":2}}',
        b'{"a":1,\n"b":2}',
        b'{"a":1,\r\n"b":2}',
        b"{ }",
        b"{}",
        b'\n {"a":1} \n',
    ],
)
def test_any_reply_is_one_line_without_a_key_twice(body):
    line = answer(body).line
    assert b"\n" not in line
    assert b"\r" not in line
    assert orjson.loads(line) == {**orjson.loads(body), **MARKS}
    assert json.loads(line, object_pairs_hook=no_key_twice)


LARGE_TEXT = b'"text":"' + b"x" * LARGE + b'"'


@pytest.mark.parametrize("spaces", [b"", b" "])
def test_a_large_reply_keeps_its_own_bytes(spaces):
    body = b'{"reward":' + spaces + b"1.50," + LARGE_TEXT + b"}"
    assert answer(body).line == body[:-1] + b"," + orjson.dumps(MARKS)[1:]
    assert answer(body).reward == 1.5


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":2,%s}',
        b'{"b":{"a":1,"a":2},%s}',
        b'{"_ng_task_index":9,%s}',
        b'{"a":1,\n%s}',
        b'{"a":1,\r%s}',
        b' {"a":1,%s}',
        b'{"a":1,%s}\n',
        b'{"a":123456789012345678901234567890,%s}',
        b'{"a":[[%s]]}'.replace(b"[[", b"[" * 500).replace(b"]]", b"]" * 500).replace(b"%s", b"{%s}"),
    ],
)
def test_a_large_reply_whose_bytes_cannot_be_kept_is_written_anew(body):
    body = body % LARGE_TEXT
    line = answer(body).line
    assert b"\n" not in line
    assert b"\r" not in line
    assert orjson.loads(line) == {**orjson.loads(body), **MARKS}
    assert json.loads(line, object_pairs_hook=no_key_twice)


def no_key_twice(pairs):
    assert len({key for key, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


def test_a_reply_nested_deeper_than_orjson_writes_is_kept():
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    assert orjson.loads(answer(deep).line)["_ng_task_index"] == 3
    named = b'{"_ng_task_index":1,' + deep[1:]
    assert orjson.loads(answer(named).line)["_ng_task_index"] == 3
    deepest = b'{"a":' * 1020 + b"1" + b"}" * 1020
    assert orjson.loads(answer(deepest).line)["_ng_task_index"] == 3


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text() | st.sampled_from(STAMPS), json_values, max_size=5),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_any_reply_is_stored_with_the_same_values(reply, ascii_only, indent):
    text = json.dumps(reply, ensure_ascii=ascii_only, indent=indent)
    try:
        body = text.encode()
        decoded = orjson.loads(body)
    except (UnicodeEncodeError, orjson.JSONDecodeError):
        return
    line = b"".join(stamped(Reading(decoded, False, None), MARKS))
    assert b"\n" not in line
    assert orjson.loads(line) == {**decoded, **MARKS}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"[1]", "TypeError"),
        (b"null", "TypeError"),
        (b"", "JSONDecodeError"),
        (b'{"reward":NaN}', "JSONDecodeError"),
        (b'{"reward":1', "JSONDecodeError"),
        (b'{"a":"\xff"}', "JSONDecodeError"),
        (b'{"a":1}\0', "JSONDecodeError"),
        (b"\xef\xbb\xbf{}", "JSONDecodeError"),
    ],
)
def test_an_unusable_reply_becomes_one_sidecar_row(body, kind):
    result = answer(body)
    row = json.loads(result.line)
    assert (result.destination, result.failure_class) == (Destination.SIDECAR, "agent_run_error")
    assert result.infrastructure
    assert (row["_ng_failure_type"], row["_ng_failure_http_status"], row["_ng_failure_response_body"]) == (
        kind,
        200,
        None,
    )
    assert "reward" not in row
    assert row["agent_ref"] == ROW["agent_ref"]


@pytest.mark.parametrize(("status", "name"), [(s, "agent_request_failed") for s in (429, 502, 503, 504)])
def test_gateway_statuses_say_that_nothing_ran(status, name):
    assert answer(b"busy", status).failure_class == name


@pytest.mark.parametrize("status", [301, 302, 400, 404, 405, 422, 500, 501, 505, 520])
def test_other_statuses_say_that_the_rollout_broke(status):
    result = answer(b'"boom"', status)
    assert result.failure_class == "agent_run_error"
    assert json.loads(result.line)["_ng_failure_response_body"] == '"boom"'


def test_a_broken_exchange_is_a_failed_request_unless_a_status_came():
    assert outcome(Broken("ServerDisconnectedError", "gone"), ROW).failure_class == "agent_request_failed"
    assert outcome(Broken("ClientPayloadError", "cut", 200), ROW).failure_class == "agent_run_error"


def test_the_servers_own_word_decides_where_a_record_goes():
    assert answer({"_ng_no_persist": True, "_ng_failure_class": "x"}).destination is Destination.NOWHERE
    assert answer({"_ng_failure_class": ""}).destination is Destination.SIDECAR
    assert answer({"_ng_failure_class": None, "reward": 1}).destination is Destination.ROLLOUTS
    assert answer({"_ng_failure_class": "x", "_ng_failure_terminal": True}).terminal
    assert not answer({"_ng_failure_class": "x"}).infrastructure
    assert answer({"mask_sample": True, "reward": 0}).masked


@pytest.mark.parametrize(("reward", "number"), [(None, None), ("high", None), (0.25, 0.25), (True, 1.0), ([1], None)])
def test_a_reward_that_is_no_number_is_stored_and_unscored(reward, number):
    result = answer({"reward": reward})
    assert (result.destination, result.reward) == (Destination.ROLLOUTS, number)
    assert json.loads(result.line)["reward"] == reward


def test_an_error_body_is_cut_by_characters():
    assert error_body(b"") is None
    assert error_body("é".encode() * 2000) == "é" * 2000
    assert error_body("é".encode() * 2001) == "é" * 2000 + "…"
    assert error_body(b"\xff!") == "�!"


def test_a_reading_has_no_stamps():
    body = b'{"reward": 1, "_ng_task_index": 9}'
    assert reading(Answered(200, body), ROW) == Reading({"reward": 1, "_ng_task_index": 9}, False, None)
    assert json.loads(outcome(Answered(200, body), ROW).line) == {"reward": 1, **MARKS}


def test_the_reading_of_an_episode_is_its_record():
    identity = {"taskset": "t", "task_id": "1"}
    row = {"task_id": identity, "task_input": {}, "_ng_task_index": 0, "_ng_rollout_index": 0}
    reply = {"episode_id": {}, "task_id": identity, "result": {"reward": 1.0}, "failure": None}
    found = reading(Answered(200, json.dumps(reply).encode()), row)
    assert found == Reading({"reward": 1.0, "_ng_task_id": identity}, True, None)
    unusable = reading(Answered(200, json.dumps({**reply, "result": {"_ng_x": 1}}).encode()), row)
    assert isinstance(unusable, Failed)
    assert (unusable.kind, unusable.status, unusable.failure_class) == ("ValueError", 200, "agent_run_error")


@pytest.mark.parametrize(
    "exchange",
    [Broken("Reset", "gone"), Answered(500, b"boom"), Answered(200, b"{"), Answered(204, b""), Answered(200, b"[]")],
)
def test_what_has_no_reading_is_the_sidecar_row_with_stamps(exchange):
    failed = reading(exchange, ROW)
    assert isinstance(failed, Failed)
    result = outcome(exchange, ROW)
    assert json.loads(result.line) == {**failed.fields, **MARKS}
    assert (result.failure_class, result.infrastructure) == (failed.failure_class, True)

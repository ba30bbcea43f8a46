"""Verdicts on single lines."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.lines import Reason, judge_line, padding

GOOD = '{"_ng_task_index":0,"_ng_rollout_index":1,"text":"é\u2028\u0085"}'.encode()
KEYS = b'"_ng_task_index":0,"_ng_rollout_index":1'


def test_a_good_line_is_decoded_and_located():
    assert judge_line(GOOD) == (None, orjson.loads(GOOD), 0, len(GOOD))


@pytest.mark.parametrize("length", range(1, len(GOOD)))
def test_a_good_line_cut_anywhere_is_torn_if_it_is_the_last_and_broken_elsewhere(length):
    assert judge_line(GOOD[:length], ended=False).reason is Reason.TORN
    assert judge_line(GOOD[:length]).reason in (Reason.NOT_JSON, Reason.NOT_UTF8)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", Reason.BLANK),
        (b" \t\r", Reason.BLANK),
        (b"\0\0\0", Reason.NUL),
        (b"\xef\xbb\xbf\0", Reason.NUL),
        (b'{"a":"\xff"}', Reason.NOT_UTF8),
        (b"{" + KEYS + b',"x":NaN}', Reason.NOT_FINITE),
        (b"{" + KEYS + b',"x":[-Infinity]}', Reason.NOT_FINITE),
        (b"{" + KEYS + b',"x":1e999}', Reason.NOT_FINITE),
        (b"{" + KEYS + b',"x":"\\ud800"}', Reason.NOT_JSON),
        (b"{" + KEYS + b',"x":"\x01"}', Reason.NOT_JSON),
        (b"{" + KEYS + b"}{" + KEYS + b"}", Reason.NOT_JSON),
        (b"{" + KEYS + b"}\r{" + KEYS + b"}", Reason.NOT_JSON),
        (b'{"a":' * 3000 + b"1" + b"}" * 3000, Reason.NOT_JSON),
        (b"[1]", Reason.NOT_OBJECT),
        (b"null", Reason.NOT_OBJECT),
        (b"3", Reason.NOT_OBJECT),
        (b"\0[1]\0", Reason.NOT_OBJECT),
        (b"{}", Reason.NO_IDENTITY),
        (b'{"_ng_task_index":0}', Reason.NO_IDENTITY),
        (b'{"_ng_task_index":null,"_ng_rollout_index":0}', Reason.NO_IDENTITY),
        (b'{"_ng_task_index":true,"_ng_rollout_index":0}', Reason.NO_IDENTITY),
        (b'{"_ng_task_index":"0","_ng_rollout_index":0}', Reason.NO_IDENTITY),
        (b'{"_ng_task_index":0.0,"_ng_rollout_index":0}', Reason.NO_IDENTITY),
        (b'{"_ng_task_index":9223372036854775808,"_ng_rollout_index":0}', Reason.NO_IDENTITY),
    ],
)
def test_what_is_wrong_with_a_line(line, reason):
    assert judge_line(line).reason is reason


def test_a_number_that_is_not_finite_is_named_so_even_in_the_last_line():
    assert judge_line(b'{"x":NaN}', ended=False).reason is Reason.NOT_FINITE


@pytest.mark.parametrize(("front", "behind"), [(b"", b"\r"), (b"  ", b" \t\r"), (b"\t", b"")])
def test_white_space_around_a_record_is_no_padding(front, behind):
    line = front + GOOD + behind
    verdict = judge_line(line)
    assert verdict.reason is None
    assert line[verdict.start : verdict.end] == GOOD
    assert padding(line, verdict) == []


@pytest.mark.parametrize(
    ("front", "behind", "parts"),
    [
        (b"\0" * 512, b"", [(0, b"\0" * 512)]),
        (b"\xef\xbb\xbf", b"\r", [(0, b"\xef\xbb\xbf")]),
        (b" \0 ", b"\0\r", [(0, b" \0 "), (3 + len(GOOD), b"\0\r")]),
    ],
)
def test_padding_around_a_record_is_found_and_the_record_saved(front, behind, parts):
    line = front + GOOD + behind
    verdict = judge_line(line)
    assert verdict.row == orjson.loads(GOOD)
    assert line[verdict.start : verdict.end] == GOOD
    assert padding(line, verdict) == parts


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode(errors="surrogatepass")))
def test_any_bytes_get_a_verdict_that_agrees_with_a_strict_reader(line):
    verdict = judge_line(line)
    if verdict.reason in (None, Reason.NO_IDENTITY, Reason.NOT_OBJECT):
        assert orjson.loads(line[verdict.start : verdict.end]) == verdict.row
    else:
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(line)

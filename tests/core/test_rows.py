"""Which lines are rows, and where those that are not go wrong."""

import json

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollmake.core.errors import InputError
from rollmake.core.rows import check_tokens, parse_row, suspicious


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"a":1,"a":2}', r"column 8: the key 'a' stands twice"),
        (b'{"a" :1,\t"a"\t: 2}', r"column 10: the key 'a' stands twice"),
        (b'{"a":1,"\\u0061":2}', r"column 8: the key 'a' stands twice"),
        (b'{"x":[{"b":{}, "b":1}]}', r"column 16: the key 'b' stands twice"),
        (b'{"a":"\\u003a","a":1}', r"column 15: the key 'a' stands twice"),
        ('{"é":1,"é":2}'.encode(), r"column 8: the key 'é' stands twice"),
        (b'{"a":18446744073709551616}', r"column 6: the integer 18446744073709551616 does not fit into 64 bits"),
        (b'{"a": -9223372036854775809}', r"column 7: the integer -9223372036854775809"),
        (b'{"a":' + b"9" * 5000 + b"}", r"column 6: broken JSON .number is infinity"),
        (b'{"a":NaN}', r"column 6: NaN is no JSON number"),
        (b'{"a":[1, Infinity]}', r"column 10: Infinity is no JSON number"),
        (b'{"a":-Infinity}', r"column 6: -Infinity is no JSON number"),
        (b'{"a":1e400}', r"column \d+: "),
        (b'{"a":1', r"column \d+: broken JSON"),
        (b'{"a":1}{"b":2}', r"column 8: broken JSON"),
        (b'{"a":"\xff"}', r"column \d+: broken JSON"),
        (b'{"a":"\\ud800"}', r"column \d+: broken JSON"),
        (b"[1]", r"column 1: a row is a JSON object, not an array"),
        (b"null", r"not null"),
        (b"true", r"not a truth value"),
        (b'"text"', r"not a string"),
        (b"5", r"not a number"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, r"nested deeper than 254 levels"),
    ],
)
def test_refusals(line, message):
    with pytest.raises(InputError, match=message):
        parse_row(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"a": {"b": 1}, "c": [{"b": 1}, {"b": 2}]}',
        b'{"a": "b: \\"c\\": 1", "b: ": ":"}',
        b'{"a":18446744073709551615,"b":-9223372036854775808}',
        b'{"a": "12345678901234567890123", "b": 0.12345678901234567890123}',
        b'{"a": 1e3, "b": 123456789012345678901e2}',
        '{ "a" : "\u2028 \u2029 \u0085" }'.encode(),
        b'{"a":"\\u003a \\u0022"}',
    ],
)
def test_accepted(line):
    row, compact = parse_row(line)
    assert row == json.loads(line)
    assert compact == orjson.dumps(row)


class Pairs(list):
    """The members of an object, possibly with a key twice."""


TEXT = st.text(alphabet='ab:" \\,é\u2028', max_size=4)
VALUE = st.recursive(
    st.none() | st.booleans() | TEXT | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(TEXT, inner), max_size=3).map(Pairs),
    max_leaves=8,
)
SPACE = st.sampled_from(["", " ", "\t", "  ", "\r"])


def written(value, space, ascii_only):
    if isinstance(value, Pairs):
        members = [
            f"{json.dumps(k, ensure_ascii=ascii_only)}{space}:{space}{written(v, space, ascii_only)}" for k, v in value
        ]
        return "{" + f"{space},{space}".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(item, space, ascii_only) for item in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def faulty(value):
    if isinstance(value, Pairs):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(faulty(item) for _, item in value)
    if isinstance(value, list):
        return any(map(faulty, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**64


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TEXT, VALUE), max_size=4).map(Pairs), SPACE, st.booleans())
@example(Pairs([("a", 1), ("a", 2)]), " ", False)
def test_refused_exactly_if_a_key_or_an_integer_would_be_lost(value, space, ascii_only):
    line = written(value, space, ascii_only).encode()
    if faulty(value):
        with pytest.raises(InputError, match="column"):
            parse_row(line)
    else:
        assert parse_row(line)[0] == json.loads(line)


def test_plain_lines_skip_the_slow_check():
    line = json.dumps({"responses_create_params": {"input": 'he said: "no: 5"'}, "agent_ref": {"name": "a"}}).encode()
    assert not suspicious(line, orjson.dumps(orjson.loads(line)))


def test_the_check_names_the_first_fault():
    with pytest.raises(InputError, match="column 15"):
        check_tokens('{"a":{"b":1,  "b":2},"a":3}')

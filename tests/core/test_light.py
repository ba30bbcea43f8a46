"""Lines read lightly give the scalars that the same lines give when they are read in full, or nothing."""

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from rollmake.core import light
from rollmake.core.blocks import ScoreBlocks, loose_table
from rollmake.core.light import LightReader, unusual_numbers
from rollmake.core.lines import plain_records


def line(task=0, rollout=0, **fields):
    return orjson.dumps({"_ng_task_index": task, "_ng_rollout_index": rollout, **fields}) + b"\n"


def frame(table, texts=()):
    blocks = ScoreBlocks(texts)
    blocks.add_table(table)
    return blocks.frame()


def full(lines, texts=()):
    return frame(loose_table(plain_records(lines).rows), texts)


USUAL = {
    "responses_create_params": {
        "input": 'é\u2028 \\ " \n \U0001f600',
        "temperature": 0.7,
        "n": [1e5, -2.5e-300, 10**18],
    },
    "response": {"output": [{"text": "x" * 50}], "usage": {"tokens": 3, "note": "n", "inner": {"a": 1}}},
    "reward": 0.5,
    "accuracy": 1,
    "ok": True,
    "nothing": None,
    "said": "four",
    "turns": [{"a": 1}, 2, "3", None, [4]],
    "agent_ref": {"name": "agent"},
    "_ng_environment_server": "server",
    "_ng_attempt_index": 2,
    "_ng_rollout_id": "5e123-12e4567-3e999",
    "mask_sample": False,
    "ng_perf": {"elapsed_s": 1.5, "note": "x"},
}


def test_usual_lines_are_read_lightly_and_give_the_same_frame():
    lines = [line(task, rollout, **USUAL) for task in range(3) for rollout in range(2)]
    table = LightReader().read(lines)
    assert_frame_equal(frame(table), full(lines))
    assert "xxx" not in str(table)


def test_what_is_to_be_kept_is_kept_whatever_it_holds():
    names = ["said", "turns", "responses_create_params", "absent"]
    lines = [line(task, **USUAL | {"said": said}) for task, said in enumerate(["a", None, 4, {"b": [1.0]}])]
    assert_frame_equal(frame(LightReader(names).read(lines), names), full(lines, names))


def test_who_keeps_the_response_reads_in_full():
    assert LightReader(["response"]).read([line(**USUAL)]) is None


@pytest.mark.parametrize(
    "wrong",
    [
        line(1, reward=1)[:-1],
        b" " + line(1, reward=1),
        line(1, reward=1)[:-1] + b" \n",
        b"\n",
        b"{}\n",
        b'{"_ng_task_index":1,"_ng_rollout_index":0,"reward":NaN}\n',
        b'{"_ng_task_index":1,"_ng_rollout_index":0,"reward":1e400}\n',
        b'{"_ng_task_index":1,"_ng_rollout_index":0,"reward":"x"}{}\n',
        b'{"_ng_task_index":1,"_ng_rollout_index":0,"reward":"\xff"}\n',
        b'{"_ng_task_index":1,"_ng_rollout_index":0,"reward":18446744073709551616}\n',
        line("1", reward=1),
        line(2**63, reward=1),
        line(True, reward=1),
        line(1, reward=1, more=1),
        line(1),
    ],
)
def test_a_line_that_is_not_as_the_first_is_left_to_others(wrong):
    assert LightReader().read([line(0, reward=1), wrong]) is None


DEEP = [
    b"NaN", b"-Infinity", b"1e400", b"-1E+400", b"1.5e0400", b"[0,1e999]", b'{"a": 1e309}', b"1" * 400, b"1" * 400 + b".0",
    b"01", b"1.", b".5", b"+1", b"tru", b'"\\x"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\xed\xa0\x80"', b'"\xff"',
    b'"\xc0\x80"', b'"\x01"', b'"\t"', b"[1,]", b'{"a":1,}', b"{1:2}", b"{'a':1}", b"[" * 1100 + b"]" * 1100, b"[1}", b'"a',
]  # fmt: skip


@pytest.mark.parametrize("deep", DEEP)
@pytest.mark.parametrize(
    "name", [b"responses_create_params", b"turns", b"response", b"_ng_rollout_id", b"ng_trajectory"]
)
def test_nothing_passes_that_is_no_json_wherever_it_is(deep, name):
    good, bad = (
        b'{"_ng_task_index":1,"_ng_rollout_index":0,"%s":{"x":[%s]}}\n' % (name, one) for one in (b'"1e400"', deep)
    )
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(bad)
    assert LightReader().read([good, good]) is not None
    assert LightReader().read([good, bad]) is None
    assert LightReader().read([good.replace(b'{"x":', b"").replace(b"}}", b"}"), bad]) is None


@pytest.mark.parametrize(
    ("text", "unusual"),
    [
        (b'{"a":1e100}', True), (b'{"a":[-2.5E+300]}', True), (b'{"a": 1e0000001}', True), (b'{"a":1e99}', False),
        (b'{"a":1e-400}', False), (b'{"a":"5e123456"}', False), (b'{"a":"0-12e45678-1"}', False), (b'{"a":1e1', False),
        (b'{"a":12345678901234567890}', True), (b'{"a":-9223372036854775809}', True), (b'{"a":9223372036854775808}', False),
        (b'{"a":0.12345678901234567890123}', False), (b'{"a":"' + b"7" * 50 + b'"}', True), (b"1" * 40, True),
        (b"{" + b"0" * 14, False), (b"", False), (b"1", False), (b"1e4", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shift", range(8))
def test_numbers_that_readers_disagree_about_are_noticed_at_any_place(text, unusual, shift):
    front = b" " * shift if text[:1] != b"1" else b""
    assert unusual_numbers(front + text + b"     ") == unusual


LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4) | st.sampled_from(["1e400", "\u2028"])
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)
NAMES = st.sampled_from([*USUAL, "a", "b", "", "é", 'q"', "_c", "tokens"])
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=4)


@settings(deadline=None, max_examples=300)
@example([USUAL, USUAL | {"mask_sample": {}}], True)
@example([{"reward": {}}, {"reward": [1]}], True)
@example([{"response": {"usage": {"a": "x"}}, "a": 1}], True)
@given(ROWS, st.booleans())
def test_whatever_is_read_lightly_is_what_is_there(rows, alike):
    rows = [rows[0] | {name: row.get(name, rows[0][name]) for name in rows[0]} for row in rows] if alike else rows
    lines = [line(task, **row) for task, row in enumerate(rows)]
    if (table := LightReader(["a"]).read(lines)) is not None:
        assert_frame_equal(frame(table, ["a"]), full(lines, ["a"]), check_column_order=False)


@settings(deadline=None, max_examples=300)
@given(
    st.integers(0, 400), st.binary(max_size=3) | st.sampled_from([b"1e400", b"\\ud800", b",", b"{", b'"', b"0" * 20])
)
def test_whatever_is_read_lightly_a_strict_reader_accepts(place, noise):
    plain = line(**USUAL)
    noisy = plain[:place] + noise + plain[place + len(noise) :]
    if LightReader().read([plain, noisy]) is not None:
        assert plain_records([plain, noisy]) is not None
        assert_frame_equal(frame(LightReader().read([plain, noisy])), full([plain, noisy]))


def test_it_gives_up_after_some_lines_in_vain_and_learns_no_end_of_shapes(monkeypatch):
    reader, odd = LightReader(), [line(a=1), line(b=1)]
    for _ in range(light.TRIES - 1):
        assert reader.read(odd) is None
    assert reader.read([line(a=1)]) is not None
    for _ in range(light.TRIES):
        assert reader.read(odd) is None
    assert reader.read([line(a=1)]) is None
    reader = LightReader()
    found = [reader.read([line(**{f"name{place}": 1})]) is not None for place in range(light.SHAPES + 3)]
    assert found == [True] * light.SHAPES + [False] * 3
    assert reader.read([line(name0=1)]) is not None

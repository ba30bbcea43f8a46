"""What the collector keeps can be read again, however deep it is nested."""

import msgspec
import orjson
import pytest

from rollmake.core.carry import SetAside, restamped, unwrapped, wrapped
from rollmake.core.nesting import decode, encode
from rollmake.core.settlement import failure_facts, keys, success_facts

# With the record around it, the last depth is the deepest that orjson reads.
DEPTHS = (200, 300, 900, 990, 1022)


def row(depth: int, key: str) -> bytes:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    return b'{"%s":%s,"_ng_task_index":1,"_ng_rollout_index":2,"reward":1,"elapsed_seconds":3}' % (key.encode(), deep)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("key", ["response", "x"])
def test_a_deep_row_of_a_journal_counts(depth, key):
    line = row(depth, key)
    assert encode(orjson.loads(line)) == line
    assert keys([line]).rows() == [(1, 2)]
    assert success_facts([line]).rows() == [(1, 2, 1.0, False)]
    assert failure_facts([line])["elapsed_s"].to_list() == [3.0]


@pytest.mark.parametrize("depth", [5_000, 1_000_000])
def test_a_row_that_is_too_deep_is_unreadable_and_ends_nothing(depth):
    line = row(depth, "response")
    assert keys([line]).rows() == [(None, None)]
    assert success_facts([line]).is_empty()
    assert failure_facts([line]).is_empty()
    with pytest.raises(RecursionError):
        decode(msgspec.json.decode, line)


@pytest.mark.parametrize("depth", DEPTHS[:-1])
def test_a_deep_row_is_carried_over(depth):
    moved = restamped(row(depth, "x"), 5, 6)
    assert moved == row(depth, "x").replace(b'_index":1,', b'_index":5,').replace(b'_index":2,', b'_index":6,')
    aside = SetAside(b"\x01", 0, "rollouts", moved)
    assert unwrapped(wrapped(aside)) == aside

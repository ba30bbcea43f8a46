"""The aggregate file is written part by part as it would be at once."""

import io

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.aggregate import GROUPS
from rollmake.edge.metrics_file import write_entries

JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=4) | st.just("a\nb"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"agent_ref": JSON, "a": JSON, GROUPS: st.lists(st.lists(JSON, max_size=3), max_size=3), "b": JSON}
    ),
    max_size=3,
)


def written(entries):
    file = io.BytesIO()
    write_entries(file, iter(entries))
    return file.getvalue()


@given(ENTRIES)
def test_the_bytes_are_those_of_the_whole(entries):
    whole = [entry | {GROUPS: [one for part in entry[GROUPS] for one in part]} for entry in entries]
    assert written(entries) == orjson.dumps(whole, option=orjson.OPT_INDENT_2)


def test_no_more_than_one_part_is_held():
    file, taken = io.BytesIO(), []

    def parts():
        for number in range(3):
            taken.append(file.tell())
            yield [{"number": number}]

    write_entries(file, [{GROUPS: parts()}])
    assert taken == sorted(set(taken))
    assert orjson.loads(file.getvalue()) == [{GROUPS: [{"number": 0}, {"number": 1}, {"number": 2}]}]


def test_what_fails_midway_is_not_hidden():
    def parts():
        yield [1]
        raise ValueError("midway")

    with pytest.raises(ValueError, match="midway"):
        written([{GROUPS: parts()}])

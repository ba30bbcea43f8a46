"""The tail of a journal, cut at every byte and damaged in every way that a kill or a disk can think of."""

import orjson
import pytest

from rollmake.core.tail import split_tail

ROW = '{"_ng_task_index":0,"_ng_rollout_index":1,"text":"é\u2028 \\" } {","n":[1,{"a":null}]}'.encode()


def test_whole_row_gets_its_newline():
    assert split_tail(ROW) == (ROW + b"\n", b"")


@pytest.mark.parametrize("length", range(len(ROW)))
def test_row_cut_at_any_byte_is_cut_off_and_given_back(length):
    assert split_tail(ROW[:length]) == (b"", ROW[:length])


@pytest.mark.parametrize(
    "tail",
    [
        *(
            b"",
            b"   ",
            b"\0" * 4096,
            b"123",
            b"null",
            b'"text"',
            b"[{}]",
            b'{"a":NaN}',
            b'{"a":1e999}',
            b'{"a":"\xff"}',
        ),
        *(b'{"a":1}\0', b'\0{"a":1}', b'\xef\xbb\xbf{"a":1}', b'{"a":1}{"b":2}', b'{"a":1},', b'{"a":"\\ud800"}'),
    ],
)
def test_what_is_no_whole_object_is_cut_off_and_given_back(tail):
    assert split_tail(tail) == (b"", tail)


@pytest.mark.parametrize("tail", [b"{}", b' {"a":1} ', b'{"a":1}\r'])
def test_white_space_around_an_object_does_no_harm(tail):
    kept, cut = split_tail(tail)
    assert (kept, cut) == (tail + b"\n", b"")
    assert isinstance(orjson.loads(kept), dict)


def test_deep_nesting_is_cut_off_rather_than_crashing():
    tail = b'{"a":' * 5000 + b"1" + b"}" * 5000
    assert split_tail(tail) == (b"", tail)


def test_row_of_many_megabytes():
    tail = b'{"text":"' + b"x" * (20 << 20) + b'"}'
    assert split_tail(tail)[0] == tail + b"\n"
    assert split_tail(tail[:-1]) == (b"", tail[:-1])

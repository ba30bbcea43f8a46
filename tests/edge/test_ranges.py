"""Ranges of files copied in any order."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.errors import DataError
from rollmake.edge import ranges
from rollmake.edge.ranges import Windows, copy_lines, pieces, reader, same_bytes

SOURCES = [b"".join(b"%d:%d\n" % (source, line) + b"\n" * (line % 3) for line in range(40)) for source in range(3)]


def places(content):
    """(offset, length) of the lines of a file that are not blank."""
    found, offset = [], 0
    for line in content.split(b"\n"):
        found += [(offset, len(line))] * bool(line)
        offset += len(line) + 1
    return found


PLACES = [(source, *place) for source, content in enumerate(SOURCES) for place in places(content)]


def from_memory(source, offset, length):
    return SOURCES[source][offset : offset + length]


def copied(read, chosen):
    target = io.BytesIO()
    columns = np.array(chosen, dtype=np.int64).reshape(-1, 3).T
    copy_lines(read, *columns, target)
    return target.getvalue()


def expected(chosen):
    return b"".join(SOURCES[source][offset : offset + length] + b"\n" for source, offset, length in chosen)


@given(st.lists(st.sampled_from(PLACES)), st.integers(0, len(PLACES)))
def test_lines_are_copied_in_the_order_given(chosen, start):
    chosen = PLACES[start:] + chosen + PLACES[:start]
    assert copied(from_memory, chosen) == expected(chosen)


def test_lines_that_stand_together_are_read_at_once():
    calls = []

    def read(source, offset, length):
        calls.append((source, offset, length))
        return from_memory(source, offset, length)

    first, second, third = ((0, *place) for place in places(SOURCES[0])[:3])
    assert copied(read, [first, second, third]) == expected([first, second, third])
    assert calls == [(0, 0, first[2] + 1 + second[2]), third]


def test_many_lines_are_copied_in_portions(monkeypatch):
    monkeypatch.setattr(ranges, "ROWS", 7)
    assert copied(from_memory, PLACES) == expected(PLACES)


def test_no_more_than_a_piece_is_gathered_before_it_is_written(monkeypatch):
    monkeypatch.setattr(ranges, "PIECE", 50)

    class Target(io.BytesIO):
        def writelines(self, parts):
            for part in parts:
                sizes.append(len(part))
                self.write(part)

    sizes, target = [], Target()
    copy_lines(from_memory, *np.array(PLACES).T, target)
    assert target.getvalue() == expected(PLACES)
    assert max(sizes) <= 100


def test_a_long_line_is_copied_in_pieces(monkeypatch):
    monkeypatch.setattr(ranges, "PIECE", 3)
    sizes = []

    def read(source, offset, length):
        sizes.append(length)
        return from_memory(source, offset, length)

    assert b"".join(pieces(read, 1, 5, 20)) == SOURCES[1][5:25]
    assert max(sizes) == 3
    assert copied(read, PLACES) == expected(PLACES)


def test_a_file_that_became_shorter_is_refused():
    with pytest.raises(DataError, match=f"no byte {len(SOURCES[0])}"):
        list(pieces(from_memory, 0, 0, len(SOURCES[0]) + 1))


@pytest.mark.parametrize("piece", [1, 4, 100])
def test_same_bytes_finds_a_difference_anywhere(monkeypatch, piece):
    monkeypatch.setattr(ranges, "PIECE", piece)
    content = b"abcdefgh" + b"abcdefgh" + b"abcdefgX"
    read = lambda source, offset, length: content[offset : offset + length]  # noqa: E731
    assert same_bytes(read, 8, (0, 0), (0, 8))
    assert not same_bytes(read, 8, (0, 0), (0, 16))
    assert same_bytes(read, 7, (0, 0), (0, 16))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 200_000), st.integers(1, 90_000)), max_size=20))
def test_windows_read_what_is_there(tmp_path_factory, reads):
    folder = tmp_path_factory.getbasetemp()
    contents = [bytes(range(256)) * 600, bytes(range(255, -1, -1)) * 400]
    paths = [folder / "window-0", folder / "window-1"]
    for path, content in zip(paths, contents, strict=True):
        if not path.exists():
            path.write_bytes(content)
    windows = Windows(paths, budget=1)
    for source, offset, length in reads:
        assert windows.read(source, offset, length) == contents[source][offset : offset + length]


def test_windows_load_small_lines_many_at_a_time(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 300_000)
    loads = []
    load = Windows._load
    monkeypatch.setattr(Windows, "_load", lambda *arguments: loads.append(arguments[1:]) or load(*arguments))
    windows = Windows([path], budget=1)
    for offset in range(0, 300_000, 100):
        assert windows.read(0, offset, 100) == b"x" * 100
    assert len(loads) <= 300_000 // (1 << 16) + 1


def test_windows_hold_no_long_line(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 300_000)
    windows = Windows([path], budget=1)
    assert windows.read(0, 0, 200_000) == b"x" * 200_000
    assert windows.read(0, 0, 10) == b"x" * 10
    assert windows.read(0, 5, 200_000) == b"x" * 200_000
    assert sum(len(held) for _, held in windows._held.values()) <= 1 << 16


def test_a_reader_reads_from_its_files_in_any_order(tmp_path):
    for name, content in (("a", b"0123"), ("b", b"4567")):
        (tmp_path / name).write_bytes(content)
    with (tmp_path / "a").open("rb") as first, (tmp_path / "b").open("rb") as second:
        read = reader(first, second)
        assert [read(1, 2, 9), read(0, 1, 2), read(1, 0, 1)] == [b"67", b"12", b"4"]

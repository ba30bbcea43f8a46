"""Which bytes end a line, how lines are numbered, and what is said about them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.inputs import Reading


def pieces(content):
    """As a file is read: in pieces that end with a newline."""
    reading = Reading()
    parts = [part + b"\n" for part in content.split(b"\n")]
    parts[-1] = parts[-1][:-1]
    lines = [numbered for raw in parts if raw for numbered in reading.split(raw)]
    return lines, reading.remarks()


@pytest.mark.parametrize(
    ("content", "lines", "remarks"),
    [
        (b"", [], []),
        (b'{"a":1}\n{"b":2}\n', [(1, b'{"a":1}'), (2, b'{"b":2}')], []),
        (b"\xef\xbb\xbf{}\n{}\n", [(1, b"{}"), (2, b"{}")], ["passed over a byte order mark"]),
        (b"{}\n\n  \n{}\n", [(1, b"{}"), (4, b"{}")], ["passed over blank lines: 2"]),
        (b"{}\r\n{}\r\n", [(1, b"{}"), (2, b"{}")], ["lines that end in CRLF: 2"]),
        (b"{}\r{}\n{}\n", [(1, b"{}"), (2, b"{}"), (3, b"{}")], ["lines that end in a lone carriage return: 1"]),
        (b"{}\r{}\r", [(1, b"{}"), (2, b"{}")], ["lines that end in a lone carriage return: 2"]),
        (
            b"{}\n{}",
            [(1, b"{}"), (2, b"{}")],
            ["the last line has no newline; it is the same task as equal lines all the same"],
        ),
        ("{}\n{\u2028\u2029\u0085\x0b}\n".encode(), [(1, b"{}"), (2, "{\u2028\u2029\u0085\x0b}".encode())], []),
    ],
)
def test_lines(content, lines, remarks):
    assert pieces(content) == (lines, remarks)


@given(st.text(alphabet="{}\r\n \u2028", max_size=20))
def test_lines_are_those_of_universal_newlines(text):
    expected = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    lines, _ = pieces(text.encode())
    assert lines == [(number, line.encode()) for number, line in enumerate(expected, 1) if line.strip(" ")]

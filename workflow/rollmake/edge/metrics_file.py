"""Writing the aggregate file, whose entries may be larger than what fits into memory."""

from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

import orjson

from rollmake.core.aggregate import GROUPS

# How far a member, and a task's entry among the members, stand from the left, less what orjson puts there.
MEMBER, TASK_ENTRY = b"\n    ", b"\n    "
# The members of an entry; that of GROUPS is a number of lists, one after the other.
Entry = Mapping[str, Any]


def write_entries(file: IO[bytes], entries: Iterable[Entry]) -> None:
    """Write what `orjson.dumps(..., option=OPT_INDENT_2)` makes of the list of all entries, part by part."""
    separator = b"[\n  {"
    for entry in entries:
        file.write(separator)
        file.writelines(_members(entry))
        separator = b"\n  },\n  {"
    file.write(b"[]" if separator.startswith(b"[") else b"\n  }\n]")


def _members(entry: Entry) -> Iterator[bytes]:
    comma = b""
    for name, value in entry.items():
        yield comma + MEMBER + orjson.dumps(name) + b": "
        if name == GROUPS:
            yield from _list(value)
        else:
            yield orjson.dumps(value, option=orjson.OPT_INDENT_2).replace(b"\n", MEMBER)
        comma = b","


def _list(parts: Iterable[list[Any]]) -> Iterator[bytes]:
    opening = b"["
    for part in parts:
        if part:
            # Without the brackets around it, "[" and "\n]".
            yield opening + orjson.dumps(part, option=orjson.OPT_INDENT_2)[1:-2].replace(b"\n", TASK_ENTRY)
            opening = b","
    yield b"[]" if opening == b"[" else MEMBER + b"]"

"""Many lines at once, decoded no further than scoring reads; whatever is unusual is left to `core/lines.py`.

Most of a rollout is text that nobody scores, and to check that text takes a third of the time that it takes to build it.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson

from rollmake.core.columns import ABSENT, NOTHING, Table
from rollmake.core.contract import (
    AGENT_REF,
    ATTEMPT,
    FAILURE_CLASS,
    MASK,
    PERF,
    RESPONSE,
    REWARD,
    ROLLOUT,
    SERVER,
    TASK,
)
from rollmake.core.lines import indices_fit, stand_alone

# A number with so large an exponent that it may be no float; and how far from its `e` such a number is looked for.
LARGE_EXPONENT = re.compile(rb"(?:\A|[\s,:\[])-?[0-9.]+[eE]\+?[0-9]{3}")
BEFORE, BEHIND = 40, 8
# Members that are read whatever they hold.
READ = (TASK, ROLLOUT, ATTEMPT, SERVER, AGENT_REF, FAILURE_CLASS, MASK, PERF, REWARD)
# A whole number of so many digits may have no room in 64 bits; digits are looked at in blocks of so many first.
LONG, BLOCK = 19, 4
# So many different shapes of records are learned, and so many failures in a row borne.
SHAPES, TRIES = 16, 8
# The members of a record by name, each with the type that it is decoded to.
Shape = tuple[tuple[str, Any], ...]


class _Object(msgspec.Struct, gc=False):
    """An object of which nothing is kept."""


class _Response(msgspec.Struct):
    """A response, of which its usage is kept."""

    usage: dict[str, Any] | None = None


class LightReader:
    """Decodes lines whose records have the same members, of the same kinds; it learns them from the first line.

    Of the objects and lists among the members nothing is kept, but of `response` its usage, and what is named to it.
    """

    def __init__(self, kept: Collection[str] = ()) -> None:
        """`kept` are names of members that are needed whatever they hold."""
        self._kept = {*kept, *READ}
        self._decoders: dict[Shape, _Decoder] = {}
        self._tries = TRIES

    def read(self, lines: Sequence[bytes]) -> Table | None:
        """What is read of the records of some lines; None if one of them is not as usual.

        Where it is not None, `core.lines.plain_records` says that all lines are plain records, and
        `core.blocks.loose_table` makes the same of them, but for members without a number in them. Once several calls
        in a row gave None, all do: looking at lines in vain takes time.
        """
        table = self._read(lines) if self._tries else None
        self._tries = TRIES if table is not None else max(self._tries - 1, 0)
        return table

    def _read(self, lines: Sequence[bytes]) -> Table | None:
        text = b"".join(lines)
        if not stand_alone(lines) or unusual_numbers(text):
            return None
        try:
            text.decode()
            decoder = self._decoder(self._shape(orjson.loads(lines[0])))
            rows = list(map(decoder.decode, lines))
        except (ValueError, msgspec.MsgspecError, RecursionError):
            return None
        found = dict(zip(decoder.names, zip(*map(decoder.values, rows), strict=True), strict=True))
        if not (indices_fit(found[TASK]) and indices_fit(found[ROLLOUT])):
            return None
        nothing = [NOTHING] * len(rows)
        usage = [response.usage or NOTHING for response in found.pop(RESPONSE)] if RESPONSE in found else nothing
        return Table(found, found.get(REWARD, [ABSENT] * len(rows)), usage)

    def _shape(self, first: Mapping[str, Any]) -> Shape:
        """The members of a record, and what becomes of each. Raises ValueError if it is not as usual."""
        if TASK not in first or ROLLOUT not in first or RESPONSE in self._kept:
            raise ValueError
        return tuple((name, self._kind(name, value)) for name, value in first.items())

    def _kind(self, name: str, value: Any) -> Any:
        if name == RESPONSE:
            return _Response
        if name in self._kept:
            return Any
        if name.startswith("_"):
            return msgspec.Raw
        kinds = {dict: _Object, list: list[msgspec.Raw], str: str}
        return kinds.get(type(value), Any)

    def _decoder(self, shape: Shape) -> "_Decoder":
        """Decodes records of a shape. Raises ValueError for names that it cannot have, and for too many shapes."""
        if shape not in self._decoders:
            if len(self._decoders) == SHAPES:
                raise ValueError
            self._decoders[shape] = _decoder(shape)
        return self._decoders[shape]


class _Decoder(NamedTuple):
    """Decodes records of one shape; of one of them `values` gives the members `names`, as a tuple."""

    decode: Callable[[bytes], Any]
    names: list[str]
    values: Callable[[Any], tuple[Any, ...]]


def _decoder(shape: Shape) -> _Decoder:
    fields = [(f"f{place}", kind, msgspec.field(name=name)) for place, (name, kind) in enumerate(shape)]
    struct = msgspec.defstruct("Record", fields, forbid_unknown_fields=True, gc=False)
    read = {name: f"f{place}" for place, (name, kind) in enumerate(shape) if kind in (Any, _Response)}
    return _Decoder(msgspec.json.Decoder(struct).decode, list(read), attrgetter(*read.values()))


def unusual_numbers(text: bytes) -> bool:
    """Whether there may be a number in `text` that is no float, or a whole one that does not fit into 64 bits."""
    codes = np.frombuffer(text, dtype=np.uint8)
    digits = (codes - ord("0")) < 10
    return _large_exponents(text, codes, digits) or _long_integers(codes, digits)


def _large_exponents(text: bytes, codes: np.ndarray, digits: np.ndarray) -> bool:
    """Hexadecimal names are full of digits around an `e`; they are told apart by what stands in front."""
    places = np.flatnonzero(digits[:-1] & ((codes[1:] | 0x20) == ord("e"))) + 1
    places = places[places + 4 < len(codes)]
    behind = places + 1 + (codes[places + 1] == ord("+"))
    places = places[digits[behind] & digits[behind + 1] & digits[behind + 2]]
    return any(LARGE_EXPONENT.search(text[max(0, at - BEFORE) : at + BEHIND]) for at in places.tolist())


def _long_integers(codes: np.ndarray, digits: np.ndarray) -> bool:
    """Long fractions are nothing unusual."""
    full = digits[: len(digits) // BLOCK * BLOCK].view(np.uint32) == 0x01010101
    if not (full[:-3] & full[1:-2] & full[2:-1] & full[3:]).any():
        return False
    edges = np.flatnonzero(np.diff(digits.view(np.int8), prepend=0, append=0))
    begin, length = edges[::2], edges[1::2] - edges[::2]
    begin, length = begin[length >= LONG], length[length >= LONG]
    before = np.where(begin > 0, codes[begin - 1], ord(" "))
    return bool(((before != ord(".")) & ((length > LONG) | (before == ord("-")))).any())

"""The body of a reply, decoded, and whether its own bytes can be the line that is kept of it."""

from typing import Any

import jiter
import msgspec
import orjson

# How an infinite number begins among packed values, whatever its sign, and the rest of it; text hardly has these bytes.
PLUS, MINUS, INFINITE = b"\x7f", b"\xff", b"\xf0\0\0\0\0\0\0"
# Writing a smaller reply anew (bytes) costs less than to see whether it has to be.
LARGE = 1 << 15
_pack = msgspec.msgpack.Encoder().encode


def read_reply(body: bytes) -> tuple[Any, bool]:
    """What a server sent, and whether its bytes are one line of strict JSON in which no key stands twice.

    Raises orjson.JSONDecodeError if it is no JSON with finite numbers, in UTF-8.

    Nearly every large reply is plain, and to see that costs less than to write it anew. jiter is as strict as orjson, and
    finds a key that stands twice, but takes numbers that are no finite float or do not fit into 64 bits: these show in
    the packed value. Where something is found, orjson has the last word.
    """
    if len(body) < LARGE:
        return orjson.loads(body), False
    try:
        value = jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
        packed = _pack(value)
    except (ValueError, OverflowError, RecursionError):
        return orjson.loads(body), False
    # Single bytes are looked for much faster than several.
    if (PLUS in packed and PLUS + INFINITE in packed) or (MINUS in packed and MINUS + INFINITE in packed):
        return orjson.loads(body), False
    return value, body[:1] == b"{" and body[-1:] == b"}" and b"\n" not in body and b"\r" not in body

"""Repair of a file's tail: what a kill or a full disk left behind the last newline (NeMo Gym contract, section 3)."""

import orjson


def split_tail(tail: bytes) -> tuple[bytes, bytes]:
    """Split what stands behind the last newline of a JSONL file into (what stays, what is cut off).

    A whole JSON object stays and gets its newline; anything else (half a record, NUL bytes, blanks, a bare number) is
    cut and given back, so that the caller can keep it elsewhere. An empty tail is (b"", b"").
    """
    try:
        whole = isinstance(orjson.loads(tail), dict)
    except orjson.JSONDecodeError:
        whole = False
    return (tail + b"\n", b"") if whole else (b"", tail)

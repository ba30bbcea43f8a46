"""One line of input -> one row, as strict as NeMo Gym's reader and, where that drops data silently, stricter."""

import re

import msgspec
import orjson

from rollmake.core.errors import InputError

DIGITS = bytes.maketrans(b"123456789", b"000000000")
LONG_NUMBER = b"0" * 19
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|[{}\[\]]|[a-z]+')
COLON = re.compile(r"[ \t\r]*:")
NOT_JSON = re.compile(r"-?(?:NaN|Infinity)")


def parse_row(line: bytes) -> tuple[dict, bytes]:
    """The row in a line without its line end, and its compact JSON.

    Raises InputError whose `found` names the column (1-based, in characters) for what is not one JSON object, a number
    that is not finite or an integer beyond 64 bits, and a key that stands twice in one object.
    """
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise undecodable(line, error) from None
    if not isinstance(row, dict):
        raise InputError(f"column 1: a row is a JSON object, not {kind_of(row)}")
    try:
        compact = orjson.dumps(row)
    except (orjson.JSONEncodeError, RecursionError):
        raise InputError("column 1: nested deeper than 254 levels") from None
    # Text that differs in white space alone has lost nothing; that is quick to see, and nearly always so.
    if compact != line and compact != msgspec.json.format(line, indent=-1) and suspicious(line, compact):
        check_tokens(line.decode("utf-8"))
    return row, compact


def suspicious(line: bytes, compact: bytes) -> bool:
    """Whether decoding may have dropped a key or rounded an integer; never False if it did.

    A dropped key takes its colon with it, and nothing else adds or removes colons but the escape of one.
    """
    return (
        line.count(b":") != compact.count(b":")
        or (b"\\" in line and b"\\u003" in line)
        or LONG_NUMBER in line.translate(DIGITS)
    )


def undecodable(line: bytes, error: orjson.JSONDecodeError) -> InputError:
    """What is wrong with a line that is no JSON."""
    text = line.decode("utf-8", errors="replace")
    literal = NOT_JSON.match(text, max(error.pos - 1, 0)) or NOT_JSON.match(text, error.pos)
    if literal:
        return InputError(
            f"column {literal.start() + 1}: {literal[0]} is no JSON number", remedy="Write null or leave it out"
        )
    return InputError(f"column {error.pos + 1}: broken JSON ({error.msg})")


def kind_of(value: object) -> str:
    """The JSON name of a value's type."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "a truth value"
    return {list: "an array", str: "a string", dict: "an object"}.get(type(value), "a number")


def check_tokens(text: str) -> None:
    """Raise InputError for the first key that an object has twice, or integer beyond 64 bits, in valid JSON."""
    objects: list[set[str] | None] = []
    for token in TOKEN.finditer(text):
        first, column = token[0][0], token.start() + 1
        if first in "{[":
            objects.append(set() if first == "{" else None)
        elif first in "}]":
            objects.pop()
        elif first == '"':
            note_key(objects[-1] if objects else None, token[0], bool(COLON.match(text, token.end())), column)
        elif first in "-0123456789" and not -(2**63) <= integer(token[0]) < 2**64:
            remedy = "Write it as a string; as a number it would be rounded"
            raise InputError(f"column {column}: the integer {token[0]} does not fit into 64 bits", remedy=remedy)


def integer(token: str) -> int:
    """The value of a number that is written as an integer; 0 for any other."""
    digits = token.lstrip("-")
    if not digits.isdigit():
        return 0
    return int(token) if len(digits) < 25 else 2**64


def note_key(keys: set[str] | None, token: str, is_key: bool, column: int) -> None:
    """Add a key to those of its object. Raises InputError if it is there already."""
    if keys is None or not is_key:
        return
    key = orjson.loads(token)
    if key in keys:
        raise InputError(f"column {column}: the key {key!r} stands twice in one object", remedy="Leave one of them out")
    keys.add(key)

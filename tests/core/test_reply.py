"""Whatever is called plain is one line that orjson reads as the same value, in which no key stands twice."""

import json
import math
import random

import orjson
import pytest

from rollmake.core.reply import LARGE, read_reply

PAD = b"x" * LARGE


def large(inner: bytes) -> bytes:
    return b'{"pad":"' + PAD + b'","v":' + inner + b"}"


def no_key_twice(pairs):
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


def check(body: bytes) -> bool:
    """`read_reply` says of a body what orjson does; returns whether it is plain."""
    try:
        expected = orjson.loads(body)
    except orjson.JSONDecodeError:
        with pytest.raises(orjson.JSONDecodeError):
            read_reply(body)
        return False
    value, plain = read_reply(body)
    assert value == expected
    if plain:
        assert body.startswith(b"{")
        assert body.endswith(b"}")
        assert not {*b"\r\n"} & {*body}
        json.loads(body, object_pairs_hook=no_key_twice)
    return plain


@pytest.mark.parametrize(
    "inner",
    [
        b"1",
        b"-0",
        b"1e5",
        b"1E+22",
        b"1e308",
        b"-1e-999",
        b"18446744073709551615",
        b"-9223372036854775808",
        b"[1.0,-1.0,2.5,-1,-32]",
        b'"\\ud83d\\ude00"',
        '"\u2028é\U0001f600\x7f"'.encode(),
        b'"\\u0000\\u007f\\u00ff"',
        b'{"a":{"a":{"a":[]}}}',
        b"[" * 150 + b"]" * 150,
    ],
)
def test_what_is_usual_is_plain(inner):
    assert check(large(inner))


@pytest.mark.parametrize(
    "inner",
    [
        *(b"1e999", b"-1e999", b"1.7976931348623159e308", b"1" + b"0" * 400, b"-1" + b"0" * 400 + b".5", b"[[1E400]]"),
        *(b"18446744073709551616", b"-9223372036854775809", b"123456789012345678901234567890"),
        *(b"NaN", b"Infinity", b"-Infinity", b"01", b"1.", b".5", b"+1", b"1e", b"-", b"tru", b"nul", b"0x1", b"'a'"),
        *(b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"', b'{"\xff":1}'),
        *(b'"\x01"', b'"\t"', b'"\n"', b'"\\ud800"', b'"\\udc00"', b'"\\ud800\\ud800"', b'"\\q"', b'"\\u12"', b'"'),
        *(b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}', b'[{"b":{"":0,"":0}}]', b'1,"v":2', b'1,"pad":0'),
        *(b"1,", b"[1,]", b"1]", b"1}", b"1\x00", b"1\x0b", b"1\xa0", b"1/*c*/", b"[" * 300 + b"]" * 300, b"[" * 1100),
        *(b"1\n", b"\r1", b"\r\n1"),
    ],
)
def test_what_is_not_is_left_to_orjson(inner):
    assert not check(large(inner))


@pytest.mark.parametrize("around", [b"%s\n", b" %s", b"%s ", b"[%s]", b"\xef\xbb\xbf%s", b"%s\0", b"%s%s", b"%s,"])
def test_what_surrounds_an_object_is_no_part_of_a_line(around):
    body = large(b"1")
    assert not check(around.replace(b"%s", body))


def test_a_small_reply_is_never_plain():
    assert read_reply(b'{"a":1}') == ({"a": 1}, False)
    assert not check(b'{"a":1e999}')


def test_infinite_numbers_are_found_wherever_they_stand():
    for sign in (b"", b"-"):
        for count in range(0, 40, 3):
            items = [b"1.0", b"-1.0", b'"\x7f"', b"-1", b"0.5"] * 8
            items.insert(count, sign + b"1e400")
            assert not check(large(b"[" + b",".join(items) + b"]"))


def test_bytes_changed_at_random():
    """Places of the change, and of what is put there, are drawn among those that matter to a parser."""
    chance = random.Random(20261129)
    value = {"a": [1, -2.5, 1e10, True, None, 'é\n"\\/\u2028', {"b": {}, "c": [[]]}], "reward": 1.0, "_ng_x": "\x00"}
    text = json.dumps(value, ensure_ascii=False).encode() + json.dumps(value).encode()
    half = len(text) - len(json.dumps(value))
    alphabet = [bytes([code]) for code in range(256)] + [
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"e",
        b"9",
    ] * 12
    plain = 0
    for _ in range(4000):
        inner = bytearray(text[:half] if chance.random() < 0.5 else text[half:])
        for _ in range(chance.choice((0, 1, 1, 2))):
            at = chance.randrange(len(inner))
            inner[at : at + chance.choice((0, 1, 1, 4))] = chance.choice(alphabet) * chance.choice((1, 1, 1, 3))
        plain += check(large(bytes(inner)))
    assert 1000 < plain < 4000, "the changes neither leave nor break everything"


def test_numbers_keep_their_value():
    chance = random.Random(7)
    for _ in range(2000):
        number = math.ldexp(chance.random(), chance.randrange(-1070, 1023))
        text = chance.choice((repr(number), f"{number:.25e}", f"{number:.3e}")).encode()
        value, _ = read_reply(large(text))
        assert value["v"] == orjson.loads(text), text

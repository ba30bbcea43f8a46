"""Whether an answer is right: pure functions from a text to a reward and what was read out of the text."""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import regex

from rollmake.core.errors import InputError

# Only the end of a longer answer is searched: that is where answers are, and it bounds the time a pattern takes.
SEARCHED = 10_000

_ANSWER = r"\banswer[\s*_]*(?:is\b|:|=)[\s*_:$]*"
# The server answers nobody else meanwhile, so a pattern that explodes is ended early.
REGEX_TIMEOUT_S = 0.5
_BOXED = re.compile(r"\\boxed\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_PLAIN = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+"
_NUMBER = re.compile(
    rf"(?P<sign>(?<![\w)])[-+]\s?)?\$?(?<![\w.])(?P<top>{_PLAIN})(?:\s?/\s?(?P<bottom>{_PLAIN}))?(?P<percent>\s?\\?%)?"
)
_NUMBER_MARKER = re.compile(_ANSWER, re.IGNORECASE)
# A small letter counts where nothing but punctuation follows, so that "the answer is a triangle" holds no choice.
_SMALL = r"[a-z](?=\s*(?:[)\].,;:*]|$|\n))"
_CHOICE_MARKER = re.compile(rf"(?i:{_ANSWER}(?:option\s+|choice\s+)?)[(\[]?\s*(?P<letter>[A-Z]|{_SMALL})(?![\w'’])")
_CHOICE_BOXED = re.compile(r"(?:\\text\w*\{)?[(\[]?\s*([A-Za-z])\s*[)\]]?\}?[.:]?")
_CHOICE_BRACKETS = re.compile(r"[(\[]\s*([A-Za-z])\s*[)\]]|(?:^|\s)([A-Z])\)", re.MULTILINE)
_CHOICE_ALONE = re.compile(r"(?<![\w'’])(?:([B-HJ-Z])|([AI])(?!\s+[a-z]))(?![\w'’])")


class Verdict(NamedTuple):
    """A reward of 0.0 or 1.0, and what was taken for the answer (None: nothing was found)."""

    reward: float
    extracted: str | None


class Number(NamedTuple):
    """A number in a text: how it is written, its value without the percent sign, and whether it had one."""

    written: str
    value: float
    percent: bool


Verifier = Callable[[str], Verdict]


def verifier(kind: str, expected: str) -> Verifier:
    """The function from an answer's text to its verdict.

    `exact`: equal up to white space. `numeric`: see `find_number`; relative tolerance 1e-6. `choice`: one letter.
    `regex`: `expected` is searched for; of its groups, the first says what was extracted. Only the last 10,000
    characters are searched, and a pattern that takes long on them is refused.
    Raises InputError for an unknown `kind` and for an `expected` that the kind cannot use.
    """
    if kind not in _KINDS:
        raise InputError(f"{kind!r} is none of {', '.join(_KINDS)}", where="verifier")
    return _KINDS[kind](expected)


def find_number(text: str) -> Number | None:
    """The number that a text gives as its answer: in the last box, else after the last `answer:`, else the last one.

    Reads signs, thousands separators (1,234), decimals, exponents, fractions (3/4, also as LaTeX) and percentages.
    """
    text = _FRACTION.sub(r"\1/\2", text[-SEARCHED:].replace("−", "-").replace("{,}", ","))
    for box in reversed(_BOXED.findall(text)):
        if numbers := _numbers(box):
            return numbers[-1]
    markers = list(_NUMBER_MARKER.finditer(text))
    if markers and (numbers := _numbers(text, markers[-1].end())):
        return numbers[0]
    numbers = _numbers(text)
    return numbers[-1] if numbers else None


def same_number(one: Number, other: Number) -> bool:
    """Equal up to 1e-6 of the larger. If only one is a percentage, 50% equals both 50 and 0.5."""
    close = math.isclose(one.value, other.value, rel_tol=1e-6)
    if one.percent == other.percent or close:
        return close
    share, whole = (one, other) if one.percent else (other, one)
    return math.isclose(share.value / 100, whole.value, rel_tol=1e-6)


def find_choice(text: str) -> str | None:
    """The capital letter that a text gives as its choice: boxed, after the last `answer:`, in brackets, or alone."""
    text = text[-SEARCHED:]
    boxes = [match[1] for box in _BOXED.findall(text) if (match := _CHOICE_BOXED.fullmatch(box.strip()))]
    marked = [match["letter"] for match in _CHOICE_MARKER.finditer(text)]
    bracketed = [match[1] or match[2] for match in _CHOICE_BRACKETS.finditer(text)]
    alone = [match[1] or match[2] for match in _CHOICE_ALONE.finditer(text)]
    whole = [text.strip(" \n\t.:*")] if re.fullmatch(r"[\s*]*[A-Za-z][\s*.:]*", text) else []
    for found in (boxes, marked, bracketed, whole, alone):
        if found:
            return found[-1].upper()
    return None


def _numbers(text: str, start: int = 0) -> list[Number]:
    found = (_number(match) for match in _NUMBER.finditer(text, start))
    return [number for number in found if number is not None]


def _number(match: re.Match[str]) -> Number | None:
    top, bottom = (float(match[part].replace(",", "")) if match[part] else 1.0 for part in ("top", "bottom"))
    value = top / bottom if bottom else math.inf
    if not math.isfinite(value):
        return None
    sign = -1 if (match["sign"] or "").startswith("-") else 1
    return Number(match[0].strip(), sign * value, match["percent"] is not None)


def _exact(expected: str) -> Verifier:
    wanted = " ".join(expected.split())

    def check(text: str) -> Verdict:
        found = " ".join(text.split())
        return Verdict(float(found == wanted), found or None)

    return check


def _numeric(expected: str) -> Verifier:
    wanted = find_number(expected)
    if wanted is None:
        raise InputError(f"{expected!r} holds no number", where="expected_answer")

    def check(text: str) -> Verdict:
        found = find_number(text)
        return Verdict(float(same_number(found, wanted)), found.written) if found else Verdict(0.0, None)

    return check


def _choice(expected: str) -> Verifier:
    wanted = expected.strip().strip("()[].").upper()
    if not re.fullmatch("[A-Z]", wanted):
        raise InputError(f"{expected!r} is not one letter from A to Z", where="expected_answer")

    def check(text: str) -> Verdict:
        found = find_choice(text)
        return Verdict(float(found == wanted), found)

    return check


def _regex(expected: str) -> Verifier:
    try:
        pattern = regex.compile(expected)
    except (regex.error, RecursionError, OverflowError) as error:
        raise InputError(f"{expected!r} is no regular expression: {error}", where="expected_answer") from None

    def check(text: str) -> Verdict:
        try:
            match = pattern.search(text[-SEARCHED:], timeout=REGEX_TIMEOUT_S)
        except TimeoutError:
            remedy = "Write it without nested repetitions"
            raise InputError(
                f"{expected!r} takes too long on an answer", where="expected_answer", remedy=remedy
            ) from None
        if match is None:
            return Verdict(0.0, None)
        return Verdict(1.0, match[1] if pattern.groups and match[1] is not None else match[0])

    return check


_KINDS: dict[str, Callable[[str], Verifier]] = {
    "exact": _exact,
    "numeric": _numeric,
    "choice": _choice,
    "regex": _regex,
}

"""What the reference does on small inputs; an adapter maps each file to the function that the stage itself calls."""

import math

import pytest

from rollmake.core.errors import RollmakeError

ANY_TEXT = "<any text>"


def same(actual, expected):
    """Equal, floats to a relative 1e-9; the order of keys is free; `<any text>` stands for a non-empty string."""
    if expected == ANY_TEXT:
        return isinstance(actual, str) and actual != ""
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and actual.keys() == expected.keys()
            and all(same(actual[k], expected[k]) for k in expected)
        )
    if isinstance(expected, list):
        return isinstance(actual, list) and len(actual) == len(expected) and all(map(same, actual, expected))
    if isinstance(expected, float) and isinstance(actual, (int, float)) and not isinstance(actual, bool):
        return math.isclose(actual, expected, rel_tol=1e-9, abs_tol=1e-12)
    return type(actual) is type(expected) and actual == expected


def test_golden(golden_case):
    run, case, topology = golden_case
    if "error" in case:
        with pytest.raises(RollmakeError) as refusal:
            run(case["input"], topology)
        names = case["error"].get("names") or []
        assert not names or any(str(name) in str(refusal.value) for name in names), str(refusal.value)
    else:
        actual = run(case["input"], topology)
        assert same(actual, case["expected"]), f"\n  actual   {actual}\n  expected {case['expected']}"

"""Waits grow, are bounded, and follow what the server asks for."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.backoff import backoff, retry_after_s


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_a_wait_is_between_half_and_all_of_its_step_and_never_above_the_cap(tries, chance):
    step = min(15.0, 0.2 * 2 ** min(tries, 60))
    assert step / 2 <= backoff(tries, 0.2, 15.0, chance) <= step


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("Wed, 21 Oct 99999999999999 07:28:00 GMT", None),
        ("1e400", None),
        ("Sun, 29 Nov 2026 10:00:05 GMT", 5.0),
        ("Sun, 29 Nov 2026 09:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(header, seconds):
    assert retry_after_s(header, datetime(2026, 11, 29, 10, tzinfo=UTC)) == seconds

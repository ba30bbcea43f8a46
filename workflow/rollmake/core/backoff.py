"""How long to wait before the next try."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def backoff(tries: int, first_s: float, cap_s: float, chance: float) -> float:
    """Seconds before try number `tries` + 1: doubling from `first_s`, at most `cap_s`, and `chance` (0..1) of half of it less."""
    whole = min(cap_s, first_s * 2.0 ** min(tries, 60))
    return whole * (1.0 - 0.5 * chance)


def retry_after_s(header: str | None, now: datetime | None = None) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or as a date; None if there is none that can be read."""
    if header is None:
        return None
    try:
        seconds = float(header)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())

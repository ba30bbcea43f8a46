"""Which files a list of glob patterns means (NeMo Gym contract 5.7)."""

from collections.abc import Iterable
from pathlib import PurePath

# Files beside a rollouts file that a pattern for it matches as well.
COMPANIONS = ("_failures", "_materialized_inputs")


def split_patterns(text: str) -> list[str]:
    """The patterns in a list with commas; blanks around them and empty ones do not count."""
    return [pattern for part in text.split(",") if (pattern := part.strip())]


def shards_among(matches: Iterable[Iterable[str]]) -> list[str]:
    """The rollouts files among the matches of each pattern: sorted for a pattern, each once, where it first appears."""
    found = dict.fromkeys(path for matched in matches for path in sorted(matched))
    return [path for path in found if not PurePath(path).stem.endswith(COMPANIONS)]

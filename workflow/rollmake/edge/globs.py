"""Finding the files that a list of glob patterns means."""

import glob
import os
from pathlib import Path

from rollmake.core.globs import shards_among, split_patterns


def find_shards(patterns: str, root: Path | None = None) -> list[str]:
    """The rollouts files that match, as the patterns write them; relative ones start at `root` or the working directory."""
    base = root or Path()
    matches = [glob.glob(pattern, root_dir=root) for pattern in split_patterns(patterns)]
    return shards_among([path for path in matched if os.path.isfile(base / path)] for matched in matches)

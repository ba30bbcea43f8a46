"""Finding the files that a list of glob patterns means."""

import glob
import os
from pathlib import Path

from rollmake.core.errors import InputError
from rollmake.core.globs import shards_among, split_patterns


def find_shards(patterns: str, root: Path | None = None) -> list[str]:
    """The rollouts files that match, as the patterns write them; relative ones start at `root` or the working directory."""
    base = root or Path()
    matches = [glob.glob(pattern, root_dir=root) for pattern in split_patterns(patterns)]
    return shards_among([path for path in matched if os.path.isfile(base / path)] for matched in matches)


def external_shards(patterns: str, run: Path) -> list[str]:
    """The shards of a run that something else collected; what the run itself writes is none of them."""
    own = [(run / "rollouts.jsonl").resolve(), (run / "repaired").resolve()]
    return [path for path in find_shards(patterns) if not own_output(Path(path).resolve(), own)]


def require_shards(shards: list[str], patterns: str, run: str) -> list[str]:
    """The shards that were found for a run. Raises InputError if there are none."""
    if not shards:
        remedy = "Correct `input_glob`; it is relative to where snakemake runs"
        raise InputError(f"no rollouts file matches {patterns!r}", where=f"runs.{run}", remedy=remedy)
    return shards


def own_output(path: Path, own: list[Path]) -> bool:
    """Whether a path is one of `own`, or below it."""
    return any(path == one or one in path.parents for one in own)

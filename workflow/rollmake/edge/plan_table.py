"""Writing plan.parquet."""

from typing import IO

import numpy as np
import polars as pl

from rollmake.core.plan import COLUMNS
from rollmake.core.planning import Columns

BATCH = 100_000


def write_table(file: IO[bytes], columns: Columns, names: list[str]) -> None:
    """Write the columns of a plan as parquet; `names` are those that servers and agents are numbers of."""
    known = pl.Series([*names, None], dtype=pl.String)
    series = {
        name: pl.Series(name, getattr(columns, name)) for name in COLUMNS if name not in ("digest", "server", "agent")
    }
    series["digest"] = digests(columns.digest)
    for name in ("server", "agent"):
        codes = getattr(columns, name)
        series[name] = known.gather(np.where(codes < 0, len(names), codes))
    pl.DataFrame({name: series[name] for name in COLUMNS}).write_parquet(file, compression_level=1)


def digests(values: np.ndarray) -> pl.Series:
    """A column of 16 bytes each from two uint64 each, a batch at a time: as Python objects they would take 50 MB a million."""
    parts = [pl.Series("digest", [], dtype=pl.Binary)]
    for start in range(0, len(values), BATCH):
        content = np.ascontiguousarray(values[start : start + BATCH]).tobytes()
        split = [content[place : place + 16] for place in range(0, len(content), 16)]
        parts.append(pl.Series("digest", split, dtype=pl.Binary))
    return pl.concat(parts)

"""Python's search for garbage in cycles, kept away from where it only takes time.

Decoded rows are trees, which are freed without it, and looking for cycles among millions of them takes a tenth of the
time of everything else.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_cycle_search() -> Iterator[None]:
    """Nothing is searched in this block, which must make no cycles that grow with its input."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def rare_cycle_search() -> None:
    """From now on search rarely, and not among what is there already; for a process that goes on for hours."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)

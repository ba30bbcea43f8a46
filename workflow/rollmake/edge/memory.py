"""What Python and the C library do with memory on their own, kept away from where it only takes time."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Parameters of glibc's mallopt: above how many free bytes at the end of the heap it is cut, and from which size on a
# block is no part of it. The second is the value to which glibc itself comes once such a block was freed.
TRIM_THRESHOLD, KEPT = -1, 1 << 28
MMAP_THRESHOLD, OWN_PAGES = -3, 1 << 25


@contextmanager
def no_cycle_search() -> Iterator[None]:
    """No garbage in cycles is searched for in this block, which must make none that grows with its input.

    Decoded rows are trees, which are freed without it, and looking for cycles among millions of them takes a tenth of
    the time of everything else.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def settle_in() -> None:
    """For a process that takes in replies for hours: search for cycles rarely, and not among what is there already.

    Memory that was freed is kept, up to 256 MB: to give that of every large reply back, and get it again page by page
    for the next, takes as long as to decode it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # Not glibc.
        pass
    else:
        mallopt(TRIM_THRESHOLD, KEPT)
        mallopt(MMAP_THRESHOLD, OWN_PAGES)
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)

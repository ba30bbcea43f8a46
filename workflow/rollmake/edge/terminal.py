"""What a person at a terminal sees: the log, and a bar below it."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

INTERVAL_S = 0.5


class StderrHandler(logging.StreamHandler):
    """Writes to whatever standard error is at the moment, so that a bar can keep itself below what is logged."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        """Standard error."""
        return sys.stderr


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int, str], None] | None]:
    """A function that moves a bar to `done` of `total` and says `text` below it; None without a terminal that can draw."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.padding import Padding
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    console = Console(stderr=True)
    if console.is_dumb_terminal:
        yield None
        return

    def drawing(done: int, text: str) -> Group:
        # The text has lines of its own: beside it, little or nothing would be left of the bar.
        return Group(Padding(ProgressBar(total=max(total, 1), completed=done), 0), Text(text))

    with Live(drawing(0, ""), console=console, auto_refresh=False, transient=True) as live:
        yield lambda done, text: live.update(drawing(done, text), refresh=True)

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
    """A function that moves a bar to `done` of `total` and says `text` behind it; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, text: bar.update(task, completed=done, description=text)

"""A line when a rollout is asked for and one when it is answered, for operators and for counting what was asked."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from rollmake.core import contract


class RequestLog:
    """Appends JSON lines to a file, each with one write, so that a line is there before its reply is sent.

    `request` counts the requests from 1, and is the same on a request's two lines; `time` is in seconds since 1970.
    `event` is `arrived`, `answered` (with the `status`) or `abandoned` (whoever asked is gone).
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self.clock, self.requests, self.descriptor = clock, 0, -1
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def arrived(self, row: dict[str, Any]) -> int:
        """Note a request, whose number is returned."""
        self.requests += 1
        self._write(self.requests, "arrived", row, None)
        return self.requests

    def answered(self, request: int, row: dict[str, Any], status: int | None) -> None:
        """Note how a request ended: with a status, or None if it was abandoned."""
        self._write(request, "abandoned" if status is None else "answered", row, status)

    def close(self) -> None:
        """Close the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _write(self, request: int, event: str, row: dict[str, Any], status: int | None) -> None:
        if self.descriptor < 0:
            return
        names = {"task": contract.TASK, "rollout": contract.ROLLOUT, "attempt": contract.ATTEMPT}
        line = {"request": request, "time": self.clock(), "event": event}
        line |= {name: row.get(key) for name, key in names.items()} | {"status": status}
        os.write(self.descriptor, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

"""What comes back from the library: rollouts, and the error of one that failed."""

from collections.abc import Iterator
from typing import Any

import msgspec

from rollmake.core.errors import RollmakeError
from rollmake.core.outcome import Failed

EXCERPT = 200


class Rollout(msgspec.Struct, frozen=True):
    """What became of a row; it unpacks like the pair `row, result`.

    `row` is the object that was given, `result` the reply of `server`, and `latency_s` the seconds from sending to the
    end of the reply, without the time that it was held back; None for a row that was never sent.
    """

    row: dict[str, Any]
    result: dict[str, Any]
    server: str
    latency_s: float | None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The row, then the result."""
        return iter((self.row, self.result))


class RolloutError(RollmakeError):
    """A row that got no usable result: `row`, `failure_class`, HTTP `status` and `body` (both may be None)."""

    def __init__(self, row: dict[str, Any], failed: Failed, *, where: str, url: str) -> None:
        self.row, self.status, self.body = row, failed.status, failed.body
        self.failure_class = failed.failure_class
        excerpt = f" ({failed.body[:EXCERPT]})" if failed.body else ""
        remedy = "With route_failures_to_sidecar=True it comes back as a row of its own, and the others go on"
        super().__init__(f"{failed.message}{excerpt} from {url}; {self.failure_class}", where=where, remedy=remedy)

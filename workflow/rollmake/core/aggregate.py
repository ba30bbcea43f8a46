"""The aggregate file: one entry per environment server (NeMo Gym contract 4.5 and 5.5)."""

from collections.abc import Iterable, Mapping
from typing import Any

from rollmake.core.contract import AGENT_REF, SERVER
from rollmake.core.errors import DataError, ServerError

# What a reply of POST /aggregate_metrics holds, in the order of an entry.
MEMBERS = {"agent_metrics": dict, "key_metrics": dict, "group_level_metrics": list, "repeat_level_metrics": list}
PERF_SUMMARY = "perf_summary"
GROUPS = "group_level_metrics"
# The reference builds histograms of each column, which fails from here on.
OVERSIZED = 2**47
# Who answers like this has no such endpoint.
NO_ENDPOINT = (404, 405, 501)
EXCERPT_CHARACTERS = 500
LISTED_FIELDS = 10


def entry(server: str, label: str, reply: Any) -> dict[str, Any]:
    """The entry of a server in the aggregate file. Raises ServerError for a reply that lacks what must be in it."""
    wrong = [
        name for name, kind in MEMBERS.items() if not isinstance(reply, dict) or not isinstance(reply.get(name), kind)
    ]
    if wrong:
        raise ServerError(
            f"its reply to /aggregate_metrics has no usable {', '.join(wrong)}",
            where=f"environment server {server!r}",
            remedy="Is this a server of NeMo Gym 0.7?",
        )
    found = {AGENT_REF: {"name": label}, SERVER: server} | {name: reply[name] for name in MEMBERS}
    return found | ({PERF_SUMMARY: reply[PERF_SUMMARY]} if reply.get(PERF_SUMMARY) is not None else {})


def refuse_empty(numbers: Mapping[str, Any]) -> None:
    """Raise DataError if rollouts are owed, but none has a row to score; `numbers` is the content of coverage.json."""
    if numbers["recorded"] or not numbers["expected"]:
        return
    counts = [f"{count} failed as {name}" for name, count in numbers["failed_by_class"].items()]
    counts += [f"{numbers['missing']} left no row"] if numbers["missing"] else []
    raise DataError(
        f"there is nothing to score: none of {numbers['expected']} owed rollouts has a result ({', '.join(counts)})",
        remedy="See the sidecars for the reasons. `count_failure_classes_as_zero` and `count_missing_rollouts_as_zero` "
        "score such rollouts as 0",
    )


def refusal(status: int, body: bytes, records: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """What a reply that is no success says, and what to do; `records` are those that were sent."""
    text = body.decode(errors="replace")
    excerpt = text[:EXCERPT_CHARACTERS] + ("…" if len(text) > EXCERPT_CHARACTERS else "")
    fields = oversized_fields(records) if status == 500 else []
    remedy = "See the server's log"
    if status in NO_ENDPOINT:
        remedy += ", or, if it does not serve /aggregate_metrics, set `metrics: {backend: local}`"
    if fields:
        more = f" and {len(fields) - LISTED_FIELDS} more" if len(fields) > LISTED_FIELDS else ""
        listed = ", ".join(fields[:LISTED_FIELDS]) + more
        remedy = f"The likely cause are top-level numbers of 2^47 or more, let the verifier leave them out: {listed}"
    return f"/aggregate_metrics answered with status {status}: {excerpt or 'no body'}", remedy


def oversized_fields(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names, sorted, of top-level numbers too large for the reference; names that start with `_` do not count."""
    found = {
        name
        for record in records
        for name, value in record.items()
        if isinstance(value, int | float) and abs(value) >= OVERSIZED and not name.startswith("_")
    }
    return sorted(found)

"""Rollouts and sidecar before and after the migration of a journal, run twice."""

import json
import tempfile
from pathlib import Path

from rollmake.edge.judges import move_invalid_judges


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows or []))


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(given, topology):
    with tempfile.TemporaryDirectory() as folder:
        rollouts, failures = Path(folder) / "rollouts.jsonl", Path(folder) / "rollouts_failures.jsonl"
        write(rollouts, given["rollouts"])
        write(failures, given["failures"])
        moved, moved_again = (move_invalid_judges(rollouts, failures) for _ in range(2))
        sidecar = read(failures) or given["failures"]
        return {"moved": moved, "moved_again": moved_again, "rollouts": read(rollouts), "failures": sidecar}

"""A run under real Snakemake against the misbehaving server, and whether what it stored is what was answered."""

import json
import os
from collections import Counter
from pathlib import Path

from helpers.chaos import row
from helpers.runs import json_lines
from helpers.workflow import Workflow
from rollmake.core.outcome import STAMPS

PARALLEL = 4


def rows(count, wait=0.7):
    """Rows that take about `wait` seconds, but differently long: at no moment do all of them end together."""
    return [row([f"slow:{wait * (0.4 + i % 7 * 0.2):.2f}+ok"], i) for i in range(count)]


class Chaotic:
    """A run of `rows` with 2 repeats in 2 shards under real Snakemake, against the misbehaving server."""

    def __init__(self, folder, server, rows, **options):
        self.server = server
        self.tasks = folder / "tasks.jsonl"
        self.tasks.write_text("".join(json.dumps(r) + "\n" for r in rows))
        run = {"input": str(self.tasks), "num_repeats": 2, "shards": 2, "num_samples_in_parallel": PARALLEL, **options}
        self.workflow = Workflow(folder / "run", environment={"head_server": server.address}, runs={"chaos": run})
        self.folder = self.workflow.results / "chaos"
        self.expected = 2 * len(rows)

    def journalled(self):
        """Rows in the journals, successes and failures."""
        return sum(path.read_bytes().count(b"\n") for path in self.folder.glob("journal/*-of-*/rollouts*.jsonl"))

    def asked(self):
        return sum(self.server.arrived().values())

    def in_flight(self):
        """Requests that arrived and left no row."""
        return self.asked() - self.journalled()

    def collectors(self):
        """Process ids of this run's collectors."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            journal = os.fsencode(str(self.workflow.results.relative_to(self.workflow.folder)))
            if b"collect" in words and any(word.startswith(journal) for word in words) and self.here(path.parent):
                found.append(int(path.parent.name))
        return found

    def here(self, process):
        try:
            return (process / "cwd").resolve() == self.workflow.folder.resolve()
        except OSError:
            return False

    def finish(self):
        """Run to the end, as a person would after a kill."""
        self.workflow.run("--unlock")
        done = self.workflow.run()
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.workflow.planned() == {}

    def check(self, repeated):
        """What is stored is what was answered, each rollout once; at most `repeated` requests were made again."""
        rollouts, failures = (
            json_lines(self.folder / "rollouts.jsonl"),
            json_lines(self.folder / "rollouts_failures.jsonl"),
        )
        keys = [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in rollouts]
        assert len(set(keys)) == len(keys)
        attempts = Counter((*attempt(r),) for r in [*rollouts, *failures])
        assert max(attempts.values()) == 1, "no attempt is stored twice"
        asked = self.server.arrived()
        # A server that is killed may take a request and die before it logs it: a failure then, never a success.
        assert {attempt(r) for r in rollouts} <= set(asked)
        again = sum(asked.values()) - len(attempts.keys() & asked.keys())
        assert 0 <= again <= repeated, f"{again} requests left no row, {repeated} were in flight at a kill"
        answers = self.server.answers()
        for stored in [*rollouts, *(r for r in failures if "_ng_failure_type" not in r)]:
            sent = [bare(json.loads(body)) for body in answers[attempt(stored)]]
            assert bare(stored) in sent
        coverage = json.loads((self.folder / "coverage.json").read_text())
        assert coverage["expected"] == self.expected
        return rollouts, failures


def attempt(stored):
    return stored["_ng_task_index"], stored["_ng_rollout_index"], stored.get("_ng_attempt_index", 0)


def bare(record):
    return {key: value for key, value in record.items() if key not in STAMPS}

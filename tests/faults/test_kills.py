"""Kill -9 of everything, of the collector, of Snakemake, at random: nothing is lost, nothing is stored twice.

Every test compares what is stored in the end with the server's own log of what it was asked and what it answered.
"""

import json
import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from helpers.chaos import row
from helpers.runs import json_lines
from helpers.servers import ChaosServer, chaos_server, wait_until
from helpers.workflow import Workflow
from rollmake.core.outcome import STAMPS

PARALLEL = 4


@pytest.fixture
def server(tmp_path):
    with chaos_server(tmp_path) as running:
        yield running


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


def start(run):
    """Start Snakemake and wait until rows are journalled and requests in flight."""
    before = run.journalled()
    snakemake = run.workflow.start()
    wait_until(lambda: run.journalled() >= before + 3 and run.in_flight() > 0, "rows journalled and requests in flight")
    return snakemake


def wait_for_rows(run, count):
    wait_until(lambda: run.journalled() >= count, "some more rows")


def rows(count, wait=0.7):
    """Rows that take about `wait` seconds, but differently long: at no moment do all of them end together."""
    return [row([f"slow:{wait * (0.4 + i % 7 * 0.2):.2f}+ok"], i) for i in range(count)]


def test_a_kill_of_the_whole_process_group(tmp_path, server):
    run = Chaotic(tmp_path, server, rows(12))
    snakemake = start(run)
    os.killpg(snakemake.pid, signal.SIGKILL)
    snakemake.wait()
    wait_until(lambda: not run.collectors(), "the collectors are gone")
    lost = run.in_flight()
    assert run.journalled() >= 3
    assert 0 < lost <= 2 * PARALLEL
    run.finish()
    rollouts, failures = run.check(repeated=lost)
    assert (len(rollouts), failures) == (24, [])


def test_a_kill_of_a_collector_alone(tmp_path, server):
    run = Chaotic(tmp_path, server, rows(12), shards=1)
    snakemake = start(run)
    [victim] = run.collectors()
    os.kill(victim, signal.SIGKILL)
    snakemake.wait()
    assert snakemake.returncode == 1
    lost = run.in_flight()
    assert 0 < lost <= PARALLEL
    run.finish()
    rollouts, _ = run.check(repeated=lost)
    assert len(rollouts) == 24


def test_a_kill_of_snakemake_alone_while_its_collectors_go_on(tmp_path, server):
    run = Chaotic(tmp_path, server, rows(12))
    snakemake = start(run)
    os.kill(snakemake.pid, signal.SIGKILL)
    snakemake.wait()
    assert run.collectors(), "the collectors go on"
    run.finish()
    rollouts, _ = run.check(repeated=0)
    assert len(rollouts) == 24


def test_a_server_that_is_down_at_the_start_and_in_between(tmp_path):
    server = ChaosServer(tmp_path).start()
    try:
        run = Chaotic(tmp_path, server, rows(8))
        assert run.workflow.run("results/chaos/plan.json").returncode == 0
        server.stop()
        snakemake = run.workflow.start()
        wait_until(
            lambda: (run.folder / "journal").exists() and list(run.folder.glob("journal/*/jobs.jsonl")), "a collector"
        )
        server.start()
        wait_until(lambda: run.journalled() >= 3 and run.in_flight() > 0, "rows journalled and requests in flight")
        server.stop()
        server.start()
        assert snakemake.wait(120) == 0, (run.workflow.folder / "snakemake.out").read_text()
    finally:
        server.stop()
    rollouts, failures = run.check(repeated=0)
    assert len(rollouts) == 16
    assert {r["_ng_failure_class"] for r in failures} <= {"agent_request_failed"}


WORDS = ["ok", "500", "reset", "cut", "garbage", "nan", "list", "empty", "text", "masked", "newline", "reserved", "duplicate",
         "class:judge_failed", "terminal", "503", "huge"]  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
def test_random_kills_while_the_server_errs(tmp_path, server, seed):
    chance = random.Random(seed)
    tasks = [row([f"slow:{chance.uniform(0, 0.4):.2f}+{chance.choice(WORDS)}" for _ in range(2)], i) for i in range(16)]
    run = Chaotic(tmp_path, server, tasks, gateway_retries=0)
    lost = 0
    for kill in (chance.choice(["group", "collector"]) for _ in range(2)):
        snakemake = start(run)
        wait_for_rows(run, run.journalled() + chance.randrange(4))
        if kill == "group":
            os.killpg(snakemake.pid, signal.SIGKILL)
        else:
            for victim in run.collectors():
                os.kill(victim, signal.SIGKILL)
        snakemake.wait()
        wait_until(lambda: not run.collectors(), "the collectors are gone")
        lost += 2 * PARALLEL
        run.workflow.run("--unlock")
    run.finish()
    rollouts, failures = run.check(repeated=lost)
    assert {(*attempt(r)[:2],) for r in [*rollouts, *failures]} == {(t, r) for t in range(16) for r in range(2)}
    # Zeros: no servers, collectors or helpers of ours are left.
    assert subprocess.run(["pgrep", "-f", str(run.workflow.folder)], capture_output=True, check=False).stdout == b""

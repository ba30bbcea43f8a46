"""Kill -9 of everything, of the collector, of Snakemake, at random: nothing is lost, nothing is stored twice.

Every test compares what is stored in the end with the server's own log of what it was asked and what it answered.
"""

import os
import random
import signal
import subprocess

import pytest

from helpers.chaos import row
from helpers.chaotic import PARALLEL, Chaotic, attempt, rows
from helpers.servers import ChaosServer, chaos_server, wait_until


@pytest.fixture
def server(tmp_path):
    with chaos_server(tmp_path) as running:
        yield running


def start(run):
    """Start Snakemake and wait until rows are journalled and requests in flight."""
    before = run.journalled()
    snakemake = run.workflow.start()
    wait_until(lambda: run.journalled() >= before + 3 and run.in_flight() > 0, "rows journalled and requests in flight")
    return snakemake


def wait_for_rows(run, count):
    wait_until(lambda: run.journalled() >= count, "some more rows")


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


WORDS = ["ok", "500", "reset", "cut", "misframed", "garbage", "nan", "list", "empty", "text", "masked", "newline", "reserved",
         "duplicate", "class:judge_failed", "terminal", "503", "huge"]  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
def test_random_kills_while_the_server_errs(tmp_path, server, seed):
    chance = random.Random(seed)
    tasks = [row([f"slow:{chance.uniform(0, 0.4):.2f}+{chance.choice(WORDS)}" for _ in range(2)], i) for i in range(16)]
    run = Chaotic(tmp_path, server, tasks, gateway_retries=0)
    lost = 0
    for kill in (chance.choice(["group", "collector"]), "snakemake"):
        snakemake = start(run)
        wait_for_rows(run, run.journalled() + chance.randrange(4))
        if kill == "group":
            os.killpg(snakemake.pid, signal.SIGKILL)
        elif kill == "snakemake":
            os.kill(snakemake.pid, signal.SIGKILL)
        else:
            for victim in run.collectors():
                os.kill(victim, signal.SIGKILL)
        snakemake.wait()
        if kill != "snakemake":
            wait_until(lambda: not run.collectors(), "the collectors are gone")
            lost += 2 * PARALLEL
        run.workflow.run("--unlock")
    run.finish()
    rollouts, failures = run.check(repeated=lost)
    assert {(*attempt(r)[:2],) for r in [*rollouts, *failures]} == {(t, r) for t in range(16) for r in range(2)}
    # Zeros: no servers, collectors or helpers of ours are left.
    assert subprocess.run(["pgrep", "-f", str(run.workflow.folder)], capture_output=True, check=False).stdout == b""

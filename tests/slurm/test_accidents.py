"""What happens to jobs on a cluster, done to real jobs: nothing is lost, nothing is stored twice, nothing hangs.

Every test compares what is stored in the end with the server's own log of what it was asked and what it answered.
"""

import os
import random
import subprocess
import time
from contextlib import contextmanager

import pytest

from helpers.chaos import row
from helpers.chaotic import PARALLEL, Chaotic, attempt, rows
from helpers.servers import wait_until
from slurm.on_cluster import OnCluster, chain_links, kill, processes_of, running, slurm, step_daemons, up

pytestmark = pytest.mark.slurm


@pytest.mark.slurm_quick
def test_a_shard_larger_than_its_allocation_is_a_chain_of_jobs(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(24, wait=1), dispatch_budget_s=4, drain_margin_s=0.5)
    run.ends(run.start())
    rollouts, failures = run.check(repeated=0)
    assert (len(rollouts), failures) == (48, [])
    assert chain_links(run) == [2, 2]
    assert (run.folder / "report.html").read_text().count("2: 1 owed, 1 sealed") == 2
    (tmp_path / "alone").mkdir()
    alone = Chaotic(tmp_path / "alone", server, rows(24, wait=0))
    assert alone.workflow.run().returncode == 0
    for name in ("rollouts.jsonl", "coverage.json", "rollouts_aggregate_metrics.json"):
        assert (run.folder / name).read_bytes() == (alone.folder / name).read_bytes(), "as one long run"


@pytest.mark.slurm_quick
def test_scancel(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(10, wait=1), shards=1, grace_s=3)
    snakemake = run.start()
    [(job, _)] = running()
    slurm("scancel", job)
    run.ends(snakemake)
    rollouts, _ = run.check(repeated=PARALLEL)
    assert len(rollouts) == 20
    assert chain_links(run) == [2]


@pytest.mark.slurm_quick
def test_snakemake_is_killed_while_its_jobs_go_on(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(14, wait=2), shards=1)
    snakemake = run.start()
    before = running()
    snakemake.kill()
    snakemake.wait()
    assert running() == before, "the jobs go on"
    run.workflow.run("--unlock")
    run.ends(run.workflow.start())
    rollouts, _ = run.check(repeated=0)
    assert len(rollouts) == 28


@pytest.mark.parametrize("partition", ["low", "lowcancel"])
def test_pre_emption(tmp_path, server, cluster, partition):
    run = OnCluster(
        tmp_path, server, rows(20, wait=1), "--default-resources", f"slurm_partition={partition}", grace_s=3
    )
    snakemake = run.start()
    jobs = [job for job, _ in running()]
    slurm("sbatch", "-p", "main", "-N2", "--exclusive", "--output", "/dev/null", "--wrap", "sleep 3")
    wait_until(lambda: not {job for job, _ in running()} & set(jobs), "the jobs are pre-empted")
    if partition == "low":
        assert requeued(jobs) == jobs
    run.ends(snakemake)
    rollouts, _ = run.check(repeated=2 * PARALLEL)
    assert len(rollouts) == 40
    assert chain_links(run) == [2, 2]


def test_a_node_dies(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(20, wait=1))
    snakemake = run.start()
    jobs, requeued_jobs = a_node_dies(cluster)
    assert requeued_jobs == jobs
    run.ends(snakemake)
    rollouts, _ = run.check(repeated=2 * PARALLEL)
    assert len(rollouts) == 40


def a_node_dies(cluster):
    """slurmd is killed, with all that runs below it; returns its jobs, and those that SLURM requeued."""
    node = running()[0][1]
    jobs = [job for job, at in running() if at == node]
    slurmd_dies(cluster, node)
    kill([pid for job in jobs for pid in step_daemons(job)])
    kill(processes_of(node))
    return jobs, lost(node, jobs)


def slurmd_dies(cluster, node):
    kill([int((cluster / "run" / f"slurmd-{node}.pid").read_text())])


def lost(node, jobs):
    """Tell slurmctld that a node is down, which it would find out by itself later; returns the jobs that it requeued."""
    slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=died")
    return requeued(jobs)


def requeued(jobs):
    """Those of `jobs` that are to start again. SLURM lets them wait for two minutes; start them at once."""
    waiting = []
    for job in jobs:
        wait_until(lambda job=job: state(job) not in ("RUNNING", "COMPLETING"), "the job is off its node")
        if state(job) == "PENDING":
            slurm("scontrol", "update", f"jobid={job}", "starttime=now")
            waiting.append(job)
    return waiting


def state(job):
    return slurm("squeue", "--states=all", "-h", "-j", job, "-o", "%T").strip()


def test_slurmd_dies_but_its_jobs_go_on(tmp_path, server, cluster):
    """SLURM starts the job again elsewhere, while the first one still collects: the second waits for it."""
    run = OnCluster(tmp_path, server, rows(40, wait=1), shards=1)
    snakemake = run.start()
    job, node = running()[0]
    slurmd_dies(cluster, node)
    assert lost(node, [job]) == [job]
    wait_until(lambda: len(run.collectors()) > 1, "a second collector")
    run.ends(snakemake)
    rollouts, _ = run.check(repeated=0)
    assert len(rollouts) == 80


def test_slurmctld_dies_and_comes_back(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(16, wait=1))
    snakemake = run.start()
    kill([int((cluster / "run" / "slurmctld.pid").read_text())])
    with pytest.raises(subprocess.TimeoutExpired):
        snakemake.wait(60)
    subprocess.run(["slurmctld"], check=True)
    run.ends(snakemake)
    rollouts, _ = run.check(repeated=0)
    assert len(rollouts) == 32


def fill(path):
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


@contextmanager
def small_disk(folder, kib):
    """A file system of its own for `folder`."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_scratch_disk_that_is_emptied_again(tmp_path, server, cluster):
    with small_disk(tmp_path / "run" / "results", 4096):
        run = OnCluster(tmp_path, server, rows(24, wait=0.5), shards=1)
        snakemake = run.start()
        ballast = run.workflow.results / "ballast"
        with pytest.raises(OSError, match="No space left"):
            fill(ballast)
        wait_until(lambda: "is full" in run.job_logs(), "the collector notices")
        ballast.unlink()
        run.ends(snakemake)
        rollouts, failures = run.check(repeated=PARALLEL)
        assert (len(rollouts), failures) == (48, [])


# Hide a folder from a process and its children, with a mount of their own, until a file appears.
BLINDFOLD = """
hidden=$1 until=$2
shift 2
mkdir -p "$hidden"
mount -t tmpfs tmpfs "$hidden"
{ while ! [ -e "$until" ]; do sleep 0.2; done; umount --lazy "$hidden"; } &
exec "$@"
"""


def test_files_that_snakemake_sees_late(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(8, wait=0.5))
    seen = tmp_path / "seen"
    run.workflow.before = ("unshare", "--mount", "sh", "-ec", BLINDFOLD, "sh", run.folder / "repaired", seen)
    snakemake = run.workflow.start()
    wait_until(lambda: "for missing files" in run.said(), "a job has ended and its files are missed", timeout_s=120)
    seen.touch()
    run.workflow.before = ()
    run.ends(snakemake)
    run.check(repeated=0)
    assert chain_links(run) == [1, 1]


def slurmctld_is_away(cluster):
    kill([int((cluster / "run" / "slurmctld.pid").read_text())])
    time.sleep(10)
    up(cluster)


def accident(run, snakemake, kind, cluster):
    """Do one of the things that happen on a cluster; returns the Snakemake that goes on."""
    if kind == "snakemake is killed":
        snakemake.kill()
        snakemake.wait()
        run.workflow.run("--unlock")
        return run.workflow.start()
    if kind == "a job is cancelled":
        slurm("scancel", running()[0][0])
    elif kind == "a node is lost":
        a_node_dies(cluster)
        up(cluster)
    elif kind == "slurmctld is away":
        slurmctld_is_away(cluster)
    else:
        kill(run.collectors()[:2])
    return snakemake


KINDS = ["snakemake is killed", "a job is cancelled", "collectors are killed", "a node is lost", "slurmctld is away"]


@pytest.mark.parametrize("seed", [int(word) for word in os.environ.get("SEEDS", "1 2").split()])
def test_random_accidents(tmp_path, server, cluster, seed):
    """16 shards on two nodes; `SEEDS="3 4 5"` in the environment chooses other accidents."""
    chance = random.Random(seed)
    words = ["ok", "ok", "500", "reset", "cut", "class:judge_failed"]
    tasks = [row([f"slow:{chance.uniform(1, 4):.1f}+{chance.choice(words)}" for _ in range(2)], i) for i in range(80)]
    run = OnCluster(tmp_path, server, tasks, "--jobs", "6", shards=16, grace_s=3, gateway_retries=0)
    snakemake = run.workflow.start()
    for kind in chance.sample(KINDS, k=4):
        rows_before = run.journalled()
        wait_until(
            lambda wanted=rows_before + 5: run.journalled() >= wanted and running() and run.collectors(),
            f"collectors at work before {kind}",
            timeout_s=300,
        )
        snakemake = accident(run, snakemake, kind, cluster)
    run.ends(snakemake, timeout_s=900)
    # Of every accident at most what 6 jobs had in flight.
    rollouts, failures = run.check(repeated=4 * 6 * PARALLEL)
    assert {(*attempt(r)[:2],) for r in [*rollouts, *failures]} == {(t, r) for t in range(80) for r in range(2)}

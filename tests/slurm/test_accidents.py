"""What happens to jobs on a cluster, done to real jobs: nothing is lost, nothing is stored twice, nothing hangs.

Every test compares what is stored in the end with the server's own log of what it was asked and what it answered.
"""

import subprocess
import sys
from contextlib import contextmanager

import pytest

from faults.test_kills import PARALLEL, Chaotic, rows
from helpers.servers import TESTS, wait_until
from slurm.on_cluster import OnCluster, kill, processes, processes_of, running, slurm, step_daemons

pytestmark = pytest.mark.slurm


@pytest.mark.slurm_quick
def test_a_shard_larger_than_its_allocation_is_a_chain_of_jobs(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(24, wait=1), dispatch_budget_s=4, drain_margin_s=0.5)
    run.ends(run.start())
    rollouts, failures = run.check(repeated=0)
    assert (len(rollouts), failures) == (48, [])
    assert chain_links(run) == [2, 2]
    (tmp_path / "alone").mkdir()
    alone = Chaotic(tmp_path / "alone", server, rows(24, wait=0))
    alone.finish()
    for name in ("rollouts.jsonl", "coverage.json", "rollouts_aggregate_metrics.json"):
        assert (run.folder / name).read_bytes() == (alone.folder / name).read_bytes(), "as one long run"


@pytest.mark.slurm_quick
def test_scancel(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(16, wait=1), grace_s=3)
    snakemake = run.start()
    for job, _ in running():
        slurm("scancel", job)
    run.ends(snakemake)
    rollouts, _ = run.check(repeated=2 * PARALLEL)
    assert len(rollouts) == 32


@pytest.mark.slurm_quick
def test_snakemake_is_killed_while_its_jobs_go_on(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(20, wait=1))
    snakemake = run.start()
    before = running()
    snakemake.kill()
    snakemake.wait()
    assert running() == before, "the jobs go on"
    run.workflow.run("--unlock")
    run.ends(run.workflow.start())
    rollouts, _ = run.check(repeated=0)
    assert len(rollouts) == 40


def test_in_flight_bounds_all_jobs_together(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(6, wait=1), "--resources", f"in_flight={2 * PARALLEL - 1}")
    run.ends(run.workflow.start())
    run.check(repeated=0)
    (first,), (second,) = sorted(
        (collection["jobs"] for collection in run.collections()), key=lambda jobs: jobs[0]["started"]
    )
    assert first["ended"] <= second["started"], "one shard after the other"


def test_what_the_config_asks_of_the_cluster(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(12, wait=1))
    run.workflow.configure(**run.config | {"job": {"runtime": 7, "mem_mb": 300, "slurm_partition": "low"}})
    snakemake = run.start()
    assert set(slurm("squeue", "-h", "-o", "%P %l %m").splitlines()) == {"low 7:00 300M"}
    run.ends(snakemake)
    run.check(repeated=0)


def test_another_executor_is_another_profile(tmp_path, server, cluster):
    options = {"dispatch_budget_s": 6, "drain_margin_s": 0.5, "grace_s": 3}
    run = OnCluster(tmp_path, server, rows(24, wait=1), profile="cluster-generic", **options)
    snakemake = run.start()
    slurm("scancel", running()[0][0])
    run.ends(snakemake)
    rollouts, _ = run.check(repeated=PARALLEL)
    assert len(rollouts) == 48
    assert max(chain_links(run)) > 1


def test_the_time_limit_of_the_allocation_is_the_budget(tmp_path, server, cluster):
    """`auto`: 2 minutes less a grace of 20 s and the 60 s that the end takes; no job is killed by its limit."""
    words = ["--default-resources", "runtime=2"]
    run = OnCluster(tmp_path, server, rows(32, wait=5), *words, shards=1)
    run.ends(run.start(), timeout_s=500)
    rollouts, _ = run.check(repeated=0)
    assert len(rollouts) == 64
    assert chain_links(run)[0] > 1
    assert "TIMEOUT" not in run.said()


def test_a_job_that_its_time_limit_ends(tmp_path, server, cluster):
    """Without a budget SLURM's SIGTERM comes first, and what is in flight may end within the grace."""
    words = ["--default-resources", "runtime=1"]
    run = OnCluster(tmp_path, server, rows(40, wait=5), *words, shards=1, dispatch_budget_s=None, grace_s=7)
    run.ends(run.start(), timeout_s=500)
    rollouts, _ = run.check(repeated=0)
    assert len(rollouts) == 80
    assert "TIMEOUT" in run.said()


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
        for job in jobs:
            requeued(job)
    run.ends(snakemake)
    rollouts, _ = run.check(repeated=2 * PARALLEL)
    assert len(rollouts) == 40
    assert chain_links(run) == [2, 2]


def test_a_node_dies(tmp_path, server, cluster):
    run = OnCluster(tmp_path, server, rows(20, wait=1))
    snakemake = run.start()
    job, node = running()[0]
    slurmd_dies(cluster, node)
    kill([pid for job, at in running() if at == node for pid in step_daemons(job)])
    kill(processes_of(node))
    lost(node, job)
    run.ends(snakemake)
    rollouts, _ = run.check(repeated=2 * PARALLEL)
    assert len(rollouts) == 40


def slurmd_dies(cluster, node):
    kill([int((cluster / "run" / f"slurmd-{node}.pid").read_text())])


def lost(node, job):
    """Tell slurmctld that a node is down, which it would find out by itself later, and let `job` start again at once."""
    slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=died")
    requeued(job)


def requeued(job):
    """SLURM lets a requeued job wait for two minutes; start it at once."""
    wait_until(lambda: "PENDING" in slurm("squeue", "-h", "-j", job, "-o", "%T"), "the job is requeued")
    slurm("scontrol", "update", f"jobid={job}", "starttime=now")


def test_slurmd_dies_but_its_jobs_go_on(tmp_path, server, cluster):
    """SLURM starts the job again elsewhere, while the first one still collects: the second waits for it."""
    run = OnCluster(tmp_path, server, rows(40, wait=1), shards=1)
    snakemake = run.start()
    job, node = running()[0]
    slurmd_dies(cluster, node)
    lost(node, job)
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


@pytest.mark.parametrize("end", ["scancel", "killed", "done"])
def test_servers_of_a_job_are_gone_with_it(tmp_path, server, cluster, end):
    run = OnCluster(tmp_path, server, rows(16, wait=1), grace_s=2)
    own = f"cd {TESTS} && echo http://127.0.0.1:{{port}} >{tmp_path}/own-{{port}} && exec {sys.executable} -m helpers.chaos"
    serve = {"command": f"{own} {tmp_path}/own-{{port}} {server.log_file}", "ready_timeout_s": 60}
    environment = {"head_server": server.address, "serve": serve}
    run.workflow.configure(**run.config | {"environment": environment})
    snakemake = run.start()
    assert len(own_servers(tmp_path)) == 2, "one for each shard"
    if end == "scancel":
        for job, _ in running():
            slurm("scancel", job)
    elif end == "killed":
        kill(run.collectors())
    run.ends(snakemake)
    wait_until(lambda: not own_servers(tmp_path), "no server is left")
    rollouts, _ = run.check(repeated=2 * PARALLEL if end != "done" else 0)
    assert len(rollouts) == 32


def own_servers(folder):
    """Servers that this run's jobs started."""
    words = [b"-m", b"helpers.chaos"]
    own = str(folder / "own-").encode()

    def fits(path):
        said = (path / "cmdline").read_bytes().split(b"\0")
        return said[1:3] == words and said[3].startswith(own)

    return processes(fits)


def chain_links(run):
    """How many jobs each shard took. Every one but the last was owed or killed, each in an allocation of its own."""
    counts = []
    for collection in run.collections():
        *earlier, last = collection["jobs"]
        assert {job["end"] for job in earlier} <= {"owed", "killed"}
        assert last["end"] == "sealed"
        counts.append(len(collection["jobs"]))
    return counts

"""What a job asks of the cluster and is given: its time, its place, its share of the requests, and its own servers."""

import sys

import pytest

from faults.test_kills import PARALLEL, rows
from helpers.servers import TESTS, wait_until
from slurm.on_cluster import OnCluster, chain_links, kill, processes, running, slurm

pytestmark = pytest.mark.slurm


def test_the_time_limit_of_the_allocation_is_the_budget(tmp_path, server, cluster):
    """`auto`: 2 minutes less a grace of 20 s and the 60 s that the end takes; no job is killed by its limit."""
    words = ["--default-resources", "runtime=2"]
    run = OnCluster(tmp_path, server, rows(32, wait=5), *words, shards=1)
    run.ends(run.start(), timeout_s=500)
    rollouts, _ = run.check(repeated=0)
    assert len(rollouts) == 64
    assert chain_links(run)[0] > 1
    assert "TIME LIMIT" not in run.said()


def test_a_job_that_its_time_limit_ends(tmp_path, server, cluster):
    """Without a budget SLURM's SIGTERM comes first, and what is in flight may end within the grace."""
    words = ["--default-resources", "runtime=1"]
    run = OnCluster(tmp_path, server, rows(40, wait=5), *words, shards=1, dispatch_budget_s=None, grace_s=7)
    run.ends(run.start(), timeout_s=500)
    rollouts, _ = run.check(repeated=0)
    assert len(rollouts) == 80
    assert chain_links(run)[0] > 1
    assert "DUE TO TIME LIMIT" in run.said()


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

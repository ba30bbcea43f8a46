"""What a job asks of the cluster and is given: its time, its place, its share of the requests, and its own servers."""

import json
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from helpers.chaos import topology
from helpers.chaotic import PARALLEL, rows
from helpers.servers import TESTS, ChaosServer, wait_until
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


class Head(ThreadingHTTPServer):
    """A head server at an address of its own; `port` is where it says that the environment's servers are."""

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), HeadAnswers)
        self.port = port
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class HeadAnswers(BaseHTTPRequestHandler):
    def do_GET(self):
        named = self.path == "/global_config_dict_yaml"
        body = json.dumps(json.dumps(topology("127.0.0.1", self.server.port)) if named else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Say nothing."""


def elsewhere(tmp_path, server):
    """A second server, at another address, that notes what it does in the log of the first one."""
    (tmp_path / "elsewhere").mkdir()
    second = ChaosServer(tmp_path / "elsewhere")
    second.log_file = server.log_file
    return second.start()


def port_of(server):
    return int(server.address.rsplit(":", 1)[1])


def test_servers_that_move_between_two_jobs(tmp_path, server, cluster):
    """Each job asks the head server where the others are; the first job's are gone when the second one starts."""
    with Head(port_of(server)) as head:
        run = OnCluster(tmp_path, server, rows(16, wait=1), shards=1, dispatch_budget_s=4, drain_margin_s=0.5)
        run.workflow.configure(**run.config | {"environment": {"head_server": head.address}})
        snakemake = run.start()
        second = elsewhere(tmp_path, server)
        try:
            head.port = port_of(second)
            wait_until(lambda: run.ended_jobs() == 1, "the first job has ended")
            server.stop()
            run.ends(snakemake)
            rollouts, failures = run.check(repeated=0)
        finally:
            second.stop()
            head.shutdown()
    assert (len(rollouts), failures) == (32, [])
    assert chain_links(run)[0] > 1


def test_a_head_server_that_moves(tmp_path, server, cluster):
    """Interrupt Snakemake, name the new address in the config, start it again: it goes on from there."""
    run = OnCluster(tmp_path, server, rows(16, wait=1), grace_s=3)
    # In the background of a shell, Ctrl-C is ignored.
    run.workflow.before = ("env", "--default-signal=INT")
    snakemake = run.start()
    snakemake.send_signal(signal.SIGINT)
    assert snakemake.wait(120) != 0
    wait_until(lambda: not run.collectors(), "the collectors are gone")
    server.stop()
    second = elsewhere(tmp_path, server)
    try:
        run.workflow.configure(**run.config | {"environment": {"head_server": second.address}})
        run.ends(run.workflow.start())
        rollouts, _ = run.check(repeated=2 * PARALLEL)
    finally:
        second.stop()
    assert len(rollouts) == 32
    assert chain_links(run) == [2, 2]


def own_servers(folder):
    """Servers that this run's jobs started."""
    words = [b"-m", b"helpers.chaos"]
    own = str(folder / "own-").encode()

    def fits(path):
        said = (path / "cmdline").read_bytes().split(b"\0")
        return said[1:3] == words and said[3].startswith(own)

    return processes(fits)

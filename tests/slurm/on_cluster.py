"""A run under real Snakemake on the real SLURM of tests/slurm/cluster, and what a test does to it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from helpers.chaotic import Chaotic
from helpers.servers import wait_until
from helpers.workflow import ROOT, Workflow

CLUSTER = Path(__file__).parent / "cluster"
UP_S = 240

# Polling that suits tests; a real run asks SLURM less often.
POLLING = {
    "slurm": ["--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1"],
    "cluster-generic": ["--seconds-between-status-checks", "1"],
}


class ClusterWorkflow(Workflow):
    """The project's Snakefile with a profile for clusters, in a folder that has `profiles` as the checkout has."""

    def __init__(self, folder, profile, words, config):
        super().__init__(folder, **config)
        self.words = ["--profile", f"profiles/{profile}", *POLLING[profile], *words]
        (folder / "profiles").symlink_to(ROOT / "profiles")

    # What Snakemake is started by, if not directly.
    before: tuple[str, ...] = ()

    def command(self, *words):
        base = [
            *self.before,
            sys.executable,
            "-m",
            "snakemake",
            "--snakefile",
            ROOT / "Snakefile",
            "--configfile",
            "config.yaml",
        ]
        return [str(word) for word in (*base, *self.words, *words)]


class OnCluster(Chaotic):
    """A run of `rows` with 2 repeats in 2 shards, one SLURM job each, against the misbehaving server."""

    def __init__(self, folder, server, rows, *words, profile="slurm", **options):
        super().__init__(folder, server, rows, **options)
        self.workflow = ClusterWorkflow(self.workflow.folder, profile, words, self.config)

    @property
    def config(self):
        return yaml.safe_load((self.workflow.folder / "config.yaml").read_text())

    def start(self):
        """Start Snakemake, and wait until every shard's job has written rows and has requests in flight."""
        snakemake = self.workflow.start()
        wait_until(self.busy, "rows of every shard and requests in flight", timeout_s=120)
        return snakemake

    def busy(self):
        journals = list(self.folder.glob("journal/*-of-*/rollouts.jsonl"))
        return len(journals) == self.shards and all(path.stat().st_size for path in journals) and self.in_flight() > 0

    @property
    def shards(self):
        return self.config["runs"]["chaos"]["shards"]

    def said(self):
        path = self.workflow.folder / "snakemake.out"
        return path.read_text() if path.exists() else ""

    def job_logs(self):
        """What the running and failed jobs said."""
        return "".join(path.read_text() for path in self.workflow.folder.glob(".snakemake/slurm_logs/**/*.log"))

    def ends(self, snakemake, timeout_s=300):
        """Wait for Snakemake to end well by itself, with nothing left to do."""
        try:
            assert snakemake.wait(timeout_s) == 0, self.said()
        except subprocess.TimeoutExpired:
            snakemake.send_signal(signal.SIGKILL)
            raise AssertionError(f"Snakemake hangs:\n{self.said()}\n{slurm('squeue', '--states=all')}") from None
        assert self.workflow.planned() == {}

    def ended_jobs(self):
        """How many jobs said how they ended."""
        return sum(path.read_bytes().count(b'"ended":"') for path in self.folder.glob("journal/*/jobs.jsonl"))

    def collections(self):
        return [yaml.safe_load(path.read_text()) for path in sorted(self.folder.glob("shards/*/collection.json"))]


def up(lab):
    """Start whatever of the cluster is down; `lab` is its folder."""
    environment = {**os.environ, "LAB": str(lab)}
    subprocess.run([CLUSTER / "up.sh"], env=environment, check=True, capture_output=True, timeout=UP_S)


def slurm(*words):
    """What a SLURM command says."""
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def running():
    """Ids and nodes of the running jobs, by their age."""
    return [tuple(line.split()) for line in slurm("squeue", "-h", "-t", "R", "-S", "i", "-o", "%i %N").splitlines()]


def processes(wanted):
    """Ids of the processes whose folder in /proc fits."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if wanted(path):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def processes_of(node):
    """Everything that runs in jobs on `node`."""
    variable = f"SLURMD_NODENAME={node}".encode()
    return processes(lambda path: variable in (path / "environ").read_bytes().split(b"\0"))


def step_daemons(job):
    """The daemons that would tell slurmctld how the processes of `job` ended."""
    return processes(lambda path: (path / "cmdline").read_bytes().startswith(f"slurmstepd: [{job}.".encode()))


def processes_in(folder):
    """Everything that works in `folder` or below."""
    return processes(lambda path: (path / "cwd").resolve(strict=True).is_relative_to(folder))


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def chain_links(run):
    """How many jobs each shard took. Every one but the last was owed or killed, each in an allocation of its own."""
    counts = []
    for collection in run.collections():
        *earlier, last = collection["jobs"]
        assert {job["end"] for job in earlier} <= {"owed", "killed"}
        assert last["end"] == "sealed"
        counts.append(len(collection["jobs"]))
    return counts

"""Bring the cluster up for the tests of this folder, and take it down after them."""

import os
import subprocess
from pathlib import Path

import pytest

from helpers.servers import chaos_server
from slurm.on_cluster import CLUSTER, UP_S, kill, processes_in, slurm, up


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """The cluster's folder; `DB=1` in the environment gives it accounting."""
    folder = Path(os.environ.get("LAB") or tmp_path_factory.mktemp("cluster"))
    environment = {**os.environ, "LAB": str(folder)}
    subprocess.run([CLUSTER / "install.sh"], env=environment, check=True)
    subprocess.run([CLUSTER / "up.sh"], env=environment, check=True, timeout=UP_S)
    yield folder
    wipe = "0" if "LAB" in os.environ else "1"
    subprocess.run([CLUSTER / "down.sh"], env=environment | {"WIPE": wipe}, check=True, timeout=UP_S)


@pytest.fixture
def cluster(lab, tmp_path):
    """The cluster with all its daemons alive and without a job; nothing that a test started outlives it."""
    up(lab)
    yield lab
    kill(processes_in(tmp_path))
    slurm("scancel", "--user", "root")


@pytest.fixture
def server(tmp_path):
    with chaos_server(tmp_path) as running:
        yield running

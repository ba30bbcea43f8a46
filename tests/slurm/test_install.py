"""Where SLURM cannot be installed, that is said, in time, and CI goes on. These tests install nothing."""

import os
import subprocess

import pytest

from helpers.workflow import ROOT

INSTALL = ROOT / "tests" / "slurm" / "cluster" / "install.sh"
CI = ROOT / ".ci" / "slurm"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gets as far as apt")


@pytest.fixture
def machine(tmp_path):
    """Run a script on a machine whose commands are given as shell texts."""

    def run(script, environment=None, **commands):
        for name, text in commands.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(
            [script],
            env=os.environ | path | (environment or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_without_root(machine):
    code, text = machine(INSTALL, id="echo 1000")
    assert code == 1
    assert "this needs root" in text


def test_ci_goes_on_without_root_and_says_so(machine):
    code, text = machine(CI, id="echo 1000", make="echo make was called")
    assert code == 0
    assert "this needs root" in text
    assert "SKIPPED: the scenarios on SLURM" in text
    assert "make was called" not in text


@as_root
def test_without_a_network(machine):
    """SLURM does not find its own host where only the loopback has an address."""
    code, text = machine(INSTALL, getent="exit 2")
    assert code == 1
    assert "no network interface has an address beside the loopback" in text


@as_root
def test_without_a_registry(machine):
    code, text = machine(INSTALL, dpkg_query="exit 1", apt_get="echo Unable to locate package; exit 100")
    assert code == 1
    assert "Unable to locate package" in text
    assert "apt-get update failed" in text


@as_root
def test_a_registry_that_does_not_answer_is_given_up(machine):
    code, text = machine(INSTALL, {"WITHIN": "1"}, dpkg_query="exit 1", apt_get="exec sleep 50")
    assert code == 1
    assert "took too long" in text


@as_root
def test_what_is_missing_is_installed_and_nothing_else(machine):
    known = 'case "$*" in *munge) echo installed ;; *) exit 1 ;; esac'
    code, text = machine(INSTALL, {"DB": "0"}, dpkg_query=known, apt_get="exit 0")
    assert code == 0
    assert "installing slurmctld slurmd slurm-client\n" in text


@as_root
def test_where_all_is_there_apt_is_not_asked(machine):
    assert machine(INSTALL, {"DB": "0"}, dpkg_query="echo installed", apt_get="exit 100") == (0, "")


@as_root
def test_ci_fails_if_the_scenarios_do_or_take_too_long(machine):
    commands = {"dpkg_query": "echo installed", "scontrol": "exit 1"}
    code, text = machine(CI, {"DB": "0"}, **commands, make="touch $LAB/started; exit 2")
    assert (code, "FAILED: the scenarios on SLURM" in text) == (1, True)
    code, text = machine(CI, {"DB": "0", "WITHIN": "1"}, **commands, make="touch $LAB/started; exec sleep 50")
    assert (code, "took longer than 1 s" in text) == (1, True)
    assert machine(CI, {"DB": "0"}, **commands, make="exit 0")[0] == 0


@as_root
def test_ci_skips_the_scenarios_aloud_if_the_cluster_does_not_start(machine):
    commands = {"dpkg_query": "echo installed", "scontrol": "exit 1"}
    code, text = machine(CI, {"DB": "0"}, **commands, make="exit 2")
    assert (code, "SKIPPED: the scenarios on SLURM, since it cannot be started" in text) == (0, True)

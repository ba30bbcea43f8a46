"""The commands in front of SLURM's own, beside a SLURM that says what a test wants. They need no cluster."""

import shutil
import subprocess

import pytest

from helpers.workflow import ROOT

COMMANDS = ROOT / "profiles" / "slurm" / "bin"
GENERIC = ROOT / "profiles" / "cluster-generic"
STATES = ["sacct", "-X", "--parsable2", "--noheader", "--format=JobIdRaw,State", "--name", "run-7"]


@pytest.fixture
def says(tmp_path):
    """Make a command of SLURM print a text, as an error if its code is one; it notes what it was asked."""

    def command(name, text, code=0):
        path = tmp_path / "real" / name
        path.write_text(
            f"#!/bin/sh\necho {name} \"$*\" >>{tmp_path}/asked\nprintf '%s' '{text}' >&{2 if code else 1}\nexit {code}\n"
        )
        path.chmod(0o755)

    return command


@pytest.fixture
def ask(tmp_path):
    """Run a command with ours in front of the path, then SLURM's."""
    (tmp_path / "real").mkdir()
    path = f"{COMMANDS}:{tmp_path}/real:{plain(tmp_path)}"

    def run(*words):
        done = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    return run


def plain(folder):
    """A folder with the few tools that the scripts use, so that a SLURM of this machine is not found."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("sh", "sed", "awk", "dirname"):
        (tools / name).symlink_to(shutil.which(name))
    return tools


def asked(tmp_path):
    return (tmp_path / "asked").read_text().splitlines()


def test_squeue_says_cancelled_for_what_pre_emption_cancelled(says, ask, tmp_path):
    says("squeue", "7|PREEMPTED\n8|RUNNING\n9|CANCELLED\n")
    assert ask("squeue", "--format=%i|%T", "--name", "a b") == (0, ["7|CANCELLED", "8|RUNNING", "9|CANCELLED"])
    assert asked(tmp_path) == ["squeue --format=%i|%T --name a b"]


def test_squeue_passes_on_that_the_cluster_does_not_answer(says, ask):
    says("squeue", "", code=1)
    assert ask("squeue", "--noheader")[0] == 1


def test_no_squeue_at_all(ask):
    assert ask("squeue", "--noheader")[0] == 127


def test_sacct_answers_with_what_squeue_says(says, ask, tmp_path):
    says("squeue", "7|RUNNING\n8|COMPLETED\n")
    says("sacct", "Slurm accounting storage is disabled", code=1)
    assert ask(*STATES) == (0, ["7|RUNNING", "8|COMPLETED"])
    assert asked(tmp_path)[0] == "squeue --states=all --noheader --format=%i|%T --name run-7"


def test_sacct_adds_what_squeue_has_forgotten(says, ask):
    says("squeue", "7|RUNNING\n")
    says("sacct", "5|CANCELLED by 0\n6|PREEMPTED\n7|PENDING\n8|TIMEOUT\n")
    assert ask(*STATES) == (0, ["7|RUNNING", "5|CANCELLED", "6|CANCELLED", "8|TIMEOUT"])


def test_sacct_without_a_sacct(says, ask):
    says("squeue", "7|RUNNING\n")
    assert ask(*STATES) == (0, ["7|RUNNING"])


def test_sacct_does_not_guess_while_the_cluster_does_not_answer(says, ask):
    says("squeue", "", code=1)
    says("sacct", "7|FAILED\n")
    assert ask(*STATES) == (1, [])


def test_any_other_question_goes_to_sacct(says, ask, tmp_path):
    says("sacct", "account\n")
    assert ask("sacct", "-nu", "me") == (0, ["account"])
    assert asked(tmp_path) == ["sacct -nu me"]


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        ("COMPLETED", 0, "success"),
        ("RUNNING", 0, "running"),
        ("PENDING", 0, "running"),
        ("COMPLETING", 0, "running"),
        ("FAILED", 0, "failed"),
        ("CANCELLED", 0, "failed"),
        ("PREEMPTED", 0, "failed"),
        ("TIMEOUT", 0, "failed"),
        ("NODE_FAIL", 0, "failed"),
        ("", 0, "failed"),
        ("slurm_load_jobs error: Invalid job id specified", 1, "failed"),
        ("slurm_load_jobs error: Unable to contact slurm controller", 1, "running"),
    ],
)
def test_the_status_of_another_executors_job(says, ask, state, code, status):
    says("squeue", state, code)
    assert ask(GENERIC / "status.sh", "7") == (0, [status])

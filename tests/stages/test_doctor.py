"""`rollmake doctor` on this machine, beside a SLURM whose commands say what a test wants."""

import os
import resource

import pytest

from helpers.runs import rollmake

CONFIG = {
    "AccountingStorageType": "accounting_storage/none",
    "JobRequeue": "1",
    "KillWait": "30 sec",
    "MinJobAge": "300 sec",
    "PreemptType": "preempt/partition_prio",
    "ProctrackType": "proctrack/cgroup",
}


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """Put a `scontrol` on an otherwise empty path that reports these settings, or fails."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def says(partitions="PartitionName=main PreemptMode=REQUEUE", **changes):
        config = "\n".join(f"echo '{name} = {value}'" for name, value in (CONFIG | changes).items())
        script = folder / "scontrol"
        script.write_text(
            f'#!/bin/sh\ncase "$2" in\nconfig)\n{config}\n;;\npartition) echo "{partitions}";;\n*) exit 1;;\nesac\n'
        )
        script.chmod(0o755)
        return script

    return says


@pytest.fixture
def examine(tmp_path, capfd):
    """Run the doctor; returns its exit code, its lines, and what it says on standard error."""

    def run(*words, results=tmp_path / "results"):
        code = rollmake("doctor", "--results", results, *words)
        said = capfd.readouterr()
        return code, said.out.splitlines(), said.err

    return run


def test_without_slurm_it_looks_at_this_machine_and_says_so(scontrol, examine):
    code, lines, _ = examine()
    assert code == 0
    assert "no SLURM answers here" in lines[-1]
    assert [line for line in lines if "locks hold between processes" in line]
    assert [line for line in lines if "hard links" in line]
    assert [line for line in lines if "fsync works" in line]


def test_it_leaves_nothing_behind(scontrol, examine, tmp_path):
    examine()
    assert list((tmp_path / "results").iterdir()) == []


def test_a_good_cluster(scontrol, examine):
    scontrol()
    code, lines, _ = examine()
    assert code == 0
    assert [line for line in lines if "partition main: PreemptMode REQUEUE" in line]
    assert not [line for line in lines if line.startswith("PROBLEM")]


def test_a_problem_ends_with_1(scontrol, examine):
    scontrol(MinJobAge="10 sec")
    code, lines, error = examine()
    assert code == 1
    (line,) = [line for line in lines if line.startswith("PROBLEM")]
    assert "MinJobAge 10 s" in line
    assert "1 problem, see above" in error


def test_the_grace_comes_from_the_options(scontrol, examine):
    scontrol()
    _, lines, _ = examine("--grace-s", "40")
    (line,) = [line for line in lines if line.startswith("WARNING")]
    assert "grace_s of 40 s" in line


def test_a_scontrol_that_fails_is_no_slurm(scontrol, examine):
    scontrol().write_text("#!/bin/sh\necho 'MinJobAge = 1 sec'\nexit 1\n")
    code, lines, _ = examine()
    assert code == 0
    assert "no SLURM answers here" in lines[-1]


def test_too_many_requests_for_the_hard_limit_of_open_files(scontrol, examine):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this machine has no limit")
    code, lines, _ = examine("--num-samples-in-parallel", str(hard))
    assert code == 1
    assert [line for line in lines if line.startswith("PROBLEM") and "open files" in line]


def test_a_folder_that_cannot_be_written_to(scontrol, examine, tmp_path):
    (tmp_path / "file").write_text("")
    code, lines, _ = examine(results=tmp_path / "file" / "results")
    assert code == 1
    assert lines[0].startswith("PROBLEM")
    assert os.fspath(tmp_path / "file" / "results") in lines[0]

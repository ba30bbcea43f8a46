"""The doctor's findings from what clusters say."""

import pytest

from rollmake.core.doctor import (
    Level,
    Slurm,
    mounted,
    open_files,
    parse_config,
    parse_partitions,
    shared_locks,
    slurm_findings,
)

CONFIG = """\
Configuration data as of 2026-01-31T20:00:00
AccountingStorageType   = accounting_storage/none
JobRequeue              = 1
KillWait                = 30 sec
MinJobAge               = 300 sec
PreemptMode             = REQUEUE
PreemptType             = preempt/partition_prio
ProctrackType           = proctrack/cgroup

Slurmctld(primary) at head is UP
"""
PARTITIONS = """\
PartitionName=main AllowGroups=ALL Default=YES MaxTime=UNLIMITED PreemptMode=REQUEUE State=UP
PartitionName=scavenge AllowGroups=ALL Default=NO MaxTime=UNLIMITED PreemptMode=CANCEL State=UP
"""


def findings(grace_s=20, plugin="2.8.0", partitions="", **changes):
    config = parse_config(CONFIG) | changes
    return slurm_findings(Slurm(config=config, partitions=parse_partitions(partitions), plugin=plugin), grace_s)


def about(word, **changes):
    (found,) = [finding for finding in findings(**changes) if word in finding.found]
    return found


def test_settings_are_read_from_what_scontrol_says():
    config = parse_config(CONFIG)
    assert (config["MinJobAge"], config["KillWait"]) == ("300 sec", "30 sec")


def test_partitions_are_read_from_what_scontrol_says():
    first, second = parse_partitions(PARTITIONS + "\n")
    assert (first["PartitionName"], first["PreemptMode"]) == ("main", "REQUEUE")
    assert (second["PartitionName"], second["PreemptMode"]) == ("scavenge", "CANCEL")


def test_a_good_cluster_has_no_warning():
    assert {finding.level for finding in findings(partitions=PARTITIONS.splitlines()[0])} == {Level.OK}


@pytest.mark.parametrize(
    ("age", "storage", "level", "remedy"),
    [
        ("300 sec", "accounting_storage/none", Level.OK, ""),
        ("300 sec", "accounting_storage/slurmdbd", Level.OK, ""),
        ("60 sec", "accounting_storage/none", Level.OK, ""),
        ("0 sec", "accounting_storage/none", Level.OK, ""),
        ("59 sec", "accounting_storage/none", Level.PROBLEM, "MinJobAge=60"),
        ("10 sec", "(null)", Level.PROBLEM, "MinJobAge=60"),
        ("10 sec", "accounting_storage/slurmdbd", Level.WARNING, "slurm-status-command: sacct"),
        ("", "accounting_storage/none", Level.WARNING, "60"),
    ],
)
def test_a_job_must_be_seen_after_its_end(age, storage, level, remedy):
    found = about("MinJobAge", MinJobAge=age, AccountingStorageType=storage)
    assert found.level is level
    assert remedy in found.remedy


def test_without_accounting_squeue_must_stay():
    assert "slurm-status-command: squeue" in about("no accounting: with").remedy
    assert about("accounting:", AccountingStorageType="accounting_storage/slurmdbd").level is Level.OK


@pytest.mark.parametrize(
    ("wait", "grace_s", "level", "remedy"),
    [
        ("30 sec", 20, Level.OK, ""),
        ("25 sec", 20, Level.OK, ""),
        ("24 sec", 20, Level.WARNING, "`grace_s: 19`"),
        ("2 sec", 20, Level.WARNING, "`grace_s: 0`"),
        ("", 20, Level.WARNING, "25 s"),
    ],
)
def test_the_grace_must_fit_between_sigterm_and_sigkill(wait, grace_s, level, remedy):
    found = about("KillWait", grace_s=grace_s, KillWait=wait)
    assert found.level is level
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("2.8.0", Level.OK),
        ("2.8.3", Level.OK),
        ("2.80.0", Level.WARNING),
        ("3.0", Level.WARNING),
        (None, Level.PROBLEM),
    ],
)
def test_the_plugin(version, level):
    assert about("snakemake-executor-plugin-slurm", plugin=version).level is level


@pytest.mark.parametrize("value", ["0", "1"])
def test_a_lost_node_is_no_problem(value):
    assert about(f"JobRequeue {value}", JobRequeue=value).level is Level.OK


def test_processes_that_outlive_a_job():
    assert about("proctrack/linuxproc", ProctrackType="proctrack/linuxproc").level is Level.WARNING


@pytest.mark.parametrize(
    ("mode", "level"),
    [("REQUEUE", Level.OK), ("OFF", Level.OK), ("CANCEL", Level.WARNING), ("GANG,SUSPEND", Level.WARNING)],
)
def test_pre_emption(mode, level):
    found = about("partition low", partitions=f"PartitionName=low PreemptMode={mode}")
    assert found.level is level
    assert mode in found.found


def test_without_pre_emption_partitions_are_not_looked_at():
    assert about("pre-emption", partitions=PARTITIONS, PreemptType="preempt/none").level is Level.OK
    assert not [each for each in findings(partitions=PARTITIONS, PreemptType="preempt/none") if "scav" in each.found]


def test_a_finding_is_one_line():
    found = about("KillWait", KillWait="5 sec")
    assert str(found).startswith("WARNING  KillWait 5 s: ")
    assert "\n" not in str(found)


@pytest.mark.parametrize(
    ("limit", "in_flight", "level"),
    [(1024, 64, Level.OK), (128, 64, Level.OK), (127, 64, Level.PROBLEM), (float("inf"), 10**6, Level.OK)],
)
def test_open_files(limit, in_flight, level):
    assert open_files(limit, in_flight).level is level


def test_too_few_open_files_name_what_would_fit():
    assert "num_samples_in_parallel: 960" in open_files(1024, 5000).remedy


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
server:/odd /home/my\\040runs nfs rw,vers=3,nolock 0 0
scratch /scratch lustre rw,flock 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/results", "ext4"),
        ("/home/me", "nfs4"),
        ("/homes", "ext4"),
        ("/home/my runs/results", "nfs"),
        ("/scratch", "lustre"),
    ],
)
def test_the_deepest_mount_holds_a_path(path, kind):
    assert mounted(path, MOUNTS)[0] == kind


def test_no_mounts_are_known():
    assert mounted("/anywhere", "") == ("unknown", "")


@pytest.mark.parametrize(
    ("kind", "options", "level"),
    [
        ("ext4", "rw,relatime", Level.OK),
        ("nfs4", "rw,vers=4.2,local_lock=none", Level.OK),
        ("nfs", "rw,vers=3,nolock", Level.PROBLEM),
        ("nfs", "rw,local_lock=all", Level.PROBLEM),
        ("lustre", "rw,flock", Level.OK),
        ("lustre", "rw,localflock", Level.PROBLEM),
        ("lustre", "rw", Level.PROBLEM),
    ],
)
def test_locks_between_nodes(kind, options, level):
    assert shared_locks(kind, options).level is level

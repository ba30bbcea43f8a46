"""What of a cluster and of a file system would hang, kill or corrupt a run: findings from what their commands say."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

# How often the profile lets Snakemake ask SLURM (s). A job that ended and was forgotten in between is waited for for ever.
POLL_S = 20
POLL_MARGIN_S = 40
# What a collector needs, beside its grace, to close its journal and to stop its servers (s).
CLOSING_S = 5
# Files that a collector has open beside its connections.
SPARE_FILES = 64
MEASURED_PLUGIN = (2, 8)


class Level(StrEnum):
    """How bad a finding is; a problem loses or hangs a run."""

    OK = "OK"
    WARNING = "WARNING"
    PROBLEM = "PROBLEM"


class Finding(msgspec.Struct, frozen=True):
    """One line of the doctor: what was found, and what to set."""

    level: Level
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.level:<8} {self.found}" + (f". {self.remedy}" if self.remedy else "")


class Slurm(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster by the words of its commands: `scontrol show config`, and one mapping a partition."""

    config: Mapping[str, str]
    partitions: Sequence[Mapping[str, str]] = ()
    plugin: str | None = None


def parse_config(text: str) -> dict[str, str]:
    """The settings in the output of `scontrol show config`, lines like `MinJobAge = 300 sec`."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def parse_partitions(text: str) -> list[dict[str, str]]:
    """The partitions in the output of `scontrol show partition --oneliner`."""
    return [
        dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines() if line.strip()
    ]


def slurm_findings(slurm: Slurm, grace_s: float) -> list[Finding]:
    """What to set for the cluster `slurm`, if collectors keep a grace of `grace_s` at their end."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        lambda: _plugin(slurm.plugin),
        lambda: _status(slurm.config),
        lambda: _kill_wait(slurm.config, grace_s),
        lambda: _requeue(slurm.config),
        lambda: _tracking(slurm.config),
        lambda: _preemption(slurm.config, slurm.partitions),
    ]
    return [finding for check in checks for finding in check()]


def _plugin(version: str | None) -> Iterator[Finding]:
    if version is None:
        remedy = "Install it: pip install 'rollmake[slurm]'"
        yield Finding(Level.PROBLEM, "snakemake-executor-plugin-slurm is not installed", remedy)
    elif tuple(map(int, re.findall(r"\d+", version)[:2])) == MEASURED_PLUGIN:
        yield Finding(Level.OK, f"snakemake-executor-plugin-slurm {version}, the version that this was measured with")
    else:
        known = ".".join(map(str, MEASURED_PLUGIN))
        yield Finding(Level.WARNING, f"snakemake-executor-plugin-slurm {version}; measured was {known}", "Try it first")


def _status(config: Mapping[str, str]) -> Iterator[Finding]:
    """How Snakemake learns that a job ended."""
    storage = config.get("AccountingStorageType", "")
    accounting = storage not in ("", "(null)", "accounting_storage/none")
    if accounting:
        yield Finding(Level.OK, f"accounting: {storage}; the profile asks squeue all the same, which notices scancel")
    else:
        found = "no accounting: with sacct Snakemake would wait for ever; the profile asks squeue"
        yield Finding(Level.OK, found, "Keep `slurm-status-command: squeue`")
    age, needed = seconds(config.get("MinJobAge")), POLL_S + POLL_MARGIN_S
    if age is None:
        yield Finding(Level.WARNING, "MinJobAge is not known", f"It must be {needed} s or more")
    elif age == 0 or age >= needed:
        yield Finding(Level.OK, f"MinJobAge {age:g} s: squeue shows a job that ended until Snakemake asks")
    elif accounting:
        remedy = "Set `slurm-status-command: sacct`, which profiles/slurm/bin asks for what squeue forgot"
        yield Finding(Level.WARNING, f"MinJobAge {age:g} s: squeue forgets a job before Snakemake asks again", remedy)
    else:
        remedy = f"Ask for MinJobAge={needed} or more"
        found = f"MinJobAge {age:g} s and no accounting: Snakemake would wait for ever for a job that squeue forgot"
        yield Finding(Level.PROBLEM, found, remedy)


def _kill_wait(config: Mapping[str, str], grace_s: float) -> Iterator[Finding]:
    wait = seconds(config.get("KillWait"))
    if wait is None:
        yield Finding(Level.WARNING, "KillWait is not known", f"It must be {grace_s + CLOSING_S:g} s or more")
    elif wait >= grace_s + CLOSING_S:
        yield Finding(Level.OK, f"KillWait {wait:g} s: a cancelled job has its grace_s of {grace_s:g} s")
    else:
        found = f"KillWait {wait:g} s: a cancelled job is killed before its grace_s of {grace_s:g} s is over"
        remedy = f"Set `grace_s: {max(wait - CLOSING_S, 0):g}`; nothing is lost, but what is in flight is asked again"
        yield Finding(Level.WARNING, found, remedy)


def _requeue(config: Mapping[str, str]) -> Iterator[Finding]:
    if config.get("JobRequeue") == "1":
        yield Finding(Level.OK, "JobRequeue 1: SLURM starts the jobs of a lost node again, after about two minutes")
    else:
        yield Finding(
            Level.OK, "JobRequeue 0: the jobs of a lost node fail, and the profile's retries submit them again"
        )


def _tracking(config: Mapping[str, str]) -> Iterator[Finding]:
    kind = config.get("ProctrackType", "unknown")
    if kind == "proctrack/cgroup":
        yield Finding(Level.OK, "proctrack/cgroup: nothing that a job started outlives it")
    else:
        remedy = "Look for processes on the nodes after jobs that were killed"
        yield Finding(Level.WARNING, f"{kind}: servers that detach themselves outlive their job", remedy)


def _preemption(config: Mapping[str, str], partitions: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
    if config.get("PreemptType", "preempt/none") in ("preempt/none", "(null)"):
        yield Finding(Level.OK, "no pre-emption")
        return
    for partition in partitions:
        name, mode = partition.get("PartitionName", "?"), partition.get("PreemptMode", config.get("PreemptMode", "?"))
        if mode in ("OFF", "REQUEUE"):
            yield Finding(Level.OK, f"partition {name}: PreemptMode {mode}")
        elif mode == "CANCEL":
            found = f"partition {name}: PreemptMode CANCEL; a pre-empted shard uses up one of the profile's retries"
            yield Finding(Level.WARNING, found, "Raise `retries` if jobs are pre-empted often")
        else:
            found = f"partition {name}: PreemptMode {mode}; the requests of a suspended job time out"
            yield Finding(Level.WARNING, found, "Prefer another partition")


def seconds(text: str | None) -> float | None:
    """The number in a setting like `300 sec`."""
    match = re.match(r"\d+", text or "")
    return float(match[0]) if match else None


def open_files(hard_limit: float, in_flight: int) -> Finding:
    """Whether `in_flight` connections fit below the hard limit of open files."""
    if hard_limit >= in_flight + SPARE_FILES:
        return Finding(Level.OK, f"open files: the hard limit is {hard_limit:g}, {in_flight:,} requests are in flight")
    found = f"open files: the hard limit of {hard_limit:g} is too low for {in_flight:,} requests in flight"
    remedy = f"Raise it (ulimit -Hn) or set `num_samples_in_parallel: {max(int(hard_limit) - SPARE_FILES, 1)}`"
    return Finding(Level.PROBLEM, found, remedy)


def mounted(path: str, mounts: str) -> tuple[str, str]:
    """The type and options of the file system that holds the absolute `path`, from the text of /proc/mounts."""
    best, found = "", ("unknown", "")
    for line in mounts.splitlines():
        _, point, kind, options, *_ = line.split()
        point = point.encode().decode("unicode_escape")
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, found = point, (kind, options)
    return found


def shared_locks(kind: str, options: str) -> Finding:
    """Whether a lock holds between nodes on a file system of that type, mounted with these options."""
    words = set(options.split(","))
    local = words & {"localflock", "noflock", "nolock", "local_lock=all", "local_lock=flock"}
    remedy = "Never run two Snakemakes on one run, or keep `results` on a file system whose locks hold everywhere"
    if local:
        found = f"file system {kind}: mounted with {', '.join(sorted(local))}, so locks do not hold between nodes"
        return Finding(Level.PROBLEM, found, remedy)
    if kind == "lustre" and "flock" not in words:
        return Finding(Level.PROBLEM, "file system lustre: mounted without flock, so there are no locks", remedy)
    return Finding(Level.OK, f"file system {kind}: no option that keeps locks from other nodes")

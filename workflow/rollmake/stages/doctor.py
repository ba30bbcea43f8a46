"""Stage doctor: what of this machine and of its cluster would hang, kill or corrupt a run, and what to set."""

import resource
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import msgspec

from rollmake.core.doctor import (
    Finding,
    Level,
    Slurm,
    mounted,
    open_files,
    parse_config,
    parse_partitions,
    shared_locks,
    slurm_findings,
)
from rollmake.core.errors import RollmakeError
from rollmake.edge.files import publish, sync_file, sync_folder
from rollmake.edge.lock import exclusive

HELP = "Say what of this machine and its cluster would hang, kill or corrupt a run."
# As long as the executor waits for `scontrol` at each of its starts (s).
PATIENCE_S = 10
# Exits with 0 if the lock on the file is free.
TRY_LOCK = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the doctor looks at."""

    results: Annotated[Path, msgspec.Meta(description="folder of the results, on the file system that they will be on")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the config that limits of the machine or of the cluster bear on."""

    grace_s: float
    num_samples_in_parallel: int


def run(files: Files, settings: Settings) -> None:
    """Print one line a finding. Raises RollmakeError if one of them is a problem."""
    findings = [*_local(files.results, settings), *_cluster(settings)]
    for finding in findings:
        print(finding)
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    if problems:
        raise RollmakeError(f"{problems} problem{'s' if problems > 1 else ''}, see above")


def _local(results: Path, settings: Settings) -> list[Finding]:
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=results) as folder:
            found = [_lock(Path(folder)), _links(Path(folder)), _sync(Path(folder))]
    except OSError as error:
        found = [Finding(Level.PROBLEM, f"nothing can be written to {results}: {error.strerror}")]
    mounts = Path("/proc/mounts")
    if mounts.exists():
        found.append(shared_locks(*mounted(str(results.resolve()), mounts.read_text(encoding="utf-8"))))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = float("inf") if hard == resource.RLIM_INFINITY else hard
    return [*found, open_files(limit, settings.num_samples_in_parallel)]


def _lock(folder: Path) -> Finding:
    """A lock that this process holds must be refused to another, and be free afterwards."""
    path = folder / "lock"
    command = [sys.executable, "-c", TRY_LOCK, str(path)]
    with exclusive(path):
        refused = subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0
    free = subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
    if refused and free:
        return Finding(Level.OK, "locks hold between processes of this host")
    remedy = "Keep `results` on another file system; with two collectors on one shard rollouts would be asked for twice"
    return Finding(Level.PROBLEM, "locks do not hold between processes", remedy)


def _links(folder: Path) -> Finding:
    source, target = folder / "journal", folder / "published"
    source.write_bytes(b"row\n")
    publish(source, target)
    if source.samefile(target):
        return Finding(Level.OK, "hard links: publishing a shard takes no space")
    return Finding(
        Level.WARNING, "no hard links: each published shard is a copy of its journal", "Allow twice the space"
    )


def _sync(folder: Path) -> Finding:
    try:
        sync_file(folder / "journal")
        sync_folder(folder)
    except OSError as error:
        return Finding(Level.PROBLEM, f"fsync fails: {error.strerror}", "Keep `results` on another file system")
    return Finding(Level.OK, "fsync works")


def _cluster(settings: Settings) -> list[Finding]:
    config = _said("scontrol", "show", "config")
    if config is None:
        return [Finding(Level.OK, "no SLURM answers here, so only this machine was looked at")]
    partitions = _said("scontrol", "show", "partition", "--oneliner") or ""
    slurm = Slurm(config=parse_config(config), partitions=parse_partitions(partitions), plugin=_plugin_version())
    return slurm_findings(slurm, settings.grace_s)


def _said(*command: str) -> str | None:
    """What a command says, None if there is no such command or it fails or takes longer than ten seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _plugin_version() -> str | None:
    try:
        return version("snakemake-executor-plugin-slurm")
    except PackageNotFoundError:
        return None

"""How long Snakemake plans runs of many shards: `snakemake -n` with each profile, printed; fails above the bounds."""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
BOUNDS_S = {1_000: 5.0, 10_000: 30.0}
PROFILES = ("default", "slurm")


def main() -> int:
    """Print a line for each profile and number of shards; returns 1 if one took longer than its bound."""
    late = 0
    for shards, bound_s in BOUNDS_S.items():
        for profile in PROFILES:
            # The smaller of two: the first one may have to read its code from the disk.
            wall_s, cpu_s = min(dry_run(shards, profile) for _ in range(2))
            late += wall_s > bound_s
            print(f"{profile:8} {shards:6,} shards  {wall_s:5.1f} s  CPU {cpu_s:5.1f} s  bound {bound_s:.0f} s")
    return int(late > 0)


def dry_run(shards: int, profile: str) -> tuple[float, float]:
    """Seconds on the clock and of the processor for the dry run of a run that has not begun."""
    with tempfile.TemporaryDirectory() as folder:
        tasks = str(ROOT / "config/demo/tasks.jsonl")
        config = {
            "results": f"{folder}/results",
            "environment": {"embedded": {"policy": "scripted"}},
            "runs": {"big": {"input": tasks, "shards": shards}},
        }
        path = Path(folder, "config.yaml")
        path.write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "snakemake", "-n", "--configfile", str(path), "--directory", folder]
        command += ["--profile", str(ROOT / "profiles" / profile)]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        with open(f"{folder}/out", "wb") as out:
            subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, check=True)
        after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
        return wall_s, after.ru_utime - before.ru_utime


if __name__ == "__main__":
    sys.exit(main())

"""What a collector needs as a run grows: memory a rollout, and seconds to open a journal of 1 GB.

`python -m benchmarks.growth` collects 10,000 and then `--rollouts` rollouts of small replies from the constant server and
compares the peaks of both collectors: at most 100 bytes a rollout. Then it opens journals of 1 GB, of rollouts and of
failures, with rows of 2 kB, 10 kB and 100 kB: at most 3 s each. Exits with 1 above a bound.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl
from benchmarks.constant import AGENT, constant_server
from benchmarks.dispatch import IN_FLIGHT, run

from rollmake.edge.shard import Settling, Shard

FEW, REPEATS, MOST_BYTES = 10_000, 8, 100
JOURNAL_BYTES, ROW_BYTES, MOST_S = 1_000_000_000, (2_000, 10_000, 100_000), 3.0
SETTLING = {"retry_terminal_timeouts": False, "retry_invalid_judge_responses": False, "dispatch_longest_first": False}
ROW = (
    '{"responses_create_params":{"input":"q"},"response":{"output":"%s"},"reward":%d,"mask_sample":false%s,'
    '"_ng_task_index":%d,"_ng_rollout_index":%d,"agent_ref":{"name":"a"},"_ng_environment_server":"s"}\n'
)


def main() -> int:
    """Measure both and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        constant_server(Path(folder) / "server", 300) as (_, head),
    ):
        peaks = [collected(Path(folder) / str(count), count, head) for count in (FEW, options.rollouts)]
    grown = (peaks[1] - peaks[0]) / (options.rollouts - FEW)
    print(f"{grown:.0f} bytes a rollout (at most {MOST_BYTES})", flush=True)
    slowest = max(opened(size, failed=failed) for size in ROW_BYTES for failed in (False, True))
    return int(grown > MOST_BYTES or slowest > MOST_S)


def collected(work: Path, count: int, head: str) -> int:
    """Peak bytes of the collector of `count` rollouts."""
    work.mkdir()
    with (work / "tasks.jsonl").open("w") as file:
        for number in range(count // REPEATS):
            params = {"input": f"question {number}"}
            file.write(json.dumps({"responses_create_params": params, "agent_ref": {"name": AGENT}}) + "\n")
    environment = json.dumps({"head_server": head})
    run(["environment", "--environment", environment, "--output", work / "environment.json"])
    words = ["materialize", "--input", work / "tasks.jsonl", "--environment-file", work / "environment.json"]
    words += ["--output", work / "rollouts_materialized_inputs.jsonl", "--plan", work / "plan.json"]
    run([*words, "--num-repeats", REPEATS])
    words = ["collect", "--plan", work / "plan.json", "--shard", "0000-of-0001", "--journal", work / "journal"]
    words += ["--output", work / "shard" / "rollouts.jsonl", "--environment", environment]
    command = [sys.executable, "-m", "rollmake", *words, "--num-samples-in-parallel", IN_FLIGHT]
    begin = time.monotonic()
    child = subprocess.Popen([str(word) for word in command], stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"failed with status {os.waitstatus_to_exitcode(status)}")
    peak = usage.ru_maxrss * 1024
    print(f"{count} rollouts: {time.monotonic() - begin:.0f} s, peak {peak / 1e6:.0f} MB", flush=True)
    return peak


def opened(size: int, *, failed: bool) -> float:
    """Seconds that it takes to open a journal of rows of `size` bytes, just written."""
    count = JOURNAL_BYTES // size
    keys = pl.DataFrame({"task": range(count)}).select(task=pl.col("task") // REPEATS, rollout=pl.col("task") % REPEATS)
    padding = "lorem ipsum " * ((size - 200) // 12)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        path = Path(name) / ("rollouts_failures.jsonl" if failed else "rollouts.jsonl")
        with path.open("w") as file:
            for number, (task, rollout) in enumerate(keys.iter_rows()):
                mark = ',"_ng_failure_class":"judge_failed"' if failed else ""
                file.write(ROW % (padding, number % 2, mark, task, rollout))
        begin = time.monotonic()
        shard = Shard("shard", path.parent, keys, None, Settling(max_attempts=3, **SETTLING))
        seconds = time.monotonic() - begin
        assert shard.ledger.owed == (count if failed else 0)
        shard.journal.close()
    kind = "failures" if failed else "rollouts"
    print(f"{count} {kind} of {size} bytes: opened in {seconds:.1f} s (at most {MOST_S:.0f})", flush=True)
    return seconds


if __name__ == "__main__":
    sys.exit(main())

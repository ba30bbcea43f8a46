"""The local backend on a million rollouts: from repaired shards to the written metrics file, in seconds and megabytes.

Usage: python benchmarks/scale.py [--rollouts N] [--bytes N]
The shards are written with records of about `--bytes` bytes and repaired by the stage repair, which is not timed; then
the stage aggregate runs in an interpreter of its own. It reads scores.parquet and the sidecars, never the rollouts, so
the size of a record changes nothing. Exits with 1 above 60 s or 3 GB.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import orjson
import polars as pl

from rollmake.core.plan import PLAN_VERSION, Plan
from rollmake.core.shards import shard_name
from rollmake.stages import repair

SHARDS, REPEATS, FAILING = 16, 8, 0.01
MOST_S, MOST_MEGABYTES = 60, 3000
ANSWERS = ["four", "five", "six", None]
METRICS = "{backend: local, answer_key: extracted, subset_key: subset}"


def rollout(chance, task, index, padding):
    usage = {"input_tokens": chance.randint(1, 9999), "output_tokens": chance.randint(1, 9999)}
    answer = chance.choice(ANSWERS)
    return {
        "responses_create_params": {"input": padding},
        "response": {"output": [], "usage": usage | {"total_tokens": sum(usage.values())}},
        "reward": float(answer == "four"),
        "extracted": answer,
        "subset": f"subset {task % 5}",
        "correct": answer == "four",
        "score": chance.random(),
        "mask_sample": chance.random() < 0.01,
        "_ng_task_index": task,
        "_ng_rollout_index": index,
        "agent_ref": {"name": "agent"},
        "_ng_environment_server": "server",
        "ng_perf": {"num_turns": chance.randint(1, 9), "total_latency_ms": chance.random() * 1e4},
    }


def write_shard(source, shard, tasks, padding):
    """One shard before it is repaired, in no order; one rollout in a hundred failed."""
    chance = random.Random(shard)
    keys = [(task, index) for task in range(shard, tasks, SHARDS) for index in range(REPEATS)]
    chance.shuffle(keys)
    source.parent.mkdir(parents=True)
    rows = source.with_name("rollouts_materialized_inputs.jsonl")
    rows.write_bytes(b"".join(b'{"_ng_task_index":%d,"_ng_rollout_index":%d}\n' % key for key in keys))
    sidecar = source.with_name("rollouts_failures.jsonl")
    with source.open("wb") as file, sidecar.open("wb") as failures:
        for key in keys:
            record = rollout(chance, *key, padding)
            if chance.random() < FAILING:
                failures.write(orjson.dumps(record | {"_ng_failure_class": "agent_run_error"}) + b"\n")
            else:
                file.write(orjson.dumps(record) + b"\n")


def prepare(folder, tasks, size):
    """A run up to its repaired shards; their bytes."""
    written = 0
    for shard in range(SHARDS):
        source = folder / "raw" / "rollouts.jsonl"
        write_shard(source, shard, tasks, "x" * max(0, size - 450))
        written += source.stat().st_size
        output = folder / "repaired" / shard_name(shard, SHARDS) / "rollouts.jsonl"
        files = repair.Files(rollouts=source, output=output, texts=["extracted", "subset"])
        repair.run(files, repair.Settings(retry_invalid_judge_responses=False))
        shutil.rmtree(folder / "raw")
    keys = pl.DataFrame({"task": range(tasks)}).join(pl.DataFrame({"rollout": range(REPEATS)}), how="cross")
    keys.with_columns(
        shard=(pl.col("task") % SHARDS).cast(pl.Int32), server=pl.lit("server"), agent=pl.lit("agent")
    ).write_parquet(folder / "plan.parquet")
    counts = {"shards": SHARDS, "tasks": tasks, "rollouts": len(keys), "materialized_bytes": 0}
    plan = Plan(version=PLAN_VERSION, **counts, digest="0" * 32, environment="")
    (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
    (folder / "environment.json").write_text('{"version": 1, "kind": "topology", "identity": "", "servers": {}}')
    return written


def measure(folder):
    """Seconds and peak megabytes of the stage aggregate."""
    files = {name: folder / f"{name}.json" for name in ("plan", "coverage")}
    files |= {"environment-file": folder / "environment.json", "repaired": folder / "repaired"}
    files |= {"output": folder / "rollouts_aggregate_metrics.json", "environment": "embedded: {policy: scripted}"}
    words = [str(word) for name, value in files.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "rollmake", "aggregate", *words, "--metrics", METRICS]
    begin = time.monotonic()
    child = subprocess.Popen([*command, "--count-missing-rollouts-as-zero", "true"])
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"failed with status {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=700)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        begin = time.monotonic()
        written = prepare(folder, arguments.rollouts // REPEATS, arguments.bytes)
        print(
            f"{arguments.rollouts} rollouts, {written / 1e9:.2f} GB, written and repaired in {time.monotonic() - begin:.0f} s"
        )
        seconds, peak = measure(folder)
        size = (folder / "rollouts_aggregate_metrics.json").stat().st_size
    finally:
        shutil.rmtree(folder)
    print(
        f"aggregate: {seconds:.1f} s (at most {MOST_S}), peak {peak:.0f} MB (at most {MOST_MEGABYTES}),"
        f" {size / 1e6:.0f} MB written"
    )
    return int(seconds > MOST_S or peak > MOST_MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())

"""The local backend on a million rollouts: from repaired shards to the written metrics file, in seconds and megabytes.

Usage: python benchmarks/scale.py [--rollouts N] [--bytes N]    (10 GB with --bytes 10000; as much again while it works)
The shards are written with records of about `--bytes` bytes and repaired; then the stages coverage, aggregate and
concatenate run, each in an interpreter of its own. The first two read scores.parquet and the sidecars, never the
rollouts, so the size of a record changes nothing for them; repair and concatenate need no more memory for larger records.
Exits with 1 if coverage and aggregate, which waits for it, take more than 60 s together, or anything more than 3 GB.
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

SHARDS, REPEATS, FAILING = 16, 8, 0.01
MOST_S, MOST_MEGABYTES = 60, 3000
ANSWERS = ["four", "five", "six", None]
TEXTS = ("--texts", "extracted", "subset")
METRICS_NAME = "rollouts_aggregate_metrics.json"
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
    """A run up to its repaired shards; their bytes, and the peak megabytes of repairing one."""
    written, peak = 0, 0.0
    for shard in range(SHARDS):
        source = folder / "raw" / "rollouts.jsonl"
        write_shard(source, shard, tasks, "x" * max(0, size - 450))
        written += source.stat().st_size
        output = folder / "repaired" / shard_name(shard, SHARDS) / "rollouts.jsonl"
        peak = max(peak, stage("repair", "--rollouts", source, "--output", output, *TEXTS)[1])
        shutil.rmtree(folder / "raw")
    keys = pl.DataFrame({"task": range(tasks)}).join(pl.DataFrame({"rollout": range(REPEATS)}), how="cross")
    keys.with_columns(
        shard=(pl.col("task") % SHARDS).cast(pl.Int32), server=pl.lit("server"), agent=pl.lit("agent")
    ).write_parquet(folder / "plan.parquet")
    counts = {"shards": SHARDS, "tasks": tasks, "rollouts": len(keys), "materialized_bytes": 0}
    plan = Plan(version=PLAN_VERSION, **counts, digest="0" * 32, environment="")
    (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
    (folder / "environment.json").write_text('{"version": 1, "kind": "topology", "identity": "", "servers": {}}')
    return written, peak


def stage(name, *words):
    """Seconds and peak megabytes of a stage."""
    begin = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "rollmake", name, *map(str, words)])
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{name} failed with status {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def measure(folder):
    """Seconds and peak megabytes of each stage behind repair."""
    run = ["--plan", folder / "plan.json", "--repaired", folder / "repaired"]
    options = ["--metrics", METRICS, "--count-missing-rollouts-as-zero", "true"]
    servers = ["--environment-file", folder / "environment.json", "--environment", "embedded: {policy: scripted}"]
    return {
        "coverage": stage("coverage", *run, *options, "--output", folder / "coverage.json"),
        "aggregate": stage("aggregate", *run, *options, *servers, "--output", folder / METRICS_NAME),
        "concatenate": stage("concatenate", *run, "--output", folder / "rollouts.jsonl"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=700)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        begin = time.monotonic()
        written, peak = prepare(folder, arguments.rollouts // REPEATS, arguments.bytes)
        took = time.monotonic() - begin
        print(f"{arguments.rollouts} rollouts, {written / 1e9:.2f} GB, written and repaired in {took:.0f} s")
        print(f"repair: peak {peak:.0f} MB for a shard of {written / SHARDS / 1e6:.0f} MB")
        found = measure(folder)
        size = (folder / METRICS_NAME).stat().st_size
    finally:
        shutil.rmtree(folder)
    for name, (seconds, megabytes) in found.items():
        print(f"{name}: {seconds:.1f} s, peak {megabytes:.0f} MB")
    seconds = found["coverage"][0] + found["aggregate"][0]
    peak = max(peak, *(megabytes for _, megabytes in found.values()))
    print(f"{size / 1e6:.0f} MB of metrics in {seconds:.1f} s (at most {MOST_S})")
    print(f"peak {peak:.0f} MB (at most {MOST_MEGABYTES})")
    return int(seconds > MOST_S or peak > MOST_MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())

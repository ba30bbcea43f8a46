"""Repair and concatenate side by side with a plain loop that reads each line with orjson and writes it, in one run.

Usage: python benchmarks/repair.py [ROWS] [BYTES]    Exits with 1 if a ratio is below its goal.
"""

import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import msgspec
import orjson
import polars as pl

from rollmake.core.plan import PLAN_VERSION, Plan
from rollmake.core.shards import shard_name
from rollmake.stages import concatenate, repair

SHARDS, REPEATS, ROUNDS = 4, 4, 9
# CPU time of the plain loop over ours, the median of the rounds.
GOALS = {"repair": 0.5, "concatenate": 2.0}
PLAN = {"task": pl.Int64, "rollout": pl.Int64, "shard": pl.Int32, "server": pl.String}


def rollout(task: int, index: int, size: int) -> dict:
    """One record in the shape of a reply of several turns, of about `size` bytes."""
    turns = max(1, size // 700)
    output = [
        {
            "id": f"msg_{task}_{index}_{turn}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [
                {
                    "type": "output_text",
                    "text": "The answer is\n" + "seven words make a line é " * 20,
                    "annotations": [],
                }
            ],
        }
        for turn in range(turns)
    ]
    usage = {"input_tokens": 100 + task % 7, "output_tokens": 20 * turns, "total_tokens": 120 + 20 * turns}
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "question " * 20}], "temperature": 1.0},
        "response": {"id": f"resp_{task}_{index}", "output": output, "usage": usage, "object": "response"},
        "reward": float((task + index) % 2),
        "accuracy": (task + index) % 2,
        "extracted": "seven",
        "mask_sample": False,
        "_ng_task_index": task,
        "_ng_rollout_index": index,
        "agent_ref": {"name": "agent"},
        "_ng_environment_server": "server",
        "ng_perf": {"elapsed_s": 1.5, "queue_s": 0.1},
    }


def write_shards(folder: Path, rows: int, size: int) -> list[Path]:
    """Shards in the order of completion, which is not that of the tasks, and the plan that owes them."""
    keys = [(task, index) for task in range(rows // REPEATS) for index in range(REPEATS)]
    random.Random(0).shuffle(keys)
    paths = []
    for shard in range(SHARDS):
        path = folder / "shards" / shard_name(shard, SHARDS) / "rollouts.jsonl"
        path.parent.mkdir(parents=True)
        own = [key for key in keys if key[0] % SHARDS == shard]
        with path.open("wb") as file:
            file.writelines(orjson.dumps(rollout(*key, size)) + b"\n" for key in own)
        plan = path.with_name("rollouts_materialized_inputs.jsonl")
        plan.write_bytes(b"".join(b'{"_ng_task_index":%d,"_ng_rollout_index":%d}\n' % key for key in sorted(own)))
        paths.append(path)
    keys.sort()
    columns = {
        "task": [t for t, _ in keys],
        "rollout": [r for _, r in keys],
        "shard": [t % SHARDS for t, _ in keys],
        "server": "server",
    }
    pl.DataFrame(columns, schema=PLAN).write_parquet(folder / "plan.parquet")
    counts = {"shards": SHARDS, "tasks": rows // REPEATS, "rollouts": len(keys), "materialized_bytes": 0}
    plan = Plan(version=PLAN_VERSION, **counts, digest="0" * 32, environment="")
    (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
    return paths


def plain_loop(sources: list[Path], target: Path) -> None:
    """What anyone would write: read each line with orjson, write it."""
    with target.open("wb") as output:
        for source in sources:
            with source.open("rb") as file:
                for line in file:
                    orjson.loads(line)
                    output.write(line)


def repair_all(sources: list[Path], folder: Path) -> None:
    for source in sources:
        output = folder / "repaired" / source.parent.name / "rollouts.jsonl"
        repair.run(repair.Files(rollouts=source, output=output), repair.Settings(retry_invalid_judge_responses=False))


def concatenate_all(folder: Path) -> None:
    files = {"plan": folder / "plan.json", "repaired": folder / "repaired", "output": folder / "rollouts.jsonl"}
    concatenate.run(concatenate.Files(**files), concatenate.Settings())


def cpu_s(work, *arguments) -> float:
    """Seconds of CPU time: unlike time on the clock, they do not count what other programs take, or waiting for the disk."""
    begin = time.process_time()
    work(*arguments)
    return time.process_time() - begin


def measure(folder: Path, rows: int, size: int) -> list[dict[str, float]]:
    """The seconds that each takes, in rounds: one after the other in each, so that all see the same machine."""
    shards = write_shards(folder, rows, size)
    works = {
        "plain": lambda: plain_loop(shards, folder / "plain.jsonl"),
        "repair": lambda: repair_all(shards, folder),
        "concatenate": lambda: concatenate_all(folder),
    }
    rounds = [{name: cpu_s(work) for name, work in works.items()} for _ in range(ROUNDS + 1)]
    megabytes = sum(path.stat().st_size for path in shards) / 1e6
    print(f"{rows} rollouts of {1e6 * megabytes / rows:.0f} bytes in {SHARDS} shards, {ROUNDS} rounds")
    # The first warms caches up.
    return rounds[1:]


def main() -> int:
    given = [int(argument) for argument in sys.argv[1:]]
    rows, size = given + [20_000, 8_000][len(given) :]
    folder = Path(tempfile.mkdtemp())
    try:
        rounds = measure(folder, rows, size)
    finally:
        shutil.rmtree(folder)
    ratios = {name: median(one["plain"] / one[name] for one in rounds) for name in GOALS}
    for name, goal in GOALS.items():
        verdict = f"goal {goal}: " + ("ok" if ratios[name] >= goal else "NOT REACHED")
        took, plain = (min(one[key] for one in rounds) for key in (name, "plain"))
        print(f"{name}: {took:.2f} s, plain loop {plain:.2f} s, median ratio {ratios[name]:.2f}, {verdict}")
    return int(any(ratios[name] < goal for name, goal in GOALS.items()))


if __name__ == "__main__":
    sys.exit(main())

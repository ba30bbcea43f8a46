"""The default metrics of a run: NeMo Gym's own computation and ours, on the same rows, compared before they are timed.

`python benchmarks/aggregate.py --peer-python PYTHON` prints both times and their ratio; PYTHON is an interpreter that
has nemo-gym 0.7.0. Each side computes in an interpreter of its own, without reading or writing anything meanwhile.
Exits with 1 if the results differ by more than a relative 1e-9, or if ours is less than 100 times as fast.
"""

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TASKS, REPEATS = 8000, 4
WANTED = 100
SIDES = {
    "peer": ("nemo_gym.reward_profile", "compute_aggregate_metrics"),
    "ours": ("rollmake.core.metrics", "aggregate_metrics"),
}


def make_rows(seed=0):
    """Rollouts of a benchmark with a reward, two more fields and token usage, as they are sent for scoring."""
    chance = random.Random(seed)
    return [make_row(chance, task, repeat) for task in range(TASKS) for repeat in range(REPEATS)]


def make_row(chance, task, repeat):
    usage = {"input_tokens": chance.randint(1, 9999), "output_tokens": chance.randint(1, 9999)}
    usage["total_tokens"] = sum(usage.values())
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": repeat,
        "agent_ref": {"name": "agent"},
        "reward": float(chance.random() < 0.5),
        "correct": chance.random() < 0.5,
        "score": chance.random(),
        "response": {"usage": usage},
    }


def compute(side, runs, output):
    """Time one side in this interpreter: the fastest of some runs, in seconds; its result goes to `output`."""
    module, name = SIDES[side]
    function = getattr(__import__(module, fromlist=[name]), name)
    times = []
    for _ in range(runs):
        rows = make_rows()
        start = time.perf_counter()
        found = function(rows)
        times.append(time.perf_counter() - start)
    content = found if isinstance(found, dict) else found.model_dump()
    output.write_text(json.dumps({"seconds": min(times), "content": content}))


def run_side(python, side, runs, folder):
    output = folder / f"{side}.json"
    command = [python, __file__, "--side", side, "--runs", str(runs), "--output", str(output)]
    subprocess.run(command, check=True)
    return json.loads(output.read_text())


def difference(ours, peer, path=""):
    """Where two results differ, or None."""
    if isinstance(peer, dict) and isinstance(ours, dict):
        if ours.keys() != peer.keys():
            return f"{path}: {sorted(ours.keys() ^ peer.keys())[:5]}"
        return next(filter(None, (difference(ours[key], peer[key], f"{path}/{key}") for key in peer)), None)
    if isinstance(peer, list) and isinstance(ours, list) and len(ours) == len(peer):
        pairs = enumerate(zip(ours, peer, strict=True))
        return next(filter(None, (difference(a, b, f"{path}/{index}") for index, (a, b) in pairs)), None)
    if isinstance(peer, float) and isinstance(ours, int | float):
        return None if math.isclose(ours, peer, rel_tol=1e-9, abs_tol=1e-12) else f"{path}: {ours} and {peer}"
    return None if type(ours) is type(peer) and ours == peer else f"{path}: {ours!r:.80} and {peer!r:.80}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="interpreter that has nemo-gym 0.7.0")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        compute(arguments.side, arguments.runs, arguments.output)
        return 0
    if not arguments.peer_python:
        parser.error("--peer-python is needed")
    with tempfile.TemporaryDirectory() as folder:
        ours = run_side(sys.executable, "ours", 5, Path(folder))
        peer = run_side(arguments.peer_python, "peer", 1, Path(folder))
    if found := difference(ours["content"], peer["content"]):
        print(f"the results differ at {found}")
        return 1
    ratio = peer["seconds"] / ours["seconds"]
    print(
        f"{TASKS} tasks x {REPEATS} repeats: peer {peer['seconds']:.2f} s, ours {ours['seconds']:.3f} s, {ratio:.0f} times"
    )
    return 0 if ratio >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())

"""Materialize 250,000 tasks of 1 kB, 4 rollouts each, beside NeMo Gym: rates, their ratio and both peaks of memory.

Usage: materialize.py --peer-python PYTHON [--tasks N] [--rounds N]
Exits with 1 below twice the peer's rate or above 500 MB. `PYTHON` is the interpreter of an environment with nemo-gym 0.7.0.
Compared are whole processes, from start to end, as a user waits for them: both read the same file and write one line a
rollout; ours also checks, hashes and deals the rollouts, and syncs the file to disk. They take turns, and the best round
counts. Beside the seconds that passed stand those of the processor, which other processes of the machine disturb less.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
REPEATS, SHARDS, MEGABYTE = 4, 16, 1 << 20
LEAST_RATIO, MOST_MEGABYTES = 2.0, 500
AGENT = "question_answering_agent"
PEER = """
import sys, orjson
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
source, target, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
config = RolloutCollectionConfig(input_jsonl_fpath=source, output_jsonl_fpath=target + ".out", num_repeats=repeats)
rows = RolloutCollectionHelper()._preprocess_rows_from_config(config)
with open(target, "wb") as file:
    for row in rows:
        file.write(orjson.dumps(row) + b"\\n")
"""


def write_tasks(path, count):
    """`count` tasks of about 1 kB with different questions, written as Python's json module writes them."""
    with path.open("w") as file:
        for task in range(count):
            question = f"question {task}: " + "lorem ipsum dolor sit amet " * 33
            params = {"input": [{"role": "user", "content": question}]}
            file.write(
                json.dumps({"responses_create_params": params, "agent_ref": {"name": AGENT}, "answer": str(task)})
                + "\n"
            )


def measure(command, environment):
    """Seconds, seconds of processor and peak megabytes of a child process. Its output goes to our stderr."""
    start = time.monotonic()
    child = subprocess.Popen(command, env=environment, stdout=sys.stderr)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"failed with status {os.waitstatus_to_exitcode(status)}: {command[:4]}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def ours(folder, tasks):
    """The commands of the stages environment and materialize."""
    stage = [sys.executable, "-m", "rollmake"]
    embedded = ["--environment", "embedded: {policy: scripted}", "--output", str(folder / "environment.json")]
    subprocess.run([*stage, "environment", *embedded], check=True)
    files = ["--input", str(tasks), "--environment-file", str(folder / "environment.json")]
    files += ["--output", str(folder / "rows.jsonl"), "--plan", str(folder / "plan.json")]
    return [*stage, "materialize", *files, "--num-repeats", str(REPEATS), "--shards", str(SHARDS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--tasks", type=int, default=250_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tasks(folder / "tasks.jsonl", arguments.tasks)
        command = ours(folder, folder / "tasks.jsonl")
        peer = [
            arguments.peer_python,
            "-c",
            PEER,
            str(folder / "tasks.jsonl"),
            str(folder / "peer.jsonl"),
            str(REPEATS),
        ]
        without_ours = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        rounds = [(measure(command, os.environ), measure(peer, without_ours)) for _ in range(arguments.rounds)]
    rollouts = arguments.tasks * REPEATS
    best = {}
    for name, runs in zip(("rollmake", "nemo-gym"), zip(*rounds, strict=True), strict=True):
        seconds, busy_s, peaks = zip(*runs, strict=True)
        best[name] = min(seconds), min(busy_s), max(peaks)
        rate = rollouts / min(seconds)
        print(
            f"{name} {rate:12,.0f} rollouts/s {min(seconds):7.1f} s {min(busy_s):7.1f} s CPU   peak {max(peaks):6.0f} MB"
        )
    (our_s, our_busy_s, our_peak), (peer_s, peer_busy_s, _) = best.values()
    print(f"ratio    {peer_s / our_s:6.2f} of the rates (at least {LEAST_RATIO})")
    print(f"         {peer_busy_s / our_busy_s:6.2f} of the processor's seconds")
    print(f"peak     {our_peak:6.0f} MB (at most {MOST_MEGABYTES})")
    sys.exit(peer_s / our_s < LEAST_RATIO or our_peak > MOST_MEGABYTES)


if __name__ == "__main__":
    main()

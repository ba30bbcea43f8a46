"""Rollouts a second in a Python program: `rollmake.run_examples`, the stage collect and the peer's `run_examples`.

`python -m benchmarks.library --peer-python PYTHON` measures replies of 2.6 kB, 100 kB and 1 MB from the constant server
with 256 requests in flight, as `benchmarks.dispatch` does: each client runs twice, and the difference is the rate without
its start. It fails below the bounds of `benchmarks.dispatch` against the peer.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.constant import AGENT, constant_server
from benchmarks.dispatch import IN_FLIGHT, SIZES, ours, timed

ROOT = Path(__file__).resolve().parent.parent
PEER = f"""
import asyncio, json, sys
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.rollout_collection import RolloutCollectionHelper

async def main(tasks, host, port):
    rows = [json.loads(line) for line in open(tasks)]
    where = BaseServerConfig(host=host, port=int(port))
    helper, semaphore = RolloutCollectionHelper(), asyncio.Semaphore({IN_FLIGHT})
    for future in helper.run_examples(rows, head_server_config=where, semaphore=semaphore):
        row, result = await future
        assert result["reward"] == 1.0

asyncio.run(main(*sys.argv[1:]))
"""


def main() -> int:
    """Print a line a size and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peer-python", type=Path, help="a Python with the peer installed; without it nothing can fail"
    )
    parser.add_argument("--rounds", type=int, default=3, help="pairs of runs of each client; the medians are compared")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="sizes of the reply")
    options = parser.parse_args()
    failed = False
    for size in options.sizes:
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as folder,
            constant_server(Path(folder) / "server", size) as (_, head),
        ):
            failed |= not compare(Path(folder), size, head, options)
    return int(failed)


def compare(folder: Path, size: int, head: str, options: argparse.Namespace) -> bool:
    """Measure one size; whether its bound holds."""
    few, many, bound = SIZES[size]
    clients: dict[str, Callable[[Path, int], None]] = {
        "library": lambda work, count: library(work, head),
        "collect": lambda work, count: ours(work, count, head),
    }
    if options.peer_python:
        clients["peer"] = lambda work, count: peer(work, head, options.peer_python)
    rates: dict[str, list[float]] = {name: [] for name in clients}
    for turn in range(options.rounds):
        for name, client in clients.items():
            seconds = [timed(client, folder / f"{name}-{turn}-{count}", count) for count in (few, many)]
            rates[name].append((many - few) / max(seconds[1] - seconds[0], 1e-9))
    median = {name: statistics.median(values) for name, values in rates.items()}
    ratio = median["library"] / median["peer"] if options.peer_python else bound
    print(f"{size:>9} bytes: " + ", ".join(f"{name} {rate:,.0f}/s" for name, rate in median.items()), flush=True)
    if options.peer_python:
        print(
            f"{'':>9}   {ratio:.2f} times the peer (at least {bound}){'' if ratio >= bound else '  BELOW'}", flush=True
        )
    return ratio >= bound


def library(work: Path, head: str) -> None:
    """`run_examples` over the tasks, in a process of its own."""
    script = "from benchmarks.library import take_all; import sys; take_all(sys.argv[1], sys.argv[2])"
    subprocess.run([sys.executable, "-c", script, str(work / "tasks.jsonl"), head], check=True, cwd=ROOT)


def take_all(tasks: str, head: str) -> None:
    """Take every rollout of the tasks and look at its reward."""
    import rollmake

    async def take() -> None:
        rows = [json.loads(line) for line in Path(tasks).read_text().splitlines()]
        assert rows[0]["agent_ref"]["name"] == AGENT
        async for _, result in rollmake.run_examples(rows, head_server=head, num_samples_in_parallel=IN_FLIGHT):
            assert result["reward"] == 1.0

    asyncio.run(take())


def peer(work: Path, head: str, python: Path) -> None:
    """The peer's function of the same name."""
    host, port = head.removeprefix("http://").split(":")
    command = [str(python), "-c", PEER, str(work / "tasks.jsonl"), host, port]
    subprocess.run(command, check=True, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())

"""Rollouts a second in a Python program: `rollmake.run_examples`, the stage collect and the peer's `run_examples`.

`python -m benchmarks.library --peer-python PYTHON` measures replies of 2.6 kB, 100 kB and 1 MB from the constant server
with 256 requests in flight, as `benchmarks.dispatch` does: each client runs twice, and the difference is the rate without
its start. It fails if the library is slower than the peer.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.constant import AGENT
from benchmarks.dispatch import IN_FLIGHT, Client, each_size, holds, measured, ours

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
    return each_size(compare, __doc__)


def compare(folder: Path, size: int, addresses: tuple[str, str], options: argparse.Namespace) -> bool:
    """Measure one size; whether its bound holds."""
    head = addresses[1]
    clients: dict[str, Client] = {
        "library": lambda work, count: library(work, head),
        "collect": lambda work, count: ours(work, count, head),
    }
    if options.peer_python:
        clients["peer"] = lambda work, count: peer(work, head, options.peer_python)
    rates = measured(clients, folder, size, options.rounds)
    return not options.peer_python or holds("times the peer", rates["library"] / rates["peer"], 1.0)


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

"""Dispatch rate: the peer, rollmake and a bare client against the same constant server, measured in one run.

`python -m benchmarks.dispatch --peer-python PYTHON` measures replies of 2.6 kB, 100 kB and 1 MB with 256 requests in
flight. Each client runs twice, with few and with many rollouts; the difference is the rate without its start. It fails
below the bounds: 2, 2 and 1.2 times the peer, and 70 % of the bare client with the same fsync interval.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.constant import AGENT, constant_server

IN_FLIGHT = 256
# Size of the reply (bytes) -> rollouts of the short and of the long run, and the bound against the peer.
SIZES = {2_600: (4_000, 24_000, 2.0), 100_000: (1_000, 9_000, 2.0), 1_000_000: (256, 1_792, 1.2)}
BARE_BOUND = 0.7
FSYNC_INTERVAL_S = 1.0


Client = Callable[[Path, int], None]
# Folder, size of the reply, addresses of the server and of its head, options -> whether all bounds hold.
Compare = Callable[[Path, int, tuple[str, str], argparse.Namespace], bool]


def main() -> int:
    """Print a table and return the exit code."""
    return each_size(compare, __doc__)


def each_size(compare: Compare, description: str | None) -> int:
    """Call `compare` for each size that the command line asks for, beside a constant server; returns the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--peer-python", type=Path, help="a Python with the peer installed; without it nobody is beside"
    )
    parser.add_argument(
        "--rounds", type=int, default=4, help="pairs of runs of each client; all of them count together"
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="sizes of the reply")
    options = parser.parse_args()
    failed = False
    for size in options.sizes:
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as folder,
            constant_server(Path(folder) / "server", size) as addresses,
        ):
            failed |= not compare(Path(folder), size, addresses, options)
    return int(failed)


def compare(folder: Path, size: int, addresses: tuple[str, str], options: argparse.Namespace) -> bool:
    """Measure one size; whether all bounds hold."""
    clients: dict[str, Client] = {
        "bare": lambda work, count: bare(work, count, addresses[0]),
        "rollmake": lambda work, count: ours(work, count, addresses[1]),
    }
    if options.peer_python:
        clients["peer"] = lambda work, count: peer(work, count, addresses[1], options.peer_python)
    rates = measured(clients, folder, size, options.rounds)
    checks = {"of the bare client": (rates["rollmake"] / rates["bare"], BARE_BOUND)}
    if options.peer_python:
        checks["times the peer"] = (rates["rollmake"] / rates["peer"], SIZES[size][2])
    held = [holds(what, ratio, least) for what, (ratio, least) in checks.items()]
    return all(held)


def measured(clients: Mapping[str, Client], folder: Path, size: int, rounds: int) -> dict[str, float]:
    """Rollouts a second of each client in `rounds` in which they take turns; printed.

    All rounds count together, so that no client gains by a start that was slow once.
    """
    few, many, _ = SIZES[size]
    seconds = dict.fromkeys(clients, 0.0)
    for turn in range(rounds):
        for name, client in clients.items():
            short, long = (timed(client, folder / f"{name}-{turn}-{count}", count) for count in (few, many))
            seconds[name] += long - short
    rates = {name: rounds * (many - few) / max(total, 1e-9) for name, total in seconds.items()}
    print(f"{size:>9} bytes: " + ", ".join(f"{name} {rate:,.0f}/s" for name, rate in rates.items()), flush=True)
    return rates


def holds(what: str, ratio: float, least: float) -> bool:
    """Print a ratio beside its bound; whether the bound holds."""
    print(f"{'':>9}   {ratio:.2f} {what} (at least {least}){'' if ratio >= least else '  BELOW'}", flush=True)
    return ratio >= least


def timed(client: Client, work: Path, count: int) -> float:
    """Seconds that a client takes for `count` rollouts."""
    work.mkdir()
    write_tasks(work / "tasks.jsonl", count)
    start = time.perf_counter()
    client(work, count)
    seconds = time.perf_counter() - start
    for path in work.rglob("*.jsonl"):
        path.unlink()
    return seconds


def write_tasks(path: Path, count: int) -> None:
    """`count` small tasks."""
    with path.open("w") as file:
        for number in range(count):
            params = {"input": [{"role": "user", "content": f"question {number} " + "x" * 200}]}
            file.write(json.dumps({"responses_create_params": params, "agent_ref": {"name": AGENT}}) + "\n")


def ours(work: Path, count: int, head: str) -> None:
    """The stages environment, materialize and collect, as the rules call them."""
    environment = json.dumps({"head_server": head})
    run(["environment", "--environment", environment, "--output", work / "environment.json"])
    words = ["materialize", "--input", work / "tasks.jsonl", "--environment-file", work / "environment.json"]
    run([*words, "--output", work / "rollouts_materialized_inputs.jsonl", "--plan", work / "plan.json"])
    words = ["collect", "--plan", work / "plan.json", "--shard", "0000-of-0001", "--journal", work / "journal"]
    words += ["--output", work / "shard" / "rollouts.jsonl", "--environment", environment]
    run([*words, "--num-samples-in-parallel", IN_FLIGHT, "--fsync-interval-s", FSYNC_INTERVAL_S])


def run(words: list[object]) -> None:
    """One subcommand of rollmake."""
    command = [sys.executable, "-m", "rollmake", *(str(word) for word in words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def peer(work: Path, count: int, head: str, python: Path) -> None:
    """The peer's own command."""
    host, port = head.removeprefix("http://").split(":")
    command = [python.parent / "gym", "eval", "run", "--no-serve", "--input", work / "tasks.jsonl"]
    command += ["--output", work / "rollouts.jsonl", "--concurrency", IN_FLIGHT, "--disable-aggregation"]
    command += [f"+head_server.host={host}", f"+head_server.port={port}"]
    subprocess.run(
        [str(word) for word in command], check=True, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def bare(work: Path, count: int, server: str) -> None:
    """A client that only posts the rows and appends what comes back, in a process of its own."""
    script = (
        "from benchmarks.dispatch import bare_client; import sys; bare_client(sys.argv[1], sys.argv[2], sys.argv[3])"
    )
    command = [sys.executable, "-c", script, str(work / "tasks.jsonl"), str(work / "bare.jsonl"), server]
    subprocess.run(command, check=True, cwd=Path(__file__).resolve().parent.parent)


def bare_client(tasks: str, output: str, server: str) -> None:
    """Post every line of `tasks` and append every reply to `output`."""
    import uvloop

    uvloop.run(post_all(Path(tasks), Path(output), f"{server}/run"))


async def post_all(tasks: Path, output: Path, url: str) -> None:
    """256 workers over one iterator of lines, as little else as possible."""
    import aiohttp

    lines = iter(tasks.read_bytes().splitlines())
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    headers = {"Content-Type": "application/json"}

    async def work(session: aiohttp.ClientSession) -> None:
        for line in lines:
            async with session.post(url, data=line, headers=headers) as response:
                os.write(descriptor, await response.read() + b"\n")

    async def sync() -> None:
        while True:
            await asyncio.sleep(FSYNC_INTERVAL_S)
            await asyncio.to_thread(os.fsync, descriptor)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        syncing = asyncio.create_task(sync())
        await asyncio.gather(*(work(session) for _ in range(IN_FLIGHT)))
        syncing.cancel()
    os.fsync(descriptor)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())

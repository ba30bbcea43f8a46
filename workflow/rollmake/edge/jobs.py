"""jobs.jsonl of a journal: which jobs wrote to it, when, and how they ended. It survives every kill."""

import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from rollmake.edge.lock import Holder

KILLED = "killed"


class Job(msgspec.Struct, kw_only=True):
    """One job of a shard; times are ISO 8601 in UTC. `end` is `killed` until the job says otherwise."""

    host: str
    pid: int
    job_id: str | None
    started: str
    ended: str | None = None
    end: str = KILLED
    requests: int = 0


def start(path: Path, holder: Holder) -> Job:
    """Note that a job begins."""
    job = Job(host=holder.host, pid=holder.pid, job_id=holder.job_id, started=now())
    _append(path, job)
    return job


def finish(path: Path, job: Job, end: str, requests: int) -> None:
    """Note how a job ends."""
    job.ended, job.end, job.requests = now(), end, requests
    _append(path, job)


def read(path: Path) -> list[Job]:
    """All jobs in order of their start, each as it was last noted; a torn last line is passed over."""
    jobs: dict[tuple[str, int, str], Job] = {}
    for line in path.read_bytes().split(b"\n") if path.exists() else []:
        try:
            job = msgspec.json.decode(line, type=Job)
        except msgspec.MsgspecError:
            continue
        jobs[job.host, job.pid, job.started] = job
    return list(jobs.values())


def now() -> str:
    """The time, ISO 8601 in UTC to the microsecond."""
    return iso(time.time_ns())


def iso(nanoseconds: int) -> str:
    """A time since the epoch, ISO 8601 in UTC to the microsecond."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _append(path: Path, job: Job) -> None:
    # The leading newline ends what a killed job may have left unfinished.
    with path.open("ab") as file:
        file.write(b"\n" + msgspec.json.encode(job) + b"\n")

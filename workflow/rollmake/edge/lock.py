"""An exclusive lock on a journal that says who holds it, and that dies with its holder."""

import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

log = logging.getLogger(__name__)
JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock: host, process id and the cluster's job id, if there is one."""

    host: str
    pid: int
    job_id: str | None = None

    def __str__(self) -> str:
        job = f", job {self.job_id}" if self.job_id else ""
        return f"process {self.pid} on {self.host}{job}"


def this_process() -> Holder:
    """The holder that this process is."""
    job = next((os.environ[name] for name in JOB_VARIABLES if os.environ.get(name)), None)
    return Holder(socket.gethostname(), os.getpid(), job)


@contextmanager
def exclusive(path: Path, *, poll_s: float = 0.5, sleep: Callable[[float], None] = time.sleep) -> Iterator[Holder]:
    """Hold the lock file `path`; wait for whoever holds it, saying once for whom. The file stays, empty when free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire(path, poll_s, sleep)
    holder = this_process()
    try:
        os.pwrite(descriptor, msgspec.json.encode(holder), 0)
        yield holder
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _acquire(path: Path, poll_s: float, sleep: Callable[[float], None]) -> int:
    announced = None
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = _holder(descriptor)
            os.close(descriptor)
            if other != announced:
                log.warning("waiting for %s, which holds %s", other or "another process", path)
                announced = other
            sleep(poll_s)
            continue
        os.ftruncate(descriptor, 0)
        return descriptor


def _holder(descriptor: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except msgspec.MsgspecError:
        return None

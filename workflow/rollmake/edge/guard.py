"""`python -m rollmake.edge.guard COMMAND...` runs a command for as long as its own standard input stays open.

Whoever starts it keeps the other end of that pipe. When it is closed, on purpose or because its owner was killed, the
command and everything it started are ended: SIGTERM, and SIGKILL after five seconds. The guard itself ignores the
signals that end a job, so that servers outlive them while the job still needs them.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

GRACE_S = 5.0
_TICK_S = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str], grace_s: float = GRACE_S) -> int:
    """Run `command` until it ends or standard input is closed; its exit status, negative for a signal."""
    for number in _SIGNALS:
        # A handler and not SIG_IGN, which the command would inherit.
        signal.signal(number, lambda *_: None)
    adopt_orphans()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    while not select.select([0], [], [], _TICK_S)[0] and child.poll() is None:
        pass
    stop(child, grace_s)
    return child.returncode


def adopt_orphans() -> None:
    """On Linux, become the parent of what the command leaves behind, so that it can be found and ended."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stop(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """End the command's process group and every orphan of it; returns when none is left."""
    deadline, asked = time.monotonic() + grace_s, set[int]()
    _signal_group(child.pid, signal.SIGTERM)
    while not reap(child):
        late = time.monotonic() > deadline
        if late:
            _signal_group(child.pid, signal.SIGKILL)
        for pid in children() - (set() if late else asked):
            asked.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(_TICK_S)
    _signal_group(child.pid, signal.SIGKILL)


def reap(child: subprocess.Popen[bytes]) -> bool:
    """Collect the children that have ended; whether none is left."""
    child.poll()
    with suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            if pid == child.pid:
                child.poll()
        return False
    return child.poll() is not None


def children() -> set[int]:
    """The pids of this process's children, where the system tells."""
    with suppress(OSError):
        return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    return set()


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

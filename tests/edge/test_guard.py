"""The guard: a command lives while the pipe to it is open, and nothing of it lives longer."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

GUARD = ("-m", "rollmake.edge.guard")
IMPATIENT = ("-c", "import sys; from rollmake.edge.guard import main; sys.exit(main(sys.argv[1:], grace_s=0.3))")
# A command that says when it is ready, and whose children have left its session and ignore SIGTERM.
STUBBORN = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' & echo $$; wait; wait"


@contextmanager
def start(*command, guard=GUARD):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, *guard, *command], text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def killed(pids):
    """Whatever a test finds, these processes do not outlive it."""
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids, within_s=20.0):
    deadline = time.monotonic() + within_s
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(("command", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 256 - 9)])
def test_the_status_of_a_command_is_passed_on(command, status):
    with start("sh", "-c", command) as guard:
        assert guard.wait(20) == status


def test_closing_the_pipe_ends_the_command():
    with start("sh", "-c", "echo $$; exec sleep 600") as guard:
        pid = int(guard.stdout.readline())
        assert alive(pid)
        guard.stdin.close()
        assert guard.wait(20) == 256 - signal.SIGTERM
        assert not alive(pid)


def test_children_that_left_the_session_and_ignore_sigterm_end_too():
    with start("sh", "-c", STUBBORN, guard=IMPATIENT) as guard:
        pids = [int(guard.stdout.readline()) for _ in range(2)]
        with killed(pids):
            assert all(map(alive, pids))
            guard.stdin.close()
            guard.wait(20)
            assert not any(map(alive, pids))


def test_what_a_command_leaves_behind_ends_with_it():
    with start("sh", "-c", "sleep 600 & echo $!; setsid sleep 600 & echo $!") as guard:
        pids = [int(guard.stdout.readline()) for _ in range(2)]
        with killed(pids):
            assert guard.wait(20) == 0
            assert gone(pids)


def test_signals_that_end_a_job_do_not_end_the_guard_but_reach_the_command_unchanged():
    with start("sh", "-c", "echo $$; exec sleep 600") as guard:
        pid = int(guard.stdout.readline())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            guard.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            guard.wait(0.5)
        assert alive(pid)
        os.kill(pid, signal.SIGTERM)
        assert guard.wait(20) == 256 - signal.SIGTERM

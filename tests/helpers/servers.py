"""Start and stop the misbehaving server of `helpers.chaos`, and read its log."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


def wait_until(condition, what, timeout_s=60.0):
    """Poll until `condition()` is true; a test never depends on how long that takes."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


class ChaosServer:
    """One server process; stopped and started again, it keeps its address and its log."""

    def __init__(self, folder):
        self.address_file, self.log_file = folder / "chaos.address", folder / "chaos.log"
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "helpers.chaos", str(self.address_file), str(self.log_file)]
        known = self.address_file.read_text() if self.address_file.exists() else None
        self.process = subprocess.Popen(command, cwd=TESTS, env={**os.environ, "PYTHONPATH": str(TESTS)})
        if known is None:
            wait_until(self.address_file.exists, "the server's address")
        return self

    def stop(self, number=signal.SIGKILL):
        if self.process:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    @property
    def address(self):
        return self.address_file.read_text()

    def log(self):
        text = self.log_file.read_text() if self.log_file.exists() else ""
        # The server may be about to write the last line.
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def arrived(self):
        """How often each (task, rollout, attempt) was asked for."""
        return Counter((e["task"], e["rollout"], e["attempt"]) for e in self.log() if e["event"] == "arrived")

    def answers(self):
        """What was answered in whole: (task, rollout, attempt) -> bodies in order."""
        bodies = {}
        for e in self.log():
            if e["event"] == "answered":
                bodies.setdefault((e["task"], e["rollout"], e["attempt"]), []).append(base64.b64decode(e["body"]))
        return bodies


@contextmanager
def chaos_server(folder):
    """A running server; it is gone when the block ends."""
    server = ChaosServer(folder).start()
    try:
        yield server
    finally:
        server.stop()

"""One writer at a time; a second waits, saying for whom; a killed one frees the lock."""

import logging
import os
import subprocess
import sys

from rollmake.edge.lock import Holder, exclusive

HOLD = """
import sys, time
from pathlib import Path
from rollmake.edge.lock import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def hold(path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_the_lock_names_its_holder_while_it_is_held(tmp_path):
    path = tmp_path / "sub" / "x.lock"
    with exclusive(path) as holder:
        assert holder.pid == os.getpid()
        assert str(os.getpid()) in path.read_text()
    assert path.read_bytes() == b""
    assert str(Holder("node1", 7, "42")) == "process 7 on node1, job 42"


def test_a_second_waits_for_the_first_by_name_and_gets_in_when_it_is_killed(tmp_path, caplog):
    path = tmp_path / "x.lock"
    first = hold(path)
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            first.kill()
            first.wait()

    try:
        with caplog.at_level(logging.WARNING), exclusive(path, sleep=sleep):
            assert len(waits) >= 3
            assert str(os.getpid()) in path.read_text()
    finally:
        first.kill()
        first.wait()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert f"waiting for process {first.pid} on" in said[0]

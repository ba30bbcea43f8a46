"""A disk that fills up in the middle of a run, and is emptied again: nothing that was answered is lost."""

import subprocess

import pytest

from helpers.chaos import row
from helpers.runs import Run, json_lines
from helpers.servers import chaos_server, wait_until


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte; mounting it needs root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder):
    """Leave no room on the disk; returns the file to remove."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return ballast


def test_answers_are_held_until_there_is_room_again(tmp_path, small_disk):
    with chaos_server(tmp_path) as server:
        run = Run(small_disk / "run", server.address, [row(["slow:0.1"], i) for i in range(60)])
        collector = run.start(num_samples_in_parallel=4, progress_interval_s=0.5)
        journal = run.journal() / "rollouts.jsonl"
        wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 4, "rows in the journal")
        ballast = fill(small_disk)
        said = [next(collector.stderr)]
        while "holding on to what was answered" not in said[-1]:
            said.append(next(collector.stderr))
        assert collector.poll() is None
        rows = journal.read_bytes()
        assert rows.endswith(b"\n"), "no half line is left"
        ballast.unlink()
        rest = collector.communicate(timeout=60)[1]
        assert collector.returncode == 0, rest
        assert sorted(r["_ng_task_index"] for r in run.rollouts()) == list(range(60))
        assert sum(server.arrived().values()) == 60, "what was answered was not asked for again"


def test_a_collector_that_starts_on_a_full_disk_says_so_and_goes_on_when_there_is_room(tmp_path, small_disk, capfd):
    with chaos_server(tmp_path) as server:
        run = Run(small_disk / "run", server.address, [row(number=i) for i in range(5)])
        ballast = fill(small_disk)
        assert run.collect() == 1
        assert "No space left on device" in capfd.readouterr().err
        ballast.unlink()
        assert run.collect() == 0
        assert len(json_lines(run.output())) == 5

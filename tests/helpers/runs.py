"""Small runs against the misbehaving server, by the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import orjson

from rollmake.cli import main


def json_lines(path):
    """The rows of a JSONL file, by the strict reader."""
    return [orjson.loads(line) for line in Path(path).read_bytes().splitlines()]


def rollmake(*words):
    """Run `rollmake` in this process; returns its exit code."""
    return main([str(word) for word in words])


class Run:
    """One run in `folder`, prepared up to its plan, against the head server at `address`."""

    def __init__(self, folder, address, rows, *, repeats=1, shards=1):
        self.folder = folder
        self.environment = json.dumps({"head_server": address})
        self.tasks = folder / "tasks.jsonl"
        self.plan(rows, repeats=repeats, shards=shards)

    def plan(self, rows, *, repeats=1, shards=1):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
        if not (self.folder / "environment.json").exists():
            assert (
                rollmake("environment", "--environment", self.environment, "--output", self.folder / "environment.json")
                == 0
            )
        words = ["--input", self.tasks, "--environment-file", self.folder / "environment.json"]
        words += ["--output", self.folder / "rollouts_materialized_inputs.jsonl", "--plan", self.folder / "plan.json"]
        assert rollmake("materialize", *words, "--num-repeats", repeats, "--shards", shards) == 0

    def words(self, shard="0000-of-0001", **options):
        flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        words = ["collect", "--plan", self.folder / "plan.json", "--shard", shard, "--journal", self.folder / "journal"]
        words += ["--output", self.output(shard), "--environment", self.environment, *flags]
        return [str(word) for word in words]

    def collect(self, shard="0000-of-0001", **options):
        return rollmake(*self.words(shard, **options))

    def start(self, shard="0000-of-0001", **options):
        """A collector in a process group of its own."""
        command = [sys.executable, "-m", "rollmake", *self.words(shard, **options)]
        return subprocess.Popen(command, env=os.environ, start_new_session=True, stderr=subprocess.PIPE, text=True)

    def output(self, shard="0000-of-0001"):
        return self.folder / "shards" / shard / "rollouts.jsonl"

    def journal(self, shard="0000-of-0001"):
        return self.folder / "journal" / shard

    def rollouts(self, shard="0000-of-0001"):
        return json_lines(self.output(shard))

    def failures(self, shard="0000-of-0001"):
        return json_lines(self.output(shard).with_name("rollouts_failures.jsonl"))

    def collection(self, shard="0000-of-0001"):
        return json.loads(self.output(shard).with_name("collection.json").read_bytes())

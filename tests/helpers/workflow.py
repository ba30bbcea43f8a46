"""Real Snakemake in a folder of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent


class Workflow:
    """The project's Snakefile, run in `folder` with a config of its own."""

    def __init__(self, folder, **config):
        self.folder = folder
        self.results = folder / "results"
        folder.mkdir(parents=True, exist_ok=True)
        self.configure(**config)

    def configure(self, **config):
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))

    def command(self, *words):
        base = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--configfile", "config.yaml"]
        return [str(word) for word in (*base, "--cores", "2", *words)]

    def run(self, *words):
        """Run it to its end; returns the finished process with what it said."""
        return subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def start(self, *words):
        """Start it as the leader of a process group."""
        out = (self.folder / "snakemake.out").open("a")
        return subprocess.Popen(
            self.command(*words), cwd=self.folder, env=environment(), stdout=out, stderr=out, start_new_session=True
        )

    def planned(self, *words):
        """How many jobs of each rule a dry run plans; empty if nothing is to be done."""
        done = self.run("-n", *words)
        assert done.returncode == 0, done.stderr
        text = done.stdout + done.stderr
        if "Nothing to be done" in text:
            return {}
        table = re.search(r"^-+  -+\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE)[1]
        jobs = dict(line.split() for line in table.splitlines())
        return {rule: int(count) for rule, count in jobs.items() if rule not in ("total", "all")}


def environment():
    """The environment of a person who has activated the environment of this interpreter."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

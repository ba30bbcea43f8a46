# What all rules share: the checked config, the names of files, and the options of a run as flags of its commands.
from pathlib import Path
from snakemake.exceptions import WorkflowError
from rollmake.core.deadline import budget_s
from rollmake.core.errors import RollmakeError
from rollmake.core.shards import shard_names
from rollmake.edge.settings import as_text, flags, load_config

try:
    CONFIG = load_config(config, [Path(file) for file in workflow.configfiles])
except RollmakeError as error:
    raise WorkflowError(f"config: {error}") from None

RESULTS = CONFIG["results"]
RUNS = CONFIG["runs"]


wildcard_constraints:
    run=r"[A-Za-z0-9][A-Za-z0-9._-]*",
    shard=r"[0-9]+-of-[0-9]+",


def below(path):
    """A file below the folder of a run, with the wildcard `run`."""
    return f"{RESULTS}/{{run}}/{path}"


def final_targets():
    """What `snakemake` builds when no target is named."""
    names = ["rollouts.jsonl", "rollouts_aggregate_metrics.json", "coverage.json", "report.html"]
    return [f"{RESULTS}/{run}/{name}" for run in RUNS for name in names]


def per_shard(path):
    """An input function: the file `path` of each shard of a run."""

    def inputs(wildcards):
        shards = shard_names(RUNS[wildcards.run]["shards"])
        return [f"{RESULTS}/{wildcards.run}/{path.format(shard=shard)}" for shard in shards]

    return inputs


def topology_file(wildcards):
    """The topology file of a run's environment, if it has one."""
    return RUNS[wildcards.run]["environment"].get("topology", [])


def input_files(wildcards):
    """The tasks of a run."""
    files = RUNS[wildcards.run]["input"]
    return [files] if isinstance(files, str) else files


def environment(wildcards):
    """The environment of a run as one word of a command; a change of it is noticed by the stage `environment` alone."""
    return as_text(RUNS[wildcards.run]["environment"])


def untracked_environment(wildcards, resources):
    """The same, where a change must not rerun anything: parameters that depend on resources are not tracked."""
    return environment(wildcards)


def result_flags(stage):
    """The options of a run that change the results of `stage`: a change of one of them reruns it."""

    def options(wildcards):
        return flags(RUNS[wildcards.run], stage, result=True)

    return options


def tuning_flags(stage):
    """The options that change how `stage` works, but not its results. Depending on resources, they are not tracked."""

    def options(wildcards, resources):
        run = dict(RUNS[wildcards.run])
        budget, runtime_min = run["dispatch_budget_s"], resources.get("runtime")
        run["dispatch_budget_s"] = budget_s(budget, runtime_min, run["grace_s"])
        return flags(run, stage, result=False)

    return options

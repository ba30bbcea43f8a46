# What all rules share: the checked config, the names of files, and the options of a run as flags of its commands.
import re
import shlex
from functools import cache
from pathlib import Path
from snakemake.exceptions import WorkflowError
from rollmake.core.contract import failures_path, materialized_path
from rollmake.core.deadline import budget_s
from rollmake.core.errors import RollmakeError
from rollmake.core.shards import parse_shard, shard_names
from rollmake.edge.commands import put_in_front
from rollmake.edge.globs import external_shards, require_shards
from rollmake.edge.polling import steady_polling
from rollmake.edge.settings import as_text, flags, load_config
from rollmake.edge.tasks import find, found_files

try:
    CONFIG = load_config(config, [Path(file) for file in workflow.configfiles])
except RollmakeError as error:
    raise WorkflowError(f"{', '.join(map(str, workflow.configfiles))}: {error}") from None

# What the SLURM executor calls: its `squeue` says that pre-emption cancelled a job in words that the executor understands.
put_in_front(Path(workflow.basedir, "profiles/slurm/bin"))
steady_polling()

RESULTS = CONFIG["results"]
RUNS = CONFIG["runs"]
JOB = CONFIG["job"]
COMPARED = [tuple(pair) for pair in CONFIG["compare"]]
# The rollouts files of each run that something else collected, in the order of its shards.
EXTERNAL = {
    run: external_shards(options["input_glob"], Path(RESULTS, run))
    for run, options in RUNS.items()
    if options["input_glob"] is not None
}


def any_of(runs):
    """What the wildcard `run` may be in a rule that is for `runs` only."""
    return "|".join(map(re.escape, runs)) or r"[^\s\S]"


wildcard_constraints:
    run=any_of(RUNS),
    shard=r"[0-9]+-of-[0-9]+",


def below(path):
    """A file below the folder of a run, with the wildcard `run`."""
    return f"{RESULTS}/{{run}}/{path}"


def merged(run):
    """The file with all shards of a run, unless it goes without."""
    return ["rollouts.jsonl"] if RUNS[run]["merge_shards"] or run not in EXTERNAL else []


def scored(run):
    """The files with the scores of a run, unless it goes without."""
    return [] if RUNS[run]["disable_aggregation"] else ["rollouts_aggregate_metrics.json", "statistics.json"]


def written(run):
    """Everything that a run is for, but its report and the proof that it is complete."""
    return [f"{RESULTS}/{run}/{name}" for name in (*merged(run), *scored(run), "coverage.json")]


def reported(wildcards):
    """What the report is about."""
    return written(wildcards.run)


def final_targets():
    """What `snakemake` builds when no target is named."""
    files = []
    for run, options in RUNS.items():
        files += [*written(run), f"{RESULTS}/{run}/report.html"]
        files += [f"{RESULTS}/{run}/complete.json"] if options["require_complete"] else []
    return files + [f"{RESULTS}/compare/{first}-vs-{second}.json" for first, second in COMPARED]


def shard_count(run):
    """How many shards a run has. A run whose pattern matches nothing is refused here, so that it stops no other run."""
    if run not in EXTERNAL:
        return RUNS[run]["shards"]
    try:
        return len(require_shards(EXTERNAL[run], RUNS[run]["input_glob"], run))
    except RollmakeError as error:
        raise WorkflowError(f"config: {error}") from None


def external_rollouts(wildcards):
    """The rollouts file of an external shard."""
    return str(EXTERNAL[wildcards.run][parse_shard(wildcards.shard)[0]])


def beside(path_of):
    """An input function: the file that `path_of` names after an external shard's rollouts, where there is one."""

    def inputs(wildcards):
        file = path_of(Path(external_rollouts(wildcards)))
        return [str(file)] if file.exists() else []

    return inputs


def per_shard(path):
    """An input function: the file `path` of each shard of a run."""

    def inputs(wildcards):
        shards = shard_names(shard_count(wildcards.run))
        return [f"{RESULTS}/{wildcards.run}/{path.format(shard=shard)}" for shard in shards]

    return inputs


def topology_file(wildcards):
    """The topology file of a run's environment, if it has one."""
    return RUNS[wildcards.run]["environment"].get("topology", [])


def task_files(wildcards):
    """The tasks of a run. Of a split those that are there: what is missing is told by the stage, with its server."""
    run = RUNS[wildcards.run]
    if run["split"] is not None:
        return found_files(Path(checkpoints.environment.get(run=wildcards.run).output[0]), run["split"])
    files = [run["input"]] if isinstance(run["input"], str) else run["input"]
    return [str(find(file) or missing(wildcards.run, file)) for file in files]


def missing(run, file):
    """Raise the error for tasks that are not there."""
    places = f"below {Path.cwd()} and the folders in NEMO_GYM_EXTRA_ROOTS"
    raise WorkflowError(
        f"config: runs.{run}.input: there is no file {file}, {places}. Correct the name or write the file"
    )


def input_words(wildcards, input):
    """The tasks of a run as words of the command; those of a split it finds itself."""
    return "" if RUNS[wildcards.run]["split"] is not None else shlex.join(["--input", *input.tasks])


def prompt_file(wildcards):
    """The prompt of a run, if it has one."""
    return RUNS[wildcards.run]["prompt_config"] or []


def skill_files(wildcards):
    """Everything in the folder of skills of a run, if it has one."""
    folder = RUNS[wildcards.run]["skills"]
    return sorted(str(path) for path in Path(folder).rglob("*") if path.is_file()) or folder if folder else []


def environment(wildcards):
    """The environment of a run as one word of a command; a change of it is noticed by the stage `environment` alone."""
    return as_text(RUNS[wildcards.run]["environment"])


def untracked_environment(wildcards, resources):
    """The same, where a change must not rerun anything: parameters that depend on resources are not tracked."""
    return environment(wildcards)


def result_flags(stage):
    """The options of a run that change the results of `stage`: a change of one of them reruns it."""

    def options(wildcards):
        return run_flags(wildcards.run, stage)

    return options


def repair_flags(stage):
    """The same of a stage that repairs, with the fields that it takes into scores.parquet."""

    def options(wildcards):
        return f"{run_flags(wildcards.run, stage)} {text_flags(wildcards.run)}"

    return options


@cache
def text_flags(run):
    """The fields that scores.parquet gets whatever they hold, for metrics that are computed from it."""
    metrics = RUNS[run]["metrics"]
    names = [metrics.get(key) for key in ("answer_key", "subset_key") if metrics["backend"] == "local"]
    named = sorted({name for name in names if name is not None})
    return f"--texts {shlex.join(named)}" if named else ""


@cache
def run_flags(run, stage):
    """The same for a run, worked out once for all of its shards."""
    return flags(RUNS[run], stage, result=True)


def tuning_flags(stage):
    """What changes how `stage` works, but not its results. Depending on resources, it is not tracked."""

    def options(wildcards, resources):
        return run_tuning(wildcards.run, stage, resources.get("runtime"))

    return options


@cache
def run_tuning(run, stage, runtime_min):
    """The same for a run whose jobs may take `runtime_min` minutes, worked out once for all of its shards."""
    options = dict(RUNS[run])
    options["dispatch_budget_s"] = budget_s(options["dispatch_budget_s"], runtime_min, options["grace_s"])
    places = ["--journal", f"{RESULTS}/{run}/journal", "--environment", as_text(options["environment"])]
    return f"{shlex.join(places)} {flags(options, stage, result=False)}"

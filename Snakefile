# rollmake: collect agent rollouts at scale and score them honestly. `snakemake --cores 2` does everything that is owed.
from snakemake.utils import min_version

min_version("9.27")


# A config named on the command line stands alone: the demo's runs are not mixed into it.
if not workflow.config_settings.configfiles:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"


rule all:
    input:
        final_targets(),


# Under a cluster's profile only what grows with the rollouts of a shard is a job of the cluster: collect and repair.
localrules:
    environment,
    materialize,
    concatenate,
    adopt,
    coverage,
    aggregate,
    statistics,
    compare,
    check,
    report,


include: "workflow/rules/environment.smk"
include: "workflow/rules/materialize.smk"
include: "workflow/rules/collect.smk"
include: "workflow/rules/repair.smk"
include: "workflow/rules/concatenate.smk"
include: "workflow/rules/coverage.smk"
include: "workflow/rules/aggregate.smk"
include: "workflow/rules/adopt.smk"
include: "workflow/rules/statistics.smk"
include: "workflow/rules/compare.smk"
include: "workflow/rules/check.smk"
include: "workflow/rules/report.smk"

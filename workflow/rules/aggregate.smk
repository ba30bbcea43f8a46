# The metrics, by each environment server's own word or computed here, and the coverage that stands beside them.
rule aggregate:
    input:
        plan=below("plan.json"),
        environment=below("environment.json"),
        shards=per_shard("repaired/{shard}/rollouts.jsonl"),
    output:
        metrics=below("rollouts_aggregate_metrics.json"),
        coverage=below("coverage.json"),
    log:
        below("logs/aggregate.log"),
    wildcard_constraints:
        run=any_of(run for run in RUNS if scored(run)),
    conda:
        "../../envs/rollmake.yaml"
    params:
        options=result_flags("aggregate"),
        environment=untracked_environment,
        repaired=lambda wildcards: f"{RESULTS}/{wildcards.run}/repaired",
        metrics=below("rollouts_aggregate_metrics.json"),
        coverage=below("coverage.json"),
    shell:
        "exec rollmake aggregate --plan {input.plan:q} --environment-file {input.environment:q}"
        " --repaired {params.repaired:q} --environment {params.environment:q} --output {params.metrics:q}"
        " --coverage {params.coverage:q} {params.options} --log {log:q}"


# Of a run with `disable_aggregation` only the coverage.
use rule aggregate as coverage with:
    output:
        coverage=below("coverage.json"),
    log:
        below("logs/coverage.log"),
    wildcard_constraints:
        run=any_of(run for run in RUNS if not scored(run)),

# The metrics, by each environment server's own word, and the coverage that stands beside them.
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
    conda:
        "../../envs/rollmake.yaml"
    params:
        options=result_flags("aggregate"),
        environment=untracked_environment,
        repaired=lambda wildcards: f"{RESULTS}/{wildcards.run}/repaired",
    shell:
        "exec rollmake aggregate --plan {input.plan:q} --environment-file {input.environment:q}"
        " --repaired {params.repaired:q} --environment {params.environment:q} --output {output.metrics:q}"
        " --coverage {output.coverage:q} {params.options} --log {log:q}"

# The metrics, by each environment server's own word or computed here.
rule aggregate:
    input:
        plan=below("plan.json"),
        environment=below("environment.json"),
        coverage=below("coverage.json"),
    output:
        below("rollouts_aggregate_metrics.json"),
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
        " --repaired {params.repaired:q} --environment {params.environment:q} --output {output:q}"
        " {params.options} --log {log:q}"

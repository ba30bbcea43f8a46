# What is owed in shards that something else collected, instead of `materialize`.
rule adopt:
    input:
        environment=below("environment.json"),
        shards=per_shard("repaired/{shard}/rollouts.jsonl"),
    output:
        rows=below("rollouts_materialized_inputs.jsonl"),
        plan=below("plan.json"),
        table=below("plan.parquet"),
    log:
        below("logs/adopt.log"),
    wildcard_constraints:
        run=any_of(EXTERNAL),
    conda:
        "../../envs/rollmake.yaml"
    params:
        repaired=lambda wildcards: f"{RESULTS}/{wildcards.run}/repaired",
        shards=lambda wildcards: shard_count(wildcards.run),
    shell:
        "exec rollmake adopt --repaired {params.repaired:q} --shards {params.shards} --environment-file {input.environment:q}"
        " --output {output.rows:q} --plan {output.plan:q} --log {log:q}"

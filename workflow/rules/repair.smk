# Clean and sort one shard, and set aside what does not belong in it.
rule repair:
    input:
        rollouts=below("shards/{shard}/rollouts.jsonl"),
        failures=below("shards/{shard}/rollouts_failures.jsonl"),
        rows=below("shards/{shard}/rollouts_materialized_inputs.jsonl"),
    output:
        rollouts=below("repaired/{shard}/rollouts.jsonl"),
        failures=below("repaired/{shard}/rollouts_failures.jsonl"),
        rows=below("repaired/{shard}/rollouts_materialized_inputs.jsonl"),
        quarantine=below("repaired/{shard}/quarantine.jsonl"),
        repair=below("repaired/{shard}/repair.json"),
        scores=below("repaired/{shard}/scores.parquet"),
    log:
        below("logs/repair/{shard}.log"),
    conda:
        "../../envs/rollmake.yaml"
    params:
        options=result_flags("repair"),
    shell:
        "exec rollmake repair --rollouts {input.rollouts:q} --output {output.rollouts:q} {params.options} --log {log:q}"

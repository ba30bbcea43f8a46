# Clean and sort one shard that something else collected; `collect` does the same with those of its own.
rule repair:
    input:
        rollouts=external_rollouts,
        failures=beside(failures_path),
        rows=beside(materialized_path),
    output:
        rollouts=below("repaired/{shard}/rollouts.jsonl"),
        failures=below("repaired/{shard}/rollouts_failures.jsonl"),
        rows=below("repaired/{shard}/rollouts_materialized_inputs.jsonl"),
        quarantine=below("repaired/{shard}/quarantine.jsonl"),
        repair=below("repaired/{shard}/repair.json"),
        scores=below("repaired/{shard}/scores.parquet"),
    log:
        below("logs/repair/{shard}.log"),
    wildcard_constraints:
        run=any_of(EXTERNAL),
    conda:
        "../../envs/rollmake.yaml"
    resources:
        **JOB,
    params:
        options=repair_flags("repair"),
    shell:
        "exec rollmake repair --rollouts {input.rollouts:q} --output {output.rollouts:q} {params.options}"
        " --log {log:q}"

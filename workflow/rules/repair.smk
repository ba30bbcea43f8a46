# Clean and sort one shard, and set aside what does not belong in it.
rule repair:
    input:
        rollouts=collected(0),
        failures=collected(1),
        rows=collected(2),
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
    resources:
        # In the job of its shard it takes no time of its own: a job's time is the sum of its rules'.
        **(JOB | {"runtime": 0}),
    params:
        options=result_flags("repair"),
        texts=text_fields,
    shell:
        "exec rollmake repair --rollouts {input.rollouts:q} --output {output.rollouts:q} {params.texts} {params.options}"
        " --log {log:q}"

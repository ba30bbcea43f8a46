# All shards in one file, with the proof that every rollout is there once.
rule concatenate:
    input:
        plan=below("plan.json"),
        shards=per_shard("repaired/{shard}/rollouts.jsonl"),
    output:
        rollouts=below("rollouts.jsonl"),
        failures=below("rollouts_failures.jsonl"),
    log:
        below("logs/concatenate.log"),
    conda:
        "../../envs/rollmake.yaml"
    params:
        repaired=lambda wildcards: f"{RESULTS}/{wildcards.run}/repaired",
    shell:
        "exec rollmake concatenate --plan {input.plan:q} --repaired {params.repaired:q} --output {output.rollouts:q}"
        " --log {log:q}"

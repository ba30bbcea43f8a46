# Ask for the rollouts of one shard. What it collects lies in the journal, which is no output: nothing deletes it.
rule collect:
    input:
        plan=below("plan.json"),
    output:
        rollouts=below("shards/{shard}/rollouts.jsonl"),
        failures=below("shards/{shard}/rollouts_failures.jsonl"),
        rows=below("shards/{shard}/rollouts_materialized_inputs.jsonl"),
        collection=below("shards/{shard}/collection.json"),
    log:
        below("logs/collect/{shard}.log"),
    conda:
        "../../envs/rollmake.yaml"
    resources:
        **(JOB | {"in_flight": lambda wildcards: RUNS[wildcards.run]["num_samples_in_parallel"]}),
    params:
        options=result_flags("collect"),
        tuning=tuning_flags("collect"),
        environment=untracked_environment,
        journal=below("journal"),
    shell:
        "exec rollmake collect --plan {input.plan:q} --shard {wildcards.shard} --journal {params.journal:q}"
        " --output {output.rollouts:q} --environment {params.environment:q} {params.options} {params.tuning} --log {log:q}"

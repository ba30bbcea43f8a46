# Ask for the rollouts of one shard, and clean them. What it collects lies in the journal, which is no output: nothing
# deletes it. Of each folder the rollouts appear last and stand for what lies beside them: with one job and two files a
# shard Snakemake plans thousands of shards in seconds.
rule collect:
    input:
        plan=below("plan.json"),
    output:
        rollouts=below("shards/{shard}/rollouts.jsonl"),
        repaired=below("repaired/{shard}/rollouts.jsonl"),
    log:
        below("logs/collect/{shard}.log"),
    wildcard_constraints:
        run=any_of(run for run in RUNS if run not in EXTERNAL),
    conda:
        "../../envs/rollmake.yaml"
    resources:
        **(JOB | {"in_flight": lambda wildcards: RUNS[wildcards.run]["num_samples_in_parallel"]}),
    params:
        options=repair_flags("collect"),
        tuning=tuning_flags("collect"),
    shell:
        "exec rollmake collect --plan {input.plan:q} --shard {wildcards.shard} --output {output.rollouts:q}"
        " --repaired {output.repaired:q} {params.options} {params.tuning} --log {log:q}"

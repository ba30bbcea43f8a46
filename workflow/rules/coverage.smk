# What the scores rest on. It stands whatever becomes of them, so it is no output of the rule that asks servers for them.
# It has a digest of all shards in it, and stands for them where scores are computed: each rule that takes a file of every
# shard makes planning longer.
rule coverage:
    input:
        plan=below("plan.json"),
        shards=per_shard("repaired/{shard}/rollouts.jsonl"),
    output:
        below("coverage.json"),
    log:
        below("logs/coverage.log"),
    conda:
        "../../envs/rollmake.yaml"
    params:
        options=result_flags("coverage"),
        repaired=lambda wildcards: f"{RESULTS}/{wildcards.run}/repaired",
    shell:
        "exec rollmake coverage --plan {input.plan:q} --repaired {params.repaired:q} --output {output:q}"
        " {params.options} --log {log:q}"

# How sure the scores are, and what missing rollouts could change.
rule statistics:
    input:
        plan=below("plan.json"),
        coverage=below("coverage.json"),
    output:
        statistics=below("statistics.json"),
        tasks=below("task_rewards.parquet"),
    log:
        below("logs/statistics.log"),
    conda:
        "../../envs/rollmake.yaml"
    params:
        options=result_flags("statistics"),
        repaired=lambda wildcards: f"{RESULTS}/{wildcards.run}/repaired",
    shell:
        "exec rollmake statistics --plan {input.plan:q} --repaired {params.repaired:q} --output {output.statistics:q}"
        " --tasks {output.tasks:q} {params.options} --log {log:q}"

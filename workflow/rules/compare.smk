# Two runs over the same tasks, side by side.
rule compare:
    input:
        first=f"{RESULTS}/{{first}}/task_rewards.parquet",
        second=f"{RESULTS}/{{second}}/task_rewards.parquet",
    output:
        f"{RESULTS}/compare/{{first}}-vs-{{second}}.json",
    log:
        f"{RESULTS}/compare/logs/{{first}}-vs-{{second}}.log",
    wildcard_constraints:
        first=any_of(first for first, _ in COMPARED),
        second=any_of(second for _, second in COMPARED),
    conda:
        "../../envs/rollmake.yaml"
    shell:
        "exec rollmake compare --first {input.first:q} --second {input.second:q} --output {output:q} --log {log:q}"
